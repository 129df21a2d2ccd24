"""Traffic Monitoring (Falcon IV-A): a running average of each vehicle's speed, then an alert above the limit.

Light on purpose, so that what a reconfiguration costs is easy to see. The key is the vehicle, its state the number of
readings and their average. It is here twice: as an application, and as operators of the core written by hand, against
which the cost of the layer above can be seen.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from peregrine import App, Avg, Count
from peregrine.core.operator import Marks, Operator, OpSpec, Out
from peregrine.core.rows import Row
from peregrine.core.source import Reading
from peregrine.types import OpId, SourceId
from peregrine.workloads.generate.tm import READINGS

MOV_AVG, TRIG, RESULTS = OpId("tm/mov_avg"), OpId("tm/trig"), OpId("tm/results")
GROUPS = 4

_encode = msgspec.json.encode
_decode = msgspec.json.decode


def app(senders: Iterable[str] | None = None, *, limit: float = 100.0, groups: int = GROUPS) -> App:
    """Result: `results` (average, alert) of each reading. Readings of a vehicle must come from one sender, in order."""
    tm = App("tm_app", groups)
    readings = tm.source("readings", READINGS, key="vehicle", event_time="at_ms", senders=senders)
    averages = readings.key_by("vehicle").aggregate("mov_avg", average=Avg("speed"), readings=Count())
    averages.map("trig", Alert(limit), "vehicle string, average double, alert boolean").to("results")
    return tm


APPS: Mapping[str, Callable[..., App]] = {"tm_app": app}


@dataclass(frozen=True)
class Alert:
    limit: float

    def __call__(self, row: Any) -> dict[str, Any]:
        average = round(row.average, 6)
        return {"vehicle": row.vehicle, "average": average, "alert": average > self.limit}


@dataclass(frozen=True)
class MovingAverage:
    """Stateful: [readings, average] of each vehicle."""

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        count, average = value or (0, 0.0)
        speed = float(_decode(row.payload)["speed"])
        count, average = count + 1, average + (speed - average) / (count + 1)
        told = _encode({"speed": speed, "average": round(average, 6), "count": count})
        return [count, average], [Out(TRIG, key, SourceId(f"{row.source}>{key}"), row.seq, row.time_ms, told)]

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        return value, []

    def open_ends(self, value: Any) -> list[int]:
        return []


@dataclass(frozen=True)
class Trigger:
    """Stateless: tells whether the average is above the limit. With `alerts_only`, only if it is."""

    limit: float = 100.0
    alerts_only: bool = False

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        average = _decode(row.payload)["average"]
        alert = average > self.limit
        if self.alerts_only and not alert:
            return None, []
        told = _encode({"average": average, "alert": alert})
        return None, [Out(RESULTS, key, row.source, row.seq, row.time_ms, told)]

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        return None, []

    def open_ends(self, value: Any) -> list[int]:
        return []


def specs(roaming: bool = True) -> dict[OpId, OpSpec]:
    return {
        MOV_AVG: OpSpec(MOV_AVG, GROUPS, roaming=roaming, feeds=(TRIG,)),
        TRIG: OpSpec(TRIG, GROUPS, stateless=True, inline=True, feeds=(RESULTS,)),
        RESULTS: OpSpec(RESULTS, GROUPS, sink=True),
    }


def operators(limit: float = 100.0, alerts_only: bool = False) -> dict[OpId, Operator]:
    return {MOV_AVG: MovingAverage(), TRIG: Trigger(limit, alerts_only)}


def vehicles(count: int = 10) -> list[str]:
    return [f"car{i}" for i in range(count)]


def readings(vehicle: str, seed: int = 0) -> Iterator[bytes]:
    """What a vehicle reports, for ever: payloads, the same for the same seed."""
    rng = random.Random(f"{vehicle}:{seed}")
    speed = rng.uniform(60, 110)
    while True:
        speed = min(max(speed + rng.gauss(0, 3), 0), 180)
        yield _encode({"vehicle": vehicle, "speed": round(speed, 2)})


def reading(vehicle: str, payload: bytes, now_ms: int) -> Reading:
    return Reading(MOV_AVG, vehicle, now_ms, now_ms, payload)
