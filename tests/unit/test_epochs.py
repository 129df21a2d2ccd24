"""When Spark is to commit what continuous places have done."""

from peregrine.spark.epochs import QUIET_S, TASKS_EVERY_S, Epochs
from peregrine.spark.served import Served
from peregrine.types import PlaceId

A, B = PlaceId("a"), PlaceId("b")


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_an_epoch_ends_after_its_time_or_after_many_rows_and_not_without_rows() -> None:
    clock = Clock()
    epochs = Epochs(1.0, 1000, clock)
    assert epochs.end(A, 0, 10) == 0
    clock.now_s += 0.5
    assert epochs.end(A, 0, 20) == 0
    clock.now_s += 0.5
    assert epochs.end(A, 0, 30) == 30
    assert epochs.end(A, 30, 40) == 30
    assert epochs.end(A, 30, 1030) == 1030
    clock.now_s += 5
    assert epochs.end(A, 1030, 1030) == 1030
    assert epochs.end(A, 1030, 1040) == 1030  # its time begins with its first row
    assert epochs.end(B, 0, 5) == 0
    clock.now_s += 2 * QUIET_S
    assert epochs.end(A, 1030, 1041) == 1030
    clock.now_s += 2 * QUIET_S
    assert epochs.end(A, 1030, 1041) == 1041  # rows have stopped


def test_all_places_get_tasks_now_and_then_and_when_others_run_continuously() -> None:
    clock = Clock()
    epochs = Epochs(1.0, 1000, clock)
    served = {A: Served("x:1", runner="continuous"), B: Served("x:1")}
    assert epochs.places(served) == {A}
    assert epochs.wants_tasks() and not epochs.wants_tasks()
    clock.now_s += TASKS_EVERY_S
    assert epochs.wants_tasks() and not epochs.wants_tasks()
    assert epochs.places({**served, B: Served("x:1", runner="continuous")}) == {A, B}
    assert epochs.wants_tasks()
