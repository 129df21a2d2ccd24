"""Redeployments that a person can follow, on a small railway.

    root - n1 - n3 - n4 - n7 (train)
                   - n5 - n8 (train)
                   - n6

As in ISQD figure 2: n8 leaves n5 and comes to n6.
"""

import pytest

from peregrine.core.keyspace import KeySet
from peregrine.core.operator import OpSpec
from peregrine.core.reconfigure import Move, taken_back
from peregrine.core.topology import Link, Site, Topology
from peregrine.errors import PlanError, UnknownName
from peregrine.plan.redeploy.delta import Action, RunningFragment, State
from peregrine.plan.redeploy.events import LinkRemoved, LinkSet, SiteMoved, SiteRemoved, SiteSet, Station, TopologyEvent
from peregrine.plan.redeploy.layout import AppId
from peregrine.plan.redeploy.planner import Planner, Redeployment, Scope
from peregrine.types import OpId, PlaceId, SiteId, SourceId
from redeploy_worlds import GROUPS, all_violations, keys, planner_of, site

PARTIAL, WHOLE, OTHER = OpId("rail/partial"), OpId("rail/whole"), OpId("other/op")
N1, N3, N4, N5, N6, N7, N8 = (site(f"n{i}") for i in (1, 3, 4, 5, 6, 7, 8))
ROOT = site("root")
LINK = Link(5.0)
SPECS = [OpSpec(PARTIAL, GROUPS, feeds=(WHOLE,)), OpSpec(WHOLE, GROUPS), OpSpec(OTHER, GROUPS)]
SOURCES = {
    "t7": ("n7", ((PARTIAL, keys("t7")),)),
    "t8": ("n8", ((PARTIAL, keys("t8")),)),
    "o": ("n4", ((OTHER, keys("o")),)),
}
INITIAL = [
    (PARTIAL, keys("t7"), "n4"),
    (PARTIAL, keys("t8"), "n5"),
    (PARTIAL, KeySet.everything(GROUPS) - keys("t7", "t8"), "n3"),
    (WHOLE, KeySet.everything(GROUPS), "n3"),
    (OTHER, keys("o"), "n4"),
]


def railway(slots: dict[SiteId, int | None] | None = None, scope: Scope = Scope.INCREMENTAL) -> Planner:
    above = {N1: ROOT, N3: N1, N4: N3, N5: N3, N6: N3, N7: N4, N8: N5}
    topology = Topology.tree(ROOT, {child: (parent, LINK) for child, parent in above.items()})
    planner = planner_of(topology, SPECS, SOURCES, INITIAL, slots, scope)
    assert all_violations(planner) == []
    return planner


def redeploy(planner: Planner, *events: TopologyEvent) -> Redeployment:
    for event in events:
        planner.queue.offer(event)
    redeployment = planner.plan()
    assert redeployment is not None, [str(each.error) for each in planner.postponed]
    return redeployment


def moves(redeployment: Redeployment) -> list[list[tuple[str, str, str]]]:
    return [
        [(move.op, move.source, move.target) for move in stage] for plan in redeployment.after for stage in plan.stages
    ]


def test_a_train_changes_edges_and_its_keys_follow() -> None:
    planner = railway()
    redeployment = redeploy(planner, SiteMoved(N8, N5, N6, LINK, 1))
    assert redeployment.apps == ("rail",)
    assert redeployment.shift.rehomed == {N8: (N5, N6)}
    assert redeployment.before == ()
    (plan,) = redeployment.after
    assert plan.mechanism == "live"
    assert plan.stages == ((Move(PARTIAL, keys("t8"), PlaceId("n5"), PlaceId("n6")),),)
    states = {context.site: context.state for context in redeployment.contexts}
    assert states == {N8: State.TO_BE_UPDATED, N5: State.TO_BE_UNDEPLOYED, N6: State.TO_BE_DEPLOYED}
    touched = {context.site: (context.version_before, context.version_after) for context in redeployment.contexts}
    assert touched == {N8: (1, 2), N5: (1, None), N6: (None, 1)}
    actions = {context.site: context.action for context in redeployment.contexts}
    assert actions == {N8: Action.UPDATE, N5: Action.UPDATE_THEN_DRAIN, N6: None}
    operators = {context.site: (context.came, context.went) for context in redeployment.contexts}
    assert operators == {N8: ((), ()), N5: ((), (PARTIAL,)), N6: ((PARTIAL,), ())}
    planner.succeeded()
    assert all_violations(planner) == []


def test_what_is_at_each_site_is_told_with_its_version() -> None:
    planner = railway()
    before = planner.fragments()
    assert {each.version for each in before} == {1}
    redeploy(planner, SiteMoved(N8, N5, N6, LINK, 1))
    planner.succeeded()
    changed = [each for each in planner.fragments() if each not in before]
    assert changed == [
        RunningFragment(N6, AppId("rail"), 1, (PARTIAL,), ()),
        RunningFragment(N8, AppId("rail"), 2, (), (SourceId("t8"),)),
    ]
    assert [each.site for each in before if each not in planner.fragments()] == [N5, N8]


def test_back_again_the_versions_go_on() -> None:
    planner = railway()
    redeploy(planner, SiteMoved(N8, N5, N6, LINK, 1))
    planner.succeeded()
    redeployment = redeploy(planner, SiteMoved(N8, N6, N5, LINK, 2))
    versions = {context.site: (context.state, context.version) for context in redeployment.contexts}
    assert versions == {
        N8: (State.TO_BE_UPDATED, 3),
        N5: (State.TO_BE_DEPLOYED, 2),
        N6: (State.TO_BE_UNDEPLOYED, 1),
    }


def test_without_a_slot_at_the_new_edge_the_keys_go_to_the_next_site_above() -> None:
    planner = railway({N6: 0})
    redeployment = redeploy(planner, SiteMoved(N8, N5, N6, LINK, 1))
    assert moves(redeployment) == [[(PARTIAL, "n5", "n3")]]


def test_operators_that_go_from_edge_to_edge_together_meet_above_both() -> None:
    specs = [OpSpec(PARTIAL, GROUPS, feeds=(WHOLE,)), OpSpec(WHOLE, GROUPS)]
    everything = KeySet.everything(GROUPS)
    above = {N3: ROOT, N5: N3, N6: N3, N8: N5}
    topology = Topology.tree(ROOT, {child: (parent, LINK) for child, parent in above.items()})
    planner = planner_of(
        topology,
        specs,
        {"t8": ("n8", ((PARTIAL, everything),))},
        [(PARTIAL, everything, "n5"), (WHOLE, everything, "n5")],
    )
    redeployment = redeploy(planner, SiteMoved(N8, N5, N6, LINK, 1))
    assert moves(redeployment) == [
        [(WHOLE, "n5", "n3")],
        [(PARTIAL, "n5", "n3")],
        [(PARTIAL, "n3", "n6")],
        [(WHOLE, "n3", "n6")],
    ]


def test_a_site_that_leaves_is_emptied_first_in_the_old_tree() -> None:
    planner = railway()
    redeployment = redeploy(planner, LinkSet(N8, N6, LINK, 1), SiteRemoved(N5, 1))
    (before,) = redeployment.before
    assert before.stages == ((Move(PARTIAL, keys("t8"), PlaceId("n5"), PlaceId("n3")),),)
    assert moves(redeployment) == [[(PARTIAL, "n3", "n6")]]
    assert redeployment.shift.left == {N5: N3}


def test_a_train_in_a_tunnel_waits_and_does_not_hold_up_the_others() -> None:
    planner = railway()
    redeployment = redeploy(planner, LinkRemoved(N7, N4, 1), SiteMoved(N8, N5, N6, LINK, 1))
    assert redeployment.shift.rehomed == {N8: (N5, N6)}
    (postponed,) = redeployment.postponed
    assert postponed.fact.subject == (N4, N7)
    assert "no path leads from n7" in str(postponed.error)
    planner.succeeded()
    assert planner.world.parent[N7] == N4  # the last valid deployment, until there is another way
    again = redeploy(planner, LinkSet(N7, N6, LINK, 1))
    assert again.shift.rehomed == {N7: (N4, N6)}
    assert again.postponed == ()


def test_a_link_to_a_site_that_is_not_there_waits_for_the_site() -> None:
    planner = railway()
    new = site("n9")
    first = redeploy(planner, LinkSet(new, N6, LINK, 1))
    assert first.apps == () and first.contexts == () and first.shift.joined == frozenset()
    planner.succeeded()
    assert redeploy(planner, SiteSet(Station(Site(new)), 1)).shift.joined == {new}


@pytest.mark.parametrize(
    ("slots", "event", "reason"),
    [
        ({}, SiteRemoved(N8, 1), "t8 is attached there"),
        ({}, LinkRemoved(N3, N1, 1), "no path leads from n3"),
        ({}, SiteRemoved(N3, 1), "no path leads from n4"),
        ({N6: 0, N3: 2, N1: 0, ROOT: 1}, SiteSet(Station(Site(N3), slots=1), 1), "has room"),
        ({}, SiteSet(Station(Site(ROOT, ("h",))), 1), "first host of the root"),
    ],
)
def test_what_is_impossible_keeps_the_last_valid_deployment(
    slots: dict[SiteId, int | None], event: TopologyEvent, reason: str
) -> None:
    planner = railway(slots)
    parents = dict(planner.world.parent)
    planner.queue.offer(event)
    assert planner.plan() is None
    (postponed,) = planner.postponed
    assert reason in postponed.error.what and postponed.error.remedy
    assert planner.world.parent == parents
    assert all_violations(planner) == []
    assert len(planner.queue) == 1  # considered again with the next batch


def test_a_site_whose_sources_were_dismissed_may_leave() -> None:
    planner = railway()
    planner.queue.offer(SiteRemoved(N8, 1))
    assert planner.plan() is None
    planner.detached(SourceId("t8"))
    planner.detached(SourceId("nobody"))
    assert redeploy(planner).shift.left == {N8: N5}
    planner.failed()
    assert planner.layout.feeding.at(N8) == ()  # that it was dismissed is not taken back
    planner.attached(SourceId("t8"), N8, ((OTHER, keys("o")),))
    assert planner.plan() is None


def test_a_car_that_has_left_its_keys_behind_is_no_violation() -> None:
    """Its rows make a detour until the keys have followed; it may be parked, and send nothing for long."""
    track = OpId("cars/track")
    topology = Topology.tree(ROOT, {N1: (ROOT, LINK), N3: (ROOT, LINK), N4: (N1, LINK)})
    cars = {"car": ("n4", ((track, keys("car")),))}
    planner = planner_of(topology, [OpSpec(track, GROUPS, roaming=True)], cars, [(track, keys("car"), "n3")])
    assert all_violations(planner) == []


def test_one_redeployment_at_a_time_and_one_that_fails_comes_again_with_what_came_meanwhile() -> None:
    planner = railway()
    redeploy(planner, SiteMoved(N8, N5, N6, LINK, 1))
    with pytest.raises(PlanError, match="not over"):
        planner.plan()
    planner.queue.offer(SiteMoved(N7, N4, N5, LINK, 1))
    planner.failed()
    assert planner.world.parent[N8] == N5
    assert redeploy(planner).shift.rehomed == {N7: (N4, N5), N8: (N5, N6)}


def test_what_sources_and_other_plans_do_meanwhile_is_not_taken_back() -> None:
    planner = railway()
    redeploy(planner, SiteMoved(N8, N5, N6, LINK, 1))
    planner.attached(SourceId("o"), N5)
    planner.moved(OTHER, keys("o"), PlaceId("n3"))
    planner.failed()
    assert planner.layout.feeding.site(SourceId("o")) == N5
    assert planner.layout.places(OTHER) == ["root", "n3"]
    with pytest.raises(UnknownName):
        planner.attached(SourceId("o"), site("nowhere"))


def test_what_was_moved_already_is_brought_back_last_first() -> None:
    planner = railway()
    redeployment = redeploy(planner, LinkSet(N8, N6, LINK, 1), SiteRemoved(N5, 1))
    done = list(redeployment.before[0].moves())
    (back,) = taken_back([*redeployment.before, *redeployment.after], done)
    assert back.stages == ((Move(PARTIAL, keys("t8"), PlaceId("n3"), PlaceId("n5")),),)


def test_the_baseline_takes_everything_away_and_deploys_it_again() -> None:
    planner = railway(scope=Scope.HOLISTIC)
    redeployment = redeploy(planner, SiteMoved(N8, N5, N6, LINK, 1))
    assert redeployment.apps == ("other", "rail")
    away = [context for context in redeployment.contexts if context.state is State.TO_BE_UNDEPLOYED]
    assert {(context.site, context.app) for context in away} == {
        *((each, "rail") for each in (N3, N4, N5, N7, N8)),
        *((each, "other") for each in (ROOT, N4)),
    }
    planner.succeeded()
    assert all_violations(planner) == []
    again = redeploy(planner, SiteMoved(N8, N6, N5, LINK, 2))
    assert len(again.contexts) == len(redeployment.contexts)
