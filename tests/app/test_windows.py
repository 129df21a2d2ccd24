"""Windows, by hand: small cases whose results can be read off the page."""

import pickle
from datetime import timedelta
from typing import Any

import msgspec
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from peregrine.app.aggregates import Avg, Collect, Count, Fold, Sum
from peregrine.app.logic import NEVER, Moment
from peregrine.app.schema import Keying, schema_of
from peregrine.app.window_logic import WindowAggregate, WindowApply, WindowReduce
from peregrine.app.windows import CountSliding, CountTumbling, Session, Sliding, Span, Tumbling
from peregrine.errors import ConfigurationError

FINAL = 1 << 61
SCHEMA = schema_of("car string, speed double")
KEYING = Keying(SCHEMA, ["car"])
KEY = ("car1",)
SPEEDS = {"speeds": Collect("speed")}


class Key:
    """One key of a logic. Its state goes through msgpack after each call."""

    def __init__(self, logic: Any) -> None:
        self.logic, self.state, self.watermark_ms = logic, None, NEVER

    def row(self, time_ms: int, speed: float | None = 0.0, watermark_ms: int | None = None) -> list[Any]:
        if watermark_ms is not None:
            self.watermark_ms = watermark_ms
        at = Moment(time_ms, self.watermark_ms)
        return self._keep(self.logic.on_record(KEY, self.state, SCHEMA.record("car1", speed), at))

    def time(self, watermark_ms: int) -> list[Any]:
        self.watermark_ms = watermark_ms
        return self._keep(self.logic.on_time(KEY, self.state, Moment(watermark_ms, watermark_ms)))

    def _keep(self, found: tuple[Any, list[Any]]) -> list[Any]:
        self.state = msgspec.msgpack.decode(msgspec.msgpack.encode(found[0]))
        return [(*(emit.record if emit.output == 0 else ("late", *emit.record)), emit.time_ms) for emit in found[1]]


def test_a_tumbling_window_is_told_when_the_watermark_reaches_its_end() -> None:
    key = Key(WindowAggregate(SCHEMA, KEYING, Tumbling("10 ms"), {"mean": Avg("speed"), "n": Count()}))
    assert key.row(0, 1.0) == key.row(9, 3.0) == key.row(10, 7.0) == key.row(5, None) == []
    assert key.logic.open_ends(key.state) == [10, 20]
    assert key.time(9) == []
    assert key.time(10) == [("car1", 0, 10, 2.0, 3, 9)]
    assert key.time(19) == []
    assert key.time(FINAL) == [("car1", 10, 20, 7.0, 1, 19)]
    assert key.state is None
    assert key.time(FINAL + 1) == key.logic.open_ends(None) == []


def test_sliding_windows_that_hold_a_record_are_told_in_the_order_of_their_ends() -> None:
    key = Key(WindowAggregate(SCHEMA, KEYING, Sliding(10, 5), SPEEDS))
    key.row(12, 1.0)
    key.row(7, 2.0)
    assert key.logic.open_ends(key.state) == [10, 15, 20]
    assert key.time(15) == [("car1", 0, 10, [2.0], 9), ("car1", 5, 15, [2.0, 1.0], 14)]
    assert key.time(FINAL) == [("car1", 10, 20, [1.0], 19)]


def test_panes_serve_a_slide_that_does_not_divide_the_size() -> None:
    key = Key(WindowAggregate(SCHEMA, KEYING, Sliding(10, 4), SPEEDS))
    for time_ms in (-1, 0, 3, 4, 9):
        key.row(time_ms, float(time_ms))
    assert key.time(FINAL) == [
        ("car1", -8, 2, [-1.0, 0.0], 1),
        ("car1", -4, 6, [-1.0, 0.0, 3.0, 4.0], 5),
        ("car1", 0, 10, [0.0, 3.0, 4.0, 9.0], 9),
        ("car1", 4, 14, [4.0, 9.0], 13),
        ("car1", 8, 18, [9.0], 17),
    ]


def test_the_last_watermark_closes_only_windows_with_records() -> None:
    key = Key(WindowAggregate(SCHEMA, KEYING, Sliding("1 minute", "1 second"), {"n": Count()}))
    key.row(0)
    key.row(10**15)
    told = key.time(FINAL)
    assert [each[2] for each in told] == [*range(1000, 61_000, 1000), *range(10**15 + 1000, 10**15 + 61_000, 1000)]


def test_a_record_touches_one_accumulator_in_however_many_windows_it_is() -> None:
    added = []
    spy = Fold(0, lambda acc, record: added.append(record) or acc + 1, lambda a, b: a + b, "int")
    key = Key(WindowAggregate(SCHEMA, KEYING, Sliding("1 minute", "1 second"), {"n": spy}))
    for time_ms in (100, 200, 1300):
        key.row(time_ms)
    assert len(added) == 3
    assert len(key.state[2]) == 2, "a pane for each second with records"
    assert [each[3] for each in key.time(61_000)] == [2, *[3] * 59, 1]


def test_late_records_go_to_the_side_output_unchanged() -> None:
    key = Key(WindowAggregate(SCHEMA, KEYING, Tumbling(10), SPEEDS))
    assert key.row(25, 1.0, watermark_ms=20) == []
    assert key.row(19, 2.0) == [("late", "car1", 2.0, 19)]
    assert key.row(20, 3.0) == []
    assert key.time(30) == [("car1", 20, 30, [1.0, 3.0], 29)]
    assert key.row(29, 4.0) == [("late", "car1", 4.0, 29)], "also when nothing is kept of the key"


def test_a_record_is_left_out_of_the_windows_that_have_ended_and_counts_in_the_others() -> None:
    key = Key(WindowAggregate(SCHEMA, KEYING, Sliding(10, 5), SPEEDS))
    assert key.row(7, 1.0) == []
    assert key.row(8, 2.0, watermark_ms=12) == [("car1", 0, 10, [1.0], 9)]
    assert key.time(12) == []
    assert key.time(FINAL) == [("car1", 5, 15, [1.0, 2.0], 14)]


def test_an_allowed_late_record_tells_its_window_anew() -> None:
    key = Key(WindowAggregate(SCHEMA, KEYING, Tumbling(10), SPEEDS, lateness_ms=5))
    key.row(1, 1.0)
    assert key.time(10) == [("car1", 0, 10, [1.0], 9)]
    assert key.row(2, 2.0) == [("car1", 0, 10, [1.0, 2.0], 9)]
    assert key.logic.open_ends(key.state) == [10]
    assert key.time(14) == []
    assert key.row(3, 3.0) == [("car1", 0, 10, [1.0, 2.0, 3.0], 9)]
    assert key.time(15) == []
    assert key.state is None
    assert key.row(4, 4.0) == [("late", "car1", 4.0, 4)]


def test_the_first_record_of_a_window_may_be_late_but_allowed() -> None:
    key = Key(WindowAggregate(SCHEMA, KEYING, Tumbling(10), SPEEDS, lateness_ms=5))
    assert key.row(1, 1.0, watermark_ms=12) == [("car1", 0, 10, [1.0], 9)]
    assert key.time(13) == []
    assert key.time(15) == []
    assert key.state is None


def test_sessions_become_one_when_a_record_comes_between_them() -> None:
    key = Key(WindowAggregate(SCHEMA, KEYING, Session(10), {"sum": Sum("speed"), "n": Count()}))
    key.row(0, 1.0)
    key.row(20, 2.0)
    assert key.logic.open_ends(key.state) == [11, 31]
    key.row(10, 4.0)  # a pause as long as the gap does not end a session, as in Spark
    assert key.time(30) == []
    assert key.time(31) == [("car1", 0, 30, 7.0, 3, 30)]
    assert key.state is None


def test_a_session_ends_after_a_pause_longer_than_the_gap() -> None:
    key = Key(WindowAggregate(SCHEMA, KEYING, Session(10), {"n": Count()}))
    for time_ms in (0, 11, 22, 25):
        key.row(time_ms)
    assert key.time(FINAL) == [("car1", 0, 10, 1, 10), ("car1", 11, 21, 1, 21), ("car1", 22, 35, 2, 35)]


def test_a_record_behind_the_watermark_is_not_late_for_a_session_that_goes_on() -> None:
    key = Key(WindowAggregate(SCHEMA, KEYING, Session(10), {"n": Count()}))
    key.row(0)
    key.row(9)
    assert key.row(1, watermark_ms=15) == []
    assert key.row(-30) == [("late", "car1", 0.0, -30)]
    assert key.time(FINAL) == [("car1", 0, 19, 3, 19)]


def test_an_allowed_late_record_can_open_a_told_session_again() -> None:
    key = Key(WindowAggregate(SCHEMA, KEYING, Session(10), {"n": Count()}, lateness_ms=20))
    key.row(0)
    assert key.time(12) == [("car1", 0, 10, 1, 10)]
    assert key.row(0) == [("car1", 0, 10, 2, 10)]
    assert key.row(8) == [], "it now lasts until 18, which is to come"
    assert key.time(18) == []
    assert key.time(19) == [("car1", 0, 18, 3, 18)]
    assert key.time(38) == []
    assert key.time(39) == []
    assert key.state is None


def test_windows_of_records_count() -> None:
    tumbling = Key(WindowAggregate(SCHEMA, KEYING, CountTumbling(2), SPEEDS))
    assert tumbling.logic.output_ddl == "car string, speeds array<double>"
    assert tumbling.row(5, 1.0) == []
    assert tumbling.row(3, 2.0) == [("car1", [1.0, 2.0], 3)]
    assert tumbling.state is None
    assert tumbling.time(FINAL) == []
    sliding = Key(WindowAggregate(SCHEMA, KEYING, CountSliding(3, 2), SPEEDS))
    told = [sliding.row(nr, float(nr)) for nr in range(1, 7)]
    assert told == [
        [],
        [("car1", [1.0, 2.0], 2)],
        [],
        [("car1", [2.0, 3.0, 4.0], 4)],
        [],
        [("car1", [4.0, 5.0, 6.0], 6)],
    ]
    assert not sliding.logic.event_time
    assert sliding.logic.open_ends(sliding.state) == []


def test_a_function_gets_the_key_the_window_and_its_records() -> None:
    output = schema_of("car string, start bigint, speeds array<double>")

    def trips(key: Any, window: Span, records: list[Any]) -> Any:
        if window.end_ms == 20:
            return None
        return [{"car": key[0], "start": window.start_ms, "speeds": [record.speed for record in records]}] * 2

    logic = WindowApply(SCHEMA, KEYING, Tumbling(10), trips, output)
    assert logic.output_ddl == output.ddl
    key = Key(pickle.loads(cloudpickle.dumps(logic)))
    key.row(4, 1.0)
    key.row(2, 2.0)
    key.row(15, 3.0)
    assert key.time(FINAL) == [("car1", 0, [2.0, 1.0], 9)] * 2


def test_logics_are_pickled_with_what_they_are_made_of() -> None:
    for window in (Tumbling("1 s"), Sliding("1 s", "100 ms"), Session("1 s"), CountTumbling(3), CountSliding(30)):
        for logic in (
            WindowAggregate(SCHEMA, KEYING, window, {"n": Count(), "sum": Fold(0, lambda a, r: a, max, "int")}),
            WindowReduce(SCHEMA, KEYING, window, lambda a, b: a),
        ):
            again = pickle.loads(cloudpickle.dumps(logic))
            assert again.output_ddl == logic.output_ddl
            assert again.event_time == again.windowed == (not isinstance(window, CountTumbling | CountSliding))
            assert pickle.loads(pickle.dumps(window)) == window


ROWS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 9)), min_size=1, max_size=60)


@given(ROWS, st.integers(1, 40), st.integers(1, 40))
def test_without_late_records_windows_are_those_of_a_batch(
    rows: list[tuple[int, int]], size_ms: int, gap_ms: int
) -> None:
    """However far watermarks come between records, as long as they keep behind them."""
    tumbling = Key(WindowAggregate(SCHEMA, KEYING, Tumbling(size_ms), {"sum": Sum("speed")}))
    session = Key(WindowAggregate(SCHEMA, KEYING, Session(gap_ms), {"sum": Sum("speed")}))
    told: dict[Any, list[Any]] = {tumbling: [], session: []}
    pending = [time_ms for time_ms, _ in rows]
    for nr, (time_ms, speed) in enumerate(rows):
        watermark_ms = min(pending[nr:])  # as far as possible
        for key in told:
            told[key] += key.row(time_ms, float(speed), max(key.watermark_ms, watermark_ms))
            told[key] += key.time(key.watermark_ms)
    for key in told:
        told[key] += key.time(FINAL)
    frame = pd.DataFrame(rows, columns=["time", "speed"]).sort_values("time", kind="stable")
    by_window = frame.groupby(frame.time // size_ms * size_ms).speed.sum()
    assert [each[1:4] for each in told[tumbling]] == [(s, s + size_ms, total) for s, total in by_window.items()]
    number = (frame.time.diff() > gap_ms).cumsum()
    sessions = frame.groupby(number).agg(start=("time", "min"), last=("time", "max"), total=("speed", "sum"))
    assert [each[1:4] for each in told[session]] == [
        (row.start, row.last + gap_ms, row.total) for row in sessions.itertuples()
    ]


def test_wrong_windows_are_refused() -> None:
    wrong: list[Any] = [
        lambda: Tumbling(0),
        lambda: Tumbling(-5),
        lambda: Tumbling("soon"),
        lambda: Tumbling(1.5),  # type: ignore[arg-type]
        lambda: Tumbling(True),
        lambda: Sliding("1 minute", 0),
        lambda: Sliding("1 second", "1 minute"),
        lambda: Session(timedelta(0)),
        lambda: CountTumbling(0),
        lambda: CountTumbling("10"),  # type: ignore[arg-type]
        lambda: CountSliding(5, 0),
        lambda: CountSliding(5, 6),
        lambda: WindowAggregate(SCHEMA, KEYING, Tumbling(10), {"n": Count()}, lateness_ms=-1),
        lambda: WindowAggregate(SCHEMA, KEYING, CountTumbling(10), {"n": Count()}, lateness_ms=5),
        lambda: WindowAggregate(SCHEMA, KEYING, "1 minute", {"n": Count()}),  # type: ignore[arg-type]
        lambda: WindowAggregate(SCHEMA, KEYING, Tumbling(10), {}),
        lambda: WindowAggregate(SCHEMA, KEYING, Tumbling(10), {"window_end_ms": Count()}),
        lambda: WindowAggregate(SCHEMA, KEYING, Tumbling(10), {"mean": Avg("car")}),
    ]
    for attempt in wrong:
        with pytest.raises(ConfigurationError, match="remedy"):
            attempt()


def test_windows_say_what_they_are() -> None:
    windows = [Tumbling(timedelta(hours=2)), Sliding(1500, 20), Session("1 day"), CountTumbling(3), CountSliding(9, 3)]
    assert [str(window) for window in windows] == [
        *("tumbling 2 h", "sliding 1500 ms every 20 ms", "session 1 d"),
        *("tumbling 3 records", "sliding 9 records every 3"),
    ]
    assert Tumbling("1 minute") == Tumbling(60_000)
