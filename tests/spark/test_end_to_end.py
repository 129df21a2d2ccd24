"""A deployment on one machine: real routers, real Spark, devices; half of the keys move and a car drives away."""

from pathlib import Path
from typing import Any

from peregrine.control.drive import Course, run


def test_keys_move_live_on_spark_and_a_car_roams_and_nothing_is_lost_repeated_or_out_of_order(
    spark: Any, tmp_path: Path
) -> None:
    """Falcon III-E and III-F on real processes: the results and states are those of a run in which nothing moved."""
    course = Course(vehicles=6, rows_per_s=150, latency_ms=10, seconds=12, move_at_s=3, drive_at_s=7, dwell_ms=500)
    found, seen = run(course, tmp_path / "deployment", say=lambda text: None)
    assert found.holds, found
    assert found.rows_in == found.rows_out > 500
    statuses = {(news.migration, news.status) for _, news in seen.news if hasattr(news, "migration")}
    assert ("half.0.0", "done") in statuses
    assert any(migration.startswith("roam0-up") and status == "done" for migration, status in statuses)
