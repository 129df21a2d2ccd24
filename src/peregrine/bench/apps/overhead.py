"""What windows cost, and what the layer above the core costs: the same rows, operators that differ in that alone.

The operator is an average of each vehicle's speeds. Without windows it is there in several ways, because windows tell
little and a running average tells something with every row:

- `silent` adds each row to the average and tells nothing. Windows that tell little are held against it.
- `hearing` does the same and is told of event time: of windows in time, what is left is the windows themselves.
- `running` tells the average with every row. Windows of which each holds one row, and that tell as much, are held
  against it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from peregrine import App, Avg, CountSliding, CountTumbling, Session, Sliding, Tumbling
from peregrine.app.keyed import KeyedStream
from peregrine.app.logic import Emit, Key, Moment, Timeless
from peregrine.bench.apps.cases import Case, readings
from peregrine.bench.apps.measure import Measured, Ready, ready
from peregrine.workloads import tm
from peregrine.workloads.generate.tm import READINGS

SILENT, HEARING, RUNNING, BY_HAND, AS_APP = "silent", "hearing", "running", "by hand", "application"

FEW: Mapping[str, Any] = {
    "tumbling, 1 s": Tumbling(1000),
    "tumbling, 10 s": Tumbling(10_000),
    "sliding, 10 s every 1 s": Sliding(10_000, 1000),
    "session, gap 1 s": Session(1000),
    "tumbling, 100 records": CountTumbling(100),
    "sliding, 100 records every 50": CountSliding(100, 50),
}
IN_TIME = tuple(FEW)[:4]
ONE_EACH: Mapping[str, Any] = {  # rows of a vehicle are 6 or 7 ms apart
    "tumbling, 1 ms": Tumbling(1),
    "tumbling, 1 record": CountTumbling(1),
}


@dataclass(frozen=True)
class Ratio:
    what: str
    value: float
    of: str  # what it was made of, in microseconds a row


def windows(rows: int) -> list[Ready]:
    found = [ready(name, Case(_silent, readings, {"event_time": name == HEARING}), rows) for name in (SILENT, HEARING)]
    for each in found:
        each.silent = True
    found.append(ready(RUNNING, Case(_running, readings), rows))
    for name, window in {**FEW, **ONE_EACH}.items():
        found.append(ready(name, Case(_windowed, readings, {"window": window}), rows))
    return found


def windows_ratios(measured: Mapping[str, Measured]) -> list[Ratio]:
    return [
        *(_ratio(measured[name], measured[SILENT]) for name in FEW),
        *(_ratio(measured[name], measured[HEARING]) for name in IN_TIME),
        *(_ratio(measured[name], measured[RUNNING]) for name in ONE_EACH),
    ]


def shell(rows: int) -> list[Ready]:
    """Traffic Monitoring as an application, and by hand on the same rows."""
    app = ready(AS_APP, Case(tm.app, readings), rows)
    *records, _ = app.steps
    steps = [*([(tm.MOV_AVG, what) for _, what in step] for step in records), []]
    return [app, Ready(BY_HAND, tm.specs(roaming=False), tm.operators(), steps)]


def shell_ratios(measured: Mapping[str, Measured]) -> list[Ratio]:
    return [_ratio(measured[AS_APP], measured[BY_HAND])]


def _ratio(one: Measured, other: Measured) -> Ratio:
    mine, its = one.best.us_per_row, other.best.us_per_row
    return Ratio(f"{one.name} / {other.name}", mine / its, f"{mine:.1f} / {its:.1f} µs")


def _readings(app: App, senders: list[str]) -> KeyedStream:
    return app.source("readings", READINGS, key="vehicle", event_time="at_ms", senders=senders).key_by("vehicle")


def _silent(senders: list[str], event_time: bool) -> App:
    app = App("windows")
    _readings(app, senders).connect("average", Silent(Avg("speed"), event_time), schema=READINGS).to("results")
    return app


def _running(senders: list[str]) -> App:
    app = App("windows")
    _readings(app, senders).aggregate("average", average=Avg("speed")).to("results")
    return app


def _windowed(senders: list[str], window: Any) -> App:
    app = App("windows")
    _readings(app, senders).window(window).aggregate("average", average=Avg("speed")).to("results")
    return app


@dataclass(frozen=True)
class Silent(Timeless):
    aggregate: Avg
    event_time: bool

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        return self.aggregate.add(self.aggregate.zero() if state is None else state, record), []
