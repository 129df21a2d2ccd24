"""The results of Traffic Monitoring as an application are those of the oracle, and of the operators written by hand."""

from typing import Any

import pyarrow as pa
import pytest

from feeding import fed, tuples
from oracles.tm import COLUMNS, expected
from peregrine.core.chain import chained
from peregrine.core.rows import UNCHAINED, Row
from peregrine.types import SourceId
from peregrine.workloads import tm
from peregrine.workloads.generate.tm import readings


@pytest.mark.parametrize(("seed", "parameters"), [(1, {}), (2, {"limit": 95.0})])
def test_averages_and_alerts_equal_the_oracle(seed: int, parameters: dict[str, float]) -> None:
    tables = {"readings": readings(2000, seed, sources=3, disorder_ms=20)}
    run = fed(tm.app(["gate0", "gate1", "gate2"], **parameters), tables, seed)
    should = expected("results", tables, **parameters)
    assert tuples(run, "results", COLUMNS["results"]) == should
    assert len(should) == 2000
    assert {alert for *_, alert in should} == {True, False}


def test_operators_written_by_hand_tell_the_same() -> None:
    tables = {"readings": readings(500, 3, vehicles=7)}
    told, should = sorted(by_hand(tables["readings"])), expected("results", tables)
    assert [(car, alert) for car, _, alert in told] == [(car, alert) for car, _, alert in should]
    # Their average is kept itself and not as a sum: between two millionths it may go to the other one.
    assert [average for _, average, _ in told] == pytest.approx([average for _, average, _ in should], abs=1.01e-6)


def by_hand(table: pa.Table) -> list[tuple[Any, ...]]:
    operator = chained(tm.specs(), tm.operators())[tm.MOV_AVG]
    values: dict[str, Any] = {}
    told = []
    for seq, reading in enumerate(table.to_pylist()):
        car = reading["vehicle"]
        row = Row(car, SourceId("gate0"), seq, UNCHAINED, 0, 0, tm._encode(reading))
        values[car], (out,) = operator.on_row(car, values.get(car), row, {})
        result = tm._decode(out.payload)
        told.append((car, result["average"], result["alert"]))
    return told


def test_a_stretch_of_readings_is_that_of_the_whole() -> None:
    whole = readings(300, 5, vehicles=4, sources=2, disorder_ms=9)
    assert readings(100, 5, first=120, vehicles=4, sources=2, disorder_ms=9) == whole.slice(120, 100)
    gates = set(zip(whole["vehicle"].to_pylist(), whole["source"].to_pylist(), strict=True))
    assert len(gates) == 4 and {gate for _, gate in gates} == {"gate0", "gate1"}
