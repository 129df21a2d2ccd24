"""Two applications with equal operators: these run once, move once, and each application has its own results."""

from pathlib import Path
from typing import Any

from peregrine import App, Avg, Count, InMemory, Link, Max, Topology, Tumbling, run
from peregrine.app.model import Stream
from peregrine.control.auditing import audit_deployment
from peregrine.types import SiteId

CLOUD, EDGE = SiteId("cloud"), SiteId("edge")
TOPOLOGY = Topology.tree(CLOUD, {EDGE: (CLOUD, Link(latency_ms=5))})
SENSORS = 4
ROWS = 400


def base(app: App, windows: str) -> tuple[Stream, Stream]:
    readings = app.source(
        "readings", "sensor bigint, value double, at_ms bigint", event_time="at_ms", senders=["probe"]
    )
    averages = readings.key_by("sensor").aggregate("average", average=Avg("value"), readings=Count())
    seconds = readings.key_by("sensor").window(Tumbling("1 second")).aggregate(windows, highest=Max("value"))
    return averages, seconds


def alarms() -> App:
    app = App("alarms", groups=4)
    averages, seconds = base(app, "seconds")
    averages.filter("high", lambda row: row.average > 20).to("alerts")
    seconds.to("seconds")
    return app


def trends() -> App:
    app = App("trends", groups=4)
    averages, seconds = base(app, "by_second")
    averages.filter("some", lambda row: row.readings % 10 == 0).to("alerts")
    longer = seconds.key_by("sensor").window(Tumbling("5 seconds"))
    longer.aggregate("by_five", windows=Count(), highest=Max("highest")).to("highest")
    return app


def records(rows: range) -> list[dict[str, Any]]:
    return [{"sensor": n % SENSORS, "value": float(n * 7 % 50), "at_ms": n * 50} for n in rows]


def in_memory(app: App) -> InMemory:
    alone = InMemory(app)
    alone.send("readings", records(range(ROWS)))
    alone.finish()
    return alone


def test_applications_share_what_is_equal_while_it_moves(spark: Any, tmp_path: Path) -> None:
    with run(alarms(), trends(), topology=TOPOLOGY, directory=tmp_path / "run", keep_journal=True) as running:
        probe = running.device("probe", "edge")
        for record in records(range(ROWS // 2)):
            probe.send("readings", record)
        running.move("trends/by_second", to="edge")
        moving = running.start_move("average", to="edge")
        for record in records(range(ROWS // 2, ROWS)):
            probe.send("readings", record)
        assert running.deployment.wait(moving, 60).outcome == "done"
        running.finish()

        for app in (alarms(), trends()):
            alone = in_memory(app)
            for result in alone.compiled.results:
                found = running.records(f"{app.name}/{result}")
                assert sorted(map(tuple, found)) == sorted(map(tuple, alone.results(result))) != []
            for sensor in range(SENSORS):
                assert running.state(f"{app.name}/average", sensor) == alone.state("average", sensor)
        assert running.results("trends/highest").count() == len(running.records("highest"))

        blobs = running.deployment.blobs()
        assert {op for _, op, _, _ in blobs} == {"alarms/average", "alarms/seconds", "trends/by_five"}
        assert {row.place for row in running.state_frame("trends/average").collect()} == {"edge"}
        assert [line.split(maxsplit=3) for line in running.describe().splitlines()] == [
            ["alarms,", "trends"],
            ["alarms/average", "edge", "*", "runs for alarms, trends"],
            ["alarms/seconds", "edge", "*", "runs for alarms, trends"],
            ["trends/by_five", "cloud", "*"],
        ]
        assert audit_deployment(running.deployment, running.initial) == []
    with run(alarms(), trends(), topology=TOPOLOGY, directory=tmp_path / "run", share=False) as running:
        # It goes on as it began: state has the names of what ran.
        assert running.state("trends/average", 1) == in_memory(trends()).state("average", 1)
        assert "runs for alarms, trends" in running.describe()
