"""Traffic Monitoring on real processes and Spark: half of the keys move live, then a car drives to another edge.

The demonstration and the end-to-end test run this, and prove the same of it.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from peregrine import proof
from peregrine.control.auditing import audit_deployment
from peregrine.control.local import Deployment, local
from peregrine.control.watch import Watch
from peregrine.core.coordinator import plan_of
from peregrine.core.keyspace import KeySet
from peregrine.core.migrate import Migration
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.rows import UNCHAINED, Row
from peregrine.core.topology import Link, Topology
from peregrine.errors import PeregrineError
from peregrine.net.device import Device
from peregrine.types import MigrationId, PlaceId, SiteId, SourceId
from peregrine.workloads import tm

CLOUD, EDGE1, EDGE2 = SiteId("cloud"), SiteId("edge1"), SiteId("edge2")
PLAN = "half"
PATIENCE_S = 60.0
TURN_S = 0.005
READ_WAIT_S = 0.5


@dataclass(frozen=True)
class Course:
    """What happens, and for how long. The two reconfigurations take as long as they take."""

    vehicles: int = 10
    rows_per_s: float = 1500.0
    latency_ms: float = 40.0  # one way between the cloud and an edge
    warm_s: float = 15.0  # Spark's first batches are slow: nothing is measured
    steady_s: float = 10.0  # nothing moves: what the rest is compared with
    settle_s: float = 8.0  # after each of the two
    dwell_ms: int = 2000
    driver: str = "car2"

    @property
    def cars(self) -> list[str]:
        return tm.vehicles(self.vehicles)

    @property
    def half(self) -> list[str]:
        """They drive around edge1, the others around edge2."""
        return self.cars[: self.vehicles // 2]


@dataclass
class Marks:
    """When what happened, on the clock of the watch."""

    flowing_ms: float = 0.0
    steady_ms: float = 0.0
    moved_ms: float = 0.0
    drove_ms: float = 0.0
    ended_ms: float = 0.0


def watch_of(course: Course) -> Watch:
    return Watch(dict.fromkeys(course.cars, CLOUD))


def run(
    course: Course,
    watch: Watch,
    directory: Path | None = None,
    ready: Callable[[], None] = lambda: None,
) -> tuple[proof.Proof, Marks]:
    """`ready` is called when routers and Spark are up."""
    link = Link(course.latency_ms, 1000.0)
    topology = Topology.tree(CLOUD, {EDGE1: (CLOUD, link), EDGE2: (CLOUD, link)})
    specs, operators = tm.specs(), tm.operators()
    watch.say("starting three routers and Spark")
    with local(
        topology, specs, operators, directory=directory, dwell_ms=course.dwell_ms, watch=watch.on_news
    ) as deployment:
        ready()
        watch.find = lambda migration: _find(deployment, migration)
        traffic = _Traffic(deployment, course, watch)
        stop = threading.Event()
        reader = threading.Thread(target=_read, args=(deployment, watch, stop), name="results", daemon=True)
        reader.start()
        try:
            marks = _drive(deployment, traffic, course, watch)
            watch.say("no more rows; waiting until all of them are through")
            should, should_states = proof.expected(specs, operators, {tm.MOV_AVG: traffic.sent})
            _drain(deployment, traffic, sum(map(len, should.values())), watch)
        finally:
            stop.set()
            reader.join(timeout=5)
        watch.say("comparing results and states with a run in which nothing moved")
        states = proof.values(deployment.states())
        found = proof.prove(len(traffic.sent), deployment.result_lines(), should, states, should_states)
        found = replace(found, violations=tuple(audit_deployment(deployment)))
    return found, marks


def _drive(deployment: Deployment, traffic: "_Traffic", course: Course, watch: Watch) -> Marks:
    marks = Marks()
    _first_results(traffic, watch)
    marks.flowing_ms = watch.now_ms()
    watch.say(f"rows flow, {course.rows_per_s:,.0f} a second; Spark warms up for {course.warm_s:g} s")
    traffic.flow(course.warm_s)
    marks.steady_ms = watch.now_ms()
    watch.say(f"steady state: nothing moves for {course.steady_s:g} s")
    traffic.flow(course.steady_s)

    watch.say(f"half of the keys move from {CLOUD} to {EDGE1}, live")
    marks.moved_ms = watch.now_ms()
    half = KeySet.of_keys(tm.GROUPS, course.half)
    deployment.submit(Plan(PLAN, ((Move(tm.MOV_AVG, half, PlaceId(CLOUD), PlaceId(EDGE1)),),)))
    traffic.flow_until(lambda: all(watch.owners[car] == EDGE1 for car in course.half), "half of the keys are at edge1")
    traffic.flow(course.settle_s)

    watch.say(f"{course.driver} drives from {EDGE1} to {EDGE2}")
    marks.drove_ms = watch.now_ms()
    traffic.devices[course.driver].move(EDGE2)
    traffic.flow_until(lambda: watch.owners[course.driver] == EDGE2, f"the key of {course.driver} is at edge2")
    traffic.flow(course.settle_s)
    marks.ended_ms = watch.now_ms()
    return marks


class _Traffic:
    def __init__(self, deployment: Deployment, course: Course, watch: Watch) -> None:
        self.sent: list[Row] = []
        self.devices: dict[str, Device] = {}
        self._course = course
        self._watch = watch
        self._readings = {car: tm.readings(car) for car in course.cars}
        self._seq = dict.fromkeys(course.cars, 0)
        for car in course.cars:
            keys = KeySet.of_keys(tm.GROUPS, [car])
            at = EDGE1 if car in course.half else EDGE2
            self.devices[car] = deployment.device(car, at, roaming=True, feeds=(tm.MOV_AVG, keys))

    def send(self, car: str) -> None:
        payload = next(self._readings[car])
        self.devices[car].send(tm.MOV_AVG, car, payload)
        self.sent.append(Row(car, SourceId(car), self._seq[car], UNCHAINED, 0, 0, payload))
        self._seq[car] += 1

    def flow(self, seconds: float) -> None:
        self._flow(lambda elapsed_s: elapsed_s < seconds)

    def flow_until(self, done: Callable[[], bool], what: str) -> None:
        def going(elapsed_s: float) -> bool:
            if elapsed_s > PATIENCE_S:
                raise PeregrineError(f"after {PATIENCE_S:g} s it is not so that {what}", "is the machine very busy?")
            return not done()

        self._flow(going)

    def _flow(self, going: Callable[[float], bool]) -> None:
        cars, rows_per_s = self._course.cars, self._course.rows_per_s
        began_s, count = time.monotonic(), 0
        while going(elapsed_s := time.monotonic() - began_s):
            due = int(elapsed_s * rows_per_s) - count
            for i in range(count, count + due):
                self.send(cars[i % len(cars)])
            count += due
            self._watch.on_sent(due)
            time.sleep(TURN_S)


def _first_results(traffic: _Traffic, watch: Watch) -> None:
    """Spark's first batch takes seconds: no rows before it is through, they would only wait."""
    for car in traffic.devices:
        traffic.send(car)
    watch.on_sent(len(traffic.devices))
    deadline_s = time.monotonic() + PATIENCE_S
    while watch.rows_out < len(traffic.devices):
        if time.monotonic() > deadline_s:
            raise PeregrineError(f"no results after {PATIENCE_S:g} s", "is the machine very busy?")
        time.sleep(0.05)


def _drain(deployment: Deployment, traffic: _Traffic, results: int, watch: Watch) -> None:
    """Until every row has its result, every plan has ended and every host has committed."""
    for device in traffic.devices.values():
        device.flush(PATIENCE_S)
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        found = deployment.results_at_rest()
        running = deployment.driver.manager.coordinator.running
        if found is not None and not running and found >= results <= watch.rows_out:
            return
        time.sleep(0.2)
    watch.say(f"after {PATIENCE_S:g} s not all rows are through")


def _read(deployment: Deployment, watch: Watch, stop: threading.Event) -> None:
    client, position = deployment.clients[CLOUD], 0
    while not stop.is_set():
        try:
            table, after = client.read_results(position, wait_s=READ_WAIT_S)
        except PeregrineError:  # the router is away; it comes back, or the proof says what is missing
            stop.wait(READ_WAIT_S)
            continue
        if after != position:
            watch.on_results(table)
        position = after


def _find(deployment: Deployment, migration: MigrationId) -> Migration | None:
    running = deployment.driver.manager.coordinator.running.get(plan_of(migration))
    return running.migrations.get(migration) if running is not None else None
