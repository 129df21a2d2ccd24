"""Which router is nearest, and that a device is not sent to and fro."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peregrine.errors import ConfigurationError
from peregrine.plan.nearest import EARTH_M, Coverage, Geometry, Position, Whereabouts, distance_m
from peregrine.types import SiteId

PLANE, EARTH = Geometry.PLANE, Geometry.EARTH
A, B = SiteId("a"), SiteId("b")

metres = st.floats(-1000, 1000)
positions = st.tuples(metres, metres)
on_earth = st.tuples(st.floats(-90, 90), st.floats(-180, 180))


def router(name: str, position: Position, reach_m: float = math.inf) -> Whereabouts:
    return Whereabouts(SiteId(name), f"{name}:1", position, reach_m)


@st.composite
def maps(draw: st.DrawFn, finite: bool = True) -> Coverage:
    reaches = st.floats(1, 1500) if finite else st.just(math.inf)
    places = draw(st.lists(st.tuples(positions, reaches), min_size=1, max_size=6))
    return Coverage(PLANE, [router(f"r{i}", at, reach_m) for i, (at, reach_m) in enumerate(places)])


# --- distances ---


@pytest.mark.parametrize(
    ("a", "b", "metres_apart"),
    [
        ((52.5163, 13.3777), (48.8584, 2.2945), 878_000),  # Brandenburger Tor, Tour Eiffel
        ((0.0, 179.5), (0.0, -179.5), EARTH_M * math.radians(1)),  # across the date line
        ((90.0, 10.0), (90.0, -170.0), 0),  # the pole has every longitude
        ((90.0, 0.0), (-90.0, 0.0), EARTH_M * math.pi),
    ],
)
def test_distances_on_the_earth_are_those_of_great_circles(a: Position, b: Position, metres_apart: float) -> None:
    assert distance_m(EARTH, a, b) == pytest.approx(metres_apart, rel=0.002, abs=1e-6)


@given(on_earth, on_earth, on_earth)
def test_distances_on_the_earth_are_distances(a: Position, b: Position, c: Position) -> None:
    assert distance_m(EARTH, a, a) == 0
    assert distance_m(EARTH, a, b) == pytest.approx(distance_m(EARTH, b, a))
    assert distance_m(EARTH, a, c) <= distance_m(EARTH, a, b) + distance_m(EARTH, b, c) + 1


@given(st.floats(-80, 80), st.floats(-179, 179), st.floats(-0.01, 0.01), st.floats(-0.01, 0.01))
def test_close_by_the_earth_is_as_good_as_flat(lat: float, lon: float, north: float, east: float) -> None:
    metre = EARTH_M * math.pi / 180
    flat_m = distance_m(PLANE, (0, 0), (north * metre, east * metre * math.cos(math.radians(lat + north / 2))))
    assert distance_m(EARTH, (lat, lon), (lat + north, lon + east)) == pytest.approx(flat_m, rel=1e-3, abs=1e-3)


# --- the nearest ---


@given(maps(), positions)
def test_the_nearest_is_the_nearest_of_those_that_cover_the_position(coverage: Coverage, position: Position) -> None:
    covering = {
        site: away_m
        for site, each in coverage.routers.items()
        if (away_m := distance_m(PLANE, each.position, position)) <= each.reach_m
    }
    nearest = coverage.nearest(position)
    assert nearest == (min(covering, key=lambda site: (covering[site], site)) if covering else None)


def test_of_equally_near_routers_the_first_by_name_is_taken() -> None:
    both = [router("b", (1.0, 0.0)), router("a", (-1.0, 0.0))]
    assert Coverage(PLANE, both).nearest((0.0, 0.0)) == Coverage(PLANE, both[::-1]).nearest((0.0, 0.0)) == A


def test_on_the_earth_the_nearest_may_be_across_the_date_line() -> None:
    coverage = Coverage(EARTH, [router("a", (0.0, 179.0)), router("b", (0.0, -179.9))])
    assert coverage.nearest((0.0, 179.9)) == B


# --- staying and leaving ---

WALL = Coverage(PLANE, [router("a", (0.0, 0.0), 60.0), router("b", (100.0, 0.0), 60.0)])


@pytest.mark.parametrize(
    ("x", "current", "chosen"),
    [
        (50.0, "a", "a"),
        (54.0, "a", "a"),  # nearer to b, but not by the margin
        (56.0, "a", "b"),
        (46.0, "b", "b"),
        (44.0, "b", "a"),
        (165.0, "b", "b"),  # beyond the reach, but not by the margin, and nobody else covers it
        (400.0, "b", "b"),  # nobody covers it: stay
        (400.0, None, None),
        (30.0, None, "a"),
        (30.0, "gone", "a"),
        (400.0, "gone", "gone"),
    ],
)
def test_a_device_stays_until_another_router_is_nearer_by_the_margin(
    x: float, current: str | None, chosen: str | None
) -> None:
    assert WALL.choice((x, 0.0), SiteId(current) if current else None, 10.0) == chosen


def test_a_device_that_leaves_the_reach_goes_to_one_that_covers_it_though_that_is_farther() -> None:
    small_and_large = Coverage(PLANE, [router("a", (0.0, 0.0), 20.0), router("b", (200.0, 0.0), 180.0)])
    assert small_and_large.choice((29.0, 0.0), A, 10.0) == A
    assert small_and_large.choice((31.0, 0.0), A, 10.0) == B


@given(maps(), positions, st.data(), st.floats(0, 300))
def test_what_is_chosen_is_at_most_the_margin_worse_than_the_nearest(
    coverage: Coverage, position: Position, data: st.DataObject, margin_m: float
) -> None:
    current = data.draw(st.sampled_from([None, *coverage.routers]))
    chosen, nearest = coverage.choice(position, current, margin_m), coverage.nearest(position)
    if nearest is None:
        assert chosen == current
        return
    assert chosen is not None
    chosen_m, nearest_m = (distance_m(PLANE, coverage.routers[site].position, position) for site in (chosen, nearest))
    assert chosen_m <= nearest_m + margin_m
    assert coverage.choice(position, chosen, margin_m) == chosen, "who does as it is told is told nothing more"


@given(maps(), st.lists(st.tuples(st.floats(-200, 200), st.floats(-200, 200)), min_size=2, max_size=40), metres)
def test_whoever_is_sent_back_has_gone_more_than_the_margin(
    coverage: Coverage, steps: list[tuple[float, float]], start: float
) -> None:
    """The law that the margin is for, along any way through any map."""
    margin_m = 50.0
    way = [(start, start)]
    for dx, dy in steps:
        way.append((way[-1][0] + dx, way[-1][1] + dy))
    current = coverage.choice(way[0], None, margin_m)
    gone_m = 0.0
    left_at_m: dict[SiteId, float] = {}
    for before, position in pairwise(way):
        gone_m += distance_m(PLANE, before, position)
        chosen = coverage.choice(position, current, margin_m)
        if chosen != current:
            assert chosen is not None
            if current is not None:
                left_at_m[current] = gone_m
            assert gone_m - left_at_m.get(chosen, -math.inf) > margin_m - 1e-6
        current = chosen


# --- what is refused ---


@pytest.mark.parametrize("position", [(math.nan, 0.0), (0.0, math.inf)])
def test_a_position_is_finite(position: Position) -> None:
    with pytest.raises(ConfigurationError, match="position"):
        WALL.nearest(position)


@pytest.mark.parametrize("position", [(91.0, 0.0), (0.0, -180.5)])
def test_a_position_on_the_earth_is_on_it(position: Position) -> None:
    with pytest.raises(ConfigurationError, match="not on the earth"):
        Coverage(EARTH, [router("a", position)])


@pytest.mark.parametrize("reach_m", [0.0, -1.0, math.nan])
def test_a_reach_is_above_zero(reach_m: float) -> None:
    with pytest.raises(ConfigurationError, match="reach"):
        router("a", (0.0, 0.0), reach_m)
