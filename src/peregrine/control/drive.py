"""Traffic Monitoring on real processes and Spark: half of the keys move live, then a car drives to another edge.

The demonstration and the end-to-end test run this, and prove the same of it.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from peregrine import measure, proof
from peregrine.control.driver import News
from peregrine.control.local import Deployment, local
from peregrine.core.coordinator import PlanEnded
from peregrine.core.keyspace import KeySet
from peregrine.core.messages import Report
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.rows import UNCHAINED, Row
from peregrine.core.topology import Link, Topology
from peregrine.errors import PeregrineError
from peregrine.net.device import Device
from peregrine.types import PlaceId, SiteId, SourceId
from peregrine.workloads import tm

CLOUD, EDGE1, EDGE2 = SiteId("cloud"), SiteId("edge1"), SiteId("edge2")
PLAN = "half"
WARM_UP_S = 60.0
DRAIN_S = 60.0


@dataclass(frozen=True)
class Course:
    """What happens, and when, in seconds after the warm-up."""

    vehicles: int = 10
    rows_per_s: float = 1500.0
    latency_ms: float = 40.0
    seconds: float = 24.0
    move_at_s: float = 8.0
    drive_at_s: float = 14.0
    dwell_ms: int = 2000
    driver: str = "car2"


@dataclass
class Seen:
    """What was observed: results as they were read, and what routers and manager said, on one clock."""

    emitted_ms: list[float] = field(default_factory=list)
    latency_ms: list[float] = field(default_factory=list)
    news: list[tuple[float, News | PlanEnded]] = field(default_factory=list)
    started_ms: float = 0.0
    moved_ms: float = 0.0
    drove_ms: float = 0.0

    def cost(self) -> tuple[measure.Steady, float, float]:
        """The steady state, and disruption and peak jitter of the first move."""
        emitted, latency = np.array(self.emitted_ms), np.array(self.latency_ms)
        calm_from = emitted >= self.started_ms + 2000  # the first batches are cold
        emitted, latency = emitted[calm_from], latency[calm_from]
        calm = measure.steady(emitted, latency, self.moved_ms)
        during = emitted < self.drove_ms
        disruption = measure.disruption_ms(emitted[during], latency[during], calm, self.moved_ms)
        return calm, disruption, measure.peak_jitter_ms(emitted[during], latency[during], calm, self.moved_ms)


def run(course: Course, directory: Path | None = None, say: Callable[[str], None] = print) -> tuple[proof.Proof, Seen]:
    link = Link(course.latency_ms, 1000.0)
    topology = Topology.tree(CLOUD, {EDGE1: (CLOUD, link), EDGE2: (CLOUD, link)})
    seen = Seen()
    specs, operators = tm.specs(), tm.operators()
    say("starting three routers and Spark")
    with local(
        topology, specs, operators, directory=directory, dwell_ms=course.dwell_ms, watch=_watch(seen, say)
    ) as up:
        traffic = _Traffic(up, course)
        stop = threading.Event()
        reader = threading.Thread(target=_read, args=(up, seen, stop), daemon=True)
        reader.start()
        try:
            _warm_up(traffic, seen, say)
            _drive(up, traffic, course, seen, say)
            should, should_states = proof.expected(specs, operators, {tm.MOV_AVG: traffic.sent})
            _drain(up, traffic, sum(map(len, should.values())), say)
        finally:
            stop.set()
            reader.join(timeout=5)
        lines = up.result_lines()
        found = proof.prove(len(traffic.sent), lines, should, proof.values(up.states()), should_states)
    return found, seen


class _Traffic:
    def __init__(self, deployment: Deployment, course: Course) -> None:
        self.sent: list[Row] = []
        self.devices: dict[str, Device] = {}
        self._readings = {}
        self._seq: dict[str, int] = {}
        for i, car in enumerate(tm.vehicles(course.vehicles)):
            keys = KeySet.of_keys(tm.GROUPS, [car])
            at = EDGE1 if i < course.vehicles // 2 else EDGE2
            self.devices[car] = deployment.device(car, at, roaming=True, feeds=(tm.MOV_AVG, keys))
            self._readings[car] = tm.readings(car)
            self._seq[car] = 0

    def send(self, car: str) -> None:
        payload = next(self._readings[car])
        self.devices[car].send(tm.MOV_AVG, car, payload)
        self.sent.append(Row(car, SourceId(car), self._seq[car], UNCHAINED, 0, 0, payload))
        self._seq[car] += 1

    def send_for(self, seconds: float, rows_per_s: float) -> None:
        cars = list(self.devices)
        began, count = time.monotonic(), 0
        while (elapsed := time.monotonic() - began) < seconds:
            while count < elapsed * rows_per_s:
                self.send(cars[count % len(cars)])
                count += 1
            time.sleep(0.005)


def _warm_up(traffic: _Traffic, seen: Seen, say: Callable[[str], None]) -> None:
    """Spark's first batches are slow: wait until results come."""
    for car in traffic.devices:
        traffic.send(car)
    began = time.monotonic()
    while len(seen.emitted_ms) < len(traffic.devices):
        if time.monotonic() - began > WARM_UP_S:
            raise PeregrineError(f"no results after {WARM_UP_S:g} s", "look at the routers' logs in the directory")
        time.sleep(0.05)
    say(f"warm after {time.monotonic() - began:.1f} s; rows flow")


def _drive(up: Deployment, traffic: _Traffic, course: Course, seen: Seen, say: Callable[[str], None]) -> None:
    seen.started_ms = _now_ms()
    traffic.send_for(course.move_at_s, course.rows_per_s)
    half = KeySet.of_keys(tm.GROUPS, list(traffic.devices)[: course.vehicles // 2])
    seen.moved_ms = _now_ms()
    say(f"half of the keys move from {CLOUD} to {EDGE1}, live")
    up.submit(Plan(PLAN, ((Move(tm.MOV_AVG, half, PlaceId(CLOUD), PlaceId(EDGE1)),),)))
    traffic.send_for(course.drive_at_s - course.move_at_s, course.rows_per_s)
    up.wait(PLAN, DRAIN_S)
    seen.drove_ms = _now_ms()
    say(f"{course.driver} drives from {EDGE1} to {EDGE2}")
    traffic.devices[course.driver].move(EDGE2)
    traffic.send_for(course.seconds - course.drive_at_s, course.rows_per_s)


def _drain(up: Deployment, traffic: _Traffic, results: int, say: Callable[[str], None]) -> None:
    """Until every row has its result, every plan has ended and every host has committed."""
    say("draining")
    for device in traffic.devices.values():
        device.flush(DRAIN_S)
    began = time.monotonic()
    while time.monotonic() - began < DRAIN_S:
        statuses = [client.status() for client in up.clients.values()]
        quiet = all(status.ends == status.commits and not status.leftovers for status in statuses)
        if quiet and not up.driver.manager.coordinator.running and sum(s.results_end for s in statuses) >= results:
            return
        time.sleep(0.2)


def _read(up: Deployment, seen: Seen, stop: threading.Event) -> None:
    position = 0
    while not stop.is_set():
        try:
            table, after = up.results(position)
        except PeregrineError:
            after = position
        if after == position:
            stop.wait(0.01)
            continue
        now = _now_ms()
        position = after
        created = table.column("created_ms").to_pylist()
        seen.emitted_ms.extend([now] * len(created))
        seen.latency_ms.extend(now - each for each in created)


def _watch(seen: Seen, say: Callable[[str], None]) -> Callable[[News | PlanEnded], None]:
    told: set[tuple[str, str]] = set()

    def watch(news: News | PlanEnded) -> None:
        seen.news.append((_now_ms(), news))
        if isinstance(news, Report) and (news.migration, news.status) not in told:
            told.add((news.migration, news.status))
            say(f"  {news.migration} {news.status} (said {news.site})")

    return watch


def _now_ms() -> float:
    return time.time() * 1000
