"""Large groups: which keys leave the blob, what a batch then reads and writes, and who still sees all of them."""

import msgspec
import numpy as np
import pytest

from harness import keys
from peregrine.core.chunks import MemoryChunks
from peregrine.core.keyspace import KeySet
from peregrine.core.large import Sizes, Spill
from peregrine.core.pages import Page, PageCache, cuts
from peregrine.core.state import Books, KeyState, canonical, decode, encode, whole
from peregrine.errors import ConfigurationError

SIZES = Sizes(group_bytes=4000, bucket_bytes=1000)
NAMES = [f"car{n}" for n in range(500)]


class Counting(MemoryChunks):
    """A store that knows what was read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def get(self, name: bytes) -> bytes:
        self.reads += 1
        return super().get(name)


def filled(store: MemoryChunks, names: list[str] = NAMES) -> bytes:
    return encode({name: KeyState(number, Books()) for number, name in enumerate(names)}, Spill(store, SIZES))


def values(state: bytes, store: MemoryChunks) -> dict[str, int]:
    return {key: content[0] for key, content in canonical(state, store).items()}


def test_a_small_group_stays_in_its_blob() -> None:
    store = MemoryChunks()
    state = filled(store, NAMES[:100])
    assert not store.chunks and len(decode(state)) == 100


def test_a_large_group_leaves_its_blob_and_is_all_there() -> None:
    store = MemoryChunks()
    state = filled(store)
    assert len(state) < 600 and len(store.chunks) > 5
    assert max(map(len, store.chunks.values())) < 1100
    assert decode(state, Spill(store)).references() == set(store.chunks)
    assert values(state, store) == {name: number for number, name in enumerate(NAMES) if number}


def test_a_batch_reads_the_pages_that_it_touches_and_writes_none() -> None:
    """Issue 3: the cost of a batch must not grow with the keys that it does not touch."""
    store = Counting()
    state, written = filled(store), store.written
    spill = Spill(store, SIZES)
    touched = decode(state, spill)
    touched["car7"].value += 1
    del touched["car8"]
    after = encode(touched, spill)
    assert store.reads <= 2 and store.written == written
    assert len(after) - len(state) < 100
    assert values(after, store)["car7"] == 8 and "car8" not in values(after, store)


def test_what_was_only_looked_at_is_not_written() -> None:
    store = MemoryChunks()
    state = filled(store)
    spill = Spill(store, SIZES)
    looked_at = decode(state, spill)
    assert [ks.value for ks in looked_at.values()]
    assert encode(looked_at, spill) == state


def test_pages_are_written_anew_a_few_at_a_time() -> None:
    store = MemoryChunks()
    state, blob_bytes = filled(store), 0
    written: list[int] = []
    for first in range(0, 500, 5):
        spill, before = Spill(store, SIZES), store.written
        touched = decode(state, spill)
        for name in NAMES[first : first + 5]:
            touched[name].value += 1000
        state = encode(touched, spill)
        blob_bytes = max(blob_bytes, len(state))
        written.append(store.written - before)
    assert any(written) and max(written) <= 3  # of more than a dozen
    assert blob_bytes < 2500
    assert values(state, store) == {name: number + 1000 for number, name in enumerate(NAMES)}


def test_a_group_that_has_become_small_returns_to_its_blob() -> None:
    store = MemoryChunks()
    spill = Spill(store, SIZES)
    few = decode(filled(store), spill)
    for name in few.within(KeySet.of_keys(4, NAMES[10:])):
        del few[name]
    state = encode(few, spill)
    assert sorted(decode(state)) == sorted(NAMES[:10])


def test_no_keys_are_no_bytes_and_no_chunks() -> None:
    store = MemoryChunks()
    spill = Spill(store, SIZES)
    none = decode(filled(store), spill)
    for name in NAMES:
        del none[name]
    assert encode(none, spill) == b"" and spill.after == set()


def test_images_do_not_name_pages() -> None:
    """What travels is the key: pages are of one group of one place."""
    store = MemoryChunks()
    spill = Spill(store, SIZES)
    image = decode(filled(store), spill)["car3"].image("car3", spill=spill)
    assert image.stored == () and image.data and not spill.emitted


def test_a_few_keys_are_found_without_reading_all_pages() -> None:
    store = Counting()
    group = decode(filled(store), Spill(store, SIZES))
    assert group.within(keys("car7", "nobody", "car5")) == ["car5", "car7"]
    assert store.reads <= 3


def test_pages_can_be_made_whole_for_those_who_have_no_store() -> None:
    store = MemoryChunks()
    state = filled(store)
    assert canonical(whole(state, store)) == canonical(state, store)
    with pytest.raises(ConfigurationError, match="pages"):
        list(decode(state))


def test_a_blob_from_before_there_were_pages_is_read() -> None:
    old = msgspec.msgpack.encode(({"car1": KeyState(3, Books())}, {}))
    assert decode(old)["car1"].value == 3


def test_a_cache_keeps_what_was_used_last() -> None:
    pages = [Page(Page.write(np.array([n]), [msgspec.msgpack.encode((f"k{n}", n))])) for n in range(3)]
    cache = PageCache(2 * len(pages[0].data))
    cache.put(b"0", pages[0])
    cache.put(b"1", pages[1])
    assert cache.get(b"0") is pages[0]
    cache.put(b"2", pages[2])
    assert [cache.get(name) for name in (b"0", b"1", b"2")] == [pages[0], None, pages[2]]


def test_two_keys_with_one_hash_are_two_keys() -> None:
    entries = [msgspec.msgpack.encode((name, name)) for name in "abc"]
    page = Page(Page.write(np.array([5, 5, 9], np.uint64), entries))
    assert [bytes(page.find(name, 5) or b"") for name in ("a", "b", "c")] == [b"\xa1a", b"\xa1b", b""]
    assert page.find("c", 9) is not None and page.find("a", 4) is None and page.find("a", 10) is None
    assert page.items()[1] == entries and page.items()[0].tolist() == [5, 5, 9]


def test_a_cut_never_parts_keys_with_one_hash() -> None:
    """A key is looked for in the page of its hash alone."""
    entries = [b"x" * 50] * 6
    assert cuts(np.array([3, 3, 3, 3, 3, 3], np.uint64), entries, 100) == [0, 6]
    assert cuts(np.array([1, 2, 2, 2, 2, 9], np.uint64), entries, 100) == [0, 1, 6]
