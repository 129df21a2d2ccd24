"""A car turns back while its key is on the way to it, on Spark in a tree of four levels.

cloud
  region        where the ways of edge1 and edge2 meet
    district1   and those of edge1 and edge3
      edge1     where the key of the car lives
      edge3
    district2
      edge2

A key that begins to move needs a round trip over the link of an edge at least. These links are slow, so that there is
time to turn back before it has switched.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from peregrine.control.guiding import guiding
from peregrine.control.local import Deployment, local
from peregrine.control.traffic import Traffic, proved, watched
from peregrine.control.watch import Watch
from peregrine.core.coordinator import PlanEnded
from peregrine.core.keyspace import KeySet
from peregrine.core.messages import Attached, Reached, Report
from peregrine.core.topology import Link, Topology
from peregrine.log.record_log import Fsync
from peregrine.net.follower import Follower
from peregrine.types import PlaceId, Runner, SiteId
from peregrine.workloads import tm
from peregrine.workloads.generate.driving import Passing, Road, drive

CLOUD, REGION, DISTRICT1, DISTRICT2 = map(SiteId, ("cloud", "region", "district1", "district2"))
EDGE1, EDGE2, EDGE3 = map(SiteId, ("edge1", "edge2", "edge3"))
FAST, SLOW = Link(2.0, 1000.0), Link(300.0, 1000.0)
TREE = Topology.tree(
    CLOUD,
    {
        REGION: (CLOUD, FAST),
        DISTRICT1: (REGION, FAST),
        DISTRICT2: (REGION, FAST),
        EDGE1: (DISTRICT1, SLOW),
        EDGE2: (DISTRICT2, SLOW),
        EDGE3: (DISTRICT1, SLOW),
    },
)
CAR = "car0"
HOMES: Mapping[str, SiteId] = dict(zip(tm.vehicles(4), (EDGE1, EDGE2, EDGE3, EDGE1), strict=True))
ROWS_PER_S = 120.0
DWELL_MS = 300
ROAD = Road(edges=2, spacing_m=1000.0)
SEEN_EVERY_MS = 10_000


class Ride:
    """The car is on its way, and all cars send rows whatever is waited for."""

    def __init__(self, up: Deployment, cars: Traffic, watch: Watch) -> None:
        self._up = up
        self._cars = cars
        self._watch = watch
        self._device = cars.devices[CAR]
        # From the first edge to the second one, and back.
        self._road: Iterator[Passing] = drive(ROAD, cars=1, speeds_mps=(25.0, 25.0), gap_m=0.0, every_ms=SEEN_EVERY_MS)

    def along_the_road(self, follower: Follower, edge: SiteId) -> None:
        """Until it is there. Nobody but the guide says which router it is to use."""
        follower.follow(self._device)
        for passing in self._road:
            follower.seen(self._device, passing.position)
            self._cars.flow(0.01)
            if passing.position == ROAD.position(edge):
                break
        self._cars.flow_until(lambda: self._device.site == edge, f"{CAR} uses {edge}")

    def to(self, edge: SiteId) -> None:
        self._device.move(edge)

    def until(self, leg: str, step: str) -> None:
        def so_far() -> bool:
            return any(each.plan == leg and step in each.steps for each in list(self._watch.journeys.values()))

        self._cars.flow_until(so_far, f"{leg} is so far: {step}")

    def until_the_key_is_at(self, edge: SiteId) -> None:
        """For good, and all is heard of how it came there: the manager knows before those whom it tells."""

        def is_there() -> bool:
            begun = {each.plan for each in list(self._watch.journeys.values())}
            over = self._up.driver.idle and begun == {each.plan.id for each in ended(self._watch)}
            return over and self._watch.owners[CAR] == edge

        self._cars.flow_until(is_there, f"the key of {CAR} is at {edge}")


def ended(watch: Watch) -> list[PlanEnded]:
    return [news for _, news in list(watch.timeline) if isinstance(news, PlanEnded)]


def legs(watch: Watch) -> list[tuple[str, str, str]]:
    """Which plan, from where to where, and how it ended, as the manager says."""
    ways = {each.plan: each.way for each in watch.journeys.values()}
    return [(each.plan.id, ways[each.plan.id], each.outcome) for each in ended(watch)]


def heard(watch: Watch, leg: str = "", step: str = "", nth: int | None = None) -> int:
    """How much had been heard when a leg had come so far, or when the car had connected for the nth time."""

    def is_it(news: Any) -> bool:
        match news:
            case Report(_, migration, found) | Reached(_, migration, found):
                return migration == f"{leg}.0.0" and found == step
            case Attached():
                return news.source == CAR and news.nth == nth
        return False

    return next(at for at, (_, news) in enumerate(watch.timeline) if is_it(news))


MANY = pytest.mark.skipif(os.environ.get("PEREGRINE_KILLS") != "all", reason="takes half a minute: make test-kills")


@pytest.mark.parametrize("runner", ["microbatch", pytest.param("continuous", marks=MANY)])
def test_back_during_the_second_leg_ends_it_and_back_during_the_first_does_not(
    spark: Any, tmp_path: Path, runner: Runner
) -> None:
    """Falcon III-F, ping-pong. The first car is told by the guide where to go, both ways."""
    specs, operators = tm.specs(), tm.operators()
    initial = [(tm.MOV_AVG, KeySet.of_keys(tm.GROUPS, [car]), PlaceId(edge)) for car, edge in HOMES.items()]
    watch = Watch(HOMES)
    settings: dict[str, Any] = {"watch": watch.on_news, "keep_journal": True, "fsync": Fsync.OFF, "runner": runner}
    with local(TREE, specs, operators, initial, tmp_path / "run", DWELL_MS, **settings) as up:
        cars = Traffic(up, HOMES, ROWS_PER_S, watch)
        ride = Ride(up, cars, watch)
        with watched(up, watch):
            cars.first_results()
            with guiding(up, {edge: ROAD.position(edge) for edge in ROAD.sites}) as follower:
                ride.along_the_road(follower, EDGE2)
                ride.until("roam1-down", "snapshot")
                ride.along_the_road(follower, EDGE1)
                ride.until_the_key_is_at(EDGE1)
            assert legs(watch) == [
                ("roam0-up", "edge1 → region", "done"),
                ("roam1-down", "region → edge2", "aborted"),
                ("roam2-down", "region → edge1", "done"),
            ]
            assert heard(watch, "roam1-down", "snapshot") < heard(watch, nth=2) < heard(watch, "roam1-down", "aborted")

            ride.to(EDGE3)
            ride.until("roam3-up", "begun")
            ride.to(EDGE1)
            ride.until_the_key_is_at(EDGE1)
            assert legs(watch)[3:] == [
                ("roam3-up", "edge1 → district1", "done"),
                ("roam4-down", "district1 → edge1", "done"),
            ]
            assert heard(watch, "roam3-up", "begun") < heard(watch, nth=4) < heard(watch, "roam3-up", "switched")
            proof = proved(up, cars, specs, operators, watch, initial)
    assert proof.holds, proof
    assert proof.rows_in == proof.rows_out > 0
