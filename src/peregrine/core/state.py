"""What a host remembers: the state of one group of keys of one operator, as bytes.

The group is the unit that Spark's state store keeps, so `apply` takes and gives bytes. A key's `value` belongs to the
operator; the rest are Peregrine's books about the key, and move with it. Values are cut into content-addressed chunks
when they travel, so that a replica costs only what has changed.
"""

from hashlib import blake2b
from typing import Any

import msgspec

from peregrine.core.rows import KeyImage, Row

CHUNK_BYTES = 64 * 1024


class Books(msgspec.Struct, array_like=True):
    """What Peregrine knows about one key, beside its value."""

    seen: dict[str, int] = {}  # roaming source -> seq of its last row that was applied
    waiting: dict[str, list[tuple[Any, ...]]] = {}  # roaming source -> rows behind a gap, by seq
    marks: dict[str, int] = {}  # source -> its watermark


class KeyState(msgspec.Struct, array_like=True):
    value: Any
    books: Books
    version: int = 0  # rows applied to the value
    sent: dict[str, list[bytes]] = {}  # place -> chunks that it has of this key

    def image(self, key: str, delta_for: str | None = None, chunk_bytes: int = CHUNK_BYTES) -> KeyImage:
        """The key as it is now, with all of its chunks, or without those that `delta_for` was sent before."""
        data = msgspec.msgpack.encode(self.value)
        chunks = [data[i : i + chunk_bytes] for i in range(0, len(data), chunk_bytes)]
        names = [chunk_name(chunk) for chunk in chunks]
        has = set(self.sent.get(delta_for, ())) if delta_for is not None else ()
        fresh = {name: chunk for name, chunk in zip(names, chunks, strict=True) if name not in has}
        return KeyImage(key, self.version, msgspec.msgpack.encode(self.books), tuple(names), tuple(fresh.items()))


def restored(image: KeyImage) -> KeyState:
    """The state that an image with all of its chunks describes."""
    data = dict(image.data)
    value = msgspec.msgpack.decode(b"".join(data[name] for name in image.chunks))
    return KeyState(value, msgspec.msgpack.decode(image.books, type=Books), image.version)


def chunk_name(chunk: bytes) -> bytes:
    return blake2b(chunk, digest_size=16).digest()


GroupState = dict[str, KeyState]

_decoder = msgspec.msgpack.Decoder(GroupState)
_encoder = msgspec.msgpack.Encoder()


def decode(state: bytes) -> GroupState:
    return _decoder.decode(state) if state else {}


def encode(keys: GroupState) -> bytes:
    return _encoder.encode(keys) if keys else b""


def waiting_row(row: Row) -> tuple[Any, ...]:
    return (row.key, row.source, row.seq, row.prev, row.time_ms, row.created_ms, row.payload)


def canonical(state: bytes) -> dict[str, Any]:
    """What two runs must agree on: values and books, in one order, without what only this place needs to know.

    A key with an empty value is the same as no key: only its watermarks are left, and they are told anew.
    """
    return {
        key: _sorted([ks.value, ks.books.seen, ks.books.waiting, ks.books.marks])
        for key, ks in sorted(decode(state).items())
        if ks.value or ks.books.seen or ks.books.waiting
    }


def _sorted(thing: Any) -> Any:
    if isinstance(thing, dict):
        return [[_sorted(k), _sorted(v)] for k, v in sorted(thing.items())]
    if isinstance(thing, list | tuple):
        return [_sorted(each) for each in thing]
    return thing
