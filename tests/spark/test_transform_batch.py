"""A batch of a DataFrame operator whose function fails, without jobs: which rows are given up, and others go on."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from peregrine.app.schema import schema_of
from peregrine.app.shell import Target
from peregrine.core import wire
from peregrine.core.host import Emission
from peregrine.core.rows import UNCHAINED, Row, Rows, batch_of, rows_of
from peregrine.types import OpId, PlaceId, SourceId

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install --editable '.[spark]'")
from peregrine.spark.guard import dead_letters_of
from peregrine.spark.transform_batch import RUNS, Batch, Refused, Run
from peregrine.spark.typed_rows import Reader, Writer

OP, SINK, PLACE = OpId("app/double"), OpId("app/doubled"), PlaceId("cloud/double")
NUMBERS = schema_of("n bigint")
FIRST = 100  # offset of the first row
Make = Callable[[Run], Batch]


class Doubles:
    """The function. It refuses what has one of these numbers in it, and its first calls."""

    def __init__(self, refuses: set[int], fails_first: int = 0) -> None:
        self.refuses, self.fails_first = refuses, fails_first
        self.calls: list[list[int]] = []

    def __call__(self, table: pa.Table) -> pa.Table:
        numbers = table.column("n").to_pylist()
        self.calls.append(numbers)
        if len(self.calls) <= self.fails_first or self.refuses & set(numbers):
            raise Refused("ValueError: not these")
        return table.set_column(0, "n", pc.multiply(table.column("n"), 2))


@pytest.fixture
def make(spark: Any) -> Make:  # types of Spark are read with a session
    reader, writer = Reader(NUMBERS), Writer(OP, PLACE, NUMBERS, [Target(SINK, None)])
    return lambda run: Batch(OP, PLACE, reader, writer, run)


def log(count: int, sample: bool = False) -> list[tuple[int, bytes, bytes]]:
    """So many rows, as slices of two groups that come in any order."""
    slices = []
    for group in (1, 0)[-count:]:  # of one row, a single slice
        mine = range(group, count, 2)
        rows = [Row(f"k{n % 3}", SourceId("s"), n, UNCHAINED, n, n, b'{"n": %d}' % n) for n in mine]
        offsets = np.array([FIRST + n for n in mine], np.int64)
        slices.append((FIRST + group, offsets.tobytes(), wire.encode(Rows(OP, batch_of(rows), sample=sample))))
    return slices


def rows_for(op: OpId, emissions: list[Emission]) -> list[Row]:
    items = [emission.item for emission in emissions]
    return [row for item in items if isinstance(item, Rows) and item.op == op for row in rows_of(item.batch)]


def results(emissions: list[Emission]) -> list[int]:
    return [msgspec.json.decode(row.payload)["n"] for row in rows_for(SINK, emissions)]


def refused(emissions: list[Emission]) -> list[int]:
    letters = [msgspec.json.decode(row.payload) for row in rows_for(dead_letters_of(OP), emissions)]
    assert all(letter["reason"] == "ValueError: not these" and letter["place"] == PLACE for letter in letters)
    return [letter["position"] - FIRST for letter in letters]


def test_rows_at_fault_are_given_up_after_they_failed_twice_and_the_others_go_on_in_order(make: Make) -> None:
    function = Doubles(refuses={0, 7, 23})
    emissions = make(function).apply(log(40))
    assert refused(emissions) == [0, 7, 23]
    assert results(emissions) == [2 * n for n in range(40) if n not in (0, 7, 23)]
    for n in (0, 7, 23):
        assert [n] in function.calls and sum(n in call for call in function.calls) > 1
    seqs = [row.seq for row in rows_for(SINK, emissions)]
    assert seqs == sorted(set(seqs))
    assert {offset for emission in emissions for offset in emission.offsets.tolist()} == {FIRST + 39}


def test_a_sample_goes_through_the_function_and_nothing_comes_out(make: Make) -> None:
    function = Doubles(refuses={3})
    assert make(function).apply(log(10, sample=True)) == []
    assert list(range(10)) in function.calls


def test_a_function_that_fails_once_costs_no_row(make: Make) -> None:
    for count in (1, 5):
        emissions = make(Doubles(set(), fails_first=1)).apply(log(count))
        assert results(emissions) == [2 * n for n in range(count)] and refused(emissions) == []


def test_a_function_that_fails_for_most_rows_is_not_asked_for_ever(make: Make) -> None:
    function = Doubles(refuses=set(range(1, 500)))
    emissions = make(function).apply(log(500))
    assert results(emissions) == [0] and refused(emissions) == list(range(1, 500))
    assert len(function.calls) < 2 * RUNS
