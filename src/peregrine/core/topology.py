"""The hierarchy of sites: who is above whom, and over which link.

A topology is an immutable tree; a change makes a new one, which shares with the old one what has not changed. A
general graph is reduced to the tree of its cheapest paths towards the root. Every query costs at most the depth of the
tree, a change of one site costs that site and what is below it, and nothing is kept per pair of sites, so ten thousand
sites are as quick as ten. This module knows where sites are; it does not know what runs on them.
"""

import bisect
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

from peregrine.core.graph import cheapest_parents, check_parents, names_like
from peregrine.core.layered import changed
from peregrine.errors import ConfigurationError, UnknownName
from peregrine.types import PlaceId, SiteId

NAME = re.compile(r"[^\s/,]+")


@dataclass(frozen=True, slots=True)
class Link:
    """A connection between two sites, the same in both directions."""

    latency_ms: float
    bandwidth_mbps: float = 1000.0
    price_per_gb: float = 0.0
    loss: float = 0.0  # the chance that a frame is lost and has to be sent again

    def __post_init__(self) -> None:
        # Written so that NaN fails too. An infinite bandwidth is a link without a limit.
        if not 0 <= self.latency_ms < math.inf:
            raise ConfigurationError(f"a link with latency_ms {self.latency_ms}", "give a finite latency of 0 or more")
        if not self.bandwidth_mbps > 0:
            raise ConfigurationError(f"a link with bandwidth_mbps {self.bandwidth_mbps}", "give a bandwidth above 0")
        if not 0 <= self.price_per_gb < math.inf:
            raise ConfigurationError(f"a link with price_per_gb {self.price_per_gb}", "give a price of 0 or more")
        if not 0 <= self.loss < 1:
            raise ConfigurationError(f"a link with loss {self.loss}", "give a share of frames, from 0 to below 1")


Edge: TypeAlias = tuple[SiteId, SiteId, Link]


@dataclass(frozen=True, slots=True)
class Site:
    """A datacenter. Without named hosts it is one place; with them, each host is a place. A first host without a name
    is the site itself (`Topology.with_host`).
    """

    id: SiteId
    hosts: tuple[str, ...] = ()
    cpu_price: float = 0.0

    def __post_init__(self) -> None:
        named = self.hosts[1:] if len(self.hosts) > 1 and not self.hosts[0] else self.hosts
        for kind, name in (("site", self.id), *(("host", host) for host in named)):
            if not NAME.fullmatch(name):
                raise ConfigurationError(
                    f"bad name for a {kind}: {name!r}", "use at least one character, and no '/', ',' or white space"
                )
        if len(set(self.hosts)) < len(self.hosts):
            raise ConfigurationError(f"site {self.id!r} names a host twice", "give every host of a site its own name")
        if not 0 <= self.cpu_price < math.inf:
            raise ConfigurationError(
                f"site {self.id!r} with cpu_price {self.cpu_price}", "give a finite price of 0 or more"
            )


class Direction(Enum):
    """Where a router sends a row: to its own host, to its parent, or to a child."""

    HERE = "here"
    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Topology:
    """Make one with `tree` or `from_graph`; they check what they are given, the constructor does not."""

    root: SiteId
    _ordered: tuple[SiteId, ...] | None = field(compare=False, repr=False)  # None until somebody asks for `sites`
    unused: tuple[Edge, ...]  # links of the graph that are not in the tree
    _site: Mapping[SiteId, Site] = field(hash=False, repr=False)
    _parent: Mapping[SiteId, SiteId] = field(hash=False, repr=False)
    _link: Mapping[SiteId, Link] = field(hash=False, repr=False)
    _depth: Mapping[SiteId, int] = field(hash=False, repr=False)
    _children: Mapping[SiteId, tuple[SiteId, ...]] = field(hash=False, repr=False)

    @classmethod
    def tree(
        cls,
        root: SiteId,
        parents: Mapping[SiteId, tuple[SiteId, Link]] | None = None,
        hosts: Mapping[SiteId, Sequence[str]] | None = None,
        cpu_prices: Mapping[SiteId, float] | None = None,
    ) -> "Topology":
        """The tree in which every site but the root has the given parent."""
        return _grow(root, parents or {}, hosts or {}, cpu_prices or {}, unused=())

    @classmethod
    def from_graph(
        cls,
        root: SiteId,
        edges: Iterable[Edge],
        hosts: Mapping[SiteId, Sequence[str]] | None = None,
        cpu_prices: Mapping[SiteId, float] | None = None,
    ) -> "Topology":
        """The tree of the paths with the least latency to the root; of equal ones the fewest hops, then by name."""
        edges = tuple(edges)
        parents = cheapest_parents(root, edges)
        unused = [e for e in edges if not _joins(parents, e[0], e[1])]
        return _grow(root, parents, hosts or {}, cpu_prices or {}, tuple(sorted(unused, key=lambda e: sorted(e[:2]))))

    # The tree, as it is.

    @property
    def sites(self) -> tuple[SiteId, ...]:
        """All of them, by depth, then by name. Costs what all sites cost, once: a change need not know their order."""
        if self._ordered is None:
            depth = self._depth
            object.__setattr__(self, "_ordered", tuple(sorted(depth, key=lambda name: (depth[name], name))))
        assert self._ordered is not None
        return self._ordered

    def __contains__(self, site: object) -> bool:
        return site in self._depth

    def site(self, site: SiteId) -> Site:
        return self._site[self._known(site)]

    def parent(self, site: SiteId) -> SiteId | None:
        """None for the root."""
        return self._parent.get(self._known(site))

    def children(self, site: SiteId) -> tuple[SiteId, ...]:
        """Sorted by name."""
        return self._children.get(self._known(site), ())

    def link(self, child: SiteId) -> Link:
        """The link between a site and its parent."""
        if self._known(child) == self.root:
            raise ConfigurationError(f"{child!r} is the root and has no link upwards", "name a site below the root")
        return self._link[child]

    def depth(self, site: SiteId) -> int:
        """The number of links between a site and the root."""
        return self._depth[self._known(site)]

    # Ways through it.

    def ancestors(self, site: SiteId) -> tuple[SiteId, ...]:
        """From the parent up to the root."""
        above = []
        for _ in range(self.depth(site)):
            site = self._parent[site]
            above.append(site)
        return tuple(above)

    def below(self, site: SiteId) -> tuple[SiteId, ...]:
        """All sites of its subtree but itself."""
        found = list(self.children(site))
        for each in found:
            found += self.children(each)
        return tuple(found)

    def is_at_or_above(self, above: SiteId, below: SiteId) -> bool:
        return self._climb(below, self.depth(below) - self.depth(above)) == above

    def lca(self, a: SiteId, b: SiteId) -> SiteId:
        """The lowest site that is at or above both."""
        difference = self.depth(a) - self.depth(b)
        a, b = self._climb(a, difference), self._climb(b, -difference)
        while a != b:
            a, b = self._parent[a], self._parent[b]
        return a

    def path(self, a: SiteId, b: SiteId) -> tuple[SiteId, ...]:
        """Every site on the way from a to b, with both ends."""
        top = self._depth[self.lca(a, b)]
        up = (a, *self.ancestors(a))[: self._depth[a] - top + 1]
        down = (b, *self.ancestors(b))[: self._depth[b] - top]
        return up + down[::-1]

    def next_hop(self, at: SiteId, to: SiteId) -> SiteId:
        """The neighbour of `at` on the way to `to`; `at` itself where the way ends."""
        # Rows are routed by this: no calls, no allocation.
        parent = self._parent
        try:
            below = self._depth[to] - self._depth[at]
        except KeyError:
            self._known(at)
            self._known(to)
            raise
        if below > 0:
            hop = to
            while below > 1:
                hop = parent[hop]
                below -= 1
            if parent[hop] == at:
                return hop
        elif at == to:
            return at
        return parent[at]

    def toward(self, at: SiteId, to: SiteId) -> Direction:
        """The direction of the next hop."""
        if at == self._known(to):
            return Direction.HERE
        return Direction.DOWN if self.is_at_or_above(at, to) else Direction.UP

    def latency_ms(self, a: SiteId, b: SiteId) -> float:
        """One way, the sum over the links of the path."""
        top = self._depth[self.lca(a, b)]
        total = 0.0
        for site in (a, b):
            while self._depth[site] > top:
                total += self._link[site].latency_ms
                site = self._parent[site]
        return total

    # Places.

    def places(self, site: SiteId) -> tuple[PlaceId, ...]:
        """`site` where no host is named, else `site/host` for each in the order in which they were given."""
        hosts = self.site(site).hosts
        return tuple(PlaceId(f"{site}/{host}" if host else site) for host in hosts) or (PlaceId(site),)

    def main_place(self, site: SiteId) -> PlaceId:
        """The first place of a site."""
        return self.places(site)[0]

    def place(self, text: str) -> PlaceId:
        """The place that a text names."""
        places = self.places(SiteId(text.partition("/")[0]))
        if text not in places:
            raise UnknownName("place", text, list(places))
        return PlaceId(text)

    # New trees from this one.

    def with_site(
        self, site: SiteId, parent: SiteId, link: Link, hosts: Sequence[str] = (), cpu_price: float = 0.0
    ) -> "Topology":
        """This tree and one more leaf."""
        if site in self._depth:
            raise ConfigurationError(f"site {site!r} exists already", "give the new site a name of its own")
        depth = self.depth(parent) + 1
        return replace(
            self,
            _ordered=None,
            _site=changed(self._site, {site: Site(site, tuple(hosts), cpu_price)}),
            _parent=changed(self._parent, {site: parent}),
            _link=changed(self._link, {site: link}),
            _depth=changed(self._depth, {site: depth}),
            _children=self._with_child(site, None, parent),
        )

    def with_parent(self, site: SiteId, parent: SiteId, link: Link) -> "Topology":
        """This tree with a site, and all below it, below another parent."""
        if self.is_at_or_above(site, parent):
            raise ConfigurationError(f"{parent!r} is below {site!r}", "choose a parent that is not")
        deeper = self.depth(parent) + 1 - self.depth(site)
        moved = (site, *self.below(site)) if deeper else ()
        return replace(
            self,
            _ordered=None if deeper else self._ordered,
            _parent=changed(self._parent, {site: parent}),
            _link=changed(self._link, {site: link}),
            _depth=changed(self._depth, {each: self._depth[each] + deeper for each in moved}),
            _children=self._with_child(site, self._parent[site], parent),
        )

    def with_link(self, child: SiteId, link: Link) -> "Topology":
        """This tree with another link between a site and its parent."""
        return self if self.link(child) == link else replace(self, _link=changed(self._link, {child: link}))

    def with_details(self, site: Site) -> "Topology":
        """This tree with another description of a site that it has: its hosts, its price."""
        return self if self.site(site.id) == site else replace(self, _site=changed(self._site, {site.id: site}))

    def with_host(self, name: str) -> "Topology":
        """This tree with one more place at each site, `site/name`, beside those that it has."""
        for site in self._site.values():
            if name in site.hosts:
                raise ConfigurationError(f"site {site.id!r} has a host {name!r} already", "choose another name")
        more = {id_: replace(site, hosts=(*(site.hosts or ("",)), name)) for id_, site in self._site.items()}
        return replace(self, _site=more)

    def without_site(self, site: SiteId) -> "Topology":
        """This tree less one leaf and the unused links that end there."""
        if children := self.children(site):
            raise ConfigurationError(f"site {site!r} has sites below it", f"remove {', '.join(children)} first")
        if site == self.root:
            raise ConfigurationError(f"{site!r} is the root", "keep it: every topology has a root")
        return replace(
            self,
            _ordered=None,
            unused=tuple(edge for edge in self.unused if site not in edge[:2]),
            _site=changed(self._site, {}, [site]),
            _parent=changed(self._parent, {}, [site]),
            _link=changed(self._link, {}, [site]),
            _depth=changed(self._depth, {}, [site]),
            _children=self._with_child(site, self._parent[site], None),
        )

    def _with_child(
        self, child: SiteId, source: SiteId | None, target: SiteId | None
    ) -> Mapping[SiteId, tuple[SiteId, ...]]:
        """Children as they are when one goes from one parent to another, or comes or goes. All stay sorted."""
        if source == target:
            return self._children
        put, gone = {}, []
        if source is not None:
            siblings = self._children[source]
            at = bisect.bisect_left(siblings, child)
            put[source] = siblings[:at] + siblings[at + 1 :]
            if not put[source]:
                del put[source]
                gone.append(source)
        if target is not None:
            siblings = self._children.get(target, ())
            at = bisect.bisect_left(siblings, child)
            put[target] = (*siblings[:at], child, *siblings[at:])
        return changed(self._children, put, gone)

    def _known(self, site: SiteId) -> SiteId:
        if site not in self._depth:
            raise UnknownName("site", site, names_like(site, self.sites))
        return site

    def _climb(self, site: SiteId, levels: int) -> SiteId:
        for _ in range(levels):
            site = self._parent[site]
        return site


def _grow(
    root: SiteId,
    parents: Mapping[SiteId, tuple[SiteId, Link]],
    hosts: Mapping[SiteId, Sequence[str]],
    cpu_prices: Mapping[SiteId, float],
    unused: tuple[Edge, ...],
) -> Topology:
    """Check the parts of a tree and compute what its queries need."""
    check_parents(root, parents)
    names = {root, *parents}
    for name in (*hosts, *cpu_prices):
        if name not in names:
            raise UnknownName("site", name, names_like(name, sorted(names)))
    site = {name: Site(name, tuple(hosts.get(name, ())), cpu_prices.get(name, 0.0)) for name in sorted(names)}
    parent = {name: above for name, (above, _) in parents.items()}
    below: dict[SiteId, list[SiteId]] = {}
    for child in sorted(parent):
        below.setdefault(parent[child], []).append(child)
    depth = {root: 0}
    level = [root]
    while level:
        level = [child for above in level for child in below.get(above, ())]
        depth.update((child, depth[parent[child]] + 1) for child in level)
    assert len(depth) == len(names), "checked parents lead to the root"
    ordered = tuple(sorted(names, key=lambda name: (depth[name], name)))
    links = {name: link for name, (_, link) in parents.items()}
    children = {above: tuple(sites) for above, sites in below.items()}
    return Topology(root, ordered, unused, site, parent, links, depth, children)


def _joins(parents: Mapping[SiteId, tuple[SiteId, Link]], a: SiteId, b: SiteId) -> bool:
    """Whether the tree uses the link between a and b."""
    return any(child in parents and parents[child][0] == parent for child, parent in ((a, b), (b, a)))
