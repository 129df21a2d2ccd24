"""A deployment on one machine: real routers, real Spark, devices; half of the keys move and a car drives away."""

from pathlib import Path
from typing import Any

import pytest

from peregrine.control import drive
from peregrine.control.drive import Course
from peregrine.control.figures import figures
from peregrine.measure import PHASES
from peregrine.types import Runner


@pytest.mark.parametrize("runner", ["microbatch", "continuous"])
def test_keys_move_live_on_spark_and_a_car_roams_and_nothing_is_lost_repeated_or_out_of_order(
    spark: Any, tmp_path: Path, runner: Runner
) -> None:
    """Falcon III-E and III-F on real processes: the results and states are those of a run in which nothing moved."""
    course = Course(
        vehicles=6, rows_per_s=150, latency_ms=10, warm_s=1, steady_s=1, settle_s=1, dwell_ms=500, runner=runner
    )
    watch = drive.watch_of(course)
    proof, marks = drive.run(course, watch, tmp_path / "deployment")
    assert proof.holds, proof
    assert proof.rows_in == proof.rows_out > 500
    found = figures(course, watch, marks, proof).reconfigurations
    assert [str(each.journey) for each in found] == [
        "car0–car2: cloud → edge1",
        "car2: edge1 → cloud",
        "car2: cloud → edge2",
    ]
    for each in found:
        assert set(each.moved.phases_ms) == set(PHASES.values())
        assert each.moved.bytes_moved > 0
    assert "spark.log" in {file.name for file in (tmp_path / "deployment").iterdir()}
