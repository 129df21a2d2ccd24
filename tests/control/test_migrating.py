"""What is told of a planned migration: predicted against measured, and what is left of it."""

from peregrine.control.migrating import Migrated, Migrating, Progress
from peregrine.core.coordinator import PlanEnded, Status
from peregrine.core.reconfigure import Plan
from peregrine.core.replication import NOTHING_MOVED
from peregrine.plan.predict import Outcome, Prediction

SAID = Prediction("live", 1_100.0, 900.0, 5.0, (), (0.0, 0.0))
ENDED = PlanEnded(Plan("p", ()), Status.DONE, (), NOTHING_MOVED)


def test_what_was_predicted_stands_beside_what_was_measured() -> None:
    migrated = Migrated(ENDED, SAID, Outcome(1_000.0, 1_000.0))
    assert migrated.describe().splitlines() == [
        "p: live, done",
        "               predicted    measured",
        "duration ms        1,100       1,000     +10%",
        "bytes                900       1,000     -10%",
        "pause ms               5           -",
    ]
    assert "+0%" in migrated.with_pause(5.0).describe()


def left_ms(chunks_ms: list[float], stage: int, elapsed_ms: float) -> float:
    under_way = Migrating.__new__(Migrating)  # only the estimate: nothing runs
    under_way._chunks_ms = chunks_ms
    return under_way._left_ms(stage, elapsed_ms)


def test_what_is_left_is_the_prediction_at_the_pace_that_was_seen() -> None:
    chunks_ms = [100.0, 100.0, 100.0]
    assert left_ms(chunks_ms, 0, 0.0) == 300
    assert left_ms(chunks_ms, 0, 40.0) == 260
    assert left_ms(chunks_ms, 0, 400.0) == 200, "the first chunk is late: the others are not done for that"
    assert left_ms(chunks_ms, 1, 150.0) == 150
    assert left_ms(chunks_ms, 1, 300.0) == 300, "half as fast as predicted"


def test_progress_is_one_line() -> None:
    told = str(Progress("catch-up", 2, 3, 1_000, 3_000, 5_000_000, 42, 1_500.0, 2_000.0))
    assert told == (
        "catch-up: chunk 2 of 3, 1,000 of 3,000 keys, 5,000,000 bytes, backlog 42 rows, 1.5 s, about 2.0 s left"
    )
