"""The groups of an operator at a place that are kept as one, those of several operators and places that Spark keeps as
one state, and what a continuous host has of them in memory.

What a host keeps in memory is a cache of what was committed, and of what came since. Whoever commits takes what has
changed since the state that is committed, with the offset up to which it holds. That may be ahead of what is committed
of the log: applying the rest from there gives the same.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from peregrine.core.chunks import split_names
from peregrine.core.host import GroupEntry, Output
from peregrine.core.large import Spill
from peregrine.core.rows import Entry, RestoreKeys
from peregrine.types import OpId, PlaceId


class Shard(msgspec.Struct, array_like=True):
    upto: int = 0  # what lies before this offset has been applied, also if less of the log is committed
    groups: dict[int, bytes] = {}
    refs: dict[int, bytes] = {}  # group -> joined names of the chunks that its state refers to

    @classmethod
    def decode(cls, raw: bytes) -> "Shard":
        return _decoder.decode(raw)

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)

    def take_over(self, newer: "Shard") -> None:
        """What `Unit.take` gives, into what is committed."""
        self.upto = newer.upto
        for group, blob in newer.groups.items():
            self.put(group, blob, newer.refs.get(group, b""))

    def put(self, group: int, blob: bytes, refs: bytes) -> None:
        """The state of a group; one that is empty goes."""
        for kept, value in ((self.groups, blob), (self.refs, refs)):
            if value:
                kept[group] = value
            else:
                kept.pop(group, None)

    def chunks(self, group: int) -> set[bytes]:
        return set(split_names(self.refs.get(group, b"")))


_decoder = msgspec.msgpack.Decoder(Shard)


class Shards:
    """By place and operator. What nobody touches stays bytes, and is written as it was read."""

    def __init__(self, raw: bytes = b"") -> None:
        self._raw: dict[PlaceId, dict[OpId, msgspec.Raw]] = _shards_decoder.decode(raw) if raw else {}

    def get(self, place: PlaceId, op: OpId) -> Shard:
        raw = self._raw.get(place, {}).get(op)
        return Shard() if raw is None else Shard.decode(bytes(raw))

    def put(self, place: PlaceId, op: OpId, shard: Shard) -> None:
        """One that is empty goes."""
        if shard.groups or shard.upto:
            self._raw.setdefault(place, {})[op] = msgspec.Raw(shard.encode())
        elif op in self._raw.get(place, {}):
            del self._raw[place][op]
            if not self._raw[place]:
                del self._raw[place]

    def items(self) -> Iterator[tuple[PlaceId, OpId, Shard]]:
        for place, ops in self._raw.items():
            for op in ops:
                yield place, op, self.get(place, op)

    def __bool__(self) -> bool:
        return bool(self._raw)

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self._raw)


_shards_decoder = msgspec.msgpack.Decoder(dict[PlaceId, dict[OpId, msgspec.Raw]])


class Applied(NamedTuple):
    outputs: list[Output]
    after: bytes
    spill: Spill | None

    @property
    def refs(self) -> bytes:
        """Joined names of the chunks that the state refers to."""
        return b"" if self.spill is None else b"".join(sorted(self.spill.after))


def is_awaited(entries: Iterable[tuple[int, Entry]]) -> bool:
    """Keys have come with them: their migration goes on when that is applied, and the rows behind it, and need not wait
    for a commit. What is in the log is safe, whatever becomes of the host.
    """
    return any(isinstance(entry, RestoreKeys) for _, entry in entries)


Apply = Callable[[int, bytes, Sequence[tuple[int, GroupEntry]]], Applied]  # to a group, from its state


class Unit:
    def __init__(self, loaded: Shard, apply: Apply) -> None:
        self.upto = loaded.upto  # what lies before this offset has been applied, and its outputs have been accepted
        self._shard = Shard(loaded.upto, dict(loaded.groups), dict(loaded.refs))
        self._changed: dict[int, int] = {}  # group -> offset of the last entry for it
        self._apply = apply

    def apply(self, group: int, entries: Sequence[tuple[int, GroupEntry]]) -> list[Output]:
        applied = self._apply(group, self._shard.groups.get(group, b""), entries)
        self._shard.put(group, applied.after, applied.refs)
        self._changed[group] = entries[-1][0]
        return applied.outputs

    def take(self, held: int) -> Shard:
        """What has changed since the committed state, which holds up to there; a group that is empty has gone."""
        changed = [group for group, offset in self._changed.items() if offset >= held]
        mine = self._shard
        return Shard(
            self.upto,
            {group: mine.groups.get(group, b"") for group in changed},
            {group: mine.refs[group] for group in changed if group in mine.refs},
        )
