"""Chunks in memory: named by content, written once, collected when nobody refers to them (design section 12)."""

import pytest

from peregrine.core.chunks import MemoryChunks, chunk_name, split_names
from peregrine.errors import MissingChunk


def test_a_chunk_is_found_under_the_name_of_its_content() -> None:
    store = MemoryChunks()
    name = store.put(b"some state")
    assert name == chunk_name(b"some state")
    assert store.get(name) == b"some state" and store.has(name)


def test_equal_content_is_written_once() -> None:
    """A replayed batch writes the same chunks again: that must cost nothing and change nothing."""
    store = MemoryChunks()
    assert store.put(b"x") == store.put(b"x")
    assert store.written == 1


def test_a_chunk_that_is_not_there_is_an_error_that_names_it() -> None:
    with pytest.raises(MissingChunk) as error:
        MemoryChunks().get(chunk_name(b"x"))
    assert chunk_name(b"x").hex() in error.value.what


def test_the_collector_removes_all_but_what_is_referred_to() -> None:
    store = MemoryChunks()
    kept, gone = store.put(b"kept"), store.put(b"gone")
    assert store.keep_only({kept, chunk_name(b"never here")}) == 1
    assert store.has(kept) and not store.has(gone)


def test_joined_names_come_apart() -> None:
    names = [chunk_name(bytes([i])) for i in range(3)]
    assert split_names(b"".join(names)) == names
    assert split_names(b"") == []
