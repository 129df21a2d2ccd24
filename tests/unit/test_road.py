"""Readings by number: the same rows for two systems, and what must come out of them."""

import numpy as np
import pytest

from peregrine import proof
from peregrine.core.rows import rows_of
from peregrine.workloads import road, tm


@pytest.mark.parametrize(("rows", "keys"), [(95, 10), (7, 10), (40, 1)])
def test_the_results_known_beforehand_are_those_of_the_operators(rows: int, keys: int) -> None:
    sent = [road.row(n, keys) for n in range(rows)]
    should, _ = proof.expected(tm.specs(roaming=False), tm.operators(road.LIMIT), {tm.MOV_AVG: sent})
    assert road.results(rows, keys) == should
    assert sum(map(len, should.values())) == rows


@pytest.mark.parametrize("keys", [3, 1000])
def test_a_batch_has_the_rows_that_devices_send_one_by_one(keys: int) -> None:
    made = rows_of(road.batch(100, 200, keys, now_ms=5))
    assert [(row.key, row.source, row.seq, row.prev, row.payload) for row in made] == [
        (row.key, row.source, row.seq, row.prev, row.payload) for row in (road.row(n, keys) for n in range(100, 200))
    ]
    assert {row.created_ms for row in made} == {5}


def test_speeds_by_the_column_are_those_in_the_payloads() -> None:
    speeds = road.speeds(np.arange(20, dtype=np.int64)).tolist()
    assert [b'"speed":%s' % str(speed).encode() in road.payload(n, 10) for n, speed in enumerate(speeds)] == [True] * 20
    assert len(set(speeds)) == 20
