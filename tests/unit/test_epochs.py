"""When Spark is to commit what continuous places have done."""

from peregrine.spark.epochs import ALONE_S, QUIET_S, TASKS_EVERY_S, Epochs, Log
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
    assert not epochs.is_due({A: Log(0, 10)})
    clock.now_s += 0.5
    assert not epochs.is_due({A: Log(0, 20)})
    clock.now_s += 0.5
    assert epochs.is_due({A: Log(0, 30)})
    assert not epochs.is_due({A: Log(30, 40)})
    assert epochs.is_due({A: Log(30, 1030)})
    clock.now_s += 5
    assert not epochs.is_due({A: Log(1030, 1030)})
    assert not epochs.is_due({A: Log(1030, 1040)})  # its time begins with its first row
    clock.now_s += 2 * QUIET_S
    assert not epochs.is_due({A: Log(1030, 1041)})
    clock.now_s += 1.2 * QUIET_S
    assert epochs.is_due({A: Log(1030, 1041)})  # rows have stopped


def test_a_place_at_which_rows_have_stopped_waits_a_little_while_others_go_on() -> None:
    clock = Clock()
    epochs = Epochs(60.0, 1000, clock)
    assert not epochs.is_due({A: Log(0, 10), B: Log(0, 10)})
    clock.now_s += 2 * QUIET_S
    assert not epochs.is_due({A: Log(0, 10), B: Log(0, 11)})
    clock.now_s += ALONE_S
    assert epochs.is_due({A: Log(0, 10), B: Log(0, 12)})


def test_what_is_there_goes_with_a_batch_that_comes_anyway_and_a_place_without_a_process_does_not_wait() -> None:
    clock = Clock()
    epochs = Epochs(60.0, 1000, clock)
    assert epochs.is_due({A: Log(0, 10)}, anyway=True)
    assert not epochs.is_due({A: Log(10, 10)}, anyway=True)
    assert not epochs.is_due({A: Log(10, 10, left=True)})
    assert not epochs.is_due({A: Log(10, 11)})
    assert epochs.is_due({A: Log(10, 11, left=True)})


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
