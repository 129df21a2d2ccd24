"""Processors as logics, without Spark: what is called when, timers, initial state, and what travels."""

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from peregrine import App, InMemory
from peregrine.app.logic import Moment
from peregrine.app.processor import ProcessorLogic
from peregrine.app.schema import Keying, schema_of
from peregrine.errors import ConfigurationError
from processor_drive import Drive

READINGS = "id string, value bigint"
FINAL_MS = 1 << 61


class Count:
    """Counts the rows of a key; forgets the key at a negative value."""

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        for row in rows:
            if row.value < 0:
                self.count.clear()
                return
            (n,) = self.count.get() or (0,)
            self.count.update((n + 1,))
            yield {"id": key[0], "n": n + 1}

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        (n,) = self.count.get() or (0,)
        self.count.update((n + initialState.start,))


def counting(**options: Any) -> Drive:
    return Drive(Count(), READINGS, "id string, n bigint", **options)


def test_each_key_has_its_own_state() -> None:
    drive = counting()
    told = [drive.row({"id": key, "value": 1}) for key in "abaab"]
    assert told == [[("a", 1)], [("b", 1)], [("a", 2)], [("a", 3)], [("b", 2)]]


def test_the_state_of_a_key_is_all_that_there_is_of_it() -> None:
    here, there = counting(), counting()
    here.row({"id": "a", "value": 1})
    there.states = here.states
    assert there.row({"id": "a", "value": 1}) == [("a", 2)]


def test_a_key_without_content_is_forgotten() -> None:
    drive = counting()
    drive.row({"id": "a", "value": 1})
    assert drive.row({"id": "a", "value": -1}) == []
    assert drive.states == {}


def test_results_have_the_time_of_their_record() -> None:
    drive = counting()
    drive.row({"id": "a", "value": 1}, time_ms=77)
    assert [emit.time_ms for emit in drive.emitted] == [77]


def test_a_logic_that_was_used_travels_as_if_it_was_new() -> None:
    drive = counting()
    drive.row({"id": "a", "value": 1})
    travelled = pickle.loads(pickle.dumps(drive.logic))
    assert not hasattr(travelled._processor, "count"), "init() has not been called on what travels"
    record = drive.schema.record_of({"id": "a", "value": 1})
    _, (emit,) = travelled.on_record(("a",), drive.state(("a",)), record, Moment(0))
    assert tuple(emit.record) == ("a", 2)


def test_the_states_are_known_before_any_row() -> None:
    assert counting().logic.states == {"count": "value (n bigint)"}


def test_several_key_columns_are_given_as_a_tuple() -> None:
    class Echo(Count):
        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            yield {"told": repr(key)}

    drive = Drive(Echo(), "id string, value bigint", "told string", key=("id", "value"))
    assert drive.row({"id": "a", "value": 3}) == [("('a', 3)",)]


# --- output rows ---


def test_columns_of_results_go_by_name_missing_ones_are_null_and_unknown_ones_are_ignored() -> None:
    class Gives(Count):
        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            yield {"n": 1, "id": "x", "more": 2}
            yield {"id": "y"}
            yield ("z", 3)

    assert Drive(Gives(), READINGS, "id string, n bigint").row({"id": "a", "value": 1}) == [
        ("x", 1),
        ("y", None),
        ("z", 3),
    ]


def test_a_result_that_does_not_fit_is_an_error_that_names_it() -> None:
    class Wrong(Count):
        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            yield {"id": "x", "n": "many"}

    with pytest.raises(ConfigurationError, match="many"):
        Drive(Wrong(), READINGS, "id string, n bigint").row({"id": "a", "value": 1})


# --- timers ---


class Alarms:
    """Registers a timer for the value of each row. Says which fire, what is left then, and what the time is."""

    def __init__(self, after_ms: int = 0, deletes: int = 0) -> None:
        self.after_ms, self.deletes = after_ms, deletes

    def init(self, handle: Any) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        for row in rows:
            if row.value < 0:
                self.handle.deleteTimer(-row.value)
            else:
                self.handle.registerTimer(row.value)
        return iter([])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        fired = expiredTimerInfo.getExpiryTimeInMs()
        if self.after_ms:
            self.handle.registerTimer(fired + self.after_ms)
        if self.deletes:
            self.handle.deleteTimer(self.deletes)
        times = timerValues.getCurrentProcessingTimeInMs(), timerValues.getCurrentWatermarkInMs()
        yield (key[0], fired, list(self.handle.listTimers()), *times)


FIRED = "id string, fired bigint, left_ array<bigint>, now bigint, watermark bigint"


def alarms(time_mode: str = "event", **options: Any) -> Drive:
    return Drive(Alarms(**options), READINGS, FIRED, time_mode=time_mode)


def test_timers_fire_by_expiry_when_the_watermark_has_reached_it() -> None:
    drive = alarms()
    for expiry in (30, 10, 20, 10):
        assert drive.row({"id": "a", "value": expiry}) == []
    assert drive.time(("a",), watermark_ms=9) == []
    fired = drive.time(("a",), watermark_ms=20)
    assert [(row[1], row[2]) for row in fired] == [(10, [10, 20, 30]), (20, [20, 30])], "its own is still listed"
    assert [emit.time_ms for emit in drive.emitted] == [10, 20], "results have the time of their timer"
    assert drive.state(("a",)) == [{}, [30]]
    drive.time(("a",), watermark_ms=FINAL_MS)
    assert drive.states == {}


def test_processing_time_timers_fire_by_the_clock() -> None:
    drive = alarms("processing")
    assert drive.row({"id": "a", "value": 100}, now_ms=50) == []
    assert drive.time(("a",), now_ms=99) == []
    assert drive.time(("a",), now_ms=100) == [("a", 100, [100], 100, 0)]
    assert [emit.time_ms for emit in drive.emitted] == [100]


def test_a_timer_for_the_past_fires_right_after_the_row() -> None:
    assert [row[1] for row in alarms().row({"id": "a", "value": 5}, time_ms=60, watermark_ms=50)] == [5]


def test_a_timer_that_a_handler_registers_for_the_past_fires_the_next_time() -> None:
    drive = alarms(after_ms=10)
    drive.row({"id": "a", "value": 10})
    assert [row[1] for row in drive.time(("a",), watermark_ms=100)] == [10]
    assert [row[1] for row in drive.time(("a",), watermark_ms=101)] == [20]
    assert drive.state(("a",)) == [{}, [30]]


def test_a_timer_that_is_deleted_does_not_fire() -> None:
    drive = alarms()
    drive.row({"id": "a", "value": 10})
    drive.row({"id": "a", "value": -10})
    drive.row({"id": "a", "value": -99})
    assert drive.time(("a",), watermark_ms=50) == []
    assert drive.states == {}


def test_timers_that_are_due_together_are_settled_before_the_first_of_them_fires() -> None:
    drive = alarms(deletes=20)
    drive.row({"id": "a", "value": 10})
    drive.row({"id": "a", "value": 20})
    assert [row[1] for row in drive.time(("a",), watermark_ms=50)] == [10, 20]


def test_late_records_are_dropped_in_event_time() -> None:
    drive = alarms()
    drive.row({"id": "a", "value": 99}, time_ms=49, watermark_ms=50)
    assert drive.states == {}
    drive.row({"id": "a", "value": 99}, time_ms=50, watermark_ms=50)
    assert drive.state(("a",)) == [{}, [99]]


@pytest.mark.parametrize(("mode", "told"), [("none", (-1, -1)), ("processing", (5, 0)), ("event", (5, 0))])
def test_what_a_processor_reads_as_the_time_before_any_watermark(mode: str, told: tuple[int, int]) -> None:
    class Times(Count):
        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            yield timerValues.getCurrentProcessingTimeInMs(), timerValues.getCurrentWatermarkInMs()

    assert Drive(Times(), READINGS, "now bigint, watermark bigint", time_mode=mode).row(
        {"id": "a", "value": 1}, now_ms=5
    ) == [told]


def test_what_is_asked_for_follows_from_the_time_mode() -> None:
    asked = {mode: (drive.logic.event_time, drive.logic.processing_time) for mode in MODES for drive in [alarms(mode)]}
    assert asked == MODES


MODES = {
    "none": (False, False),
    "processing": (False, True),
    "event": (True, False),
    "EventTime": (True, False),
    "ProcessingTime": (False, True),
    "None": (False, False),
}


def test_timers_need_a_time_mode() -> None:
    with pytest.raises(ConfigurationError, match="registerTimer"):
        alarms("none").row({"id": "a", "value": 10})


# --- initial state ---


def test_initial_state_is_given_once_before_the_first_record_of_its_key() -> None:
    drive = counting(initial_state=[{"id": "a", "start": 10}, {"id": "b", "start": 5}, {"id": "a", "start": 100}])
    assert drive.row({"id": "a", "value": 1}) == [("a", 111)]
    assert drive.row({"id": "a", "value": 1}) == [("a", 112)]
    assert drive.row({"id": "c", "value": 1}) == [("c", 1)]


def test_initial_state_that_was_cleared_does_not_come_back() -> None:
    drive = counting(initial_state=[{"id": "a", "start": 10}])
    drive.row({"id": "a", "value": -1})
    assert drive.row({"id": "a", "value": 1}) == [("a", 1)]


def test_initial_state_travels_and_may_have_a_schema() -> None:
    rows, schema = [("a", 10.0)], "id string, start double"
    logic = ProcessorLogic(
        Whole(),
        READINGS,
        "id string, n bigint",
        Keying(schema_of(READINGS), ["id"]),
        initial_state=rows,
        initial_state_schema=schema,
    )
    travelled = pickle.loads(pickle.dumps(logic))
    record = schema_of(READINGS).record_of({"id": "a", "value": 1})
    _, (emit,) = travelled.on_record(("a",), None, record, Moment(0))
    assert tuple(emit.record) == ("a", 11)


class Whole(Count):
    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self.count.update((int(initialState.start),))


@pytest.mark.parametrize("rows", [[{"start": 10}], [{"id": "a", "start": None}], [("a", 10)]])
def test_initial_state_without_key_or_types_is_an_error(rows: Any) -> None:
    with pytest.raises(ConfigurationError):
        counting(initial_state=rows)


# --- in an application ---


def test_timers_and_results_of_an_application() -> None:
    app = App("alarms")
    readings = app.source("readings", READINGS + ", at_ms bigint", key="id", event_time="at_ms")
    readings.key_by("id").process("fired", Alarms(), FIRED, time_mode="event").to("alarms")
    run = InMemory(app)
    run.send("readings", [{"id": "a", "value": 40, "at_ms": 1}, {"id": "b", "value": 20, "at_ms": 2}])
    run.heartbeat("readings", 20)
    assert [tuple(each) for each in run.results("alarms")] == [("b", 20, [20], 0, 20)]
    run.send("readings", {"id": "a", "value": 30, "at_ms": 50})
    assert [each.fired for each in run.results("alarms")] == [20, 30, 40]
    assert run.state("fired", "a") is None


# --- mistakes ---


@pytest.mark.parametrize("options", [{"time_mode": "sometimes"}, {"flavour": "polars"}])
def test_unknown_options_are_errors(options: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options.values()))):
        counting(**options)


def test_a_processor_that_cannot_be_copied_is_an_error_when_it_is_given() -> None:
    processor = Count()
    processor.rows = (n for n in range(3))  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match="Count cannot be copied"):
        Drive(processor, READINGS, "id string, n bigint")


def test_states_are_declared_in_init_only() -> None:
    class Lazy(Alarms):
        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            return iter([self.handle.getValueState("late", "n bigint").get()])

    with pytest.raises(ConfigurationError, match=r"outside of init\(\)"):
        Drive(Lazy(), READINGS, FIRED).row({"id": "a", "value": 1})


def test_close_is_called_on_what_was_initialised() -> None:
    class Closes(Count):
        closed: list[bool] = []  # noqa: RUF012 (shared by all copies: that is what is counted)

        def close(self) -> None:
            self.closed.append(hasattr(self, "count"))

    drive = Drive(Closes(), READINGS, "id string, n bigint")
    assert Closes.closed == [True], "the copy that told the states"
    drive.row({"id": "a", "value": 1})
    drive.logic.close()
    drive.logic.close()
    assert Closes.closed == [True, True]
