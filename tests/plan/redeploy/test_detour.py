"""By way of whom a site and its new parent talk when their link is gone: as far as was told, and no further."""

from peregrine.core.topology import Link, Topology
from peregrine.plan.redeploy.changes import Changes
from peregrine.plan.redeploy.detour import detour
from peregrine.plan.redeploy.events import LinkRemoved, LinkSet, SiteMoved, TopologyEvent
from peregrine.plan.redeploy.queue import TopologyQueue
from peregrine.plan.redeploy.world import World
from redeploy_worlds import site

CLOUD, REGION1, REGION2, EDGE, SHOP = map(site, ("cloud", "region1", "region2", "edge", "shop"))
TREE = Topology.tree(
    CLOUD,
    {
        REGION1: (CLOUD, Link(10.0, 100.0)),
        REGION2: (CLOUD, Link(20.0, 50.0)),
        EDGE: (REGION1, Link(1.0)),
        SHOP: (EDGE, Link(1.0)),
    },
)


def found(*told: TopologyEvent) -> tuple[str, Link] | None:
    queue = TopologyQueue(CLOUD)
    for event in told:
        queue.offer(event)
    return detour(World.of(TREE, Changes()), queue, EDGE, REGION1)


def test_there_is_none_as_long_as_the_link_is_there() -> None:
    assert found() is None
    assert found(LinkSet(EDGE, REGION2, Link(1.0), 1)) is None
    assert found(LinkRemoved(EDGE, REGION1, 1), LinkSet(EDGE, REGION1, Link(1.0), 2)) is None


def test_there_is_none_without_another_link() -> None:
    assert found(LinkRemoved(EDGE, REGION1, 1)) is None, "what is below the site is no way out"


def test_it_leads_by_the_site_to_which_it_has_moved_and_through_the_tree() -> None:
    assert found(SiteMoved(EDGE, REGION1, REGION2, Link(2.0, 80.0), 1)) == (REGION2, Link(32.0, 50.0))


def test_the_shortest_is_taken_of_those_that_are_there() -> None:
    both = (SiteMoved(EDGE, REGION1, REGION2, Link(2.0), 1), LinkSet(EDGE, CLOUD, Link(5.0, 30.0), 1))
    assert found(*both) == (CLOUD, Link(15.0, 30.0))
    assert found(*both, LinkRemoved(EDGE, CLOUD, 2)) == (REGION2, Link(32.0, 50.0))
    assert found(*both, LinkSet(EDGE, site("nowhere"), Link(1.0), 1)) == (CLOUD, Link(15.0, 30.0))
