"""Operators that run on hosts of their own (DataFrame operators, control/transforms.py) stay on them when the tree
changes.

    cloud - edge1 - train
          - edge2

Each site has a host `score` beside itself, which serves the operator of that name and nothing else.
"""

import pytest

from peregrine.core.keyspace import KeySet
from peregrine.core.operator import OpSpec
from peregrine.core.topology import Link, Site, Topology
from peregrine.plan.redeploy.events import LinkSet, SiteMoved, SiteRemoved, SiteSet, Station, TopologyEvent
from peregrine.plan.redeploy.placing import place_like
from peregrine.plan.redeploy.planner import Planner
from peregrine.types import OpId, PlaceId, SiteId, host_of
from redeploy_worlds import GROUPS, all_violations, carry_out, owned, planner_of, site

SCORE, BEFORE, BEHIND = OpId("app/score"), OpId("app/before"), OpId("app/behind")
CLOUD, EDGE1, EDGE2, TRAIN = (site(name) for name in ("cloud", "edge1", "edge2", "train"))
LINK = Link(5.0)
ALL = KeySet.everything(GROUPS)
TREE = Topology.tree(CLOUD, {EDGE1: (CLOUD, LINK), EDGE2: (CLOUD, LINK), TRAIN: (EDGE1, LINK)}).with_host("score")
TRAIN_MOVES = SiteMoved(TRAIN, EDGE1, EDGE2, LINK, 1)
SPECS = [
    OpSpec(BEFORE, GROUPS, feeds=(SCORE,)),
    OpSpec(SCORE, GROUPS, stateless=True, feeds=(BEHIND,)),
    OpSpec(BEHIND, GROUPS),
]


def planner(at: dict[OpId, str], slots: dict[SiteId, int | None] | None = None) -> Planner:
    """A device on the train feeds the first operator. What is not said to be elsewhere is in the cloud."""
    where = {BEFORE: "cloud", SCORE: "cloud/score", BEHIND: "cloud", **at}
    made = planner_of(
        TREE, SPECS, {"device": ("train", ((BEFORE, ALL),))}, [(op, ALL, place) for op, place in where.items()], slots
    )
    assert all_violations(made) == []
    return made


def moves(made: Planner, *events: TopologyEvent) -> list[list[tuple[str, str, str]]]:
    """Of all stages, before and after sites have changed their parents. The coordinator of the core takes them."""
    start = owned(made.layout)
    for event in events:
        made.queue.offer(event)
    found = made.plan()
    assert found is not None, [str(each.error) for each in made.postponed]
    assert all_violations(made) == []
    if not found.before:
        carry_out(made.world.topology(), made, start, found.after)
    plans = (*found.before, *found.after)
    return [[(move.op, move.source, move.target) for move in stage] for plan in plans for stage in plan.stages]


def why_not(made: Planner, *events: TopologyEvent) -> str:
    for event in events:
        made.queue.offer(event)
    assert made.plan() is None
    return "; ".join(str(each.error) for each in made.postponed)


def test_an_operator_with_a_host_of_its_own_goes_to_the_host_of_that_name_at_the_new_edge() -> None:
    made = planner({BEFORE: "train", SCORE: "edge1/score"})
    assert moves(made, TRAIN_MOVES) == [[(SCORE, "edge1/score", "edge2/score")]]


def test_what_runs_anywhere_goes_to_the_site_itself_and_not_to_the_host_of_another_operator() -> None:
    made = planner({BEFORE: "edge1"})
    assert moves(made, TRAIN_MOVES) == [[(BEFORE, "edge1", "edge2")]]


def test_a_site_without_that_host_is_no_candidate() -> None:
    made = planner({BEFORE: "train", SCORE: "edge1/score"})
    assert moves(made, SiteSet(Station(Site(EDGE2)), 1), TRAIN_MOVES) == [[(SCORE, "edge1/score", "cloud/score")]]


def test_operators_that_go_from_edge_to_edge_together_meet_each_on_its_own_host() -> None:
    made = planner({BEFORE: "edge1", SCORE: "edge1/score"})
    assert moves(made, TRAIN_MOVES) == [
        [(SCORE, "edge1/score", "cloud/score")],
        [(BEFORE, "edge1", "cloud")],
        [(BEFORE, "cloud", "edge2")],
        [(SCORE, "cloud/score", "edge2/score")],
    ]


def test_without_the_host_where_they_would_have_to_meet_the_change_is_put_off_and_says_why() -> None:
    above = {EDGE1: (CLOUD, LINK), EDGE2: (CLOUD, LINK), TRAIN: (EDGE1, LINK)}
    hosts = dict.fromkeys((EDGE1, EDGE2, TRAIN), ("", "score"))
    made = planner_of(
        Topology.tree(CLOUD, above, hosts),
        SPECS[:2],
        {"device": ("train", ((BEFORE, ALL),))},
        [(BEFORE, ALL, "edge1"), (SCORE, ALL, "edge1/score")],
    )
    before = owned(made.layout)
    why = why_not(made, TRAIN_MOVES)
    assert "app/score" in why and "cloud, which has no host 'score'" in why
    assert owned(made.layout) == before


def test_what_is_on_a_host_of_its_own_waits_on_one_while_its_site_leaves() -> None:
    edges = TREE.with_site(SiteId("depot"), EDGE1, LINK, ("", "score"))
    made = planner_of(edges, SPECS[1:2], {}, [(SCORE, ALL, "depot/score")])
    assert moves(made, SiteRemoved(SiteId("depot"), 1)) == [[(SCORE, "depot/score", "edge1/score")]]


def test_with_no_such_host_above_a_site_cannot_leave() -> None:
    tree = Topology.tree(CLOUD, {EDGE1: (CLOUD, LINK)}, {EDGE1: ("", "score")})
    made = planner_of(tree, SPECS[1:2], {}, [(SCORE, ALL, "edge1/score")])
    why = why_not(made, SiteRemoved(EDGE1, 1))
    assert "edge1/score" in why and "nowhere to wait" in why


def test_a_site_that_loses_the_host_sends_the_operator_to_the_next_one_above() -> None:
    made = planner({BEFORE: "train", SCORE: "edge1/score"})
    assert moves(made, SiteSet(Station(Site(EDGE1)), 1)) == [[(SCORE, "edge1/score", "cloud/score")]]


def test_without_a_slot_at_the_new_edge_it_goes_to_its_host_further_up() -> None:
    made = planner({BEFORE: "train", SCORE: "edge1/score"}, {EDGE2: 0})
    assert moves(made, TRAIN_MOVES) == [[(SCORE, "edge1/score", "cloud/score")]]


def test_a_site_that_joins_with_the_host_gets_the_operator() -> None:
    made = planner({BEFORE: "train", SCORE: "edge1/score"})
    edge3 = SiteId("edge3")
    joins = SiteSet(Station(Site(edge3, ("", "score"))), 1), LinkSet(edge3, CLOUD, LINK, 1)
    assert moves(made, *joins, SiteMoved(TRAIN, EDGE1, edge3, LINK, 1)) == [[(SCORE, "edge1/score", "edge3/score")]]


@pytest.mark.parametrize(
    ("op", "place", "places", "found"),
    [
        (SCORE, "edge1/score", ["edge2", "edge2/score"], "edge2/score"),
        (SCORE, "edge1/score", ["edge2"], None),
        (SCORE, "edge1", ["edge2", "edge2/score"], "edge2"),
        (BEFORE, "edge1/gpu", ["edge2/cpu", "edge2/gpu"], "edge2/gpu"),
        (BEFORE, "edge1/gpu", ["edge2/cpu", "edge2/disk"], "edge2/cpu"),
        (BEFORE, "edge1", ["edge2/cpu", "edge2/gpu"], "edge2/cpu"),
        (BEFORE, "edge1", [], None),
    ],
)
def test_the_place_like_another_has_its_host(op: OpId, place: str, places: list[str], found: str | None) -> None:
    assert place_like(op, PlaceId(place), [PlaceId(each) for each in places]) == found


def test_the_host_of_a_place_is_empty_for_a_site_that_is_one_place() -> None:
    assert (host_of(PlaceId("edge1/gpu")), host_of(PlaceId("edge1"))) == ("gpu", "")
