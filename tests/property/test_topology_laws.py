"""Laws of every tree and of every reduction of a graph."""

import pickle
from itertools import pairwise

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from peregrine.core.topology import Direction, Edge, Link, Site, Topology
from peregrine.types import SiteId

ROOT = SiteId("root")


@st.composite
def trees(draw: st.DrawFn) -> Topology:
    sites = [ROOT]
    parents: dict[SiteId, tuple[SiteId, Link]] = {}
    for number in range(draw(st.integers(0, 25))):
        site = SiteId(f"s{number}")
        link = Link(draw(st.integers(0, 100)), draw(st.integers(1, 1000)))
        parents[site] = (draw(st.sampled_from(sites)), link)
        sites.append(site)
    return Topology.tree(ROOT, parents)


@st.composite
def trees_with_two_sites(draw: st.DrawFn) -> tuple[Topology, SiteId, SiteId]:
    tree = draw(trees())
    return tree, draw(st.sampled_from(tree.sites)), draw(st.sampled_from(tree.sites))


@st.composite
def graphs(draw: st.DrawFn) -> list[Edge]:
    """Connected graphs: a tree and a few more links, in any order."""
    sites = [ROOT, *(SiteId(f"s{number}") for number in range(draw(st.integers(1, 10))))]
    pairs = {(i, draw(st.integers(0, i - 1))) for i in range(1, len(sites))}
    numbers = st.integers(0, len(sites) - 1)
    more = draw(st.lists(st.tuples(numbers, numbers), max_size=15))
    pairs |= {(max(pair), min(pair)) for pair in more if pair[0] != pair[1]}
    links = [(sites[i], sites[j], Link(draw(st.integers(0, 4)), 10)) for i, j in sorted(pairs)]
    return draw(st.permutations(links))


@given(trees_with_two_sites())
def test_following_the_next_hop_walks_the_path(case: tuple[Topology, SiteId, SiteId]) -> None:
    tree, a, b = case
    walked = [a]
    while walked[-1] != b:
        assert len(walked) <= len(tree.sites)
        walked.append(tree.next_hop(walked[-1], b))
    assert tuple(walked) == tree.path(a, b)


@given(trees_with_two_sites())
def test_a_path_is_the_reverse_of_the_way_back_and_turns_at_the_lca(case: tuple[Topology, SiteId, SiteId]) -> None:
    tree, a, b = case
    path = tree.path(a, b)
    assert path == tree.path(b, a)[::-1]
    assert len(set(path)) == len(path)
    assert min(path, key=tree.depth) == tree.lca(a, b) == tree.lca(b, a)


@given(trees_with_two_sites())
def test_the_lca_is_the_first_common_ancestor(case: tuple[Topology, SiteId, SiteId]) -> None:
    tree, a, b = case
    above_b = {b, *tree.ancestors(b)}
    assert tree.lca(a, b) == next(site for site in (a, *tree.ancestors(a)) if site in above_b)
    assert tree.is_at_or_above(a, b) == (a in above_b) == (tree.lca(a, b) == a)


@given(trees_with_two_sites())
def test_the_direction_agrees_with_the_next_hop(case: tuple[Topology, SiteId, SiteId]) -> None:
    tree, at, to = case
    hop = tree.next_hop(at, to)
    match tree.toward(at, to):
        case Direction.HERE:
            assert hop == at == to
        case Direction.UP:
            assert hop == tree.parent(at)
        case Direction.DOWN:
            assert hop in tree.children(at)
            assert tree.is_at_or_above(hop, to)


@given(trees_with_two_sites())
def test_latency_is_the_same_both_ways_and_adds_up_hop_by_hop(case: tuple[Topology, SiteId, SiteId]) -> None:
    tree, a, b = case
    path = tree.path(a, b)
    hops = (tree.link(max(pair, key=tree.depth)).latency_ms for pair in pairwise(path))
    assert tree.latency_ms(a, b) == tree.latency_ms(b, a) == sum(hops)


@given(trees())
def test_sites_come_after_their_parents_and_are_their_parents_children(tree: Topology) -> None:
    seen: set[SiteId | None] = {None}
    for site in tree.sites:
        parent = tree.parent(site)
        assert parent in seen
        assert parent is None or site in tree.children(parent)
        seen.add(site)
    assert sum(len(tree.children(site)) for site in tree.sites) == len(tree.sites) - 1


@given(trees_with_two_sites())
def test_removing_a_new_leaf_gives_the_old_tree_back(case: tuple[Topology, SiteId, SiteId]) -> None:
    tree, parent, _ = case
    assert tree.with_site(SiteId("new"), parent, Link(1, 1), ("h",)).without_site(SiteId("new")) == tree


@given(trees())
def test_a_tree_grown_leaf_by_leaf_equals_one_made_at_once(tree: Topology) -> None:
    grown = Topology.tree(ROOT)
    for site in tree.sites[1:]:
        grown = grown.with_site(site, tree.path(site, ROOT)[1], tree.link(site))
    assert grown == tree
    assert hash(grown) == hash(tree)


@given(trees())
def test_a_tree_cut_leaf_by_leaf_leaves_the_root_alone(tree: Topology) -> None:
    for site in reversed(tree.sites[1:]):
        tree = tree.without_site(site)
    assert tree == Topology.tree(ROOT)


@given(trees(), st.data())
@settings(deadline=None)
def test_a_tree_that_was_changed_again_and_again_equals_one_made_at_once(tree: Topology, data: st.DataObject) -> None:
    """And none of the trees on the way is changed by what comes later."""
    parents = {site: (above, tree.link(site)) for site in tree.sites if (above := tree.parent(site)) is not None}
    hosts: dict[SiteId, tuple[str, ...]] = {}
    made: list[tuple[Topology, Topology]] = []
    for number in range(data.draw(st.integers(0, 12))):
        site, above = data.draw(st.sampled_from(tree.sites)), data.draw(st.sampled_from(tree.sites))
        link = Link(data.draw(st.integers(0, 100)), 10)
        match data.draw(st.sampled_from(["move", "move", "come", "go", "link", "hosts"])):
            case "move" if not tree.is_at_or_above(site, above):
                tree, parents[site] = tree.with_parent(site, above, link), (above, link)
            case "come":
                new = SiteId(f"new{number}")
                tree, parents[new] = tree.with_site(new, above, link), (above, link)
            case "go" if site != ROOT and not tree.children(site):
                tree = tree.without_site(site)
                del parents[site]
                hosts.pop(site, None)
            case "link" if site != ROOT:
                tree, parents[site] = tree.with_link(site, link), (parents[site][0], link)
            case "hosts":
                tree, hosts[site] = tree.with_details(Site(site, (f"h{number}",))), (f"h{number}",)
        made.append((tree, Topology.tree(ROOT, parents, hosts)))
    for changed, at_once in made:
        assert changed == at_once and hash(changed) == hash(at_once)
        assert changed.sites == at_once.sites
        assert [changed.children(site) for site in at_once.sites] == [at_once.children(site) for site in at_once.sites]
        assert [changed.depth(site) for site in at_once.sites] == [at_once.depth(site) for site in at_once.sites]
        assert pickle.loads(pickle.dumps(changed)) == at_once


@given(graphs())
@settings(deadline=None)  # the first example pays for the import of networkx
def test_the_tree_of_a_graph_keeps_every_sites_least_latency_to_the_root(edges: list[Edge]) -> None:
    tree = Topology.from_graph(ROOT, edges)
    graph = nx.Graph()
    graph.add_weighted_edges_from((a, b, link.latency_ms) for a, b, link in edges)
    least = nx.single_source_dijkstra_path_length(graph, ROOT)
    assert {site: tree.latency_ms(site, ROOT) for site in tree.sites} == least


@given(graphs(), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_tree_of_a_graph_does_not_depend_on_the_order_of_its_links(edges: list[Edge], random) -> None:
    shuffled = [(b, a, link) if random.random() < 0.5 else (a, b, link) for a, b, link in edges]
    random.shuffle(shuffled)
    one, other = Topology.from_graph(ROOT, edges), Topology.from_graph(ROOT, shuffled)
    assert [one.parent(site) for site in one.sites] == [other.parent(site) for site in other.sites]
    assert one.sites == other.sites


@given(graphs())
@settings(deadline=None)
def test_every_link_of_a_graph_is_either_in_the_tree_or_unused(edges: list[Edge]) -> None:
    tree = Topology.from_graph(ROOT, edges)
    used = {frozenset((site, tree.parent(site))) for site in tree.sites if site != ROOT}
    unused = {frozenset((a, b)) for a, b, _ in tree.unused}
    assert used.isdisjoint(unused)
    assert used | unused == {frozenset((a, b)) for a, b, _ in edges}
