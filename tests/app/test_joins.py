"""Joins against naive models: all pairs of a list of arrivals, with the watermark under which each came."""

import pickle
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peregrine.app.joins import Interval, IntervalJoin, Lookup, WindowJoin
from peregrine.app.logic import NEVER, Emit, Moment
from peregrine.app.schema import Keying, schema_of
from peregrine.app.windows import CountTumbling, Session, Sliding, Tumbling
from peregrine.errors import ConfigurationError, UnknownName

LEFT = schema_of("k string, at timestamp, bid bigint")
RIGHT = schema_of("k string, price decimal(10,2), ask bigint")
LEFT_KEY, RIGHT_KEY = Keying(LEFT, ["k"]), Keying(RIGHT, ["k"])
PAIR = schema_of("bid bigint, ask bigint")
END = 1 << 61


def bid_and_ask(left: Any, right: Any) -> dict[str, int]:
    return {"bid": left.bid, "ask": right.ask}


@dataclass(frozen=True)
class Arrival:
    side: int
    number: int
    time_ms: int
    watermark_ms: int

    @property
    def record(self) -> Any:
        if self.side:
            return RIGHT.record_of({"k": "a", "price": "1.50", "ask": self.number})
        return LEFT.record_of({"k": "a", "at": "2024-05-06T07:08:09.000010", "bid": self.number})


@st.composite
def arrivals(draw: st.DrawFn) -> list[Arrival]:
    """Times near the watermark, before and behind it, so that all limits are met; the watermark grows now and then."""
    rows = draw(st.lists(st.tuples(st.integers(0, 1), st.integers(-8, 8), st.sampled_from([0, 0, 1, 4])), max_size=20))
    watermark, found = -10, []
    for number, (side, ahead, step) in enumerate(rows):
        watermark += step
        found.append(Arrival(side, number, watermark + ahead, watermark))
    return found


def through_msgpack(state: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(state))


def run(join: Any, came: list[Arrival], cuts: list[bool]) -> tuple[list[list[Emit]], Any]:
    """What each arrival brings about, and at last the end of time, as the shell calls a logic; and the state left."""
    state, watermark, emitted = None, NEVER, []
    for each, cut in zip(came, cuts, strict=True):
        at = Moment(each.time_ms, each.watermark_ms, input=each.side)
        state, emits = join.on_record(("a",), through_msgpack(state) if cut else state, each.record, at)
        if each.watermark_ms > watermark:
            watermark = at.time_ms = each.watermark_ms
            state, more = join.on_time(("a",), through_msgpack(state) if cut else state, at)
            emits = emits + more
        emitted.append(emits)
    state, emits = join.on_time(("a",), state, Moment(END, END))
    return [*emitted, emits], state


def plain(emits: list[Emit]) -> list[tuple[int, int, int]]:
    """(bid, ask, time) of pairs."""
    return [(emit.record["bid"], emit.record["ask"], emit.time_ms) for emit in emits if emit.output == 0]


def late(emits: list[Emit]) -> list[tuple[int, int]]:
    """(side, number) of records that came too late, which must be whole."""
    found = []
    for emit in emits:
        if emit.output:
            side = emit.output - 1
            found.append((side, emit.record.ask if side else emit.record.bid))
            assert isinstance(emit.record, RIGHT.record if side else LEFT.record)
    return found


def cut_of(came: list[Arrival]) -> st.SearchStrategy[list[bool]]:
    return st.lists(st.booleans(), min_size=len(came), max_size=len(came))


lengths = st.sampled_from([-6, -2, 0, 1, 5])


@given(came=arrivals(), ends=st.tuples(lengths, lengths), lateness_ms=st.sampled_from([0, 3]), data=st.data())
def test_an_interval_join_gives_each_pair_once_and_when_its_second_record_comes(
    came: list[Arrival], ends: tuple[int, int], lateness_ms: int, data: st.DataObject
) -> None:
    before, after = sorted(ends)
    join = IntervalJoin(LEFT, RIGHT, LEFT_KEY, RIGHT_KEY, Interval(before, after), bid_and_ask, PAIR, lateness_ms)
    emitted, state = run(join, came, data.draw(cut_of(came)))
    taken: list[Arrival] = []
    for each, emits in zip(came, emitted, strict=False):
        is_late = each.time_ms + lateness_ms < each.watermark_ms
        assert late(emits) == ([(each.side, each.number)] if is_late else [])
        expected = []
        for other in [] if is_late else taken:
            left, right = (other, each) if each.side else (each, other)
            if left.side != right.side and left.time_ms + before <= right.time_ms <= left.time_ms + after:
                expected.append((other.time_ms, other.number, left.number, right.number))
        assert plain(emits) == [(bid, ask, max(each.time_ms, time)) for time, _, bid, ask in sorted(expected)]
        taken += [] if is_late else [each]
    assert emitted[-1] == [] and state is None


@given(came=arrivals(), lateness_ms=st.sampled_from([0, 3]), data=st.data())
def test_an_interval_join_keeps_no_record_longer_than_a_partner_may_come(
    came: list[Arrival], lateness_ms: int, data: st.DataObject
) -> None:
    join = IntervalJoin(LEFT, RIGHT, LEFT_KEY, RIGHT_KEY, Interval(-5, 9), bid_and_ask, PAIR, lateness_ms)
    state = None
    for each in came:
        at = Moment(each.time_ms, each.watermark_ms, input=each.side)
        state, _ = join.on_record(("a",), state, each.record, at)
        state, _ = join.on_time(("a",), state, at)
        horizon = each.watermark_ms - lateness_ms
        assert all(time + 9 >= horizon for time in state[0]) if state else True
        assert all(time + 5 >= horizon for time in state[2]) if state else True
        assert state is None or state[0] or state[2]


WINDOWS = [Tumbling(4), Sliding(6, 3), Sliding(4, 1), Sliding(5, 2)]


def windows_of(window: Tumbling | Sliding, time_ms: int) -> list[int]:
    """Ends, by trying all of them."""
    slide = window.slide_ms if isinstance(window, Sliding) else window.size_ms
    return [s + window.size_ms for s in range(-slide * 40, slide * 120, slide) if s <= time_ms < s + window.size_ms]


@given(came=arrivals(), window=st.sampled_from(WINDOWS), lateness_ms=st.sampled_from([0, 2, 5]), data=st.data())
def test_a_window_join_gives_all_pairs_of_each_window_once(
    came: list[Arrival], window: Tumbling | Sliding, lateness_ms: int, data: st.DataObject
) -> None:
    join = WindowJoin(LEFT, RIGHT, LEFT_KEY, RIGHT_KEY, window, bid_and_ask, PAIR, lateness_ms)
    emitted, state = run(join, came, data.draw(cut_of(came)))
    members: dict[int, list[Arrival]] = {}
    ended = NEVER

    def closed_by(watermark_ms: int) -> list[tuple[int, int, int]]:
        return [
            (left.number, right.number, end - 1)
            for end in sorted(members)
            if ended < end <= watermark_ms
            for left in members[end]
            for right in members[end]
            if (left.side, right.side) == (0, 1)
        ]

    for each, emits in zip(came, emitted, strict=False):
        expected = closed_by(each.watermark_ms)
        ended = each.watermark_ms
        mine = [end for end in windows_of(window, each.time_ms) if end + lateness_ms > each.watermark_ms]
        for end in mine:
            for other in members.get(end, []) if end <= each.watermark_ms else []:
                if other.side != each.side:
                    left, right = (other, each) if each.side else (each, other)
                    expected.append((left.number, right.number, end - 1))
            members.setdefault(end, []).append(each)
        assert plain(emits) == expected
        assert late(emits) == ([] if mine else [(each.side, each.number)])
    assert plain(emitted[-1]) == closed_by(END) and late(emitted[-1]) == []
    assert state is None


@given(came=arrivals(), window=st.sampled_from(WINDOWS))
def test_a_window_join_keeps_only_what_an_open_window_needs(came: list[Arrival], window: Tumbling | Sliding) -> None:
    join = WindowJoin(LEFT, RIGHT, LEFT_KEY, RIGHT_KEY, window, bid_and_ask, PAIR, 6)
    state = None
    for each in came:
        at = Moment(each.time_ms, each.watermark_ms, input=each.side)
        state, _ = join.on_record(("a",), state, each.record, at)
        state, _ = join.on_time(("a",), state, at)
        ends = join.open_ends(state)
        assert all(end + 6 > each.watermark_ms for end in ends)
        assert all(first < second for first, second in pairwise(ends))
        for time_ms, _ in [*state[2], *state[3]] if state else []:
            assert windows_of(window, time_ms)[-1] in ends


def test_a_final_watermark_closes_windows_without_counting_through_them() -> None:
    join = WindowJoin(LEFT, RIGHT, LEFT_KEY, RIGHT_KEY, Tumbling(1), bid_and_ask, PAIR)
    emitted, state = run(join, [Arrival(0, 1, 5, 0), Arrival(1, 2, 5, 0)], [False, False])
    assert plain(emitted[-1]) == [(1, 2, 5)] and state is None


def test_records_come_out_of_the_state_as_they_were() -> None:
    seen = []
    join = IntervalJoin(
        LEFT, RIGHT, LEFT_KEY, RIGHT_KEY, Interval(0, 0), lambda left, right: seen.append((left, right)), PAIR
    )
    came = [Arrival(0, 1, 5, 0), Arrival(1, 2, 5, 0)]
    emitted, _ = run(join, came, [True, True])
    assert seen == [(came[0].record, came[1].record)]
    assert emitted == [[], [], []]  # a select that gives None leaves the pair out


def test_without_a_select_a_pair_is_the_left_columns_and_the_right_ones_that_are_no_key() -> None:
    for join in (
        IntervalJoin(LEFT, RIGHT, LEFT_KEY, RIGHT_KEY, Interval(0, "1 second")),
        WindowJoin(LEFT, RIGHT, LEFT_KEY, RIGHT_KEY, Tumbling("1 second")),
    ):
        assert join.output_ddl == "k string, at timestamp, bid bigint, price decimal(10,2), ask bigint"
        emitted, _ = run(join, [Arrival(0, 1, 5, 0), Arrival(1, 2, 5, 0)], [False, True])
        (pair,) = [emit for emits in emitted for emit in emits]
        record = schema_of(join.output_ddl).record_of(pair.record)
        assert (record.k, record.bid, record.ask, str(record.price)) == ("a", 1, 2, "1.50")


def test_keys_of_other_names_are_left_out_on_the_right() -> None:
    other = schema_of("symbol string, ask bigint")
    join = IntervalJoin(LEFT, other, LEFT_KEY, Keying(other, ["symbol"]), Interval(0, 0))
    assert join.output_ddl == "k string, at timestamp, bid bigint, ask bigint"


def test_columns_of_the_same_name_need_a_select() -> None:
    with pytest.raises(ConfigurationError, match=r"both sides of the join have a column at, bid\n.*give select="):
        IntervalJoin(LEFT, LEFT, LEFT_KEY, LEFT_KEY, Interval(0, 0))


def test_a_select_needs_a_schema_and_a_schema_a_select() -> None:
    with pytest.raises(ConfigurationError, match="a select without the schema"):
        IntervalJoin(LEFT, RIGHT, LEFT_KEY, RIGHT_KEY, Interval(0, 0), bid_and_ask)
    with pytest.raises(ConfigurationError, match="without a select, a join gives"):
        WindowJoin(LEFT, RIGHT, LEFT_KEY, RIGHT_KEY, Tumbling(5), None, PAIR)


def test_an_interval_takes_lengths_of_time_of_both_signs() -> None:
    interval = Interval("-1 minute 30 seconds", "2 seconds")
    assert (interval.before_ms, interval.after_ms) == (-90_000, 2000)
    with pytest.raises(ConfigurationError, match="is empty"):
        Interval("1 second", "-1 second")


@pytest.mark.parametrize("window", [Session(5), CountTumbling(3)])
def test_a_window_join_takes_windows_that_do_not_depend_on_records(window: Any) -> None:
    with pytest.raises(ConfigurationError, match="use Tumbling or Sliding"):
        WindowJoin(LEFT, RIGHT, LEFT_KEY, RIGHT_KEY, window)


TABLE = schema_of("sensor string, room string")
READING = schema_of("id string, value double")
ROWS = {"s1": TABLE.encode({"sensor": "s1", "room": "hall"})}


def look_up(lookup: Lookup, sensor: str | None) -> list[Emit]:
    state, emits = lookup.on_record(("x",), None, READING.record(id=sensor, value=1.0), Moment(7))
    assert state is None
    return emits


def table(how: str = "inner", **arguments: Any) -> Lookup:
    return Lookup(READING, TABLE, Keying(READING, ["id"]), Keying(TABLE, ["sensor"]), ROWS, how=how, **arguments)


def test_a_lookup_adds_the_columns_of_the_row_with_the_same_key() -> None:
    lookup = table()
    assert lookup.output_ddl == "id string, value double, room string"
    assert look_up(lookup, "s1") == [Emit({"id": "s1", "value": 1.0, "room": "hall"}, 7)]
    assert look_up(lookup, "s2") == [] and look_up(lookup, None) == []


def test_a_left_lookup_keeps_records_without_a_row() -> None:
    assert [each.record["room"] for each in look_up(table("left"), "s1")] == ["hall"]
    assert [each.record["room"] for each in look_up(table("left"), "s2")] == [None]
    assert [each.record["room"] for each in look_up(table("left"), None)] == [None]


def room_or_nowhere(reading: Any, row: Any) -> dict[str, str] | None:
    return None if row and row.room == "cellar" else {"room": row.room if row else "nowhere"}


def test_a_lookup_with_a_select_sees_none_for_a_missing_row() -> None:
    lookup = table("left", select=room_or_nowhere, output_schema=schema_of("room string"))
    assert [each.record for each in look_up(lookup, "s2")] == [{"room": "nowhere"}]


def test_a_lookup_refuses_keys_of_other_types_and_joins_it_does_not_know() -> None:
    with pytest.raises(ConfigurationError, match="a lookup cannot be 'outer'"):
        table("outer")
    numbers = schema_of("id bigint, room string")
    with pytest.raises(ConfigurationError, match=r"the key of the stream is \(string\), that of the table \(bigint\)"):
        Lookup(READING, numbers, Keying(READING, ["id"]), Keying(numbers, ["id"]), {})
    with pytest.raises(UnknownName):
        Keying(TABLE, ["id"])


def test_joins_can_be_pickled() -> None:
    came = [Arrival(0, 1, 5, 0), Arrival(1, 2, 5, 0)]
    for join in (
        IntervalJoin(LEFT, RIGHT, LEFT_KEY, RIGHT_KEY, Interval(0, 0)),
        WindowJoin(LEFT, RIGHT, LEFT_KEY, RIGHT_KEY, Sliding(10, 5)),
    ):
        again = pickle.loads(pickle.dumps(join))
        assert run(again, came, [False, False]) == run(join, came, [False, False])
    assert look_up(pickle.loads(pickle.dumps(table())), "s1") == look_up(table(), "s1")
