"""The tree of a changing world is the one that its links make, and a change costs what it touches."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peregrine.core.graph import unreachable
from peregrine.core.topology import Link, Site, Topology
from peregrine.plan.redeploy.changes import Changes
from peregrine.plan.redeploy.events import Fact, Station, between
from peregrine.plan.redeploy.rehoming import waves
from peregrine.plan.redeploy.world import World
from peregrine.types import SiteId

NAMES = [SiteId(name) for name in ("root", "a", "b", "c", "d", "e", "f", "g")]
# Few latencies, so that ways of the same cost are common.
LINKS = st.sampled_from([Link(0.0), Link(1.0), Link(2.0), Link(2.0, bandwidth_mbps=10), Link(5.0)])


@st.composite
def facts(draw: st.DrawFn) -> Fact:
    if draw(st.booleans()):
        a, b = draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=2, unique=True))
        return Fact(between(a, b), 1, draw(st.none() | LINKS))
    site = draw(st.sampled_from(NAMES[1:]))
    station = Station(Site(site), slots=draw(st.sampled_from([None, 0, 2])))
    return Fact((site,), 1, draw(st.sampled_from([None, station, station])))


def batch(drawn: list[Fact]) -> list[Fact]:
    """The last fact of each subject, as a queue hands them out."""
    return list({fact.subject: fact for fact in drawn}.values())


def tree_of(world: World) -> Topology:
    """Made anew from the links whose ends are there, without what no way leads to."""
    edges = [
        (a, b, link)
        for a, links in world.links.items()
        for b, link in links.items()
        if a < b and a in world.stations and b in world.stations
    ]
    lost = set(unreachable(world.root, edges))
    return Topology.from_graph(world.root, [edge for edge in edges if edge[0] not in lost and edge[1] not in lost])


def start() -> World:
    links = {name: (NAMES[0], Link(3.0)) for name in NAMES[1:4]}
    return World.of(Topology.tree(NAMES[0], links), Changes())


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(facts(), max_size=6), max_size=6))
def test_after_any_changes_the_tree_is_the_one_that_the_links_make(batches: list[list[Fact]]) -> None:
    world = start()
    for drawn in batches:
        before = dict(world.parent)
        shift = world.apply(batch(drawn))
        expected = tree_of(world)
        assert set(expected.sites) == set(world.cost)
        for site in expected.sites:
            assert world.parent.get(site) == expected.parent(site)
            assert world.depth(site) == expected.depth(site)
            assert tuple(sorted(world.below.get(site, ()))) == expected.children(site)
        both = before.keys() & world.parent.keys()
        assert shift.rehomed == {s: (before[s], world.parent[s]) for s in both if before[s] != world.parent[s]}
        assert shift.left == {site: before[site] for site in before.keys() - world.parent.keys()}
        assert shift.joined == world.parent.keys() - before.keys()


@settings(max_examples=80, deadline=None)
@given(st.lists(facts(), max_size=6), st.lists(facts(), max_size=6))
def test_what_is_taken_back_never_happened(kept: list[Fact], tried: list[Fact]) -> None:
    world, other = start(), start()
    for each in (world, other):
        each.apply(batch(kept))
    mark = world.changes.mark()
    world.apply(batch(tried))
    world.changes.undo_to(mark)
    for name in ("stations", "links", "parent", "cost", "below"):
        assert getattr(world, name) == getattr(other, name)


@settings(max_examples=80, deadline=None)
@given(st.lists(facts(), max_size=8), st.randoms(use_true_random=False))
def test_the_order_within_a_batch_does_not_matter(drawn: list[Fact], random: object) -> None:
    one, other = start(), start()
    facts_once = batch(drawn)
    shuffled = list(facts_once)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert one.apply(facts_once) == other.apply(shuffled)
    assert one.parent == other.parent


@settings(max_examples=150, deadline=None)
@given(st.lists(facts(), max_size=10), st.lists(facts(), max_size=10))
def test_sites_change_their_parents_in_an_order_in_which_the_tree_stays_a_tree(
    first: list[Fact], then: list[Fact]
) -> None:
    world = start()
    world.apply(batch(first))
    parents = dict(world.parent)
    shift = world.apply(batch(then))
    parents.update((site, world.parent[site]) for site in shift.joined)  # others may go below them

    def chain(site: SiteId) -> list[SiteId]:
        return [site] if site == world.root else [site, *chain(parents[site])]

    for wave in waves(world, shift):
        moving = {each.site for each in wave}
        for each in wave:
            assert parents[each.site] == each.source
            assert each.site not in chain(each.target)
            assert each.meets == next(site for site in chain(each.target) if site in chain(each.source))
            assert moving.isdisjoint({*chain(each.source), *chain(each.target)}), "their order would matter"
        parents.update((each.site, each.target) for each in wave)
    stay = world.parent.keys() - shift.joined
    assert {site: parents[site] for site in stay} == {site: world.parent[site] for site in stay}


def test_the_old_way_of_a_site_can_still_be_asked_for() -> None:
    world = start()
    a, b, d = NAMES[1], NAMES[2], NAMES[4]
    world.apply([Fact((d,), 1, Station(Site(d))), Fact(between(a, d), 1, Link(1.0))])
    shift = world.apply([Fact(between(a, d), 2, None), Fact(between(b, d), 1, Link(1.0))])
    assert shift.rehomed == {d: (a, b)}
    assert list(shift.old_ancestors(d, world)) == [a, NAMES[0]]
    assert list(world.ancestors(d)) == [b, NAMES[0]]


def wide(edges: int) -> World:
    """A root, `edges` edges below it, a train below each."""
    parents = {SiteId(f"edge{i}"): (NAMES[0], Link(10.0)) for i in range(edges)}
    parents |= {SiteId(f"train{i}"): (SiteId(f"edge{i}"), Link(1.0)) for i in range(edges)}
    return World.of(Topology.tree(NAMES[0], parents), Changes())


@pytest.mark.parametrize("edges", [5, 50, 5000])
def test_a_train_that_changes_edges_costs_the_same_in_any_world(edges: int) -> None:
    world = wide(edges)
    train, old, new = SiteId("train1"), SiteId("edge1"), SiteId("edge2")
    world.visited = 0
    world.apply([Fact(between(train, old), 1, None), Fact(between(train, new), 1, Link(1.0))])
    assert world.parent[train] == new
    assert world.visited <= 10


def test_a_link_that_is_gone_costs_the_subtree_below_it() -> None:
    world = wide(1000)
    world.apply([Fact(between(SiteId("edge0"), SiteId("edge1")), 1, Link(1.0))])
    world.visited = 0
    shift = world.apply([Fact(between(NAMES[0], SiteId("edge1")), 1, None)])
    assert set(shift.moved) == {"edge1", "train1"}
    assert world.visited <= 20
