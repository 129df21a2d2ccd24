"""Equal operators of several applications run once, and each application gives what it gives alone."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.cloudpickle import dumps

from peregrine import (
    App,
    Avg,
    Count,
    CountTumbling,
    InMemory,
    Interval,
    Max,
    Session,
    Side,
    Sliding,
    Sum,
    Tumbling,
)
from peregrine.app.compile import Compiled, Ingress, compile_app, compile_apps
from peregrine.app.model import Stream
from peregrine.app.sharing import twins_of
from peregrine.types import OpId

SPEEDS = "vehicle string, speed double, at_ms bigint"
GATES = ["gate1", "gate2"]

Build = Callable[[App], Stream]


def speeds(app: App, name: str = "speeds", schema: str = SPEEDS, **settings: Any) -> Stream:
    return app.source(name, schema, **{"event_time": "at_ms", "senders": GATES, **settings})


def is_fast(row: Any) -> bool:
    return row.speed > 100


def faster(one: Any, other: Any) -> Any:
    return one if one.speed >= other.speed else other


def first_only(key: Any, window: Any, records: Any) -> list[Any]:
    return [next(iter(records))]


def halves(row: Any) -> list[Any]:
    return [{"half": row.speed / 2}, Side("odd", {"whole": row.speed})]


class Counter:
    """A processor in the form that PySpark's have."""

    def __init__(self, step: int = 1) -> None:
        self.step = step

    def init(self, handle: Any) -> None:
        self.seen = handle.getValueState("seen", "n bigint")

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Any:
        n = (self.seen.get()[0] if self.seen.exists() else 0) + self.step * len(list(rows))
        self.seen.update((n,))
        yield {"n": n}


def averages(app: App) -> Stream:
    return speeds(app).key_by("vehicle").aggregate("op", average=Avg("speed"))


def above(limit: float) -> Callable[[Any], bool]:
    return lambda row: row.average > limit


def joined(app: App, window: Any = None, swapped: bool = False) -> Stream:
    rows = speeds(app)
    fast = rows.filter("fast", is_fast).key_by("vehicle")
    slow = rows.filter("slow", lambda row: row.speed < 20).key_by("vehicle")
    left, right = (slow, fast) if swapped else (fast, slow)
    if window is not None:
        return left.window_join("op", right, window, lambda a, b: {"v": a.vehicle}, "v string")
    return left.join("op", right, Interval(-10, 10), lambda a, b: {"v": a.vehicle}, "v string")


def looked_up(app: App, makers: dict[str, str]) -> Stream:
    table = app.table("makers", "vehicle string, maker string", list(makers.items()), "vehicle")
    return speeds(app).lookup("op", table, on="vehicle")


EQUAL: dict[str, Build] = {
    "a running aggregate": averages,
    "a reduction": lambda app: speeds(app).key_by("vehicle").reduce("op", faster),
    "a tumbling window": lambda app: (
        speeds(app).key_by("vehicle").window(Tumbling(60), 10).aggregate("op", average=Avg("speed"))
    ),
    "a sliding window": lambda app: speeds(app).key_by("vehicle").window(Sliding(60, 10)).reduce("op", faster),
    "a session": lambda app: speeds(app).key_by("vehicle").window(Session(60)).apply("op", first_only, SPEEDS),
    "a window of records": lambda app: (
        speeds(app).key_by("vehicle").window(CountTumbling(3)).aggregate("op", total=Sum("speed"))
    ),
    "a function behind a source": lambda app: speeds(app, key="vehicle").filter("op", is_fast),
    "a function behind an operator": lambda app: averages(app).filter("inline", above(100)),
    "what is behind an inline function": lambda app: (
        averages(app).filter("inline", above(100)).key_by("vehicle").aggregate("behind", n=Count())
    ),
    "a side output": lambda app: (
        speeds(app).flat_map("op", halves, "half double", sides={"odd": "whole double"}).side("odd")
    ),
    "a union": lambda app: speeds(app).union(speeds(app, "more")).key_by("vehicle").aggregate("op", n=Count()),
    "a join": joined,
    "a window join": lambda app: joined(app, Tumbling(60)),
    "a table": lambda app: looked_up(app, {"car1": "VW"}),
    "a processor": lambda app: speeds(app).key_by("vehicle").process("op", Counter(), "n bigint"),
}

UNEQUAL: dict[str, tuple[Build, Build]] = {
    "window": (
        lambda app: speeds(app).key_by("vehicle").window(Tumbling(60)).aggregate("op", n=Count()),
        lambda app: speeds(app).key_by("vehicle").window(Tumbling(61)).aggregate("op", n=Count()),
    ),
    "lateness": (
        lambda app: speeds(app).key_by("vehicle").window(Tumbling(60)).aggregate("op", n=Count()),
        lambda app: speeds(app).key_by("vehicle").window(Tumbling(60), 1).aggregate("op", n=Count()),
    ),
    "aggregate": (averages, lambda app: speeds(app).key_by("vehicle").aggregate("op", average=Max("speed"))),
    "name of a column": (averages, lambda app: speeds(app).key_by("vehicle").aggregate("op", mean=Avg("speed"))),
    "key": (averages, lambda app: speeds(app).key_by("vehicle", "at_ms").aggregate("op", average=Avg("speed"))),
    "function": (
        lambda app: speeds(app).filter("op", lambda row: row.speed > 100),
        lambda app: speeds(app).filter("op", lambda row: row.speed > 101),
    ),
    "what a function refers to": (
        lambda app: averages(app).filter("inline", above(100)),
        lambda app: averages(app).filter("inline", above(101)),
    ),
    "processor": (
        lambda app: speeds(app).key_by("vehicle").process("op", Counter(1), "n bigint"),
        lambda app: speeds(app).key_by("vehicle").process("op", Counter(2), "n bigint"),
    ),
    "table": (lambda app: looked_up(app, {"car1": "VW"}), lambda app: looked_up(app, {"car1": "BMW"})),
    "inputs of a join": (joined, lambda app: joined(app, swapped=True)),
    "output": (
        lambda app: (
            speeds(app)
            .key_by("vehicle")
            .window(Tumbling(60))
            .reduce("w", faster)
            .key_by("vehicle")
            .reduce("op", faster)
        ),
        lambda app: (
            speeds(app)
            .key_by("vehicle")
            .window(Tumbling(60))
            .reduce("w", faster)
            .side("late")
            .key_by("vehicle")
            .reduce("op", faster)
        ),
    ),
    "schema of a side output": (
        lambda app: speeds(app).flat_map("op", halves, "half double", sides={"odd": "whole double"}),
        lambda app: speeds(app).flat_map("op", halves, "half double", sides={"odd": "whole float"}),
    ),
    "source": (averages, lambda app: _average_of(speeds(app, "other"))),
    "schema of the source": (averages, lambda app: _average_of(speeds(app, schema=f"{SPEEDS}, lane bigint"))),
    "event time": (averages, lambda app: _average_of(speeds(app, event_time=None))),
    "delay": (averages, lambda app: _average_of(speeds(app, delay=5))),
    "senders": (averages, lambda app: _average_of(speeds(app, senders=["gate1"]))),
    "lost devices": (averages, lambda app: _average_of(speeds(app, lost_after=5))),
    "roaming": (averages, lambda app: _average_of(speeds(app, roaming=True))),
    "key of the source": (averages, lambda app: _average_of(speeds(app, key="vehicle"))),
}


def _average_of(stream: Stream) -> Stream:
    return stream.key_by("vehicle").aggregate("op", average=Avg("speed"))


def app_of(name: str, build: Build, groups: int = 16) -> App:
    app = App(name, groups)
    build(app).to("out")
    return app


def anywhere(one: OpId, other: OpId) -> bool:
    return True


def found(*apps: App, same_places: Callable[[OpId, OpId], bool] = anywhere) -> dict[str, str]:
    return dict(twins_of(apps, same_places, dumps))


@pytest.mark.parametrize("what", EQUAL)
def test_what_is_built_by_the_same_code_is_shared(what: str) -> None:
    one, other = app_of("a", EQUAL[what]), app_of("b", EQUAL[what])
    operators = [node.name for node in other.nodes if node.logic is not None]
    assert operators
    assert found(one, other) == {f"b/{name}": f"a/{name}" for name in operators}


@pytest.mark.parametrize("what", UNEQUAL)
def test_what_differs_is_not_shared(what: str) -> None:
    one, other = UNEQUAL[what]
    last = "inline" if what == "what a function refers to" else "op"
    assert f"b/{last}" not in found(app_of("a", one), app_of("b", other))


def test_another_number_of_groups_is_not_shared() -> None:
    assert found(app_of("a", averages, 8), app_of("b", averages)) == {}


def test_operators_at_other_places_are_not_shared_nor_is_what_is_behind_them() -> None:
    build = EQUAL["what is behind an inline function"]
    assert found(app_of("a", build), app_of("b", build), same_places=lambda one, other: "op" not in one) == {}


def test_a_source_that_has_two_schemas_is_shared_by_nobody() -> None:
    """One can send to each application alone only, and such records must not reach the other."""
    third = app_of("c", lambda app: _average_of(speeds(app, schema=f"{SPEEDS}, lane bigint")))
    assert found(app_of("a", averages), app_of("b", averages), third) == {}


def test_dataframe_operators_run_for_their_own_application() -> None:
    def scored(app: App) -> Stream:
        scores = speeds(app).transform("scored", lambda frame: frame, SPEEDS)
        return scores.key_by("vehicle").aggregate("op", n=Count())

    assert found(app_of("a", scored), app_of("b", scored)) == {}


# --- what becomes of it ---


def base(app: App) -> tuple[Stream, Stream]:
    rows = speeds(app, delay=5)
    average = rows.key_by("vehicle").aggregate("average", average=Avg("speed"), readings=Count())
    windows = rows.key_by("vehicle").window(Tumbling(20)).aggregate("windows", n=Count(), top=Max("speed"))
    return average.filter("fast", above(60)), windows


def alarms(app: App) -> None:
    fast, windows = base(app)
    fast.to("alerts")
    windows.to("windows")


def trends(app: App) -> None:
    """Windows behind the windows and behind the function, a join of both, and what was late."""
    fast, windows = base(app)
    of_all = windows.map("of_all", lambda row: {"all": 0, "top": row.top}, "all int, top double")
    of_all.key_by("all").window(Tumbling(20)).aggregate("hottest", cars=Count(), top=Max("top")).to("hottest")
    fast.key_by("vehicle").window(Sliding(40, 20)).aggregate("often", n=Count()).to("often")
    fast.key_by("vehicle").join("pairs", windows.key_by("vehicle"), Interval(-30, 30), _pair, "v string, n bigint").to(
        "pairs"
    )
    windows.side("late").to("late")


def _pair(fast: Any, window: Any) -> dict[str, Any]:
    return {"v": fast.vehicle, "n": fast.readings * window.n}


def late(app: App) -> None:
    _, windows = base(app)
    windows.side("late").key_by("vehicle").aggregate("how_many", n=Count()).to("how_many")
    windows.to("rest")
    app.stream("fast").to("more")


APPS = {"alarms": alarms, "trends": trends, "late": late}


def made(name: str) -> App:
    app = App(name)
    APPS[name](app)
    return app


def together(*names: str) -> Compiled:
    """All of them as one application, with sources to which all of them listen."""
    apps = [made(name) for name in names]
    parts = compile_apps(apps, twins_of(apps, anywhere, dumps))
    sources: dict[str, Ingress] = {}
    for part in parts:
        for name, ingress in part.sources.items():
            known = sources.get(name, replace(ingress, targets=(), clocked=()))
            sources[name] = replace(
                known, targets=known.targets + ingress.targets, clocked=known.clocked + ingress.clocked
            )
    results = {f"{part.name}/{name}": each for part in parts for name, each in part.results.items()}
    specs = {op: spec for part in parts for op, spec in part.specs.items()}
    operators = {op: operator for part in parts for op, operator in part.operators.items()}
    return Compiled("all", specs, operators, sources, results, {}, {})


def drive(run: InMemory, seed: int) -> None:
    draw = random.Random(seed)
    times = dict.fromkeys(GATES, 0)
    for _ in range(300):
        gate = draw.choice(GATES)
        times[gate] += draw.randrange(6)
        if draw.random() < 0.1:
            run.heartbeat("speeds", times[gate], sender=gate)
            continue
        at_ms = max(0, times[gate] - draw.choice((0, 0, 0, 4, 30)))  # the delay, and what is late
        record = {"vehicle": f"car{draw.randrange(4)}", "speed": float(draw.randrange(200)), "at_ms": at_ms}
        run.send("speeds", record, sender=gate)
    run.finish()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("names", [("alarms", "trends", "late"), ("trends", "alarms"), ("late", "trends")])
def test_applications_that_share_give_what_each_gives_alone(names: tuple[str, ...], seed: int) -> None:
    run = InMemory(together(*names))
    drive(run, seed)
    for name in names:
        alone = InMemory(made(name))
        drive(alone, seed)
        for result in alone.compiled.results:
            assert alone.results(result), "else nothing is shown"
            assert run.results(f"{name}/{result}") == alone.results(result)


def test_what_is_shared_runs_under_the_first_name_and_feeds_all() -> None:
    compiled = together("trends", "alarms", "late")
    running = {op for op, spec in compiled.specs.items() if not spec.sink}
    assert {op for op in running if op.startswith("alarms/")} == {f"alarms/{n}" for n in ("average", "windows", "fast")}
    assert {op for op in running if not op.startswith("alarms/")} == {
        *("trends/of_all", "trends/hottest", "trends/often", "trends/pairs", "late/how_many")
    }
    assert compiled.specs[OpId("alarms/fast")].inline
    assert set(compiled.specs[OpId("alarms/windows")].feeds) == {
        *("alarms/results/windows", "trends/of_all", "trends/pairs", "trends/results/late"),
        *("late/how_many", "late/results/rest"),
    }


def test_windows_hear_of_time_from_what_runs() -> None:
    compiled: Any = together("trends", "alarms")
    assert compiled.operators["trends/hottest"].watermark.sources == ("alarms/windows/gate1", "alarms/windows/gate2")
    assert ("trends/hottest", 16) in compiled.operators["alarms/windows"].clocks_to
    assert compiled.operators["alarms/average"].clocks_to  # nobody in its own application wants them


def test_a_record_is_sent_once_to_what_is_shared() -> None:
    ingress = together("alarms", "trends", "late").sources["speeds"]
    readings = ingress.readings({"vehicle": "car1", "speed": 2.5, "at_ms": 7}, "gate1", now_ms=99)
    assert [reading.op for reading in readings] == ["alarms/average", "alarms/windows"]
    assert sorted(ingress.clocked) == [("alarms/average", 16), ("alarms/windows", 16)]


def test_what_users_have_written_is_left_as_it_is() -> None:
    apps = [made("alarms"), made("trends")]
    compile_apps(apps, twins_of(apps, anywhere, dumps))
    specs = compile_app(apps[1]).specs
    assert {"trends/average", "trends/windows", "trends/fast"} <= specs.keys()
