"""What a host remembers: the state of one group of keys of one operator, as bytes.

The group is the unit that Spark's state store keeps, so `apply` takes and gives bytes. A key's `value` belongs to the
operator; the rest are Peregrine's books about the key, and move with it. A value stays bytes until it is used, and what
was not used is written back as it was; large values are in chunks outside of the blob (`core/large.py`). A small value
is cut into chunks when it travels, so that a replica costs only what has changed.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from peregrine.core.chunks import ChunkStore, chunk_name, split_names
from peregrine.core.large import Sealer, Spill, names_of, spilled, unseal
from peregrine.core.rows import KeyImage, Row

CHUNK_BYTES = 64 * 1024

if TYPE_CHECKING:
    Held = Any
else:
    Held = msgspec.Raw  # what is read from a blob; what is used becomes a value


class Books(msgspec.Struct, array_like=True):
    """What Peregrine knows about one key, beside its value."""

    seen: dict[str, int] = {}  # roaming source -> seq of its last row that was applied
    waiting: dict[str, list[tuple[Any, ...]]] = {}  # roaming source -> rows behind a gap, by seq
    marks: dict[str, int] = {}  # source -> its watermark


class KeyState(msgspec.Struct, array_like=True, dict=True):
    held: Held  # the value, or (Raw) its bytes
    books: Books
    version: int = 0  # rows applied to the value
    sent: dict[str, list[bytes]] = {}  # place -> chunks that it was sent of this key
    refs: bytes = b""  # joined names of the chunks outside of the blob that the value needs, when it was last written

    @property
    def value(self) -> Any:
        if type(self.held) is msgspec.Raw:
            self.held = unseal(self.held, self.__dict__.get("chunks"))
        return self.held

    @value.setter
    def value(self, value: Any) -> None:
        self.held = value

    def seal(self, sealer: Sealer) -> msgspec.Raw:
        """The value as bytes, written anew if it was used."""
        if type(self.held) is not msgspec.Raw:
            raw, self.refs = sealer.seal(self.held)
            self.held = msgspec.Raw(raw)
        return self.held

    def image(
        self, key: str, delta_for: str | None = None, chunk_bytes: int = CHUNK_BYTES, spill: Spill | None = None
    ) -> KeyImage:
        """The key as it is now. With all of its chunks, or without those that `delta_for` was sent before; a value that
        has spilled only names its chunks.
        """
        value = self.held
        data = memoryview(self.seal(Sealer(spill)))
        self.held = value  # what was in use stays so
        books = msgspec.msgpack.encode(self.books)
        stored = tuple(split_names(self.refs))
        if spill is not None:
            spill.emitted.update(stored)
        names = names_of(data)
        if names is not None:
            return KeyImage(key, self.version, books, names, (), stored, spilled=True)
        chunks = [bytes(data[i : i + chunk_bytes]) for i in range(0, len(data), chunk_bytes)]
        names = tuple(chunk_name(chunk) for chunk in chunks)
        has = set(self.sent.get(delta_for, ())) if delta_for is not None else ()
        fresh = {name: chunk for name, chunk in zip(names, chunks, strict=True) if name not in has}
        return KeyImage(key, self.version, books, names, tuple(fresh.items()), stored)


def restored(image: KeyImage, spill: Spill | None = None) -> KeyState:
    """The state that an image with all of its chunks describes."""
    data = dict(image.data)
    raw = spilled(image.chunks) if image.spilled else b"".join(data[name] for name in image.chunks)
    books = msgspec.msgpack.decode(image.books, type=Books)
    found = KeyState(msgspec.Raw(raw), books, image.version, refs=b"".join(image.stored))
    if spill is not None:
        found.__dict__["chunks"] = spill.store
    return found


GroupState = dict[str, KeyState]

_decoder = msgspec.msgpack.Decoder(GroupState)
_encoder = msgspec.msgpack.Encoder()


def decode(state: bytes, spill: Spill | None = None) -> GroupState:
    keys = _decoder.decode(state) if state else {}
    if spill is not None:
        for ks in keys.values():
            ks.__dict__["chunks"] = spill.store
        spill.before, spill.emitted = references(keys), set()
    return keys


def encode(keys: GroupState, spill: Spill | None = None) -> bytes:
    """Writes what was used, and leaves the rest as it was. Without `spill` nothing new leaves the blob."""
    sealer = Sealer(spill)
    for ks in keys.values():
        ks.seal(sealer)
    if spill is not None:
        spill.after = references(keys)
    return _encoder.encode(keys) if keys else b""


def references(keys: GroupState) -> set[bytes]:
    """The chunks outside of the blob that these keys need."""
    return {name for ks in keys.values() if ks.refs for name in split_names(ks.refs)}


def whole(state: bytes, chunks: ChunkStore) -> bytes:
    """The same state with everything in the blob, for those who have no store."""
    spill = Spill(chunks)
    keys = decode(state, spill)
    if not spill.before:
        return state
    for ks in keys.values():
        ks.value = ks.value
    return encode(keys)


def waiting_row(row: Row) -> tuple[Any, ...]:
    return (row.key, row.source, row.seq, row.prev, row.time_ms, row.created_ms, row.payload)


def canonical(state: bytes, chunks: ChunkStore | None = None) -> dict[str, Any]:
    """What two runs must agree on: values and books, in one order, without what only this place needs to know.

    A key with an empty value is the same as no key: only its watermarks are left, and they are told anew.
    """
    keys = decode(state, Spill(chunks) if chunks is not None else None)
    return {
        key: _sorted([ks.value, ks.books.seen, ks.books.waiting, ks.books.marks])
        for key, ks in sorted(keys.items())
        if ks.value or ks.books.seen or ks.books.waiting
    }


def _sorted(thing: Any) -> Any:
    if isinstance(thing, Mapping):
        return [[_sorted(k), _sorted(v)] for k, v in sorted(thing.items())]
    if isinstance(thing, list | tuple):
        return [_sorted(each) for each in thing]
    return thing
