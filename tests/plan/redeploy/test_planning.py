"""What the manager asks the planner when a redeployment has ended: which tree is it now, and what is wrong there?"""

from peregrine.core.keyspace import KeySet
from peregrine.core.operator import OpSpec
from peregrine.core.placement import Placement
from peregrine.core.topology import Link, Site, Topology
from peregrine.plan.redeploy.changes import Changes
from peregrine.plan.redeploy.events import LinkSet, SiteMoved, SiteSet, Station
from peregrine.plan.redeploy.layout import Layout
from peregrine.plan.redeploy.planner import Planner, Redeployment
from peregrine.plan.redeploy.planning import PlannedChanges
from peregrine.plan.redeploy.queue import TopologyQueue
from peregrine.plan.redeploy.world import World
from peregrine.types import OpId, PlaceId, SiteId, SourceId

GROUPS = 4
COUNT = OpId("app/count")
SPECS = {COUNT: OpSpec(COUNT, GROUPS)}
CLOUD, EDGE1, EDGE2, TRAIN = SiteId("cloud"), SiteId("edge1"), SiteId("edge2"), SiteId("train")
K = KeySet.of_keys(GROUPS, ["k"])
LINK, FAR = Link(1.0), Link(50.0)
INITIAL = [(COUNT, K, PlaceId(EDGE1))]
# The train could also go by edge2, which is farther: a link that the tree does not use.
GRAPH = [(EDGE1, CLOUD, LINK), (EDGE2, CLOUD, LINK), (TRAIN, EDGE1, LINK), (TRAIN, EDGE2, FAR)]
TREE = Topology.from_graph(CLOUD, GRAPH)


def planned(*events: SiteMoved | LinkSet | SiteSet) -> tuple[PlannedChanges, Redeployment]:
    changes = Changes()
    feeds = {SourceId("s"): ((COUNT, K),)}
    layout = Layout(SPECS, PlaceId(CLOUD), changes, INITIAL, {SourceId("s"): TRAIN}, feeds)
    planning = PlannedChanges(Planner(World.of(TREE, changes), layout, TopologyQueue(CLOUD)), feeds)
    for event in events:
        planning.tell(event)
    redeployment = planning.plan()
    assert redeployment is not None
    return planning, redeployment


def test_the_tree_is_what_rehomings_made_of_it_with_links_and_hosts_as_they_are_now() -> None:
    planning, redeployment = planned(
        SiteMoved(TRAIN, EDGE1, EDGE2, LINK, 1), LinkSet(EDGE1, CLOUD, FAR, 1), SiteSet(Station(Site(EDGE2, ("a",))), 1)
    )
    tree, wrong = planning.deployed(redeployment, TREE.with_parent(TRAIN, EDGE2, LINK))
    assert wrong == [] and tree == planning.planner.world.topology()
    assert tree.link(EDGE1) == FAR and tree.places(EDGE2) == ("edge2/a",) and tree.unused == ()


def test_a_tree_that_is_not_what_was_planned_is_told_and_the_planned_one_holds() -> None:
    planning, redeployment = planned(SiteMoved(TRAIN, EDGE1, EDGE2, LINK, 1))
    tree, wrong = planning.deployed(redeployment, TREE)
    assert wrong == ["train is below edge1, and was to be below edge2"]
    assert tree == planning.planner.world.topology() and tree.parent(TRAIN) == EDGE2


def test_what_was_carried_out_as_planned_has_nothing_wrong() -> None:
    planning, redeployment = planned(SiteMoved(TRAIN, EDGE1, EDGE2, LINK, 1))
    placement = Placement(TREE.with_parent(TRAIN, EDGE2, LINK), SPECS, [(COUNT, K, PlaceId(EDGE2))])
    planning.succeeded()
    assert planning.wrong(redeployment, placement, taken_back=False) == []


def test_what_was_taken_back_is_where_it_was() -> None:
    planning, redeployment = planned(SiteMoved(TRAIN, EDGE1, EDGE2, LINK, 1))
    planning.failed()
    assert planning.wrong(redeployment, Placement(TREE, SPECS, INITIAL), taken_back=True) == []


def test_keys_that_two_books_have_at_different_places_are_told() -> None:
    planning, redeployment = planned(SiteMoved(TRAIN, EDGE1, EDGE2, LINK, 1))
    planning.succeeded()
    assert planning.wrong(redeployment, Placement(TREE, SPECS, INITIAL), taken_back=False) == [
        "app/count {k} is at edge1, and was thought to be at edge2"
    ]


def test_a_source_that_came_to_a_site_that_has_not_joined_is_told_and_is_no_mistake() -> None:
    new = SiteId("edge3")
    planning, redeployment = planned(
        SiteSet(Station(Site(new)), 1), LinkSet(new, CLOUD, LINK, 1), SiteMoved(TRAIN, EDGE1, EDGE2, LINK, 1)
    )
    planning.attached(SourceId("s"), new)
    planning.failed()
    wrong = planning.wrong(redeployment, Placement(TREE, SPECS, INITIAL), taken_back=True)
    assert "no path leads from edge3 to the root, and it is in use" in wrong
    assert "no path leads to the root from edge3, where a producer produces for app/count" in wrong
