"""Values as bytes, and where they go when they are large.

A value is written by itself, so that a batch reads and writes only the keys that it touches. One that is too large for
the blob of its group spills: it is cut into chunks, and the blob holds their names. A `BigMap` inside of a value spills
bucket by bucket. What a value refers to is told beside it, so that nobody has to read values to know which chunks are
needed.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from peregrine.core.big_map import BigMap
from peregrine.core.chunks import ChunkStore, split_names
from peregrine.core.pages import PageCache
from peregrine.errors import ConfigurationError

INLINE_BYTES = 64 << 10
CHUNK_BYTES = 256 << 10
_SPILLED, _MAP = 1, 2  # codes of msgpack extensions
_Ext = msgspec.msgpack.Ext


@dataclass(frozen=True, slots=True)
class Sizes:
    """All hosts of a deployment should have the same: equal state then has equal chunks everywhere."""

    inline_bytes: int = INLINE_BYTES  # a larger value leaves the blob of its group
    chunk_bytes: int = CHUNK_BYTES  # into pieces of this size
    bucket_bytes: int = CHUNK_BYTES  # a larger bucket of a map is halved, and a larger page of keys cut
    group_bytes: int = CHUNK_BYTES  # of a larger group, only the keys that were used lately are in its blob


SIZES = Sizes()


@dataclass
class Spill:
    """Where large values go while one group's batch is applied, and which chunks the batch is about."""

    store: ChunkStore
    sizes: Sizes = SIZES
    before: set[bytes] = field(default_factory=set)  # what the state referred to
    after: set[bytes] = field(default_factory=set)
    emitted: set[bytes] = field(default_factory=set)  # what snapshots in the batch refer to: neither, if rows followed
    pages: PageCache | None = None  # kept between batches, if the runner has one

    @cached_property
    def opener(self) -> "Opener":
        return Opener(self.store)

    @property
    def needed(self) -> set[bytes]:
        """Until the batch after this one: this one may have to be applied again, and its snapshots handed over."""
        return self.before | self.after | self.emitted


def names_of(raw: bytes | memoryview) -> tuple[bytes, ...] | None:
    """The chunks of a value that has spilled; None if the bytes are the value itself."""
    if raw[0] not in (0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8):
        return None
    found = msgspec.msgpack.decode(raw, type=_Ext)
    return tuple(split_names(bytes(found.data))) if found.code == _SPILLED else None


def spilled(names: tuple[bytes, ...]) -> bytes:
    """What stands in a blob for a value that is in these chunks."""
    return msgspec.msgpack.encode(_Ext(_SPILLED, b"".join(names)))


class Sealer:
    """Writes values; one after the other, with one encoder."""

    def __init__(self, spill: Spill | None) -> None:
        self._store = spill.store if spill else None
        self._sizes = spill.sizes if spill else SIZES
        self._refs: list[bytes] = []
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._pack)

    def seal(self, value: Any) -> tuple[bytes, bytes]:
        """The bytes of a value, and the joined names of the chunks that it needs."""
        self._refs.clear()
        raw = self._encoder.encode(value)
        if self._store is not None and len(raw) > self._sizes.inline_bytes:
            size = self._sizes.chunk_bytes
            names = tuple(self._store.put(raw[i : i + size]) for i in range(0, len(raw), size))
            self._refs.extend(names)
            raw = spilled(names)
        if not self._refs:
            return raw, b""
        return raw, b"".join(dict.fromkeys(self._refs))

    def _pack(self, thing: Any) -> Any:
        if not isinstance(thing, BigMap):
            raise NotImplementedError(f"a value holds a {type(thing).__name__}, which msgpack cannot carry")
        # An eighth: so that a value may hold a few small maps before it spills itself.
        data, names = thing.pack(self._store, self._sizes.inline_bytes // 8, self._sizes.bucket_bytes)
        self._refs.extend(names)
        return _Ext(_MAP, data)


class Opener:
    """Reads values; one after the other, with one decoder."""

    def __init__(self, store: ChunkStore | None) -> None:
        self._store = store
        self.open = msgspec.msgpack.Decoder(ext_hook=self._unpack).decode

    def _unpack(self, code: int, data: memoryview) -> Any:
        if code == _MAP:
            return BigMap.unpack(bytes(data), self._store)
        if code != _SPILLED:
            return _Ext(code, bytes(data))
        if self._store is None:
            raise ConfigurationError("a value is in chunks, and no store was given", "give the chunks of its site")
        return self.open(b"".join(self._store.get(name) for name in split_names(bytes(data))))


def unseal(raw: bytes | memoryview | msgspec.Raw, store: ChunkStore | None) -> Any:
    """A value from its bytes. Loads its chunks, but no bucket of a map in it."""
    return Opener(store).open(raw)
