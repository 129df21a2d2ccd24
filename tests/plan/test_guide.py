"""The guide: leases, what it tells whom, and what it does not say before it knows."""

import random

from hypothesis import given
from hypothesis import strategies as st

from peregrine.plan.guide import Guide, Notice, Sighting, Use
from peregrine.plan.nearest import Geometry, Position, Whereabouts
from peregrine.types import SiteId, SourceId

CAR = SourceId("car")
A, B = (Whereabouts(SiteId(name), f"{name}:1", (x, 0.0), 100.0) for name, x in (("a", 0.0), ("b", 100.0)))
LEASE_MS = 1000


def guide(*routers: Whereabouts, now_ms: int = 0) -> Guide:
    made = Guide(Geometry.PLANE, now_ms, margin_m=10.0, lease_ms=LEASE_MS, forget_ms=10_000)
    for router in routers:
        made.register(router, now_ms)
    return made


def use(router: Whereabouts, address: str | None = None) -> Use:
    return Use(CAR, router.site, router.address if address is None else address)


def seen(x: float, time_ms: int) -> list[Sighting]:
    return [Sighting(CAR, (x, 0.0), time_ms)]


def told(router: Whereabouts) -> list[Notice]:
    return [Notice(CAR, router.site, router.address)]


def test_a_device_is_told_when_another_router_has_become_nearest_and_once_it_has_gone_there_no_more() -> None:
    made = guide(A, B)
    assert made.see(seen(10.0, 1), 1)
    assert made.notices([use(A)]) == []
    assert made.see(seen(90.0, 2), 2)
    assert made.notices([use(A)]) == told(B)
    assert made.notices([use(A)]) == told(B), "it is told again until it has gone there"
    assert made.notices([use(B)]) == []


def test_a_device_that_was_not_seen_stays_where_it_is() -> None:
    assert guide(A, B).notices([use(A)]) == []


def test_a_sighting_that_is_older_than_the_last_one_does_not_count() -> None:
    made = guide(A, B)
    made.see(seen(90.0, 5), 5)
    assert not made.see(seen(10.0, 4), 6)
    assert made.notices([use(B)]) == []


def test_a_router_that_has_another_address_now_is_told_to_who_uses_it() -> None:
    moved = Whereabouts(A.site, "a:2", A.position, A.reach_m)
    made = guide(A, B)
    assert made.register(moved, 10)
    assert made.notices([use(A)]) == told(moved)
    assert made.notices([use(A, "")]) == told(moved), "and to who has no address of it"


def test_a_router_that_does_not_renew_is_gone_after_its_lease() -> None:
    made = guide(A, B)
    made.see(seen(10.0, 1), 1)
    assert not made.register(A, 600)
    assert made.tick(LEASE_MS + 1)
    assert made.routers == (A,)
    assert made.tick(601 + LEASE_MS)
    assert made.routers == () and made.nearest((0.0, 0.0)) is None
    assert made.notices([use(A)]) == [], "nobody is left to go to"


def test_who_uses_a_router_that_is_gone_is_sent_to_one_that_is_there() -> None:
    made = guide(A, B)
    made.see(seen(10.0, 1), 1)
    made.register(B, 900)
    made.tick(LEASE_MS + 1)
    assert made.notices([use(A)]) == told(B)
    made.register(A, LEASE_MS + 2)
    assert made.notices([use(B)]) == told(A)


def test_a_router_that_withdraws_is_gone_at_once() -> None:
    made = guide(A, B)
    made.see(seen(10.0, 1), 1)
    made.tick(LEASE_MS)
    made.register(B, LEASE_MS + 1)
    assert made.withdraw(A.site, LEASE_MS + 1)
    assert not made.withdraw(A.site, LEASE_MS + 1)
    assert made.notices([use(A)]) == told(B)


def test_a_guide_that_began_anew_sends_nobody_away_from_a_router_that_it_does_not_know_yet() -> None:
    made = guide(B, now_ms=5000)  # a has not renewed yet
    made.see(seen(10.0, 1), 5001)
    assert made.notices([use(A)]) == []
    made.register(B, 5900)
    made.tick(5000 + LEASE_MS)
    assert made.notices([use(A)]) == []
    made.tick(5001 + LEASE_MS)
    assert made.notices([use(A)]) == told(B), "by now a would have renewed"


def test_devices_that_nobody_speaks_of_are_forgotten() -> None:
    made = guide(A, B)
    made.see(seen(90.0, 1), 0)
    made.see(seen(90.0, 1), 5000)  # no news, but somebody still asks
    made.tick(15_000)
    assert made.devices == 1
    made.tick(15_001)
    assert made.devices == 0


def test_an_observer_whose_clock_was_set_back_is_believed_after_a_while() -> None:
    made = guide(A, B)
    made.see(seen(10.0, 1_000_000), 0)
    for now_ms in (4000, 8000):
        assert not made.see(seen(90.0, now_ms), now_ms)
    made.tick(10_001)
    assert made.see(seen(90.0, 10_001), 10_001)


@given(
    st.lists(st.tuples(st.floats(-300, 300), st.integers(0, 50)), min_size=1, max_size=30),
    st.integers(0, 2**32),
)
def test_the_order_in_which_sightings_arrive_does_not_matter(sightings: list[tuple[float, int]], shuffle: int) -> None:
    once = {time_ms: Sighting(CAR, (x, 0.0), time_ms) for x, time_ms in sightings}
    shuffled = list(once.values())
    random.Random(shuffle).shuffle(shuffled)
    in_order, mixed = guide(A, B), guide(A, B)
    in_order.see(sorted(shuffled, key=lambda each: each.time_ms), 1)
    for each in shuffled:
        mixed.see([each], 1)
    for using in (use(A), use(B)):
        assert in_order.notices([using]) == mixed.notices([using])


def test_anybody_may_ask_for_the_nearest_router() -> None:
    made = guide(A, B)
    asked: dict[Position, Whereabouts | None] = {(40.0, 0.0): A, (60.0, 0.0): B, (500.0, 0.0): None}
    assert {position: made.nearest(position) for position in asked} == asked
