"""The state of a group as bytes, images of keys, and what two runs must agree on."""

import msgspec

from harness import row
from peregrine.core.big_map import BigMap
from peregrine.core.chunks import MemoryChunks, chunk_name
from peregrine.core.large import Sizes, Spill
from peregrine.core.state import (
    Books,
    KeyState,
    canonical,
    decode,
    encode,
    restored,
    waiting_row,
    whole,
)


def test_no_state_is_no_bytes_and_back() -> None:
    assert encode({}) == b""
    assert decode(b"") == {}


def test_state_survives_the_state_store() -> None:
    """Falcon III-G: a host that comes back reads what it had committed."""
    books = Books({"s": 3}, {"s": [waiting_row(row("car1", 5, 4))]}, {"s": 70})
    before = {"car1": KeyState({"a": 1, 5: [b"x", None]}, books, 9, {"cloud": [b"name"]})}
    after = decode(encode(before))
    assert after["car1"].value == before["car1"].value
    assert after["car1"].books == books
    assert (after["car1"].version, after["car1"].sent) == (9, {"cloud": [b"name"]})
    assert encode(after) == encode(before)


def test_books_of_two_keys_are_not_the_same_object() -> None:
    one, other = KeyState(None, Books()), KeyState(None, Books())
    one.books.seen["s"] = 1
    one.sent["cloud"] = []
    assert other.books.seen == {} and other.sent == {}


def test_an_image_with_all_chunks_describes_the_key() -> None:
    ks = KeyState(list(range(1000)), Books({"s": 3}), 7)
    image = ks.image("car1", chunk_bytes=100)
    assert len(image.chunks) > 10
    back = restored(image)
    assert (back.value, back.books, back.version) == (ks.value, ks.books, ks.version)


def test_what_was_sent_where_stays_behind() -> None:
    """Spacker III-B: which replicas exist is S's knowledge; at D it would name chunks that D never sent."""
    ks = KeyState([1], Books(), 1, {"cloud": [b"name"]})
    assert restored(ks.image("car1")).sent == {}


def test_equal_chunks_have_one_name_and_travel_once() -> None:
    """Design section 12: identical content has one name."""
    ks = KeyState(b"\x00" * 1000, Books())
    image = ks.image("car1", chunk_bytes=10)
    assert len(image.data) < len(image.chunks)
    assert restored(image).value == ks.value
    assert all(chunk_name(chunk) == name for name, chunk in image.data)


def test_a_small_change_of_a_large_value_changes_few_chunks() -> None:
    """Survey IV-F, incremental checkpoints."""
    numbers = list(range(10_000, 11_000))
    before = KeyState(numbers, Books()).image("car1", chunk_bytes=100)
    sent = {"cloud": list(before.chunks)}
    numbers[500] += 1
    after = KeyState(numbers, Books(), sent=sent).image("car1", "cloud", chunk_bytes=100)
    assert 1 <= len(after.data) <= 2
    assert len(after.chunks) == len(before.chunks)


def test_an_image_says_what_it_costs_to_move() -> None:
    ks = KeyState(list(range(100)), Books({"s": 3}))
    whole = ks.image("car1", chunk_bytes=50)
    assert whole.bytes_moved == len(whole.books) + len(msgspec.msgpack.encode(ks.value))
    ks.sent["cloud"] = list(whole.chunks)
    assert ks.image("car1", "cloud", chunk_bytes=50).bytes_moved == len(whole.books)


def test_canonical_state_knows_neither_order_nor_what_only_one_place_needs() -> None:
    """Falcon III-E: state is compared with a run without migration."""
    one = {"b": KeyState({2: 1, 1: 2}, Books(marks={"t": 1, "s": 2}), 3), "a": KeyState(1, Books())}
    other = {
        "a": KeyState(1, Books(), 8, {"cloud": [b"x"]}),
        "b": KeyState({1: 2, 2: 1}, Books(marks={"s": 2, "t": 1})),
    }
    assert canonical(encode(one)) == canonical(encode(other))
    assert canonical(encode({**other, "a": KeyState(2, Books())})) != canonical(encode(one))


def test_an_empty_value_counts_as_state_only_if_the_duplicate_check_does() -> None:
    assert canonical(encode({"a": KeyState({}, Books(marks={"s": 1}))})) == {}
    assert "a" in canonical(encode({"a": KeyState(None, Books(seen={"s": 1}))}))


# --- large values ---

SMALL = Sizes(inline_bytes=256, chunk_bytes=64, bucket_bytes=128)


def spill(store: MemoryChunks) -> Spill:
    return Spill(store, SMALL)


def test_a_key_that_is_not_used_is_neither_read_nor_written() -> None:
    """Lab, State: an untouched key costs nothing."""
    store = MemoryChunks()
    state = encode({"large": KeyState(list(range(1000)), Books()), "small": KeyState(1, Books())}, spill(store))
    nobody = Spill(MemoryChunks(), SMALL)  # has none of the chunks: reading one would raise
    keys = decode(state, nobody)
    keys["small"].value += 1
    again = encode(keys, nobody)
    assert canonical(again, store)["small"][0] == 2
    assert canonical(again, store)["large"][0] == list(range(1000))
    assert not nobody.store.chunks  # type: ignore[attr-defined]


def test_a_batch_knows_what_it_referred_to_before_and_after() -> None:
    store = MemoryChunks()
    first, second = spill(store), spill(store)
    keys = {"car1": KeyState(list(range(1000)), Books()), "car2": KeyState(BigMap({"a": "x" * 99}), Books())}
    state = encode(keys, first)
    assert (first.before, first.after) == (set(), set(store.chunks))
    keys = decode(state, second)
    keys["car1"].value = None
    assert encode(keys, second)
    assert second.before == first.after > second.after
    assert keys.references() == second.after != set()


def test_a_batch_also_needs_what_its_snapshots_refer_to() -> None:
    """Rows behind a snapshot change the value: its chunks are then neither in the state before nor in the one after."""
    store = MemoryChunks()
    batch = spill(store)
    keys = decode(encode({"car1": KeyState(list(range(1000)), Books())}, spill(store)), batch)
    keys["car1"].value.append(1)
    image = keys["car1"].image("car1", spill=batch)
    keys["car1"].value.append(2)
    encode(keys, batch)
    assert set(image.stored) - batch.before - batch.after
    assert batch.needed >= {*image.stored, *batch.before, *batch.after}


def test_a_spilled_value_travels_as_names() -> None:
    store = MemoryChunks()
    ks = KeyState(list(range(1000)), Books({"s": 3}), 7)
    image = ks.image("car1", spill=spill(store))
    assert image.spilled and image.data == () and set(image.chunks) == set(image.stored) == set(store.chunks)
    assert image.bytes_moved == len(image.books)
    back = restored(image, spill(store))
    assert (back.value, back.books, back.version) == (ks.value, ks.books, 7)


def test_a_map_travels_as_names_inside_of_a_value_that_travels_inline() -> None:
    store = MemoryChunks()
    ks = KeyState({"big": BigMap({f"e{i}": "x" * 50 for i in range(8)})}, Books())
    image = ks.image("car1", spill=spill(store))
    assert not image.spilled and image.data and set(image.stored) == set(store.chunks)
    back = restored(image, spill(store))
    assert dict(back.value["big"].items()) == dict(ks.value["big"].items())


def test_an_image_does_not_end_the_use_of_a_value() -> None:
    """An operator may go on with its value after a snapshot: what it changes then must be written."""
    store = MemoryChunks()
    keys = decode(encode({"car1": KeyState({"n": 1}, Books())}), spill(store))
    value = keys["car1"].value
    keys["car1"].image("car1", spill=spill(store))
    value["n"] = 2
    assert canonical(encode(keys, spill(store)))["car1"][0] == [["n", 2]]


def test_a_map_and_a_dict_with_the_same_content_are_the_same_state() -> None:
    store = MemoryChunks()
    content = {f"e{i}": [i] for i in range(100)}
    as_map = encode({"car1": KeyState(BigMap(content), Books())}, spill(store))
    assert canonical(as_map, store) == canonical(encode({"car1": KeyState(content, Books())}))


def test_state_can_be_made_whole_for_those_who_have_no_store() -> None:
    store = MemoryChunks()
    keys = {"car1": KeyState([BigMap({"a": "x" * 999}), *range(1000)], Books()), "car2": KeyState(3, Books())}
    state = encode(keys, spill(store))
    assert canonical(whole(state, store)) == canonical(state, store)
    assert decode(whole(state, store)).references() == set()
