"""A map that an operator may hold anywhere in its value, and of which a batch loads and writes only what it touches.

Its entries lie in buckets, each a chunk, by ranges of the hash of their keys. A range is one bucket exactly if what is
in it fits into one; else it is halved. So the buckets are a function of the content alone: equal maps have equal
chunks, however they came about, and a map that grows splits one bucket at a time.
"""

import struct
from bisect import bisect_right
from collections.abc import ItemsView, Iterable, Iterator, Mapping, MutableMapping, ValuesView
from dataclasses import dataclass
from typing import Any

import msgspec

from peregrine.core.chunks import ChunkStore, chunk_name
from peregrine.core.keyspace import stable_hash

HASH_BITS = 64
_ENTRIES, _BUCKETS = b"e", b"b"  # how a map is written: by itself, or as names of buckets
_bucket = struct.Struct("<BQI16s")  # depth, size, count, name
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(dict[str, Any])


@dataclass(slots=True)
class Bucket:
    """The entries whose hashes start with the first `depth` bits of `start`."""

    start: int
    depth: int
    size: int = 0  # bytes of its entries, encoded; it adds up when buckets are joined
    count: int = 0
    name: bytes = b""  # of the chunk in which it is stored; empty if it is not
    entries: dict[str, Any] | None = None  # None: not loaded
    data: bytes = b""  # what has to be stored


class BigMap(MutableMapping[str, Any]):
    """Text -> anything that msgpack can carry (no map of this kind inside of it).

    What `m[key]` gave may be changed in place; what an iteration gave may not: assign it. Iteration is in the order of
    the keys' hashes, whatever was inserted when.
    """

    __slots__ = ("_buckets", "_starts", "_store")

    def __init__(self, entries: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        self._store: ChunkStore | None = None
        self._set([Bucket(0, 0, entries={})])
        self.update(entries)

    def __getitem__(self, key: str) -> Any:
        return self._opened(key)[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise TypeError(f"the keys of a BigMap are text, not {type(key).__name__}")
        self._opened(key)[key] = value

    def __delitem__(self, key: str) -> None:
        del self._opened(key)[key]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in self._opened(key)

    def __len__(self) -> int:
        return sum(b.count if b.entries is None else len(b.entries) for b in self._buckets)

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self._pairs())

    def items(self) -> ItemsView[str, Any]:
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        return _Values(self)

    def __repr__(self) -> str:
        return f"<BigMap of {len(self)} entries in {len(self._buckets)} buckets>"

    # --- as bytes ---

    def pack(self, store: ChunkStore | None, inline_bytes: int, bucket_bytes: int) -> tuple[bytes, list[bytes]]:
        """The map as bytes, and the names of the chunks that they refer to. Writes the buckets that changed.

        Without a store, and if it is small, all of it is in the bytes.
        """
        if store is not None:
            self._settle(bucket_bytes)
        if store is None or (len(self._buckets) == 1 and self._buckets[0].size <= inline_bytes):
            return _ENTRIES + _encoder.encode(dict(sorted(self._pairs(), key=lambda pair: pair[0]))), []
        for bucket in self._buckets:
            if bucket.data:
                bucket.name = store.put(bucket.data)
                bucket.data = b""
        self._store = store
        written = (_bucket.pack(b.depth, b.size, b.count, b.name) for b in self._buckets)
        return _BUCKETS + b"".join(written), [b.name for b in self._buckets if b.name]

    @classmethod
    def unpack(cls, data: bytes, store: ChunkStore | None) -> "BigMap":
        """Loads nothing."""
        found = cls()
        if data[:1] == _ENTRIES:
            found._set([Bucket(0, 0, entries=_decoder.decode(data[1:]))])
            return found
        buckets: list[Bucket] = []
        start = 0
        for depth, size, count, name in _bucket.iter_unpack(data[1:]):
            buckets.append(Bucket(start, depth, size, count, name if count else b"", None if count else {}))
            start += 1 << (HASH_BITS - depth)
        found._store = store
        found._set(buckets)
        return found

    def loaded(self) -> int:
        """How many buckets are in memory, without empty ones."""
        return sum(bool(b.entries) for b in self._buckets)

    # --- inside ---

    def _set(self, buckets: list[Bucket]) -> None:
        self._buckets = buckets
        self._starts = [bucket.start for bucket in buckets]

    def _opened(self, key: str) -> dict[str, Any]:
        at = bisect_right(self._starts, stable_hash(key)) - 1 if len(self._starts) > 1 else 0
        bucket = self._buckets[at]
        if bucket.entries is None:
            bucket.entries = self._load(bucket)
        return bucket.entries

    def _load(self, bucket: Bucket) -> dict[str, Any]:
        assert self._store is not None, "a bucket that is not loaded has come from a store"
        return _decoder.decode(self._store.get(bucket.name))

    def _pairs(self) -> Iterator[tuple[str, Any]]:
        """All entries. Buckets that are not loaded are not kept in memory."""
        for bucket in list(self._buckets):
            entries = self._load(bucket) if bucket.entries is None else bucket.entries
            yield from sorted(entries.items(), key=lambda pair: (stable_hash(pair[0]), pair[0]))

    def _settle(self, bucket_bytes: int) -> None:
        """Cut into the buckets that the content asks for. What is loaded may have changed, the rest has not."""
        settled: list[Bucket] = []
        for bucket in self._buckets:
            for piece in [bucket] if bucket.entries is None else _cut(bucket, bucket_bytes):
                settled.append(piece)
                while len(settled) > 1 and _belong_together(settled[-2], settled[-1], bucket_bytes):
                    right, left = settled.pop(), settled.pop()
                    both = {**self._entries(left), **self._entries(right)}
                    settled += _cut(Bucket(left.start, left.depth - 1, entries=both), bucket_bytes)
        self._set(settled)

    def _entries(self, bucket: Bucket) -> dict[str, Any]:
        return self._load(bucket) if bucket.entries is None else bucket.entries


class _Items(ItemsView[str, Any]):
    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return self._mapping._pairs()  # type: ignore[attr-defined,no-any-return]


class _Values(ValuesView[Any]):
    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in self._mapping._pairs())  # type: ignore[attr-defined]


def _fits(size: int, count: int, bucket_bytes: int) -> bool:
    return size <= bucket_bytes or count <= 1


def _belong_together(left: Bucket, right: Bucket, bucket_bytes: int) -> bool:
    if left.depth != right.depth or left.start >> (HASH_BITS - left.depth) & 1:
        return False
    return _fits(left.size + right.size, left.count + right.count, bucket_bytes)


def _cut(bucket: Bucket, bucket_bytes: int) -> list[Bucket]:
    """A loaded bucket as one, or as so many that each fits."""
    assert bucket.entries is not None
    whole = _written(bucket, bucket.entries)
    if _fits(whole.size, whole.count, bucket_bytes):
        return [whole]
    measured = sorted(
        (stable_hash(key), key, len(_encoder.encode(key)) + len(_encoder.encode(value)), value)
        for key, value in bucket.entries.items()
    )
    return _halved(bucket.start, bucket.depth, measured, bucket_bytes)


Measured = list[tuple[int, str, int, Any]]  # (hash, key, bytes, value), sorted


def _halved(start: int, depth: int, measured: Measured, bucket_bytes: int) -> list[Bucket]:
    size = sum(entry[2] for entry in measured)
    if _fits(size, len(measured), bucket_bytes) or depth == HASH_BITS:
        return [_written(Bucket(start, depth), {key: value for _, key, _, value in measured})]
    middle = start + (1 << (HASH_BITS - depth - 1))
    at = next((i for i, entry in enumerate(measured) if entry[0] >= middle), len(measured))
    left = _halved(start, depth + 1, measured[:at], bucket_bytes)
    return left + _halved(middle, depth + 1, measured[at:], bucket_bytes)


def _written(bucket: Bucket, entries: dict[str, Any]) -> Bucket:
    count = len(entries)
    data = _encoder.encode(dict(sorted(entries.items())))
    header = 1 if count < 16 else 3 if count < 1 << 16 else 5
    written = Bucket(bucket.start, bucket.depth, len(data) - header, count, entries=entries)
    if count and chunk_name(data) == bucket.name:
        written.name = bucket.name
    elif count:
        written.data = data
    return written
