"""The results of the trains application are those of the oracle."""

import pytest

from feeding import fed, tuples
from oracles.trains import COLUMNS, expected
from peregrine.workloads.generate.trains import RING, passengers
from peregrine.workloads.trains import TRAINS, trains


@pytest.mark.parametrize(("seed", "disorder_ms"), [(1, 0), (2, 5000)])
def test_occupancy_stops_and_transfers_equal_the_oracle(seed: int, disorder_ms: int) -> None:
    tables = {"passengers": passengers(40 * 3 * 2 * 12, seed, rate=2, coaches=2, disorder_ms=disorder_ms)}
    run = fed(trains(delay_ms=disorder_ms), tables, seed)
    for result, columns in COLUMNS.items():
        should = expected(result, tables)
        assert tuples(run, result, columns) == should
        assert len(should) > 10


def test_few_trains_that_meet_everywhere_equal_the_oracle() -> None:
    tables = {"passengers": passengers(6 * 3 * 60, 5, trains=6, coaches=1, rate=1)}
    parameters = {"transfers": RING, "within_ms": 9000, "gap_ms": 300}
    run = fed(trains(TRAINS[:6], **parameters), tables, longest=5)
    for result, columns in COLUMNS.items():
        should = expected(result, tables, **parameters)
        assert tuples(run, result, columns) == should
        assert len(should) > (6 * 60 if result == "stops" else 10)  # so short a gap cuts stops in pieces
