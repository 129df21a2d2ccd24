"""What a host remembers: the state of one group of keys of one operator, as bytes.

The group is the unit that Spark's state store keeps, so `apply` takes and gives bytes. A key's `value` belongs to the
operator; the rest are Peregrine's books about the key, and move with it. A value stays bytes until it is used, and what
was not used is written back as it was; large values are in chunks outside of the blob (`core/large.py`), and of a large
group all keys that were not used lately (`core/pages.py`). A small value is cut into chunks when it travels, so that a
replica costs only what has changed.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from itertools import compress
from typing import TYPE_CHECKING, Any

import msgspec

from peregrine.core.chunks import ChunkStore, chunk_name, split_names
from peregrine.core.keyspace import KeySet, hash_keys
from peregrine.core.large import Opener, Sealer, Sizes, Spill, names_of, spilled
from peregrine.core.pages import GONE, Base, PageRef
from peregrine.core.rows import Clock, KeyImage, Row

CHUNK_BYTES = 64 * 1024
BASE_TO_BLOB = 16  # how much of a large group is in its pages for what is in its blob: a page is written so much later

if TYPE_CHECKING:
    Held = Any
else:
    Held = msgspec.Raw  # what is read from a blob; what is used becomes a value


class Books(msgspec.Struct, array_like=True):
    """What Peregrine knows about one key, beside its value."""

    seen: dict[str, int] = {}  # roaming source -> seq of its last row that was applied
    waiting: dict[str, list[tuple[Any, ...]]] = {}  # roaming source -> rows and heartbeats behind a gap, by seq
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
            self.held = self.__dict__.get("opener", _without_store).open(self.held)
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
        data = memoryview(value if type(value) is msgspec.Raw else self.seal(Sealer(spill)))
        self.held = value  # what was in use stays so
        books = msgspec.msgpack.encode(self.books, order="deterministic")  # whatever batch brought them about
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
        found.__dict__["opener"] = spill.opener
    return found


class Keys(MutableMapping[str, KeyState]):
    """The keys of a group. One that no row has touched stays bytes: a batch costs what it touches.

    Iteration: what is in pages, in their order, then what is in the blob.
    """

    def __init__(self, group: "_Group", spill: Spill | None = None) -> None:
        self._closed = group.closed  # as they were when the blob was read; GONE hides a key of the base
        self._refs = group.refs
        self._base = Base(group.pages, spill.store if spill else None, spill.pages if spill else None)
        self._opener = spill.opener if spill else None
        self._open: dict[str, KeyState] = {}
        self._was: dict[str, msgspec.Raw] = {}  # keys that were opened, as they were before
        self.clocks = group.clocks

    def __getitem__(self, key: str) -> KeyState:
        found: KeyState | None = self.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def get(self, key: str, default: Any = None) -> Any:
        found = self._open.get(key)
        if found is None:
            raw = self._read(key)
            if raw is None:
                return default
            found = self._open[key] = _decode_key(raw)
            self._was[key] = raw
            if self._opener is not None:
                found.__dict__["opener"] = self._opener
        return found

    def __setitem__(self, key: str, state: KeyState) -> None:
        self._open[key] = state

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        for kept in (self._open, self._was, self._refs, self._closed):
            kept.pop(key, None)
        if self._base.find(key) is not None:
            self._closed[key] = GONE

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and (key in self._open or self._read(key) is not None)  # without opening it

    def __iter__(self) -> Iterator[str]:
        for key, _ in self._base.pairs():
            if key not in self._closed and key not in self._open:
                yield key
        yield from self._used()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def within(self, chosen: KeySet) -> list[str]:
        """The keys that are chosen, sorted. Costs far less than asking for each key.

        These are the keys of one group, and so is what is asked of them: a whole group is all of them.
        """
        if chosen.whole and not chosen.minus:
            return sorted(self)
        used = self._used()
        found = list(compress(used, chosen.contains(hash_keys(used))))
        found += [key for key in self._base.within(chosen) if key not in self._closed and key not in self._open]
        return sorted(found)

    def seal(self, spill: Spill | None) -> bytes:
        """All of it as bytes. Without `spill` nothing new leaves them."""
        sealer = Sealer(spill)
        for key, ks in self._open.items():
            ks.seal(sealer)
            raw = msgspec.Raw(_encoder.encode(ks))
            if raw != self._was.get(key):  # else it was only looked at
                self._closed[key] = self._was[key] = raw
            if ks.refs:
                self._refs[key] = ks.refs
            else:
                self._refs.pop(key, None)
        closed = self._settle(spill)
        if not self._closed and not self._base and not self.clocks:
            return b""
        return _encoder.encode((closed, self._refs, self._base.refs, self.clocks))

    def references(self) -> set[bytes]:
        """The chunks outside of the blob that these keys need, as they were read or last sealed."""
        values = {name for names in self._refs.values() for name in split_names(names)}
        return values.union(page.name for page in self._base.refs)

    def _read(self, key: str) -> msgspec.Raw | None:
        raw = self._closed.get(key)
        if raw is None:
            return self._base.find(key)
        return None if raw == GONE else raw

    def _used(self) -> list[str]:
        """The keys that are open or in the blob."""
        closed = [key for key, raw in self._closed.items() if raw != GONE or key in self._open]
        return closed + [key for key in self._open if key not in self._closed]

    def _settle(self, spill: Spill | None) -> msgspec.Raw:
        """What is sealed, as bytes. It goes into pages if it is much, and back into the blob if all is little."""
        closed = msgspec.Raw(_encoder.encode(self._closed))
        base = self._base
        if spill is not None:
            excess = len(closed) if self._mostly_gone() else len(closed) - blob_bytes(spill.sizes, base)
            if excess > 0:
                base.fold(self._closed, spill.sizes.bucket_bytes, excess)
                closed = msgspec.Raw(_encoder.encode(self._closed))
        if base and (spill is None or base.size + len(closed) < spill.sizes.group_bytes // 2):
            both = {**dict(base.pairs()), **self._closed}
            self._closed = {key: raw for key, raw in both.items() if raw != GONE}
            base.forget()
            closed = msgspec.Raw(_encoder.encode(self._closed))
        return closed

    def _mostly_gone(self) -> bool:
        """Most keys of the base are no more."""
        half = self._base.count / 2
        return 0 < half < len(self._closed) and half < sum(raw == GONE for raw in self._closed.values())


def blob_bytes(sizes: Sizes, base: Base) -> int:
    """How much of the keys of a group may be in its blob."""
    return max(sizes.group_bytes // 4, base.size // BASE_TO_BLOB) if base else sizes.group_bytes


class _Group(msgspec.Struct, array_like=True):
    """The blob of a group."""

    closed: dict[str, msgspec.Raw] = {}
    refs: dict[str, bytes] = {}
    pages: list[PageRef] = []
    clocks: bytes = b""  # what clocks have told its keys, those that may come included (core/watermarks.py)


_without_store = Opener(None)
_decode_key = msgspec.msgpack.Decoder(KeyState).decode
_decoder = msgspec.msgpack.Decoder(_Group)
_encoder = msgspec.msgpack.Encoder()


def decode(state: bytes, spill: Spill | None = None) -> Keys:
    keys = Keys(_decoder.decode(state) if state else _Group(), spill)
    if spill is not None:
        spill.before, spill.emitted = keys.references(), set()
    return keys


def encode(keys: Mapping[str, KeyState], spill: Spill | None = None) -> bytes:
    """Writes what was used, and leaves the rest as it was. Without `spill` nothing new leaves the blob."""
    if not isinstance(keys, Keys):
        given, keys = keys, Keys(_Group(), spill)
        keys.update(given)
    state = keys.seal(spill)
    if spill is not None:
        spill.after = keys.references()
    return state


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


def waiting_beat(key: str, clock: Clock, prev: int) -> tuple[Any, ...]:
    """Longer than a row, by which it is told apart: (key, source, seq, prev, time_ms, op, groups, nothing)."""
    return (key, clock.source, clock.seq, prev, clock.time_ms, clock.op, clock.keys.groups, None)


def beat_of(waited: tuple[Any, ...]) -> Clock | None:
    """The heartbeat that has waited, as it is for its key; None if it was a row."""
    if len(waited) == len(Row.__struct_fields__):
        return None
    key, source, seq, prev, time_ms, op, groups, _ = waited
    return Clock(op, KeySet.of_keys(groups, [key]), source, time_ms, seq=seq, behind=((key, prev),))


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
