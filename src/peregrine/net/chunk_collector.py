"""Which chunks of a site are needed, and the removal of the others.

    <directory>/references/<place>/<operator>/<group>
    <directory>/references/<place>/<operator>/<group>-kept

A host writes down the chunks that the state of a group needs: before a batch, because it may have to apply the batch
again, after it, and in snapshots that it took in between and that its router does not have yet. It does so before its
outputs leave it, so before it can commit. What the process of a continuous host does is committed by others: they keep
what the committed state needs, and the one that is about to be. What it has written since is young enough.

A chunk goes if nobody has touched it for a grace period, no group refers to it and the router has not pinned it. Who
begins to refer to a chunk has touched it, so while the collector looks, nobody can begin to refer to an old one; but
state may leave a host for its router, which is why the router is asked before and after the references are read.
The grace period must be longer than the longest batch or epoch of a host.
"""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import msgspec

from peregrine.core.chunks import split_names
from peregrine.core.large import Spill
from peregrine.errors import PeregrineError, StorageError
from peregrine.net.chunk_files import ChunkFiles, sync_path, write_aside
from peregrine.types import OpId, PlaceId

GRACE_S = 600.0
EVERY_S = 60.0
REFERENCES, KEPT = "references", "-kept"
log = logging.getLogger(__name__)


class References(msgspec.Struct, array_like=True, frozen=True):
    first_offset: int  # of the batch that wrote them
    names: bytes

    def all(self) -> set[bytes]:
        return set(split_names(self.names))


_NONE = References(-1, b"")


def write_down(chunks: ChunkFiles, place: PlaceId, op: OpId, group: int, first_offset: int, spill: Spill) -> None:
    """What the state of a group needs around a batch that begins at `first_offset` of its log."""
    path = _path(chunks, place, op, group)
    needed = spill.needed
    if not needed:
        path.unlink(missing_ok=True)
        return
    chunks.claim_all(sorted(needed - spill.before))
    known = _read(path)
    if known.first_offset > first_offset:
        needed |= known.all()  # this batch may be one that Spark has given up: another may have gone on meanwhile
    if known.all() == needed:
        return
    chunks.sync()
    _write(chunks, path, References(first_offset, b"".join(sorted(needed))))


def keep(chunks: ChunkFiles, place: PlaceId, op: OpId, group: int, needed: set[bytes]) -> None:
    """What the committed state of a group needs, and the one that is about to be. Raises MissingChunk."""
    path = _path(chunks, place, op, group).with_name(f"{group}{KEPT}")
    if not needed:
        path.unlink(missing_ok=True)
        return
    chunks.claim_all(sorted(needed))
    if _read(path).all() != needed:
        _write(chunks, path, References(0, b"".join(sorted(needed))))


def _write(chunks: ChunkFiles, path: Path, references: References) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_aside(path, msgspec.msgpack.encode(references), chunks.durable)
    if chunks.durable:
        sync_path(path.parent)


def referred_to(chunks: ChunkFiles) -> set[bytes]:
    """By any group of any host of the site. One that cannot be read is an error: then nothing may be removed."""
    found: set[bytes] = set()
    for path in (chunks.directory / REFERENCES).glob("*/*/[0-9]*"):
        if path.name.removesuffix(KEPT).isdigit():
            found |= _read(path).all()
    return found


def _path(chunks: ChunkFiles, place: PlaceId, op: OpId, group: int) -> Path:
    return chunks.directory / REFERENCES / quote(place, safe="") / quote(op, safe="") / str(group)


def _read(path: Path) -> References:
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=References)
    except FileNotFoundError:
        return _NONE
    except (OSError, msgspec.DecodeError) as error:
        raise StorageError(
            f"{path}, which names the chunks of a group, cannot be read: {error}",
            "restore it from a copy; until then no chunk is removed",
        ) from error


def collect(chunks: ChunkFiles, pinned: Callable[[], set[bytes]], grace_s: float = GRACE_S) -> int:
    """Remove what nobody needs; returns the bytes that this has freed."""
    since_s = time.time() - grace_s
    old = list(chunks.older_than(since_s))
    if not old:
        return 0
    needed = pinned()
    needed |= referred_to(chunks)
    needed |= pinned()
    return sum(chunks.remove_unless_touched(name, since_s) for name in old if name not in needed)


class Collector:
    """Collects in the background."""

    def __init__(
        self, chunks: ChunkFiles, pinned: Callable[[], set[bytes]], grace_s: float = GRACE_S, every_s: float = EVERY_S
    ) -> None:
        self._chunks = chunks
        self._pinned = pinned
        self._grace_s = grace_s
        self._every_s = every_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="collector", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(self._every_s):
            try:
                freed = collect(self._chunks, self._pinned, self._grace_s)
                if freed:
                    log.info("chunks=%s freed_bytes=%d", self._chunks.directory, freed)
            except PeregrineError as error:  # nothing was removed, and nothing else depends on it
                log.error("chunks=%s %s", self._chunks.directory, error.what)
