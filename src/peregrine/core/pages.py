"""Pages: the keys of a large group that were not used lately, in chunks beside its blob.

The state of a group is a base of pages, which never change, and in its blob what has changed since: so a batch reads
and writes what it touches. From time to time the pages to which most has happened are written anew, with what has
happened to them (a log-structured merge tree of two levels, O'Neil et al.).

A page has the entries of a range of hashes, in the order of these: hashes, ends, entries. A key is found by bisection,
and nothing else of the page is decoded. Pages are of one group of one place: images of keys never name them.
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from itertools import compress, pairwise
from sys import byteorder
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from peregrine.core.chunks import ChunkStore
from peregrine.core.keyspace import Hashes, KeySet, hash_keys, stable_hash
from peregrine.errors import ConfigurationError

GONE = msgspec.Raw(b"\xc0")  # what has happened to a key of the base that is no more
_COUNT_BYTES, _HASH_BYTES, _END_BYTES = 8, 8, 4
_encode = msgspec.msgpack.Encoder().encode
_entry = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw]).decode

Items = tuple[Hashes, list[bytes]]  # hashes of keys in ascending order, and their entries


class Page:
    """A page in memory: its bytes, and where what is in them."""

    __slots__ = ("_ends", "_entries", "_hashes", "data")

    def __init__(self, data: bytes) -> None:
        count = int.from_bytes(data[:_COUNT_BYTES], byteorder)
        ends_at = _COUNT_BYTES + count * _HASH_BYTES
        entries_at = ends_at + count * _END_BYTES
        self.data = data
        self._hashes = memoryview(data)[_COUNT_BYTES:ends_at].cast("Q")
        self._ends = memoryview(data)[ends_at:entries_at].cast("I")
        self._entries = memoryview(data)[entries_at:]

    @staticmethod
    def write(hashes: Hashes, entries: list[bytes]) -> bytes:
        count = len(entries).to_bytes(_COUNT_BYTES, byteorder)
        ends = np.cumsum(_lengths(entries), dtype=np.uint32)
        return b"".join((count, hashes.astype(np.uint64).tobytes(), ends.tobytes(), *entries))

    def __len__(self) -> int:
        return len(self._ends)

    def find(self, key: str, key_hash: int) -> msgspec.Raw | None:
        hashes, at = self._hashes, bisect_left(self._hashes, key_hash)
        while at < len(hashes) and hashes[at] == key_hash:
            name, raw = self._at(at)
            if name == key:
                return raw
            at += 1
        return None

    def within(self, chosen: KeySet) -> list[str]:
        return [self._at(at)[0] for at in chosen.contains(np.asarray(self._hashes)).nonzero()[0].tolist()]

    def pairs(self) -> Iterator[tuple[str, msgspec.Raw]]:
        return (self._at(at) for at in range(len(self)))

    def items(self) -> Items:
        entries = bytes(self._entries)
        return np.asarray(self._hashes), [entries[i:j] for i, j in pairwise([0, *self._ends])]

    def _at(self, at: int) -> tuple[str, msgspec.Raw]:
        return _entry(self._entries[self._ends[at - 1] if at else 0 : self._ends[at]])


class PageCache:
    """Pages by name, up to so many bytes. What is gone is read again."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._pages: OrderedDict[bytes, Page] = OrderedDict()
        self._bytes = 0

    def get(self, name: bytes) -> Page | None:
        page = self._pages.get(name)
        if page is not None:
            self._pages.move_to_end(name)
        return page

    def put(self, name: bytes, page: Page) -> None:
        if name not in self._pages:
            self._pages[name] = page
            self._bytes += len(page.data)
        while self._bytes > self._most_bytes:
            self._bytes -= len(self._pages.popitem(last=False)[1].data)


class PageRef(NamedTuple):
    """A page as the blob of its group names it. Its range ends where the next one starts."""

    start: int  # its first hash
    size: int
    keys: int
    name: bytes


class Base:
    """The pages of a group."""

    def __init__(self, refs: list[PageRef], store: ChunkStore | None = None, cache: PageCache | None = None) -> None:
        self._store = store
        self._cache = cache if cache is not None else PageCache(1 << 62)  # else for this batch alone
        self._set(refs)

    def __bool__(self) -> bool:
        return bool(self.refs)

    @property
    def size(self) -> int:
        return sum(ref.size for ref in self.refs)

    @property
    def count(self) -> int:
        return sum(ref.keys for ref in self.refs)

    def find(self, key: str) -> msgspec.Raw | None:
        if not self.refs:
            return None
        key_hash = stable_hash(key)
        at = bisect_right(self._starts, key_hash) - 1
        return self._page(self.refs[at]).find(key, key_hash) if at >= 0 else None

    def within(self, chosen: KeySet) -> Iterator[str]:
        """The keys that are chosen. Reads no page in which none can be."""
        for at, ref in enumerate(self.refs):
            if not chosen.whole:
                hashes = chosen.plus_by_hash[0]
                end = self._starts[at + 1] if at + 1 < len(self._starts) else (1 << 64) - 1
                if hashes.searchsorted(np.uint64(ref.start)) == hashes.searchsorted(np.uint64(end), side="right"):
                    continue
            yield from self._page(ref).within(chosen)

    def pairs(self) -> Iterator[tuple[str, msgspec.Raw]]:
        for ref in self.refs:
            yield from self._page(ref).pairs()

    def forget(self) -> None:
        self._set([])

    def fold(self, changes: dict[str, msgspec.Raw], page_bytes: int, excess_bytes: int) -> None:
        """Write pages anew with what has happened to them, most first, until so much or all is in pages."""
        assert self._store is not None, "only who has a store makes pages"
        chosen = self._most_changed(changes, excess_bytes)
        refs: list[PageRef] = []
        at = 0
        while at < max(len(self.refs), 1):
            if at not in chosen:
                refs.append(self.refs[at])
                at += 1
                continue
            hashes, entries = self._merged(at, {key: changes.pop(key) for key in chosen[at]})
            at += 1
            while entries and at < len(self.refs) and _size(entries) + self.refs[at].size <= page_bytes // 2:
                # What has become small goes together with what follows.
                more = self._merged(at, {key: changes.pop(key) for key in chosen.get(at, ())})
                hashes, entries = np.concatenate((hashes, more[0])), entries + more[1]
                at += 1
            for first, end in pairwise(cuts(hashes, entries, page_bytes)):
                data = Page.write(hashes[first:end], entries[first:end])
                name = self._store.put(data)
                self._cache.put(name, Page(data))
                refs.append(PageRef(int(hashes[first]), len(data), end - first, name))
        self._set(refs)

    def _set(self, refs: list[PageRef]) -> None:
        self.refs = refs
        self._starts = [ref.start for ref in refs]

    def _page(self, ref: PageRef) -> Page:
        page = self._cache.get(ref.name)
        if page is None:
            if self._store is None:
                raise ConfigurationError("keys are in pages, and no store was given", "give the chunks of their site")
            page = Page(self._store.get(ref.name))
            self._cache.put(ref.name, page)
        return page

    def _most_changed(self, changes: dict[str, msgspec.Raw], excess_bytes: int) -> dict[int, list[str]]:
        """The pages to write, and what goes into each."""
        starts = np.array(self._starts[1:], np.uint64)
        pages = starts.searchsorted(hash_keys(list(changes)), side="right")
        sizes = np.bincount(pages, [len(key) + len(raw) for key, raw in changes.items()])
        order = (-sizes).argsort(kind="stable")
        enough = int(sizes[order].cumsum().searchsorted(excess_bytes)) + 1
        chosen: dict[int, list[str]] = {at: [] for at in order[:enough].tolist() if sizes[at]}
        for at, key in zip(pages.tolist(), changes, strict=True):
            if at in chosen:
                chosen[at].append(key)
        return chosen

    def _merged(self, at: int, changes: dict[str, msgspec.Raw]) -> Items:
        """A page with what has happened to it."""
        hashes, entries = self._page(self.refs[at]).items() if self.refs else (_NO_HASHES, [])
        keep = ~np.isin(hashes, hash_keys(list(changes)))
        for same_hash in np.flatnonzero(~keep).tolist():
            keep[same_hash] = _entry(entries[same_hash])[0] not in changes
        new = {key: raw for key, raw in changes.items() if raw != GONE}
        hashes = np.concatenate((hashes[keep], hash_keys(list(new))))
        entries = [*compress(entries, keep.tolist()), *map(_encode, new.items())]
        order = hashes.argsort(kind="stable")
        return hashes[order], [entries[i] for i in order.tolist()]


_NO_HASHES: Hashes = np.zeros(0, np.uint64)


def _lengths(entries: list[bytes]) -> npt.NDArray[np.int64]:
    return np.fromiter(map(len, entries), np.int64, len(entries))


def _size(entries: list[bytes]) -> int:
    return len(entries) * (_HASH_BYTES + _END_BYTES) + sum(map(len, entries))


def cuts(hashes: Hashes, entries: list[bytes], page_bytes: int) -> list[int]:
    """Where to cut so that pages of about the same size fit; keys with one hash stay together."""
    if not entries:
        return []
    ends = np.cumsum(_lengths(entries) + (_HASH_BYTES + _END_BYTES))
    pages = -(-int(ends[-1]) // page_bytes)
    wanted = ends.searchsorted(ends[-1] * np.arange(1, pages) / pages)
    return sorted({0, *hashes.searchsorted(hashes[wanted]).tolist(), len(entries)})
