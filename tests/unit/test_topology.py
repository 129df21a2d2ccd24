"""The tree of sites: its queries, its reduction from a graph, and what it refuses."""

import math
from dataclasses import FrozenInstanceError

import pytest

from peregrine.core.attachments import Attachments
from peregrine.core.graph import cycles, unreachable
from peregrine.core.topology import Direction, Link, Site, Topology
from peregrine.errors import ConfigurationError, UnknownName
from peregrine.types import PlaceId, SiteId, SourceId

NEAR = Link(latency_ms=5, bandwidth_mbps=1000)
FAR = Link(latency_ms=20, bandwidth_mbps=100, price_per_gb=0.09)


def s(name: str) -> SiteId:
    return SiteId(name)


@pytest.fixture
def world() -> Topology:
    #          cloud
    #       20 /   \ 20
    #      east     west
    #    5 / | 5     | 5
    #    e1  e2      w1
    return Topology.tree(
        s("cloud"),
        {
            s("e2"): (s("east"), NEAR),
            s("e1"): (s("east"), NEAR),
            s("w1"): (s("west"), NEAR),
            s("west"): (s("cloud"), FAR),
            s("east"): (s("cloud"), FAR),
        },
        hosts={s("cloud"): ("big", "small")},
        cpu_prices={s("cloud"): 0.04},
    )


def test_sites_are_listed_by_depth_then_by_name(world: Topology) -> None:
    assert world.sites == ("cloud", "east", "west", "e1", "e2", "w1")


def test_a_tree_knows_parents_children_links_and_depths(world: Topology) -> None:
    assert world.parent(s("e1")) == "east"
    assert world.parent(s("cloud")) is None
    assert world.children(s("east")) == ("e1", "e2")
    assert world.children(s("e1")) == ()
    assert world.link(s("east")) == FAR
    assert [world.depth(site) for site in world.sites] == [0, 1, 1, 2, 2, 2]
    assert world.site(s("cloud")) == Site(s("cloud"), ("big", "small"), 0.04)


def test_ancestors_go_from_the_parent_up_to_the_root(world: Topology) -> None:
    assert world.ancestors(s("e1")) == ("east", "cloud")
    assert world.ancestors(s("cloud")) == ()


def test_a_site_is_at_or_above_itself_and_what_is_below_it(world: Topology) -> None:
    assert world.is_at_or_above(s("e1"), s("e1"))
    assert world.is_at_or_above(s("cloud"), s("e1"))
    assert not world.is_at_or_above(s("west"), s("e1"))
    assert not world.is_at_or_above(s("e1"), s("cloud"))


def test_two_sites_meet_at_their_lowest_common_ancestor(world: Topology) -> None:
    assert world.lca(s("e1"), s("e2")) == "east"
    assert world.lca(s("e1"), s("west")) == "cloud"
    assert world.lca(s("east"), s("e2")) == "east"


def test_a_path_goes_up_and_then_down_with_both_ends(world: Topology) -> None:
    assert world.path(s("e1"), s("w1")) == ("e1", "east", "cloud", "west", "w1")
    assert world.path(s("cloud"), s("e2")) == ("cloud", "east", "e2")
    assert world.path(s("e1"), s("e1")) == ("e1",)


def test_the_next_hop_is_a_child_only_where_the_goal_is_below_it(world: Topology) -> None:
    assert world.next_hop(s("cloud"), s("e1")) == "east"
    assert world.next_hop(s("east"), s("e1")) == "e1"
    assert world.next_hop(s("west"), s("e1")) == "cloud"
    assert world.next_hop(s("e1"), s("cloud")) == "east"
    assert world.next_hop(s("e1"), s("e2")) == "east"


def test_the_next_hop_from_the_goal_is_the_goal(world: Topology) -> None:
    assert world.next_hop(s("e1"), s("e1")) == "e1"


def test_a_row_goes_here_up_or_down(world: Topology) -> None:
    assert world.toward(s("east"), s("east")) is Direction.HERE
    assert world.toward(s("east"), s("e2")) is Direction.DOWN
    assert world.toward(s("east"), s("w1")) is Direction.UP


def test_latency_is_the_sum_of_the_links_one_way(world: Topology) -> None:
    assert world.latency_ms(s("e1"), s("w1")) == 50
    assert world.latency_ms(s("east"), s("e1")) == 5
    assert world.latency_ms(s("e1"), s("e1")) == 0


def test_a_site_without_named_hosts_is_one_place_and_with_them_each_host_is_one(world: Topology) -> None:
    assert world.places(s("e1")) == (PlaceId("e1"),)
    assert world.places(s("cloud")) == ("cloud/big", "cloud/small")
    assert world.main_place(s("cloud")) == "cloud/big"


def test_a_text_is_a_place_only_if_the_topology_has_it(world: Topology) -> None:
    assert world.place("e1") == "e1"
    assert world.place("cloud/small") == "cloud/small"
    for text in ("cloud", "cloud/tiny", "e1/h", "mars", "", "cloud/"):
        with pytest.raises(UnknownName):
            world.place(text)


@pytest.mark.parametrize(
    "query",
    [
        lambda t, x: t.parent(x),
        lambda t, x: t.children(x),
        lambda t, x: t.link(x),
        lambda t, x: t.depth(x),
        lambda t, x: t.ancestors(x),
        lambda t, x: t.places(x),
        lambda t, x: t.lca(s("e1"), x),
        lambda t, x: t.path(x, s("e1")),
        lambda t, x: t.next_hop(s("e1"), x),
        lambda t, x: t.next_hop(x, s("e1")),
        lambda t, x: t.toward(x, x),
        lambda t, x: t.latency_ms(s("e1"), x),
        lambda t, x: t.is_at_or_above(x, s("e1")),
    ],
)
def test_every_query_names_the_sites_that_exist_when_it_is_given_one_that_does_not(world: Topology, query) -> None:
    with pytest.raises(UnknownName, match="unknown site 'mars'") as raised:
        query(world, s("mars"))
    assert "west" in raised.value.remedy


def test_of_many_sites_an_error_names_the_nearest_only() -> None:
    many = Topology.tree(s("cloud"), {s(f"edge{i}"): (s("cloud"), NEAR) for i in range(500)})
    with pytest.raises(UnknownName) as raised:
        many.parent(s("edgy77"))
    assert "edge77" in raised.value.remedy
    assert len(raised.value.remedy) < 400


def test_the_root_has_no_link_upwards(world: Topology) -> None:
    with pytest.raises(ConfigurationError, match="is the root"):
        world.link(s("cloud"))


def test_a_root_alone_is_a_topology() -> None:
    alone = Topology.tree(s("cloud"))
    assert alone.sites == ("cloud",)
    assert alone == Topology.from_graph(s("cloud"), [])


def test_a_topology_cannot_be_changed_and_equals_its_equal(world: Topology) -> None:
    with pytest.raises(FrozenInstanceError):
        world.root = s("east")  # type: ignore[misc]
    again = world.with_site(s("w2"), s("west"), NEAR, hosts=("h",)).without_site(s("w2"))
    assert again == world
    assert hash(again) == hash(world)


def test_a_new_leaf_leaves_the_old_topology_as_it_was(world: Topology) -> None:
    grown = world.with_site(s("w2"), s("west"), NEAR, hosts=("h",), cpu_price=1.0)
    assert grown.children(s("west")) == ("w1", "w2")
    assert grown.places(s("w2")) == ("w2/h",)
    assert grown.site(s("cloud")) == world.site(s("cloud"))
    assert world.children(s("west")) == ("w1",)


def test_a_site_with_all_below_it_goes_below_another_parent(world: Topology) -> None:
    moved = world.with_parent(s("east"), s("w1"), NEAR)
    assert moved.ancestors(s("e2")) == ("east", "w1", "west", "cloud") and moved.link(s("east")) == NEAR
    assert moved.children(s("cloud")) == ("west",) and moved.children(s("w1")) == ("east",)
    assert moved.sites == ("cloud", "west", "w1", "east", "e1", "e2")
    assert world.parent(s("east")) == "cloud" and world.sites == ("cloud", "east", "west", "e1", "e2", "w1")
    assert moved.with_parent(s("east"), s("cloud"), FAR) == world


def test_a_site_cannot_go_below_itself_or_below_nobody(world: Topology) -> None:
    for below in ("east", "e1"):
        with pytest.raises(ConfigurationError, match="is below 'east'"):
            world.with_parent(s("east"), s(below), NEAR)
    with pytest.raises(UnknownName):
        world.with_parent(s("east"), s("mars"), NEAR)


def test_a_link_and_a_site_can_be_otherwise_where_they_are(world: Topology) -> None:
    assert world.with_link(s("e1"), FAR).link(s("e1")) == FAR and world.link(s("e1")) == NEAR
    more = world.with_details(Site(s("e1"), ("a", "b"), 0.5))
    assert more.places(s("e1")) == ("e1/a", "e1/b") and world.places(s("e1")) == ("e1",)
    with pytest.raises(UnknownName):
        world.with_details(Site(s("mars")))
    with pytest.raises(ConfigurationError, match="no link upwards"):
        world.with_link(s("cloud"), FAR)


def test_a_new_site_needs_a_new_name_and_a_parent_that_exists(world: Topology) -> None:
    with pytest.raises(ConfigurationError, match="exists already"):
        world.with_site(s("e1"), s("west"), NEAR)
    with pytest.raises(UnknownName):
        world.with_site(s("e9"), s("mars"), NEAR)


def test_only_a_leaf_can_be_removed(world: Topology) -> None:
    with pytest.raises(ConfigurationError, match="has sites below it") as raised:
        world.without_site(s("east"))
    assert "e1, e2" in raised.value.remedy
    with pytest.raises(ConfigurationError, match="is the root"):
        Topology.tree(s("cloud")).without_site(s("cloud"))


# What a tree refuses.


def test_a_root_that_no_site_leads_to_is_unknown() -> None:
    with pytest.raises(UnknownName, match="root site 'clod'") as raised:
        Topology.tree(s("clod"), {s("e1"): (s("cloud"), NEAR)})
    assert "cloud" in raised.value.remedy


def test_a_parent_that_does_not_exist_is_named_with_its_child() -> None:
    parents = {s("a"): (s("cloud"), NEAR), s("b"): (s("mars"), NEAR)}
    with pytest.raises(UnknownName, match="parent of site 'b': 'mars'"):
        Topology.tree(s("cloud"), parents)


def test_a_cycle_among_parents_is_shown() -> None:
    parents = {s("a"): (s("b"), NEAR), s("b"): (s("c"), NEAR), s("c"): (s("a"), NEAR), s("d"): (s("cloud"), NEAR)}
    with pytest.raises(ConfigurationError, match="a -> b -> c -> a"):
        Topology.tree(s("cloud"), parents)


def test_every_cycle_is_found_from_its_smallest_name() -> None:
    parents = {s("b"): s("a"), s("a"): s("b"), s("tail"): s("b"), s("z"): s("y"), s("y"): s("z"), s("ok"): s("root")}
    assert cycles(parents) == [("a", "b"), ("y", "z")]


def test_a_root_with_a_parent_and_a_site_that_is_its_own_parent_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="the root 'cloud' has the parent"):
        Topology.tree(s("cloud"), {s("cloud"): (s("e1"), NEAR), s("e1"): (s("cloud"), NEAR)})
    with pytest.raises(ConfigurationError, match="its own parent"):
        Topology.tree(s("cloud"), {s("e1"): (s("e1"), NEAR)})


def test_a_host_at_every_site_is_one_place_more_beside_those_that_a_site_has(world: Topology) -> None:
    more = world.with_host("objects")
    assert more.places(s("e1")) == ("e1", "e1/objects")
    assert more.places(s("cloud")) == ("cloud/big", "cloud/small", "cloud/objects")
    assert more.main_place(s("e1")) == more.place("e1") == "e1"
    assert more.place("e1/objects") == "e1/objects"
    with pytest.raises(ConfigurationError, match="has a host 'objects' already"):
        more.with_host("objects")


def test_hosts_of_a_site_that_does_not_exist_are_refused() -> None:
    with pytest.raises(UnknownName, match="'mars'"):
        Topology.tree(s("cloud"), hosts={s("mars"): ("h",)})


@pytest.mark.parametrize("name", ["", "a/b", "a,b", "a b", " ", "a\n", "\t"])
def test_bad_names_are_refused_for_sites_and_hosts(name: str) -> None:
    with pytest.raises(ConfigurationError, match="bad name for a site"):
        Topology.tree(s(name))
    with pytest.raises(ConfigurationError, match="bad name for a site"):
        Topology.tree(s("cloud"), {s(name): (s("cloud"), NEAR)})
    with pytest.raises(ConfigurationError, match="bad name for a host"):
        Topology.tree(s("cloud"), hosts={s("cloud"): (name,)})


def test_a_host_named_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="names a host twice"):
        Topology.tree(s("cloud"), hosts={s("cloud"): ("h", "h")})


@pytest.mark.parametrize(
    ("latency_ms", "bandwidth_mbps", "price_per_gb"),
    [(-1, 1, 0), (math.nan, 1, 0), (math.inf, 1, 0), (1, 0, 0), (1, -5, 0), (1, math.nan, 0), (1, 1, -1)],
)
def test_a_link_has_a_latency_a_bandwidth_and_a_price_that_can_be(
    latency_ms: float, bandwidth_mbps: float, price_per_gb: float
) -> None:
    with pytest.raises(ConfigurationError, match="a link with"):
        Link(latency_ms, bandwidth_mbps, price_per_gb)


@pytest.mark.parametrize("loss", [-0.1, 1.0, math.nan])
def test_a_link_does_not_lose_everything(loss: float) -> None:
    with pytest.raises(ConfigurationError, match="a link with loss"):
        Link(1, 1, loss=loss)


def test_a_bandwidth_without_limit_is_allowed() -> None:
    assert Link(0, math.inf).bandwidth_mbps == math.inf


# General graphs.


def test_a_general_graph_is_reduced_to_the_cheapest_paths_towards_the_root() -> None:
    direct, short, shorter = Link(50, 10), Link(10, 10), Link(7, 10)
    graph = Topology.from_graph(
        s("cloud"),
        [(s("edge"), s("cloud"), direct), (s("edge"), s("region"), short), (s("region"), s("cloud"), shorter)],
        hosts={s("edge"): ("h1",)},
    )
    assert graph.parent(s("edge")) == "region"
    assert graph.link(s("edge")) == short
    assert graph.unused == ((s("edge"), s("cloud"), direct),)
    assert graph.places(s("edge")) == ("edge/h1",)


def test_paths_of_equal_latency_are_decided_by_hops_then_by_name() -> None:
    one, two = Link(1, 10), Link(2, 10)
    diamond = [
        (s("x"), s("right"), one),
        (s("x"), s("left"), one),
        (s("right"), s("cloud"), one),
        (s("left"), s("cloud"), one),
    ]
    for edges in (diamond, diamond[::-1]):
        assert Topology.from_graph(s("cloud"), edges).parent(s("x")) == "left"
    with_direct = Topology.from_graph(s("cloud"), [*diamond, (s("x"), s("cloud"), two)])
    assert with_direct.parent(s("x")) == "cloud"


def test_links_without_latency_make_no_cycle() -> None:
    free, one = Link(0, 10), Link(1, 10)
    edges = [
        (s("a"), s("b"), free),
        (s("b"), s("c"), free),
        (s("a"), s("c"), free),
        (s("c"), s("cloud"), one),
        (s("b"), s("cloud"), one),
    ]
    graph = Topology.from_graph(s("cloud"), edges)
    assert {site: graph.parent(site) for site in graph.sites[1:]} == {"a": "b", "b": "cloud", "c": "cloud"}


def test_a_graph_with_a_site_that_cannot_reach_the_root_is_refused() -> None:
    edges = [(s("a"), s("cloud"), NEAR), (s("x"), s("y"), NEAR)]
    assert unreachable(s("cloud"), edges) == ("x", "y")
    with pytest.raises(ConfigurationError, match="no path leads from x, y to the root 'cloud'"):
        Topology.from_graph(s("cloud"), edges)


def test_a_graph_without_its_root_or_with_a_self_link_or_a_double_link_is_refused() -> None:
    with pytest.raises(UnknownName, match="root site 'clod'"):
        Topology.from_graph(s("clod"), [(s("a"), s("cloud"), NEAR)])
    with pytest.raises(ConfigurationError, match="to itself"):
        Topology.from_graph(s("cloud"), [(s("cloud"), s("cloud"), NEAR)])
    with pytest.raises(ConfigurationError, match="linked twice"):
        Topology.from_graph(s("cloud"), [(s("a"), s("cloud"), NEAR), (s("cloud"), s("a"), FAR)])


def test_a_removed_site_takes_its_unused_links_along() -> None:
    edges = [(s("a"), s("cloud"), NEAR), (s("b"), s("cloud"), NEAR), (s("a"), s("b"), FAR)]
    graph = Topology.from_graph(s("cloud"), edges)
    assert len(graph.unused) == 1
    assert graph.without_site(s("a")).unused == ()


# Mobile sources.


def test_attaching_a_source_tells_where_it_was() -> None:
    attachments = Attachments()
    phone = SourceId("phone")
    assert attachments.attach(phone, s("e1")) is None
    assert attachments.attach(phone, s("e2")) == "e1"
    assert attachments.attach(phone, s("e2")) == "e2"
    assert attachments.at(phone) == "e2"
    assert attachments.sources_at(s("e1")) == ()


def test_the_sources_at_a_site_are_listed_by_name() -> None:
    attachments = Attachments()
    for name in ("c", "a", "b"):
        attachments.attach(SourceId(name), s("e1"))
    assert attachments.sources_at(s("e1")) == ("a", "b", "c")


def test_a_detached_source_is_nowhere() -> None:
    attachments = Attachments()
    attachments.attach(SourceId("a"), s("e1"))
    assert attachments.detach(SourceId("a")) == "e1"
    assert attachments.detach(SourceId("a")) is None
    assert attachments.at(SourceId("a")) is None
    assert attachments.sources_at(s("e1")) == ()
