"""Operators that raise, without Spark: what is kept, what is told, and that a replay tells the same."""

from typing import Any

import msgspec
import numpy as np
import pytest
from pyspark_operators import Picky

from harness import OP, SINK, keys, row
from peregrine.core.big_map import BigMap
from peregrine.core.chunks import MemoryChunks
from peregrine.core.host import Emission, GroupEntry, Part, apply, emissions_of
from peregrine.core.keyspace import KeySet
from peregrine.core.large import Sizes, Spill
from peregrine.core.operator import Marks, Out
from peregrine.core.rows import Clock, Row, Rows, rows_of
from peregrine.core.state import canonical, decode
from peregrine.errors import MissingChunk
from peregrine.spark.guard import apply_guarded, dead_letters_of
from peregrine.types import PlaceId, SourceId

PLACE = PlaceId("edge1")


def entries(*seqs: int, muted: bool = False) -> list[tuple[int, GroupEntry]]:
    return [(100 + seq, Part([100 + seq], [row("car1", seq)], muted)) for seq in seqs]


def run(operator: Any, given: list[tuple[int, GroupEntry]], state: bytes = b"") -> tuple[list[Emission], bytes]:
    outputs, after = apply_guarded(operator, PLACE, OP, state, given, 1 << 16)
    return emissions_of(outputs), after


def results(emissions: list[Emission]) -> list[bytes]:
    items = [emission.item for emission in emissions if isinstance(emission.item, Rows)]
    return [each.payload for item in items if item.op == SINK for each in rows_of(item.batch)]


def dead(emissions: list[Emission]) -> list[dict[str, Any]]:
    return [
        msgspec.json.decode(each.payload)
        for emission in emissions
        if isinstance(emission.item, Rows) and emission.item.op == dead_letters_of(OP)
        for each in rows_of(emission.item.batch)
    ]


def test_a_refused_row_leaves_the_value_as_it_was_and_names_op_key_position_and_reason() -> None:
    emissions, state = run(Picky(SINK, b"car1#1"), entries(0, 1, 2))
    (failure,) = dead(emissions)
    assert (failure["op"], failure["key"], failure["place"], failure["position"]) == (OP, "car1", PLACE, 101)
    assert (failure["source"], failure["seq"]) == ("s", 1)
    assert failure["reason"].startswith("ValueError: not this one: b'car1#1' (on_row, line ")
    assert results(emissions) == [b"1", b"2"]
    assert decode(state)["car1"].value == {"count": 2}


def test_without_an_exception_it_is_what_the_core_computes() -> None:
    operator = Picky(SINK, b"")
    ours, core = run(operator, entries(0, 1, 2)), apply(operator, b"", entries(0, 1, 2))
    assert ours[1] == core[1]
    assert [e.offsets.tolist() for e in ours[0]] == [e.offsets.tolist() for e in core[0]]


def test_an_operator_that_raises_passes_clocks_on_all_the_same() -> None:
    class Passing(Picky):
        clocks_to = ((SINK, 1),)
        delay_ms = 5
        time_from_rows = False

    clock = Clock(OP, keys("car1"), SourceId("s"), 100)
    emissions, state = run(Passing(SINK, b"car1#1"), [*entries(0, 1), (110, clock)])
    assert len(dead(emissions)) == 1
    passed_on = Clock(SINK, KeySet.everything(1), SourceId(f"{OP}/s"), 95, part=keys("car1"))
    assert emissions[-1].item == passed_on
    assert decode(state)["car1"].books.marks == {"s": 100}


def test_a_batch_that_is_cut_differently_gives_the_same_letters_and_the_same_state() -> None:
    operator = Picky(SINK, b"car1#1")
    whole, state = run(operator, entries(0, 1, 2, 3))
    first, between = run(operator, entries(0, 1))
    second, after = run(operator, entries(2, 3), between)
    assert after == state
    assert dead(first + second) == dead(whole)
    assert np.concatenate([e.offsets for e in first + second]).tolist() == [100, 101, 102, 103]


def test_a_muted_row_tells_nothing_because_the_other_place_does() -> None:
    emissions, _ = run(Picky(SINK, b"car1#1"), entries(1, muted=True))
    assert emissions == []


def test_a_clock_that_an_operator_refuses_is_told_too() -> None:
    clock: list[tuple[int, GroupEntry]] = [(103, Clock(OP, keys("car1"), None, -5))]
    emissions, _ = run(Picky(SINK, b""), entries(0) + clock)
    (failure,) = dead(emissions)
    assert (failure["position"], failure["key"]) == (103, "car1")
    assert failure["reason"].startswith("ValueError: time runs backwards")


def test_a_value_that_cannot_be_stored_is_the_fault_of_its_row() -> None:
    class Hoarder(Picky):
        def on_row(self, key: str, value: Any, row: Any, marks: Any) -> Any:
            return (object() if row.seq == 1 else {"n": row.seq}), []

    emissions, state = run(Hoarder(SINK, b""), entries(0, 1))
    assert [failure["seq"] for failure in dead(emissions)] == [1]
    assert decode(state)["car1"].value == {"n": 0}


class PickyHoarder(Picky):
    """Keeps its count in a map with much beside it."""

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        value = BigMap({f"e{i}": "x" * 50 for i in range(40)} | {"count": 0}) if value is None else value
        return super().on_row(key, value, row, marks)


SIZES = Sizes(inline_bytes=4000, chunk_bytes=500, bucket_bytes=500)


def test_a_map_of_which_only_a_part_is_loaded_is_left_as_it_was_too() -> None:
    chunks = MemoryChunks()
    operator, state = PickyHoarder(SINK, b"car1#2"), b""
    for seqs in ((0, 1), (2, 3)):
        _, state = apply_guarded(operator, PLACE, OP, state, entries(*seqs), 1 << 16, Spill(chunks, SIZES))
    ((key, content),) = canonical(state, chunks).items()
    assert key == "car1" and len(content[0]) == 41 and dict(content[0])["count"] == 3
    assert len(chunks.chunks) > 4


def test_a_disk_that_fails_stops_the_host_and_loses_no_row() -> None:
    chunks = MemoryChunks()
    operator = PickyHoarder(SINK, b"")
    _, state = apply_guarded(operator, PLACE, OP, b"", entries(0, 1), 1 << 16, Spill(chunks, SIZES))
    chunks.keep_only(set())
    with pytest.raises(MissingChunk):
        apply_guarded(operator, PLACE, OP, state, entries(2), 1 << 16, Spill(chunks, SIZES))
