"""Windows against naive models: every record is kept for ever in every window, and windows are looked for by trying.

A course is records and watermarks as they come; after each step the state may go through msgpack, as it does when a
batch ends, a host starts again, or the key moves.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from peregrine.app.aggregates import Avg, Collect, Count, First, Last, Max, Min, Sum
from peregrine.app.logic import NEVER, Emit, Moment
from peregrine.app.schema import Keying, schema_of
from peregrine.app.window_logic import WindowAggregate, WindowApply, WindowReduce
from peregrine.app.windows import CountSliding, CountTumbling, Session, Sliding, Tumbling

FINAL = 1 << 61
SCHEMA = schema_of("car string, nr int, speed bigint")
KEYING = Keying(SCHEMA, ["car"])
KEY = ("car1",)
AGGREGATES = {"n": Count(), "sum": Sum("speed"), "avg": Avg("speed"), "low": Min("speed"), "high": Max("speed")}


@dataclass
class Step:
    advance_ms: int  # of the watermark, from where it is
    behind_ms: int | None  # a record this much behind (or, negative, ahead of) the watermark; None: no record
    speed: int | None
    through_msgpack: bool


STEPS = st.lists(
    st.builds(
        Step,
        advance_ms=st.sampled_from([0, 0, 0, 1, 2, 5, 13, 40]),
        behind_ms=st.none() | st.integers(-60, 60),
        speed=st.none() | st.integers(-100, 100),
        through_msgpack=st.booleans(),
    ),
    max_size=40,
)
LATENESS = st.sampled_from([0, 0, 1, 7, 30])


@dataclass
class Row:
    nr: int
    time_ms: int
    speed: int | None


@dataclass
class Told:
    """What is told of a window, or a late record."""

    start_ms: int | None
    end_ms: int | None
    rows: list[Row]


@dataclass
class TimeModel:
    size_ms: int
    slide_ms: int
    lateness_ms: int
    rows: dict[int, list[Row]] = field(default_factory=dict)  # by the end of the window
    told: set[int] = field(default_factory=set)

    def time(self, watermark_ms: int) -> list[Told]:
        due = sorted(end for end in self.rows if end <= watermark_ms and end not in self.told)
        self.told.update(due)
        return [self.tell(end) for end in due]

    def record(self, row: Row, watermark_ms: int) -> list[Told]:
        ends = [
            end
            for end in range(row.time_ms + 1, row.time_ms + self.size_ms + 1)
            if (end - self.size_ms) % self.slide_ms == 0 and end + self.lateness_ms > watermark_ms
        ]
        for end in ends:
            self.rows.setdefault(end, []).append(row)
        again = [end for end in ends if end <= watermark_ms]
        self.told.update(again)
        return [self.tell(end) for end in again] if ends else [Told(None, None, [row])]

    def tell(self, end: int) -> Told:
        return Told(end - self.size_ms, end, list(self.rows[end]))

    def alive(self, watermark_ms: int) -> set[int]:
        return {end for end in self.rows if end + self.lateness_ms > watermark_ms}


@dataclass
class SessionModel:
    gap_ms: int
    lateness_ms: int
    sessions: list[list[Row]] = field(default_factory=list)
    told: list[list[Row]] = field(default_factory=list)  # as they were

    def end(self, rows: list[Row]) -> int:
        """The first watermark with which nothing can join them."""
        return max(row.time_ms for row in rows) + self.gap_ms + 1

    def time(self, watermark_ms: int) -> list[Told]:
        due = [rows for rows in self.sessions if self.end(rows) <= watermark_ms and rows not in self.told]
        self.told += [list(rows) for rows in due]
        self.sessions = [rows for rows in self.sessions if self.end(rows) + self.lateness_ms > watermark_ms]
        return [self.tell(rows) for rows in sorted(due, key=self.end)]

    def record(self, row: Row, watermark_ms: int) -> list[Told]:
        near = [rows for rows in self.sessions if any(abs(row.time_ms - each.time_ms) <= self.gap_ms for each in rows)]
        if not near and row.time_ms + self.gap_ms + 1 + self.lateness_ms <= watermark_ms:
            return [Told(None, None, [row])]
        joined = [each for rows in near for each in rows] + [row]
        self.sessions = [rows for rows in self.sessions if rows not in near] + [joined]
        if self.end(joined) > watermark_ms:
            return []
        self.told.append(list(joined))
        return [self.tell(joined)]

    def tell(self, rows: list[Row]) -> Told:
        return Told(min(row.time_ms for row in rows), self.end(rows) - 1, list(rows))

    def alive(self, watermark_ms: int) -> set[int]:
        """The ends that sessions had when there was only their first row."""
        return {min(row.time_ms for row in rows) + self.gap_ms + 1 for rows in self.sessions}


def through_msgpack(state: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(state))


def play(logic: Any, model: Any, steps: list[Step]) -> list[tuple[list[Emit], list[Told]]]:
    """What the logic emits and the model tells, step by step. Ends with the final watermark."""
    state, watermark_ms, found = None, 0, []
    for nr, step in enumerate([*steps, Step(FINAL, None, None, False)]):
        before, watermark_ms = watermark_ms, watermark_ms + step.advance_ms
        emits: list[Emit] = []
        told = model.time(watermark_ms)
        if step.behind_ms is not None:
            row = Row(nr, watermark_ms - step.behind_ms, step.speed)
            told += model.record(row, watermark_ms)
            record = SCHEMA.record("car1", row.nr, row.speed)
            state, emits = logic.on_record(KEY, state, record, Moment(row.time_ms, watermark_ms))
            if step.through_msgpack:
                state = through_msgpack(state)
        if watermark_ms > before:
            state, more = logic.on_time(KEY, state, Moment(watermark_ms, watermark_ms))
            emits = emits + more
        alive = model.alive(watermark_ms)
        assert (state is None) == (not alive)
        assert alive <= set(logic.open_ends(state))
        state = through_msgpack(state) if step.through_msgpack else state
        found.append((emits, told))
    assert state is None
    return found


def as_aggregates(told: Told) -> Any:
    speeds = [row.speed for row in told.rows if row.speed is not None]
    numbers = (sum(speeds), sum(speeds) / len(speeds), min(speeds), max(speeds)) if speeds else (None,) * 4
    window = () if told.start_ms is None else (told.start_ms, told.end_ms)
    return "car1", *window, len(told.rows), *numbers


def check_aggregates(logic: Any, model: Any, steps: list[Step]) -> None:
    for emits, told in play(logic, model, steps):
        for emit, expected in zip(emits, told, strict=True):
            if expected.end_ms is None:
                (row,) = expected.rows
                assert emit == Emit(SCHEMA.record("car1", row.nr, row.speed), row.time_ms, 1)
            else:
                assert (emit.time_ms, emit.output) == (logic_time_ms(model, expected), 0)
                assert tuple(emit.record) == as_aggregates(expected)


def logic_time_ms(model: Any, told: Told) -> int:
    assert told.end_ms is not None
    return told.end_ms if isinstance(model, SessionModel) else told.end_ms - 1


@given(STEPS, st.integers(1, 40), LATENESS)
@example([Step(10, 0, 1, True), Step(40, 41, 2, True)], 20, 30)
def test_tumbling_windows_are_those_of_the_naive_model(steps: list[Step], size_ms: int, lateness_ms: int) -> None:
    logic = WindowAggregate(SCHEMA, KEYING, Tumbling(size_ms), AGGREGATES, lateness_ms)
    check_aggregates(logic, TimeModel(size_ms, size_ms, lateness_ms), steps)


@settings(max_examples=300)
@given(STEPS, st.integers(1, 40), st.integers(1, 40), LATENESS)
def test_sliding_windows_are_those_of_the_naive_model(
    steps: list[Step], size_ms: int, slide_ms: int, lateness_ms: int
) -> None:
    slide_ms = min(size_ms, slide_ms)
    logic = WindowAggregate(SCHEMA, KEYING, Sliding(size_ms, slide_ms), AGGREGATES, lateness_ms)
    check_aggregates(logic, TimeModel(size_ms, slide_ms, lateness_ms), steps)


@settings(max_examples=300)
@given(STEPS, st.integers(1, 30), LATENESS)
def test_sessions_are_those_of_the_naive_model(steps: list[Step], gap_ms: int, lateness_ms: int) -> None:
    logic = WindowAggregate(SCHEMA, KEYING, Session(gap_ms), AGGREGATES, lateness_ms)
    check_aggregates(logic, SessionModel(gap_ms, lateness_ms), steps)


APPLIED = schema_of("start bigint, end bigint, nrs array<int>")


def list_rows(key: Any, span: Any, records: list[Any]) -> list[Any]:
    assert key == KEY
    return [(span.start_ms, span.end_ms, [record.nr for record in records])]


@given(STEPS, st.integers(1, 40), st.integers(1, 40), LATENESS, st.booleans())
def test_functions_get_the_records_of_a_window_in_the_order_of_event_time(
    steps: list[Step], size_ms: int, slide_ms: int, lateness_ms: int, sessions: bool
) -> None:
    slide_ms = min(size_ms, slide_ms)
    window = Session(size_ms) if sessions else Sliding(size_ms, slide_ms)
    model: Any = SessionModel(size_ms, lateness_ms) if sessions else TimeModel(size_ms, slide_ms, lateness_ms)
    logic = WindowApply(SCHEMA, KEYING, window, list_rows, APPLIED, lateness_ms)
    for emits, told in play(logic, model, steps):
        got = [tuple(emit.record) for emit in emits if emit.output == 0]
        timed = [each for each in told if each.end_ms is not None]
        in_time = [sorted(each.rows, key=lambda row: (row.time_ms, row.nr)) for each in timed]
        expected = [
            (each.start_ms, each.end_ms, [row.nr for row in rows]) for each, rows in zip(timed, in_time, strict=True)
        ]
        assert got == expected


@given(STEPS, st.integers(1, 40), st.integers(1, 40), LATENESS, st.booleans())
def test_windows_reduce_their_records_to_one(
    steps: list[Step], size_ms: int, slide_ms: int, lateness_ms: int, sessions: bool
) -> None:
    slide_ms = min(size_ms, slide_ms)
    window = Session(size_ms) if sessions else Sliding(size_ms, slide_ms)
    model: Any = SessionModel(size_ms, lateness_ms) if sessions else TimeModel(size_ms, slide_ms, lateness_ms)
    logic = WindowReduce(SCHEMA, KEYING, window, lambda a, b: a if a.nr > b.nr else b, lateness_ms)
    for emits, told in play(logic, model, steps):
        assert [emit.record.nr for emit in emits] == [max(row.nr for row in each.rows) for each in told]


@pytest.mark.parametrize(("size", "slide"), [(12, 1), (30, 1), (30, 7), (64, 4)])
def test_many_panes_of_records_give_what_all_their_records_give(size: int, slide: int) -> None:
    aggregates = {**AGGREGATES, "first": First("nr"), "last": Last("nr")}
    logic = WindowAggregate(SCHEMA, KEYING, CountSliding(size, slide), aggregates)
    seen: list[Row] = []
    state = None
    for nr in range(300):
        seen.append(Row(nr, nr, (nr * 7919) % 101))
        state, emits = logic.on_record(KEY, state, SCHEMA.record("car1", nr, seen[-1].speed), Moment(nr))
        last = seen[-size:]
        expected = [(*as_aggregates(Told(None, None, last)), last[0].nr, nr)] if (nr + 1) % slide == 0 else []
        assert [tuple(emit.record) for emit in emits] == expected
        state = through_msgpack(state) if nr % 5 == 0 else state
    assert len(msgspec.msgpack.encode(state)) < 50 * (size + 2), (
        "what is kept does not grow with the square of the size"
    )


SPEEDS = st.lists(st.tuples(st.integers(0, 100), st.none() | st.integers(-100, 100), st.booleans()), max_size=90)


@settings(max_examples=200)
@given(SPEEDS, st.integers(1, 30), st.integers(1, 20), st.booleans())
def test_windows_of_records_are_the_last_ones_after_every_slide(
    rows: list[tuple[int, int | None, bool]], size: int, slide: int, bounded: bool
) -> None:
    slide = min(size, slide)
    aggregates: dict[str, Any] = AGGREGATES if bounded else {**AGGREGATES, "nrs": Collect("nr")}
    logic = WindowAggregate(SCHEMA, KEYING, CountSliding(size, slide), aggregates)
    tumbling = WindowAggregate(SCHEMA, KEYING, CountTumbling(size), AGGREGATES)
    apply = WindowApply(SCHEMA, KEYING, CountSliding(size, slide), list_rows, APPLIED)
    seen: list[Row] = []
    state, tumbling_state, apply_state = None, None, None
    for nr, (time_ms, speed, msgpack) in enumerate(rows):
        seen.append(Row(nr, time_ms, speed))
        at, record = Moment(time_ms, NEVER), SCHEMA.record("car1", nr, speed)
        state, emits = logic.on_record(KEY, state, record, at)
        tumbling_state, tumbled = tumbling.on_record(KEY, tumbling_state, record, at)
        apply_state, applied = apply.on_record(KEY, apply_state, record, at)
        last = seen[-size:]
        if len(seen) % slide == 0:
            nrs = [row.nr for row in last]
            more = () if bounded else (nrs,)
            assert [tuple(emit.record) for emit in emits] == [(*as_aggregates(Told(None, None, last)), *more)]
            assert emits[0].time_ms == time_ms
            times = [row.time_ms for row in last]
            assert [tuple(emit.record) for emit in applied] == [(min(times), max(times) + 1, nrs)]
        else:
            assert emits == applied == []
        assert [tuple(emit.record) for emit in tumbled] == (
            [as_aggregates(Told(None, None, last))] if len(seen) % size == 0 else []
        )
        if msgpack:
            state, tumbling_state, apply_state = map(through_msgpack, (state, tumbling_state, apply_state))
