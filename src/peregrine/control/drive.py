"""Traffic Monitoring on real processes and Spark: half of the keys move live, then a car drives to another edge.

The demonstration and the end-to-end test run this, and prove the same of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from peregrine import proof
from peregrine.control.local import Deployment, local
from peregrine.control.traffic import Traffic, proved, watched
from peregrine.control.watch import Watch
from peregrine.core.keyspace import KeySet
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.topology import Link, Topology
from peregrine.types import PlaceId, Runner, SiteId
from peregrine.workloads import tm

CLOUD, EDGE1, EDGE2 = SiteId("cloud"), SiteId("edge1"), SiteId("edge2")
PLAN = "half"


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
    runner: Runner = "microbatch"

    @property
    def cars(self) -> list[str]:
        return tm.vehicles(self.vehicles)

    @property
    def half(self) -> list[str]:
        """They drive around edge1, the others around edge2."""
        return self.cars[: self.vehicles // 2]

    @property
    def homes(self) -> dict[str, SiteId]:
        return {car: EDGE1 if car in self.half else EDGE2 for car in self.cars}


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
        topology,
        specs,
        operators,
        directory=directory,
        dwell_ms=course.dwell_ms,
        watch=watch.on_news,
        runner=course.runner,
        keep_journal=True,
    ) as deployment:
        ready()
        traffic = Traffic(deployment, course.homes, course.rows_per_s, watch)
        with watched(deployment, watch):
            marks = _drive(deployment, traffic, course, watch)
            watch.say("no more rows; waiting until all of them are through")
            found = proved(deployment, traffic, specs, operators, watch)
    return found, marks


def _drive(deployment: Deployment, traffic: Traffic, course: Course, watch: Watch) -> Marks:
    marks = Marks()
    traffic.first_results()
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
