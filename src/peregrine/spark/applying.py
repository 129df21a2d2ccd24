"""What both runners do with a group: its entries are applied, and what its state needs of the chunk store is written
down before anything can be committed.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from peregrine.core.host import GroupEntry
from peregrine.core.large import Sizes, Spill
from peregrine.core.operator import Operator
from peregrine.core.shard import Applied, Shard
from peregrine.errors import UnknownName
from peregrine.net.chunk_collector import keep, write_down
from peregrine.net.chunk_files import ChunkFiles
from peregrine.spark.guard import Missing, apply_guarded
from peregrine.spark.registry import operator_of
from peregrine.spark.served import served_by
from peregrine.spark.worker import pages
from peregrine.types import OpId, PlaceId


@dataclass(frozen=True)
class Applier:
    served: str
    registry: str
    chunk_bytes: int
    sizes: Sizes
    durable: bool
    ahead: bool = False  # of what is committed: who commits keeps what that needs

    def apply(
        self,
        place: PlaceId,
        op: OpId,
        group: int,
        before: bytes,
        entries: Sequence[tuple[int, GroupEntry]],
    ) -> Applied:
        chunks = self._chunks(place)
        spill = None if chunks is None else Spill(chunks, self.sizes, pages=pages())
        operator: Operator
        try:
            operator = operator_of(self.registry, op)
        except UnknownName:
            operator = Missing(op, place)
        outputs, after = apply_guarded(operator, place, op, before, entries, self.chunk_bytes, spill)
        if chunks is not None and spill is not None:
            if self.ahead:
                chunks.claim_all(sorted(spill.needed - spill.before))
                chunks.sync()
            else:
                write_down(chunks, place, op, group, entries[0][0], spill)  # before anything can be committed
        return Applied(outputs, after, spill)

    def keep(self, place: PlaceId, op: OpId, committed: Shard, taken: Shard) -> None:
        """Before what a continuous host has done is committed: what that needs, and what is committed now."""
        chunks = self._chunks(place)
        if chunks is None or not (committed.refs or taken.refs):
            return
        for group in taken.groups:
            keep(chunks, place, op, group, committed.chunks(group) | taken.chunks(group))

    def _chunks(self, place: PlaceId) -> ChunkFiles | None:
        path = served_by(self.served)[place].chunks
        return None if path is None else _chunk_files(path, self.durable, threading.get_ident())


@lru_cache(maxsize=256)
def _chunk_files(path: str, durable: bool, thread: int) -> ChunkFiles:
    """Of one thread: what it has not synced yet is its own."""
    return ChunkFiles(Path(path), durable)
