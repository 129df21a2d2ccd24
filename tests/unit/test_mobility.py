"""Sources that roam: two legs, a dwell in between, and ping-pong (Falcon III-F)."""

from typing import Any

import pytest

from harness import (
    AT_CLOUD,
    AT_EDGE1,
    AT_EDGE2,
    AT_REGION,
    EDGE1,
    EDGE2,
    GROUPS,
    OP,
    REGION,
    Net,
    keys,
    sink,
    spec,
    tree,
)
from peregrine.core.attachments import Attachments
from peregrine.core.coordinator import CoordinatorEffect, PlanEnded, Status, Submit, ToRouter
from peregrine.core.keyspace import KeySet
from peregrine.core.manager import Manager, ManagerEvent
from peregrine.core.messages import Attach, Attached, Report, Stray, Tick
from peregrine.core.migrate import Migration
from peregrine.core.mobility import Phase
from peregrine.core.placement import Placement
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.source import Reading, Source
from peregrine.types import MigrationId, SiteId, SourceId

DWELL_MS = 5000
CAR = SourceId("car")
SPECS = {OP: spec(roaming=True), sink().op: sink()}
STRAY = Stray(REGION, OP, "car1", CAR)


def manager(attachments: Attachments | None = None, producers: Any = None) -> Manager:
    """car1 lives at edge1; the car that produces it has connected there."""
    placement = Placement(tree(), SPECS)
    placement.move(OP, keys("car1"), AT_CLOUD, AT_EDGE1)
    made = Manager(
        placement, SPECS, attachments or Attachments(), producers or (lambda op, key_set: ()), dwell_ms=DWELL_MS
    )
    made.step(Attached(EDGE1, CAR, 0))
    return made


def commands(effects: list[CoordinatorEffect]) -> list[tuple[str, Migration]]:
    return [(type(e.command).__name__, e.command.migration) for e in effects if isinstance(e, ToRouter)]  # type: ignore[union-attr]


def ended(m: Manager, migration: Migration, status: str = "done") -> list[CoordinatorEffect]:
    return m.step(Report(SiteId(migration.target), migration.id, status))


def first_leg(m: Manager, at_ms: int = 1000) -> Migration:
    m.step(Attached(EDGE2, CAR, at_ms, nth=1))
    ((_, migration),) = commands(m.step(STRAY))
    return migration


def second_leg(m: Manager, at_ms: int = 1000) -> Migration:
    ended(m, first_leg(m, at_ms))
    ((_, migration),) = commands(m.step(Tick(at_ms + DWELL_MS)))
    return migration


# --- the two legs ---


def test_a_stray_row_starts_the_first_leg_up_to_the_router_that_saw_it() -> None:
    """Falcon III-F: the key comes to where both paths meet, and that router is the anchor."""
    leg = first_leg(manager())
    assert (leg.source, leg.target, leg.anchor, leg.keys, leg.mechanism) == (
        AT_EDGE1,
        AT_REGION,
        REGION,
        keys("car1"),
        "live",
    )


def test_more_stray_rows_during_the_first_leg_start_nothing() -> None:
    m = manager()
    first_leg(m)
    assert m.step(STRAY) == []


def test_the_second_leg_waits_until_the_source_has_stayed() -> None:
    """Falcon III-F: to avoid needless migrations of a source that moves on, the key waits above."""
    m = manager()
    ended(m, first_leg(m, at_ms=1000))
    assert m.mobility.trips[OP, "car1"].phase is Phase.DWELL
    assert m.step(Tick(1000 + DWELL_MS - 1)) == []
    ((command, leg),) = commands(m.step(Tick(1000 + DWELL_MS)))
    assert command == "Begin"
    assert (leg.source, leg.target, leg.anchor) == (AT_REGION, AT_EDGE2, EDGE2)


def test_the_dwell_begins_anew_when_the_source_moves_and_not_when_it_reconnects() -> None:
    """Falcon III-F: connected to one edge for the whole duration."""
    m = manager()
    ended(m, first_leg(m, at_ms=1000))
    m.step(Attached(EDGE2, CAR, 3000, nth=1))  # the same edge again
    m2 = manager()
    ended(m2, first_leg(m2, at_ms=1000))
    m2.step(Attached(EDGE1, CAR, 3000, nth=2))
    assert len(commands(m.step(Tick(1000 + DWELL_MS)))) == 1
    assert m2.step(Tick(1000 + DWELL_MS)) == []
    ((_, leg),) = commands(m2.step(Tick(3000 + DWELL_MS)))
    assert leg.target == AT_EDGE1


def test_after_the_second_leg_the_trip_is_over_and_a_new_one_can_begin() -> None:
    m = manager()
    leg = second_leg(m)
    ended(m, leg)
    assert m.mobility.trips == {}
    assert m.coordinator.placement.owner(OP, "car1") == AT_EDGE2
    m.step(Attached(EDGE1, CAR, 20_000, nth=2))
    ((_, again),) = commands(m.step(STRAY))
    assert (again.source, again.target) == (AT_EDGE2, AT_REGION)
    assert again.id != leg.id


# --- ping-pong ---


def test_back_during_the_first_leg_lets_it_finish() -> None:
    """Falcon III-F, ping-pong: the router above can serve both edges, so nothing is cancelled."""
    m = manager()
    leg = first_leg(m, at_ms=1000)
    assert m.step(Attached(EDGE1, CAR, 1100, nth=2)) == []
    ended(m, leg)
    assert m.coordinator.placement.owner(OP, "car1") == AT_REGION
    ((_, back),) = commands(m.step(Tick(1100 + DWELL_MS)))
    assert back.target == AT_EDGE1


def test_back_during_the_second_leg_cancels_it() -> None:
    """Falcon III-F, ping-pong: the key would arrive where its source no longer is."""
    m = manager()
    leg = second_leg(m)
    effects = commands(m.step(Attached(EDGE1, CAR, 9000, nth=2)))
    assert ("Abort", leg) in effects
    ended(m, leg, "aborted")
    assert m.coordinator.placement.owner(OP, "car1") == AT_REGION
    assert m.mobility.trips[OP, "car1"].phase is Phase.DWELL
    ((_, back),) = commands(m.step(Tick(9000 + DWELL_MS)))
    assert (back.source, back.target) == (AT_REGION, AT_EDGE1)


def test_a_cancelled_second_leg_that_had_switched_is_followed_by_a_new_first_leg() -> None:
    """Falcon III-F with the roll-forward of design section 4: strays start over from where the key ended up."""
    m = manager()
    leg = second_leg(m)
    m.step(Report(EDGE2, leg.id, "switched"))
    m.step(Attached(EDGE1, CAR, 9000, nth=2))
    ended(m, leg)
    assert m.coordinator.placement.owner(OP, "car1") == AT_EDGE2
    ((_, again),) = commands(m.step(STRAY))
    assert (again.source, again.target) == (AT_EDGE2, AT_REGION)


def test_staying_where_the_second_leg_leads_does_not_cancel_it() -> None:
    m = manager()
    second_leg(m)
    assert m.step(Attached(EDGE2, CAR, 9000, nth=1)) == []
    assert m.step(Attached(EDGE1, SourceId("another car"), 9000)) == []


# --- what does not start a trip ---


def test_old_news_of_a_stray_is_ignored() -> None:
    """Reports may come late: the key is already at or above the router that reports."""
    m = manager()
    m.coordinator.placement.move(OP, keys("car1"), AT_EDGE1, AT_REGION)
    assert m.step(STRAY) == []
    m.coordinator.placement.move(OP, keys("car1"), AT_REGION, AT_CLOUD)
    assert m.step(STRAY) == []
    assert m.mobility.trips == {}


def test_a_key_that_somebody_else_moves_waits_for_the_next_stray() -> None:
    """Falcon III-D: two migrations never share a key."""
    m = manager()
    m.step(Submit(Plan("mine", ((Move(OP, keys("car1"), AT_EDGE1, AT_CLOUD),),))))
    m.step(Attached(EDGE2, CAR, 1000))
    assert m.step(STRAY) == []
    m.step(Report(EDGE1, MigrationId("mine.0.0"), "aborted"))
    assert len(commands(m.step(STRAY))) == 1


def test_a_second_leg_that_somebody_else_is_in_the_way_of_is_tried_again() -> None:
    """Falcon III-D with III-F: the trip is not forgotten."""
    m = manager()
    ended(m, first_leg(m, at_ms=1000))
    m.step(Submit(Plan("mine", ((Move(OP, keys("car1"), AT_REGION, AT_CLOUD),),))))
    assert [command for command, leg in commands(m.step(Tick(1000 + DWELL_MS))) if leg.target == AT_EDGE2] == []
    m.step(Report(REGION, MigrationId("mine.0.0"), "aborted"))
    assert [leg.target for _, leg in commands(m.step(Tick(1001 + DWELL_MS)))] == [AT_EDGE2]


def test_a_key_with_sources_at_several_edges_stays_where_all_of_them_meet() -> None:
    """Falcon III-B: an instance must be above all producers of its key, so there is no second leg."""
    m = manager(producers=lambda op, key_set: [("car", EDGE2), ("camera", EDGE1)])
    ended(m, first_leg(m, at_ms=1000))
    assert m.step(Tick(1000 + DWELL_MS)) == []
    assert m.coordinator.placement.owner(OP, "car1") == AT_REGION
    assert m.mobility.trips == {}


def test_a_manager_rebuilt_in_the_middle_of_a_trip_goes_on() -> None:
    """Falcon III-G."""
    journal: list[ManagerEvent] = [Attached(EDGE2, CAR, 1000), STRAY]
    m = manager()
    begun = [commands(m.step(event)) for event in journal][-1]
    journal.append(Report(REGION, begun[0][1].id, "done"))
    m.step(journal[-1])
    again = manager()
    for event in journal:
        again.step(event)
    assert commands(again.step(Tick(9000))) == commands(m.step(Tick(9000))) != []


# --- a whole trip, with rows ---


class Road:
    """A car, the routers and the manager; the test drives."""

    def __init__(self) -> None:
        self.net = Net(specs=SPECS.values(), owners=[(keys("car1"), AT_EDGE1)])
        self.manager = manager(Attachments())
        self.car = Source(CAR, EDGE1, roaming=True)
        self.plans: list[PlanEnded] = []
        self._reports = self._strays = self._attached = 0
        self.net.step(EDGE1, Attach(CAR))

    def drive(self, site: SiteId) -> None:
        self.car.move(site)
        self.net.step(site, Attach(CAR, self.car.moves))

    def produce(self, count: int = 1) -> None:
        for _ in range(count):
            self.car.produce(Reading(OP, "car1", 0, 0, b"row"))

    def send(self, acknowledged: bool = True) -> None:
        batch = self.car.batch()
        assert batch is not None
        self.net.step(self.car.site, batch)
        if acknowledged:
            self.car.acked(self.net.routers[self.car.site].acked_source(CAR))

    def news(self) -> None:
        """Everything that routers have told reaches the manager, and its commands reach them."""
        net = self.net
        told = [*net.attached[self._attached :], *net.strays[self._strays :], *net.reports[self._reports :]]
        self._attached, self._strays, self._reports = len(net.attached), len(net.strays), len(net.reports)
        for event in told:
            self.perform(self.manager.step(event))

    def perform(self, effects: list[CoordinatorEffect]) -> None:
        for effect in effects:
            if isinstance(effect, ToRouter):
                self.net.step(effect.site, effect.command)
            else:
                self.plans.append(effect)

    def rest(self, now_ms: int) -> None:
        """Time passes, and everything that can happen does."""
        self.net.settle()
        self.net.tick(now_ms)
        for _ in range(8):
            self.net.settle()
            self.news()
        self.perform(self.manager.step(Tick(now_ms)))
        for _ in range(8):
            self.net.settle()
            self.news()


def applied(net: Net) -> list[int]:
    return net.landed("car1")


def test_a_key_follows_its_source_and_no_row_is_lost_repeated_or_out_of_order() -> None:
    """Falcon III-F, figure 6, from a to e."""
    road = Road()
    road.produce(2)
    road.send()
    road.net.settle()
    road.drive(EDGE2)
    road.produce(2)
    road.send()
    road.net.settle()
    assert road.net.outputs("car1") == [(AT_EDGE1, seq) for seq in range(4)]  # b: down to the old edge meanwhile
    road.rest(1000)
    assert road.net.whereabouts("car1") == [AT_REGION]  # d
    road.produce()
    road.send()
    road.rest(1000 + DWELL_MS)
    assert road.net.whereabouts("car1") == [AT_EDGE2]  # e
    road.produce()
    road.send()
    road.rest(20_000)
    assert applied(road.net) == list(range(6))
    assert [place for place, _ in road.net.outputs("car1")] == [AT_EDGE1] * 4 + [AT_REGION, AT_EDGE2]
    assert [plan.outcome for plan in road.plans] == [Status.DONE, Status.DONE]
    assert road.net.leftovers() == []


def test_rows_that_the_old_router_took_without_acknowledging_are_applied_once() -> None:
    """Falcon III-F, router switchover: what was not acknowledged goes to the new router as well."""
    road = Road()
    road.produce(2)
    road.send(acknowledged=False)
    road.drive(EDGE2)
    road.produce()
    road.send()
    road.rest(1000)
    assert applied(road.net) == [0, 1, 2]


@pytest.mark.parametrize("old_path_first", [True, False])
def test_rows_that_overtake_each_other_on_two_paths_are_applied_in_their_order(old_path_first: bool) -> None:
    """Falcon III-F, ping-pong: rows sent through edge 2 may arrive after those sent through edge 1 later."""
    road = Road()
    road.drive(EDGE2)
    road.produce()
    road.send()
    road.rest(1000)
    assert road.net.whereabouts("car1") == [AT_REGION]
    road.produce(2)
    road.send()  # rows 1 and 2, through edge 2
    road.drive(EDGE1)
    road.produce()
    road.send()  # row 3, through edge 1
    for site in (EDGE2, EDGE1) if old_path_first else (EDGE1, EDGE2):
        road.net.drain(site, REGION)
        road.net.work(AT_REGION)
    road.net.settle()
    assert applied(road.net) == [0, 1, 2, 3]


@pytest.mark.parametrize("moment", range(12))
def test_ping_pong_at_any_moment_of_the_second_leg_loses_nothing(moment: int) -> None:
    """Falcon III-F: whether the leg is cancelled or has already switched, every row counts once and in order."""
    road = Road()
    road.drive(EDGE2)
    road.produce()
    road.send()
    road.rest(1000)
    assert road.net.whereabouts("car1") == [AT_REGION]
    road.perform(road.manager.step(Tick(1000 + DWELL_MS)))  # the second leg begins
    assert road.manager.mobility.trips[OP, "car1"].phase is Phase.DOWN
    for step in range(12):
        if step == moment:
            road.drive(EDGE1)
            road.news()
        road.produce()
        road.send()
        for near, far in list(road.net.links):
            if road.net.links[near, far]:
                road.net.deliver(near, far)
        if step % 2:
            road.net.work(AT_REGION, max_rows=2)
            road.net.work(AT_EDGE2, max_rows=2)
    for now_ms in (8000, 20_000, 40_000):
        road.rest(now_ms)
    road.produce()
    road.send()
    road.rest(60_000)
    assert applied(road.net) == list(range(14))
    assert road.net.whereabouts("car1") == [AT_EDGE1]
    assert road.plans[1].outcome is (Status.ABORTED if moment < 6 else Status.DONE)  # it switches after the sixth step
    assert road.net.leftovers() == []


def test_keys_of_sources_that_stay_are_not_disturbed_by_a_trip() -> None:
    road = Road()
    road.net.own(keys("van1"), AT_EDGE1)
    road.drive(EDGE2)
    road.produce()
    road.send()
    road.net.send(EDGE1, "van1")
    road.rest(1000)
    assert road.net.whereabouts("van1") == [AT_EDGE1]
    assert road.manager.coordinator.placement.instances(OP)[AT_REGION] == KeySet.of_keys(GROUPS, ["car1"])
    assert AT_EDGE2 not in road.manager.coordinator.placement.instances(OP)


# --- known bugs: each of these is to lose its mark when it is mended ---


def test_an_old_announcement_that_comes_late_does_not_count() -> None:
    """Falcon III-F: the second leg leads to where the source is; news from two edges may overtake each other."""
    m = manager()
    ended(m, first_leg(m, at_ms=2000))
    m.step(Attached(EDGE1, CAR, 2500, nth=0))  # that it was there before it went to edge2
    ((_, leg),) = commands(m.step(Tick(2000 + DWELL_MS)))
    assert leg.target == AT_EDGE2


def test_a_lost_announcement_does_not_make_a_key_go_back_and_forth_for_ever() -> None:
    """Falcon III-F: the dwell is there to avoid needless migrations. The source stays at edge2 all the time."""
    road = Road()
    road.produce()
    road.send()
    road.rest(100)
    road.drive(EDGE2)
    road.net.attached.clear()  # the manager was away
    road._attached = 0
    for number in range(6):
        road.produce()
        road.send()
        road.rest(1000 + number * (DWELL_MS + 1000))
    if applied(road.net) != list(range(7)):
        raise RuntimeError("results are wrong, too")  # this is not the bug that is expected
    assert len(road.plans) <= 2
