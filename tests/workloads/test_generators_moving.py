"""Cars on a road and trains on a ring: the same for the same seed, by any stretch, and possible in this world."""

import math
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peregrine.core.keyspace import KeySet
from peregrine.core.operator import OpSpec
from peregrine.errors import ConfigurationError
from peregrine.plan.guide import Guide, Sighting, Use
from peregrine.plan.nearest import Geometry, distance_m
from peregrine.plan.redeploy.changes import Changes
from peregrine.plan.redeploy.events import SiteMoved, facts_of
from peregrine.plan.redeploy.queue import TopologyQueue, Verdict
from peregrine.plan.redeploy.world import World
from peregrine.types import OpId, SiteId
from peregrine.workloads.generate.driving import Passing, Road, drive
from peregrine.workloads.generate.ring_line import CLOUD, RATES_MS, RingLine, Shape
from peregrine.workloads.generate.trains import RING, passengers
from redeploy_worlds import all_violations, planner_of

seeds = st.integers(0, 2**31)
roads = st.builds(Road, st.integers(1, 6), st.floats(10, 5000), st.one_of(st.just(math.inf), st.floats(5, 3000)))
rings = st.builds(RingLine, st.integers(1, 12), st.integers(2, 9))


# --- cars ---


@given(roads, seeds, st.integers(1, 8), st.integers(1, 3000), st.integers(0, 9000), st.integers(0, 9000))
def test_a_stretch_of_the_drive_is_what_the_whole_drive_has_there(
    road: Road, seed: int, cars: int, every_ms: int, a_ms: int, b_ms: int
) -> None:
    every_ms = max(every_ms, 200)
    from_ms, until_ms = sorted((a_ms, b_ms))
    whole = list(drive(road, seed, cars=cars, every_ms=every_ms, until_ms=until_ms))
    part = list(drive(road, seed, cars=cars, every_ms=every_ms, from_ms=from_ms, until_ms=until_ms))
    assert part == [each for each in whole if each.time_ms >= from_ms]
    assert [each.time_ms for each in whole] == sorted(each.time_ms for each in whole)


@given(roads, seeds, st.tuples(st.floats(0, 60), st.floats(0, 60)))
def test_cars_stay_on_the_road_and_drive_no_faster_than_they_may(
    road: Road, seed: int, speeds: tuple[float, float]
) -> None:
    slow, fast = sorted(speeds)
    of_car: dict[str, list[Passing]] = {}
    for each in drive(road, seed, cars=3, speeds_mps=(slow, fast), every_ms=700, until_ms=20_000):
        of_car.setdefault(each.car, []).append(each)
    assert len(of_car) == 3
    for seen in of_car.values():
        assert all(0 <= each.position[0] <= road.length_m and each.position[1] == 0 for each in seen)
        for before, after in pairwise(seen):
            assert after.time_ms - before.time_ms == 700
            assert distance_m(Geometry.PLANE, before.position, after.position) <= fast * 0.7 + 1e-6


@given(roads, seeds)
def test_the_site_of_a_car_is_the_nearest_edge_if_that_covers_it(road: Road, seed: int) -> None:
    for each in drive(road, seed, cars=4, every_ms=5000, until_ms=60_000):
        away_m = {site: abs(road.position(site)[0] - each.position[0]) for site in road.sites}
        if each.site is None:
            assert min(away_m.values()) > road.reach_m
        else:
            assert away_m[each.site] == min(away_m.values()) <= road.reach_m


def test_a_seed_gives_the_same_drive_and_another_one_another() -> None:
    first, again, other = (list(islice(drive(Road(), seed), 200)) for seed in (1, 1, 2))
    assert first == again != other


def test_a_car_that_drives_all_the_way_passes_every_edge_and_comes_back() -> None:
    road = Road(edges=4, spacing_m=100.0)
    seen = [each.site for each in drive(road, cars=1, speeds_mps=(10.0, 10.0), gap_m=0.0, until_ms=61_000)]
    changes = [site for before, site in pairwise([None, *seen]) if site != before]
    assert changes == ["edge1", "edge2", "edge3", "edge4", "edge3", "edge2", "edge1"]


def test_cars_behind_each_other_keep_their_gap() -> None:
    road = Road(edges=3, spacing_m=1000.0)
    seen = list(drive(road, cars=4, speeds_mps=(20.0, 20.0), gap_m=50.0, every_ms=4, from_ms=20_000, until_ms=20_004))
    assert [each.position[0] for each in seen] == pytest.approx([400.0, 350.02, 300.04, 250.06])


@given(roads, seeds, st.floats(1, 200))
def test_a_guide_that_sees_the_drive_moves_each_car_as_often_as_the_margin_allows(
    road: Road, seed: int, margin_m: float
) -> None:
    """Cars turn round only at the ends of the road, so no car passes a border twice in between."""
    guide = Guide(Geometry.PLANE, 0, margin_m, lease_ms=10**9)
    for router in road.routers({site: f"{site}:1" for site in road.sites}):
        guide.register(router, 0)
    site_of: dict[str, SiteId] = {}
    moves: dict[str, int] = {}
    driven_m: dict[str, float] = {}
    before: dict[str, Passing] = {}
    for each in drive(road, seed, cars=3, every_ms=1000, until_ms=60_000):
        guide.see([Sighting(each.car, each.position, each.time_ms)], each.time_ms)
        if each.car not in site_of and each.site is not None:
            site_of[each.car] = each.site
        if each.car in before:
            driven_m[each.car] = driven_m.get(each.car, 0.0) + abs(each.position[0] - before[each.car].position[0])
        before[each.car] = each
        if each.car in site_of:
            for notice in guide.notices([Use(each.car, site_of[each.car], f"{site_of[each.car]}:1")]):
                site_of[each.car] = notice.site
                moves[each.car] = moves.get(each.car, 0) + 1
    for car, count in moves.items():
        assert count <= 1 + driven_m.get(car, 0.0) / min(margin_m, road.spacing_m)


@pytest.mark.parametrize(
    "wrong", [{"cars": 0}, {"every_ms": 0}, {"speeds_mps": (2.0, 1.0)}, {"speeds_mps": (-1.0, 1.0)}]
)
def test_a_drive_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="cars with speeds"):
        next(drive(Road(), **wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"edges": 0}, {"spacing_m": 0.0}, {"spacing_m": math.inf}])
def test_a_road_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="a road along"):
        Road(**wrong)  # type: ignore[arg-type]


# --- trains ---


@given(rings, seeds, st.integers(1, 4000), st.data(), st.booleans())
def test_every_train_is_at_one_station_and_goes_to_the_next_in_its_direction(
    ring: RingLine, seed: int, every_ms: int, data: st.DataObject, as_links: bool
) -> None:
    at_once = data.draw(st.integers(1, ring.trains))
    world = World.of(ring.topology(), Changes())
    queue = TopologyQueue(CLOUD)
    stops = dict.fromkeys(range(ring.trains), 0)
    for nth, change in enumerate(islice(ring.changes(every_ms, seed, at_once=at_once, as_links=as_links), 30), 1):
        assert change.time_ms == nth * every_ms and len(change.events) == at_once * (1 + as_links)
        assert {queue.offer(event) for event in change.events} == {Verdict.TAKEN}
        batch = queue.batch()
        assert batch is not None
        shift = world.apply(batch.facts)
        assert not shift.left and not shift.joined, "no train is ever off the line"
        for site in shift.rehomed:
            stops[int(site.removeprefix("train"))] += 1
        for train, stop in stops.items():
            assert world.parent[SiteId(f"train{train}")] == ring.station(train, stop)
            assert len(world.links[SiteId(f"train{train}")]) == 1
    assert sum(stops.values()) == 30 * at_once
    assert max(stops.values()) - min(stops.values()) <= 1


@given(rings, seeds, st.integers(0, 5000), st.integers(0, 5000))
def test_a_stretch_of_changes_is_what_the_whole_stream_has_there(
    ring: RingLine, seed: int, a_ms: int, b_ms: int
) -> None:
    from_ms, until_ms = sorted((a_ms, b_ms))
    whole = list(ring.changes(100, seed, until_ms=until_ms))
    part = list(ring.changes(100, seed, from_ms=from_ms, until_ms=until_ms))
    assert part == [change for change in whole if change.time_ms >= from_ms]


@given(rings, seeds)
def test_links_that_go_and_come_are_the_same_facts_as_trains_that_move(ring: RingLine, seed: int) -> None:
    moved, linked = (islice(ring.changes(1000, seed, as_links=as_links), 40) for as_links in (False, True))
    for one, two in zip(moved, linked, strict=True):
        facts = {fact for event in one.events for fact in facts_of(event)}
        assert facts == {fact for event in two.events for fact in facts_of(event)}


def test_a_seed_gives_the_same_changes_and_another_one_others() -> None:
    first, again, other = (list(islice(RingLine().changes(100, seed), 200)) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("every_ms", RATES_MS)
def test_the_rate_is_the_one_that_was_asked_for(every_ms: int) -> None:
    changes = list(RingLine().changes(every_ms, until_ms=20_001))
    assert len(changes) == 20_000 // every_ms


def test_trains_are_where_their_passengers_say() -> None:
    """The same ring as in generate/trains.py."""
    ring = RingLine(trains=40)
    rows = passengers(40 * 12 * 5).to_pydict()
    stops: dict[str, list[str]] = {}
    for train, station in zip(rows["train"], rows["station"], strict=True):
        if not stops.get(train) or stops[train][-1] != station:
            stops.setdefault(train, []).append(station)
    assert len(stops) == 40
    for train, stations in stops.items():
        number = int(train.removeprefix("train"))
        assert [f"station{RING.index(station)}" for station in stations] == [
            ring.station(number, stop) for stop in range(len(stations))
        ]


@pytest.mark.parametrize(
    ("shape", "hops"),
    [("star", [1, 1, 1, 1, 1]), ("full", [1, 1, 1, 1, 1]), ("ring", [1, 2, 3, 3, 2]), ("tree", [2, 2, 2, 2, 2])],
)
def test_the_way_from_a_station_to_the_cloud_is_that_of_the_shape(shape: Shape, hops: list[int]) -> None:
    topology = RingLine(trains=4, stations=5, shape=shape).topology()
    assert [len(topology.ancestors(SiteId(f"station{n}"))) for n in range(5)] == hops
    assert len(topology.unused) == {"star": 0, "full": 10, "ring": 1, "tree": 0}[shape]


def test_trains_of_one_station_go_to_and_fro_between_it_and_the_cloud() -> None:
    ring = RingLine(trains=2, stations=1)
    assert [ring.station(train, stop) for train in range(2) for stop in range(3)] == [
        "station0",
        "cloud",
        "station0",
    ] * 2


def test_two_stations_are_joined_once() -> None:
    topology = RingLine(trains=1, stations=2, shape="ring").topology()
    assert not topology.unused and topology.parent(SiteId("station1")) == "station0"


@pytest.mark.parametrize("shape", ["star", "tree"])
def test_an_incremental_planner_keeps_up_with_the_ring_and_moves_only_the_keys_of_the_trains_that_move(
    shape: Shape,
) -> None:
    ring = RingLine(trains=8, stations=5, shape=shape)
    count = OpSpec(OpId("app/count"), 4)
    topology = ring.topology()
    sources = {f"train{n}": (f"train{n}", ((count.op, KeySet.of_keys(4, [f"train{n}"])),)) for n in range(8)}
    initial = [("app/count", KeySet.of_keys(4, [f"train{n}"]), ring.station(n, 0)) for n in range(8)]
    planner = planner_of(topology, [count], sources, initial)
    for change in islice(ring.changes(250, seed=3, at_once=2), 40):
        for event in change.events:
            planner.queue.offer(event)
        redeployment = planner.plan()
        assert redeployment is not None and not redeployment.postponed
        moved = {event.site for event in change.events if isinstance(event, SiteMoved)}
        assert set(redeployment.shift.rehomed) == moved
        assert {key for each in redeployment.relocations for key in each.keys.plus} == moved
        planner.succeeded()
        assert all_violations(planner) == []


@pytest.mark.parametrize("wrong", [{"every_ms": 0}, {"every_ms": 1, "at_once": 0}, {"every_ms": 1, "at_once": 41}])
def test_changes_that_cannot_be_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="hand over"):
        next(RingLine().changes(**wrong))


@pytest.mark.parametrize("wrong", [{"trains": 0}, {"stations": 0}])
def test_a_ring_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="a ring line with"):
        RingLine(**wrong)
