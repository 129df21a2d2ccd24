"""The testing kit, and through it the shell around every operator: time, numbering, several inputs, state as bytes."""

from typing import Any

import pytest

from peregrine import App, Count, InMemory, Interval, Max, Session, Side, Sliding, Sum, Tumbling
from peregrine.app.logic import Emit, Key, Moment, Timeless
from peregrine.errors import UnknownName

ROWS = "k string, n bigint, at_ms bigint"


def test_functions_and_side_outputs() -> None:
    app = App("f")
    rows = app.source("rows", ROWS)

    def words(row: Any) -> list[Any]:
        return [Side("bad", {"why": "negative"})] if row.n < 0 else [{"n": row.n}] * row.n

    many = rows.flat_map("many", words, "n bigint", sides={"bad": "why string"})
    many.map("double", lambda row: {"n": 2 * row.n}, "n bigint").to("doubled")
    many.side("bad").to("refused")
    run = InMemory(app)
    run.send("rows", [{"k": "a", "n": 2}, {"k": "a", "n": -1}, {"k": "a", "n": 1}])
    assert [row.n for row in run.results("doubled")] == [4, 4, 2]
    assert [row.why for row in run.results("refused")] == ["negative"]


def test_a_window_behind_a_window_closes_when_all_keys_of_the_first_have_passed() -> None:
    """Hottest key of each window: bids per key, then the largest count over all keys (Nexmark's fifth query)."""
    app = App("hot", groups=8)
    rows = app.source("rows", ROWS, event_time="at_ms", senders=["x", "y"])
    counts = rows.key_by("k").window(Sliding(20, 10)).aggregate("counts", n=Count())
    one = counts.map(
        "one", lambda row: {"all": 0, "n": row.n, "end": row.window_end_ms}, "all int, n bigint, end bigint"
    )
    one.key_by("all").window(Tumbling(10)).aggregate("hottest", n=Max("n"), end=Max("end")).to("hottest")
    run = InMemory(app)
    run.send("rows", [{"k": k, "n": 0, "at_ms": t} for k, t in (("a", 1), ("b", 5), ("a", 12), ("a", 18))], sender="x")
    run.heartbeat("rows", 25, sender="x")
    assert run.results("hottest") == []
    run.send("rows", {"k": "c", "n": 0, "at_ms": 3}, sender="y")
    run.send("rows", [{"k": "c", "n": 0, "at_ms": 4}, {"k": "c", "n": 0, "at_ms": 21}], sender="y")
    run.heartbeat("rows", 25, sender="y")
    assert [(row.end, row.n) for row in run.results("hottest")] == [(10, 2), (20, 3)]
    run.finish()
    assert [(row.end, row.n) for row in run.results("hottest")] == [(10, 2), (20, 3), (30, 2), (40, 1)]


def test_late_records_leave_by_the_side() -> None:
    app = App("late")
    rows = app.source("rows", ROWS, event_time="at_ms", senders=["x"])
    windows = rows.key_by("k").window(Tumbling(10)).aggregate("sums", s=Sum("n"))
    windows.to("sums")
    windows.side("late").to("late")
    run = InMemory(app)
    run.send("rows", [{"k": "a", "n": 1, "at_ms": 5}, {"k": "a", "n": 2, "at_ms": 15}, {"k": "a", "n": 4, "at_ms": 9}])
    run.finish()
    assert [(row.window_end_ms, row.s) for row in run.results("sums")] == [(10, 1), (20, 2)]
    assert [row.n for row in run.results("late")] == [4]


def test_a_delay_lets_records_come_out_of_order() -> None:
    app = App("delay")
    rows = app.source("rows", ROWS, event_time="at_ms", senders=["x"], delay=10)
    rows.key_by("k").window(Tumbling(10)).aggregate("sums", s=Sum("n")).to("sums")
    run = InMemory(app)
    run.send("rows", [{"k": "a", "n": 1, "at_ms": 5}, {"k": "a", "n": 2, "at_ms": 15}, {"k": "a", "n": 4, "at_ms": 9}])
    assert run.results("sums") == []
    run.finish()
    assert [(row.window_end_ms, row.s) for row in run.results("sums")] == [(10, 5), (20, 2)]


def test_a_lost_device_is_not_waited_for_and_counts_again_when_it_is_back() -> None:
    app = App("lost")
    rows = app.source("rows", ROWS, event_time="at_ms", senders=["x", "y"], lost_after=100)
    rows.key_by("k").window(Tumbling(10)).aggregate("sums", s=Sum("n")).to("sums")
    run = InMemory(app)
    run.send("rows", [{"k": "a", "n": 1, "at_ms": 5}, {"k": "a", "n": 2, "at_ms": 25}], sender="x")
    run.tick(1000)
    run.heartbeat("rows", 26, sender="x")
    run.tick(1050)
    assert run.results("sums") == []
    run.heartbeat("rows", 27, sender="x")
    run.tick(1120)
    assert [row.s for row in run.results("sums")] == [1]  # y has said nothing for 120 ms
    run.heartbeat("rows", 21, sender="y")
    run.send("rows", {"k": "a", "n": 8, "at_ms": 45}, sender="x")
    run.tick(1130)
    assert [row.s for row in run.results("sums")] == [1]  # it is back, and at 21 only
    run.finish()
    assert [row.s for row in run.results("sums")] == [1, 2, 8]


def test_two_inputs_by_key() -> None:
    app = App("pairs")
    left = app.source("left", ROWS, event_time="at_ms", senders=["l"])
    right = app.source("right", ROWS, event_time="at_ms", senders=["r"])
    app_pairs = left.key_by("k").join(
        "pairs", right.key_by("k"), Interval(-5, 5), lambda a, b: {"k": a.k, "n": a.n * b.n}, "k string, n bigint"
    )
    app_pairs.to("pairs")
    run = InMemory(app)
    run.send("left", [{"k": "a", "n": 2, "at_ms": 10}, {"k": "b", "n": 3, "at_ms": 10}])
    run.send("right", [{"k": "a", "n": 5, "at_ms": 14}, {"k": "a", "n": 7, "at_ms": 16}])
    assert [(row.k, row.n) for row in run.results("pairs")] == [("a", 10)]


class Latest(Timeless):
    """Of two inputs: remembers the right, tells it with the left."""

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        if at.input == 1:
            return record.n, []
        return state, [Emit({"k": key[0], "n": state or 0}, at.time_ms)]


def test_a_logic_of_ones_own_with_two_inputs() -> None:
    app = App("own")
    left, right = app.source("left", ROWS), app.source("right", ROWS)
    left.key_by("k").connect("latest", Latest(), right.key_by("k"), schema="k string, n bigint").to("told")
    run = InMemory(app)
    run.send("left", {"k": "a"})
    run.send("right", {"k": "a", "n": 4})
    run.send("left", {"k": "a"})
    assert [row.n for row in run.results("told")] == [0, 4]
    assert run.state("latest", "a") == 4 and run.state("latest", "b") is None


def test_a_union_and_a_lookup() -> None:
    app = App("union")
    one, other = app.source("one", ROWS), app.source("other", ROWS)
    names = app.table("names", "k string, name string", [("a", "ann")], key="k")
    both = one.union(other).lookup(
        "named", names, on="k", select=lambda row, name: {"name": name.name}, schema="name string"
    )
    both.to("names")
    run = InMemory(app)
    run.send("one", {"k": "a"})
    run.send("other", [{"k": "a"}, {"k": "b"}])
    assert [row.name for row in run.results("names")] == ["ann", "ann"]


def test_sessions_of_keys_of_several_columns() -> None:
    app = App("sessions")
    rows = app.source("rows", ROWS, event_time="at_ms", senders=["x"])
    rows.key_by("k", "n").window(Session(10)).aggregate("trips", count=Count()).to("trips")
    run = InMemory(app)
    run.send("rows", [{"k": "a", "n": 1, "at_ms": t} for t in (1, 5, 30)] + [{"k": "a", "n": 2, "at_ms": 31}])
    run.finish()
    assert [(row.n, row.window_start_ms, row.count) for row in run.results("trips")] == [
        (1, 1, 2),
        (1, 30, 1),
        (2, 31, 1),
    ]


def test_unknown_names() -> None:
    app = App("names")
    app.source("rows", ROWS).to("all")
    run = InMemory(app)
    with pytest.raises(UnknownName):
        run.send("row", {})
    with pytest.raises(UnknownName):
        run.results("alles")
    with pytest.raises(UnknownName):
        run.state("op", "k")
