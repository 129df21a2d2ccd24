"""Large values: what spills, what is loaded, what is written (design section 12)."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peregrine.core.big_map import BigMap
from peregrine.core.chunks import MemoryChunks, split_names
from peregrine.core.large import Sealer, Sizes, Spill, names_of, unseal
from peregrine.errors import ConfigurationError

SMALL = Sizes(inline_bytes=256, chunk_bytes=64, bucket_bytes=128)
WIDE = Sizes(inline_bytes=1 << 15, chunk_bytes=64, bucket_bytes=128)  # names of buckets fit, entries do not


class Counting(MemoryChunks):
    """A store that knows which chunks were read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[bytes] = []

    def get(self, name: bytes) -> bytes:
        self.read.append(name)
        return super().get(name)


def seal(value: Any, store: MemoryChunks, sizes: Sizes = SMALL) -> tuple[bytes, set[bytes]]:
    raw, refs = Sealer(Spill(store, sizes)).seal(value)
    return raw, set(split_names(refs))


def entries(count: int, first: int = 0) -> dict[str, Any]:
    return {f"entry{i}": [i, "x" * 20] for i in range(first, first + count)}


# --- values ---


def test_a_small_value_stays_where_it_is() -> None:
    store = MemoryChunks()
    raw, refs = seal({"a": 1}, store)
    assert raw == msgspec.msgpack.encode({"a": 1})
    assert not refs and not store.chunks


def test_a_large_value_leaves_names_behind() -> None:
    store = MemoryChunks()
    value = {"numbers": list(range(1000))}
    raw, refs = seal(value, store)
    assert len(raw) < len(msgspec.msgpack.encode(value)) / 2
    assert refs == set(names_of(raw) or ()) == set(store.chunks)
    assert unseal(raw, store) == value


def test_a_small_change_of_a_large_value_writes_few_chunks() -> None:
    """Lab, State: touched, only changed chunks are written."""
    store = MemoryChunks()
    value = list(range(10_000, 11_000))
    seal(value, store)
    before = store.written
    value[500] += 1
    seal(value, store)
    assert 1 <= store.written - before <= 2


def test_without_a_store_nothing_leaves_and_nothing_in_chunks_can_be_read() -> None:
    raw, refs = Sealer(None).seal(list(range(1000)))
    assert refs == b"" and unseal(raw, None) == list(range(1000))
    there, _ = seal(list(range(1000)), MemoryChunks())
    with pytest.raises(ConfigurationError):
        unseal(there, None)


def test_what_msgpack_cannot_carry_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="object"):
        seal({"a": object()}, MemoryChunks())


# --- maps ---


def test_a_map_comes_back_from_its_buckets() -> None:
    store = MemoryChunks()
    raw, refs = seal({"big": BigMap(entries(100)), "other": 1}, store)
    back = unseal(raw, store)
    assert dict(back["big"].items()) == entries(100) and back["other"] == 1
    assert len(refs) > 10 and refs == set(store.chunks)


def test_a_small_map_needs_no_chunk() -> None:
    store = MemoryChunks()
    raw, refs = seal(BigMap({"a": 1}), store)
    assert not refs and not store.chunks
    assert dict(unseal(raw, store)) == {"a": 1}
    assert dict(unseal(seal(BigMap(), store)[0], store)) == {}


def test_only_what_is_touched_is_loaded_and_only_what_changed_is_written() -> None:
    store = Counting()
    raw, before = seal(BigMap(entries(1000)), store, WIDE)
    big = unseal(raw, store)
    assert store.read == []
    assert big["entry7"] == [7, "x" * 20] and "nobody" not in big and len(big) == 1000
    assert len(store.read) <= 2 == big.loaded()
    big["entry7"] = [8, "x" * 20]
    written = store.written
    _, after = seal(big, store, WIDE)
    assert store.written == written + 1
    assert len(before - after) == len(after - before) == 1


def test_a_value_that_is_changed_in_place_is_not_lost() -> None:
    store = MemoryChunks()
    big = unseal(seal(BigMap(entries(100)), store)[0], store)
    big["entry3"].append("more")
    assert unseal(seal(big, store)[0], store)["entry3"][-1] == "more"


def test_iterating_over_a_map_does_not_keep_it_in_memory() -> None:
    store = MemoryChunks()
    big = unseal(seal(BigMap(entries(1000)), store)[0], store)
    assert len(list(big)) == len(list(big.values())) == 1000
    assert big.loaded() == 0


def test_an_entry_larger_than_a_bucket_is_a_bucket() -> None:
    store = MemoryChunks()
    raw, refs = seal(BigMap({"a": "x" * 1000, "b": "y" * 1000}), store)
    assert len(refs) == 2
    assert dict(unseal(raw, store)) == {"a": "x" * 1000, "b": "y" * 1000}


def test_keys_of_a_map_are_text() -> None:
    with pytest.raises(TypeError, match="text"):
        BigMap()[1] = 2  # type: ignore[index]


def test_a_map_inside_of_a_map_is_refused() -> None:
    with pytest.raises(TypeError):
        seal(BigMap({"a": BigMap()}), MemoryChunks())


CHANGES = st.lists(
    st.tuples(st.sampled_from([f"k{i}" for i in range(40)]), st.none() | st.binary(max_size=60), st.booleans())
)


@given(CHANGES, st.randoms(use_true_random=False))
def test_equal_maps_have_equal_chunks_whatever_their_history(changes: list[Any], rng: Any) -> None:
    """None deletes; a flag says that the map is stored and read back there. The model is a dict."""
    store = MemoryChunks()
    big, model = BigMap(), {}
    for key, value, stored in changes:
        if value is None:
            assert big.pop(key, None) == model.pop(key, None)
        else:
            big[key] = model[key] = value
        if stored:
            big = unseal(seal(big, store)[0], store)
        assert len(big) == len(model)
    fresh = BigMap(rng.sample(list(model.items()), len(model)))
    assert dict(big.items()) == model
    assert list(big) == list(fresh)
    assert seal(big, store) == seal(fresh, MemoryChunks())
    assert dict(unseal(seal(big, store)[0], store).items()) == model


@given(CHANGES)
def test_a_map_needs_exactly_the_chunks_that_it_names(changes: list[Any]) -> None:
    store = MemoryChunks()
    big = BigMap()
    for key, value, _ in changes:
        big[key] = value
        big = unseal(seal(big, store)[0], store)
    raw, refs = seal(big, store)
    store.keep_only(refs)
    assert len(list(unseal(raw, store).items())) == len(big)
