"""From links to a tree: the cheapest paths of a general graph towards the root, and what can be wrong with either.

Only the latency decides what is cheapest; ties go to fewer hops, then to the smaller name, so that everybody who is
given the same links comes to the same tree.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from peregrine.errors import ConfigurationError, UnknownName
from peregrine.types import SiteId

if TYPE_CHECKING:
    from peregrine.core.topology import Edge, Link

NAMES_SHOWN = 20


def check_parents(root: SiteId, parents: Mapping[SiteId, "tuple[SiteId, Link]"]) -> None:
    above = {site: parent for site, (parent, _) in parents.items()}
    if root in above:
        raise ConfigurationError(f"the root {root!r} has the parent {above[root]!r}", "remove the parent or the root")
    for site, parent in above.items():
        if site == parent:
            raise ConfigurationError(f"site {site!r} is its own parent", "name another site as the parent")
    if above and root not in above.values():
        tops = sorted(set(above.values()) - above.keys())
        raise UnknownName("root site", root, names_like(root, tops or sorted(above)))
    for site, parent in above.items():
        if parent not in above and parent != root:
            raise UnknownName(f"parent of site {site!r}:", parent, names_like(parent, [root, *sorted(above)]))
    for ring in cycles(above):
        raise ConfigurationError(
            f"the parents form a cycle: {' -> '.join((*ring, ring[0]))}", f"let one of them lead to the root {root!r}"
        )


def cheapest_parents(root: SiteId, edges: "Sequence[Edge]") -> "dict[SiteId, tuple[SiteId, Link]]":
    import networkx as nx  # slow to import, and a tree does not need it

    links: dict[frozenset[SiteId], Link] = {}
    for a, b, link in edges:
        if a == b:
            raise ConfigurationError(f"a link joins site {a!r} to itself", "join two different sites")
        if frozenset((a, b)) in links:
            raise ConfigurationError(f"{a!r} and {b!r} are linked twice", "keep one link between two sites")
        links[frozenset((a, b))] = link
    sites = {site for pair in links for site in pair}
    if sites and root not in sites:
        raise UnknownName("root site", root, names_like(root, sorted(sites)))
    if lost := unreachable(root, edges):
        raise ConfigurationError(
            f"no path leads from {', '.join(lost[:NAMES_SHOWN])} to the root {root!r}", "add a link, or remove the site"
        )
    graph = nx.Graph()
    graph.add_node(root)
    graph.add_weighted_edges_from(((a, b, link.latency_ms) for a, b, link in edges), weight="latency_ms")
    nearer, _ = nx.dijkstra_predecessor_and_distance(graph, root, weight="latency_ms")
    # Links of no latency make sites each other's predecessors; to count hops along the cheapest paths excludes cycles.
    cheapest = nx.DiGraph((before, site) for site, befores in nearer.items() for before in befores)
    cheapest.add_node(root)
    hops = nx.single_source_shortest_path_length(cheapest, root)
    parents = {}
    for site in sorted(sites - {root}):
        parent = min(before for before in nearer[site] if hops[before] + 1 == hops[site])
        parents[site] = (parent, links[frozenset((site, parent))])
    return parents


def cycles(parents: Mapping[SiteId, SiteId]) -> list[tuple[SiteId, ...]]:
    """Every cycle among the parents, each starting at its smallest name."""
    found = []
    done: set[SiteId] = set()
    for start in sorted(parents):
        trail: dict[SiteId, None] = {}
        site = start
        while site in parents and site not in done and site not in trail:
            trail[site] = None
            site = parents[site]
        if site in trail:
            names = list(trail)
            ring = names[names.index(site) :]
            first = ring.index(min(ring))
            found.append(tuple(ring[first:] + ring[:first]))
        done.update(trail)
    return found


def unreachable(root: SiteId, edges: "Iterable[Edge]") -> tuple[SiteId, ...]:
    """The sites of a graph from which no path leads to the root, sorted by name."""
    neighbours: dict[SiteId, list[SiteId]] = {root: []}
    for a, b, _ in edges:
        neighbours.setdefault(a, []).append(b)
        neighbours.setdefault(b, []).append(a)
    reached, frontier = {root}, [root]
    while frontier:
        for site in neighbours[frontier.pop()]:
            if site not in reached:
                reached.add(site)
                frontier.append(site)
    return tuple(sorted(neighbours.keys() - reached))


def names_like(name: str, known: Sequence[SiteId]) -> list[str]:
    """Names to suggest: all of a few, the nearest of many."""
    names: list[str] = list(known)
    if len(names) <= NAMES_SHOWN:
        return names
    return difflib.get_close_matches(name, names, NAMES_SHOWN) or names[:NAMES_SHOWN]
