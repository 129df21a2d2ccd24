"""The sites and links as they are known, and the tree of the cheapest paths to the root, kept up change by change.

The tree is the one that `Topology.from_graph` makes of the same links (least latency, then fewest hops, then the
smaller name), so it does not depend on the order of what happened. A change costs what it touches: a link that is gone
or slower makes the subtree below it look for new ways, a link that is new or faster is followed as far as it makes ways
better. `visited` counts the sites that were looked at.

A world is changed in place, and back (a `Topology` is a value: the manager keeps several, a planner wants to try).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from peregrine.core.graph import names_like
from peregrine.core.topology import Link, Site, Topology
from peregrine.errors import UnknownName
from peregrine.plan.redeploy.changes import Changes
from peregrine.plan.redeploy.events import Fact, Station
from peregrine.types import PlaceId, SiteId, site_of

Cost = tuple[float, int]  # latency to the root, hops to the root
_Way = tuple[float, int, SiteId, SiteId]  # cost by way of this parent, of this site


@dataclass(frozen=True, slots=True)
class Shift:
    """How the tree has changed."""

    rehomed: Mapping[SiteId, tuple[SiteId, SiteId]]  # old and new parent
    joined: frozenset[SiteId]
    left: Mapping[SiteId, SiteId]  # old parent
    changed: Mapping[SiteId, Station | None]  # stations as they were, of sites that are otherwise now
    moved: frozenset[SiteId]  # all whose way to the root is another one: what was rehomed, and all below

    def old_parent(self, site: SiteId, world: "World") -> SiteId | None:
        if site in self.rehomed:
            return self.rehomed[site][0]
        return self.left.get(site) or world.parent.get(site)

    def old_ancestors(self, site: SiteId, world: "World") -> Iterator[SiteId]:
        """From the parent up to the root, as it was."""
        above = self.old_parent(site, world)
        while above is not None:
            yield above
            above = self.old_parent(above, world)

    def refuges(self, site: SiteId, world: "World") -> Iterator[list[PlaceId]]:
        """Of each site above, as it was, the places that are there before and after: what must leave can wait there."""
        for above in self.old_ancestors(site, world):
            if above in world:
                before = self.changed.get(above)
                old = world.places(above) if before is None else places_of(before.site)
                yield [place for place in world.places(above) if place in old]


NO_SHIFT = Shift({}, frozenset(), {}, {}, frozenset())


class World:
    def __init__(self, root: Station, changes: Changes) -> None:
        self.root = root.site.id
        self.changes = changes
        self.stations: dict[SiteId, Station] = {self.root: root}
        self.links: dict[SiteId, dict[SiteId, Link]] = {}  # facts, in both directions; ends may be missing
        self.parent: dict[SiteId, SiteId] = {}
        self.cost: dict[SiteId, Cost] = {self.root: (0.0, 0)}
        self.below: dict[SiteId, dict[SiteId, None]] = {}
        self.visited = 0

    @classmethod
    def of(cls, topology: Topology, changes: Changes, slots: Mapping[SiteId, int | None] | None = None) -> "World":
        """The world in which a topology was made, with the links that its tree does not use."""
        stations = {site: Station(topology.site(site), slots=(slots or {}).get(site)) for site in topology.sites}
        world = cls(stations[topology.root], changes)
        world.apply(
            [
                *(Fact((site,), 0, station) for site, station in stations.items()),
                *(
                    Fact((site, above), 0, topology.link(site))
                    for site in topology.sites
                    if (above := topology.parent(site))
                ),
                *(Fact((a, b), 0, link) for a, b, link in topology.unused),
            ]
        )
        changes.keep()
        return world

    # --- what is asked of the tree ---

    def __contains__(self, site: object) -> bool:
        """Is it there, and does a way lead from it to the root?"""
        return site in self.cost

    def depth(self, site: SiteId) -> int:
        return self.cost[site][1]

    def ancestors(self, site: SiteId) -> Iterator[SiteId]:
        """From the parent up to the root."""
        while site != self.root:
            site = self.parent[site]
            yield site

    def is_at_or_above(self, above: SiteId, below: SiteId) -> bool:
        levels = self.depth(below) - self.depth(above)
        for _ in range(levels):
            below = self.parent[below]
        return above == below

    def lca(self, a: SiteId, b: SiteId) -> SiteId:
        while a != b:
            if self.depth(a) >= self.depth(b):
                a = self.parent[a]
            else:
                b = self.parent[b]
        return a

    def meeting_point(self, sites: Iterable[SiteId]) -> SiteId | None:
        """The lowest site at or above all of them; None if there are none."""
        met: SiteId | None = None
        for site in sites:
            met = site if met is None else self.lca(met, site)
            if met == self.root:
                break
        return met

    def subtree(self, top: SiteId) -> Iterator[SiteId]:
        stack = [top]
        while stack:
            site = stack.pop()
            self.visited += 1
            yield site
            stack.extend(self.below.get(site, ()))

    def places(self, site: SiteId) -> tuple[PlaceId, ...]:
        return places_of(self.stations[site].site)

    def main_place(self, site: SiteId) -> PlaceId:
        return self.places(site)[0]

    def has_place(self, place: PlaceId) -> bool:
        return site_of(place) in self.cost and place in self.places(site_of(place))

    def check_known(self, site: SiteId) -> None:
        if site not in self.cost:
            raise UnknownName("site", site, names_like(site, sorted(self.cost)))

    def topology(self) -> Topology:
        """The tree as a value; costs what all sites cost."""
        parents = {site: (above, self.links[site][above]) for site, above in self.parent.items()}
        hosts = {site: self.stations[site].site.hosts for site in self.cost}
        prices = {site: self.stations[site].site.cpu_price for site in self.cost}
        return Topology.tree(self.root, parents, hosts, prices)

    # --- change ---

    def apply(self, facts: Iterable[Fact]) -> Shift:
        """All of them at once: their order does not matter."""
        cut: list[SiteId] = []  # sites whose way up is gone, or has become worse
        tried: list[tuple[SiteId, SiteId]] = []  # links that may be a better way up for their second end
        changed: dict[SiteId, Station | None] = {}
        for fact in facts:
            match fact.subject, fact.value:
                case ((site,), Station() as station):
                    if self.stations.get(site) != station:
                        if site not in self.stations:
                            tried += [
                                way for other in self.links.get(site, ()) for way in ((site, other), (other, site))
                            ]
                        changed[site] = self.stations.get(site)
                        self.changes.put(self.stations, site, station)
                case ((site,), None):
                    cut.append(site)
                    self.changes.remove(self.stations, site)
                case ((a, b), Link() as link):
                    before = self.links.get(a, {}).get(b)
                    self.changes.put_in(self.links, a, b, link)
                    self.changes.put_in(self.links, b, a, link)
                    if before is None or link.latency_ms < before.latency_ms:
                        tried += [(a, b), (b, a)]
                    elif link.latency_ms > before.latency_ms:
                        cut += self._lower_end(a, b)
                case ((a, b), None):
                    self.changes.remove_in(self.links, a, b)
                    self.changes.remove_in(self.links, b, a)
                    cut += self._lower_end(a, b)
        return self._repair(cut, tried, changed)

    def rebuild(self) -> None:
        """Find all ways again, as one would who does not know what has changed (the holistic baselines)."""
        loose = self._loosen(list(self.below.get(self.root, ())))
        self._settle([way for site in loose if (way := self._best_way(site)) is not None], loose)

    def _lower_end(self, a: SiteId, b: SiteId) -> list[SiteId]:
        """The site that has its way up over this link."""
        return [site for site, above in ((a, b), (b, a)) if self.parent.get(site) == above]

    def _repair(
        self, cut: list[SiteId], tried: list[tuple[SiteId, SiteId]], changed: dict[SiteId, Station | None]
    ) -> Shift:
        before = self._loosen(cut)  # old parents of all that has another one, or none
        ways = [way for site in before if (way := self._best_way(site)) is not None]
        ways += [way for above, site in tried if (way := self._way(above, site)) is not None]
        self._settle(ways, before)
        rehomed, left, joined = {}, {}, set()
        for site, old in before.items():
            new = self.parent.get(site)
            if old is None and new is not None:
                joined.add(site)
            elif old is not None and new is None:
                left[site] = old
            elif old is not None and new is not None and new != old:
                rehomed[site] = (old, new)
        moved: set[SiteId] = set()
        for site in rehomed:
            if site not in moved:  # else all below it has been seen, too
                moved.update(self.subtree(site))
        return Shift(rehomed, frozenset(joined), left, changed, frozenset(moved))

    def _loosen(self, tops: Iterable[SiteId]) -> dict[SiteId, SiteId | None]:
        """Forget the ways of these sites and of all below them."""
        loose: dict[SiteId, SiteId | None] = {}
        for top in tops:
            if top in self.parent and top not in loose:
                loose.update((site, self.parent[site]) for site in self.subtree(top) if site not in loose)
        for site, above in loose.items():
            assert above is not None
            self.changes.remove(self.parent, site)
            self.changes.remove(self.cost, site)
            self.changes.remove_in(self.below, above, site)
        return loose

    def _way(self, above: SiteId, site: SiteId) -> _Way | None:
        """To the root by way of a neighbour, if that has a way."""
        self.visited += 1
        link, cost = self.links.get(site, {}).get(above), self.cost.get(above)
        if cost is None or link is None or site not in self.stations:
            return None
        return cost[0] + link.latency_ms, cost[1] + 1, above, site

    def _best_way(self, site: SiteId) -> _Way | None:
        ways = [way for above in self.links.get(site, ()) if (way := self._way(above, site)) is not None]
        return min(ways, default=None)

    def _settle(self, ways: list[_Way], before: dict[SiteId, SiteId | None]) -> None:
        """Dijkstra from what is settled, over what has become better. Notes the old parents of what changes."""
        heap: list[_Way] = []
        for way in ways:
            heappush(heap, way)
        while heap:
            latency_ms, hops, above, site = heappop(heap)
            cost = self.cost.get(site)
            if cost is not None and (latency_ms, hops, above) >= (*cost, self.parent.get(site, "")):
                continue
            before.setdefault(site, self.parent.get(site))
            if (old := self.parent.get(site)) is not None:
                self.changes.remove_in(self.below, old, site)
            self.changes.put(self.parent, site, above)
            self.changes.put_in(self.below, above, site, None)
            if cost == (latency_ms, hops):
                continue  # another way of the same cost: nothing below it changes
            self.changes.put(self.cost, site, (latency_ms, hops))
            for other in self.links.get(site, ()):
                better = self._way(site, other)
                if better is not None and (
                    other not in self.cost or better[:3] < (*self.cost[other], self.parent.get(other, ""))
                ):
                    heappush(heap, better)


def places_of(site: Site) -> tuple[PlaceId, ...]:
    """As `Topology.places`."""
    return tuple(PlaceId(f"{site.id}/{host}" if host else site.id) for host in site.hosts) or (PlaceId(site.id),)
