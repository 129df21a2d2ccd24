"""Chunks: immutable pieces of large state, named by their content (design: small state inline, large state outside).

Equal content has one name, so what is written again after a crash is written to the same place, and what another site
has already need not travel. Who keeps chunks is a `ChunkStore`: a directory of a site, or, in simulation, memory.
"""

from hashlib import blake2b
from typing import Protocol

from peregrine.errors import MissingChunk

NAME_BYTES = 16


def chunk_name(chunk: bytes) -> bytes:
    return blake2b(chunk, digest_size=NAME_BYTES).digest()


def split_names(names: bytes) -> list[bytes]:
    """Names that were joined to one string of bytes."""
    return [names[i : i + NAME_BYTES] for i in range(0, len(names), NAME_BYTES)]


class ChunkStore(Protocol):
    """What `put` has returned is durable as far as the store can make it so, until nobody refers to it."""

    def put(self, data: bytes) -> bytes:
        """The name of the chunk. It counts as just written, also if it was there."""
        ...

    def get(self, name: bytes) -> bytes:
        """Raises MissingChunk."""
        ...

    def has(self, name: bytes) -> bool: ...


class MemoryChunks:
    """A store in memory."""

    def __init__(self) -> None:
        self.chunks: dict[bytes, bytes] = {}
        self.written = 0  # chunks that were not there before

    def put(self, data: bytes) -> bytes:
        name = chunk_name(data)
        if name not in self.chunks:
            self.chunks[name] = bytes(data)
            self.written += 1
        return name

    def get(self, name: bytes) -> bytes:
        try:
            return self.chunks[name]
        except KeyError:
            raise missing(name, "this store") from None

    def has(self, name: bytes) -> bool:
        return name in self.chunks

    def keep_only(self, names: set[bytes]) -> int:
        """Collect what nobody refers to; returns how many chunks went."""
        gone = self.chunks.keys() - names
        for name in gone:
            del self.chunks[name]
        return len(gone)


def missing(name: bytes, where: str) -> MissingChunk:
    return MissingChunk(
        f"chunk {name.hex()} of some state is not in {where}",
        "restore the directory of chunks from a copy; if nobody has removed files there, report this as a bug",
    )
