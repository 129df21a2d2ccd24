"""Random topology changes: sites and links come, go and change, and the manager hears of it, often late or wrong.

A change happens at once in the simulated network, and its news take their time. At the end every site has a link again,
so that a run can come to rest.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from peregrine.core.topology import Link, Site, Topology
from peregrine.plan.redeploy.events import (
    LinkRemoved,
    LinkSet,
    SiteMoved,
    SiteRemoved,
    SiteSet,
    Station,
    TopologyEvent,
)
from peregrine.types import SiteId

LATENCIES_MS = (1.0, 2.0, 5.0, 10.0, 30.0)


@dataclass(frozen=True)
class Change:
    at_ms: float
    event: TopologyEvent
    told_after_ms: tuple[float, ...]  # once or more often
    happens: bool = True  # False: it is only told
    breaks: bool = True  # of a link that is gone: it no longer works; else it does until nobody needs it


def draw_changes(
    rng: random.Random, topology: Topology, spare: tuple[SiteId, ...], until_ms: float
) -> tuple[Change, ...]:
    """`spare`: sites that are not there at first."""
    return tuple(_Drawing(rng, topology, spare, until_ms).changes())


class _Drawing:
    def __init__(self, rng: random.Random, topology: Topology, spare: tuple[SiteId, ...], until_ms: float) -> None:
        self._rng, self._root, self._until_ms = rng, topology.root, until_ms
        self._stable = [site for site in topology.sites if site != topology.root]
        self._spare = spare
        self._there: set[SiteId] = set()  # of the spare ones
        self._links = {
            frozenset((site, parent)): topology.link(site) for site in self._stable if (parent := topology.parent(site))
        }
        self._version = 0

    def changes(self) -> Iterator[Change]:
        rng = self._rng
        times = sorted(rng.uniform(20.0, self._until_ms) for _ in range(rng.randint(1, 6)))
        for at_ms in times:
            for _ in range(rng.choice((1, 1, 1, 2, 3))):  # some things happen in one go
                at_ms += rng.choice((0.0, 1.0, 20.0))
                yield from self._change(at_ms)
        yield from self._heal(self._until_ms * 1.1)

    def _change(self, at_ms: float) -> Iterator[Change]:
        rng = self._rng
        match rng.choice(("move", "move", "move", "link", "link", "pace", "unlink", "add", "add", "remove", "lie")):
            case "move" if self._stable:
                site = rng.choice(self._stable)
                yield from self._move(at_ms, site)
                if rng.random() < 0.2:
                    yield from self._move(at_ms + rng.choice((1.0, 10.0, 60.0)), site)
            case "link":
                a, b = rng.sample(self._present(), 2) if len(self._present()) > 1 else (self._root, self._root)
                if a != b:
                    yield self._set(at_ms, a, b)
            case "pace" if self._links:
                yield self._set(at_ms, *sorted(rng.choice(sorted(map(sorted, self._links)))))
            case "unlink" if self._links:
                a, b = rng.choice(sorted(map(sorted, self._links)))
                del self._links[frozenset((a, b))]
                yield self._told(at_ms, LinkRemoved(a, b, self._next()))
            case "add":
                for site in [each for each in self._spare if each not in self._there][:1]:
                    self._there.add(site)
                    above = rng.choice([each for each in self._present() if each != site])
                    yield self._told(at_ms, SiteSet(Station(Site(site)), self._next()))
                    yield self._set(at_ms, site, above)
            case "remove" if self._there:
                site = rng.choice(sorted(self._there))
                self._there.discard(site)
                yield self._told(at_ms, SiteRemoved(site, self._next()))
            case "lie" if self._version:
                a, b = rng.sample(self._present(), 2) if len(self._present()) > 1 else (self._root, self._root)
                if a != b and (link := self._links.get(frozenset((a, b)))) is not None:
                    version = self._next()
                    for latency_ms in (link.latency_ms, link.latency_ms + 1.0):
                        told = LinkSet(a, b, Link(latency_ms, link.bandwidth_mbps, loss=link.loss), version)
                        yield Change(at_ms, told, (rng.uniform(1.0, 20.0),), happens=False)

    def _move(self, at_ms: float, site: SiteId) -> Iterator[Change]:
        neighbours = sorted(next(iter(pair - {site})) for pair in self._links if site in pair)
        targets = [each for each in self._present() if each != site and each not in neighbours]
        if neighbours and targets:
            source, target = self._rng.choice(neighbours), self._rng.choice(targets)
            link = self._links[frozenset((site, target))] = self._link()
            del self._links[frozenset((site, source))]
            yield self._told(at_ms, SiteMoved(site, source, target, link, self._next()))

    def _heal(self, at_ms: float) -> Iterator[Change]:
        reached = {self._root}
        present = self._present()
        while True:
            more = {site for pair in self._links if pair & reached for site in pair if site in present} - reached
            if more:
                reached |= more
                continue
            lost = [site for site in present if site not in reached]
            if not lost:
                return
            yield self._set(at_ms, lost[0], self._root)

    def _set(self, at_ms: float, a: SiteId, b: SiteId) -> Change:
        link = self._links[frozenset((a, b))] = self._link()
        return self._told(at_ms, LinkSet(a, b, link, self._next()))

    def _told(self, at_ms: float, event: TopologyEvent) -> Change:
        rng = self._rng
        told = tuple(rng.uniform(1.0, 60.0) for _ in range(rng.choice((1, 1, 2))))
        return Change(at_ms, event, told, breaks=rng.random() < 0.6)

    def _link(self) -> Link:
        return Link(self._rng.choice(LATENCIES_MS), self._rng.choice((10.0, 100.0)))

    def _present(self) -> list[SiteId]:
        return [self._root, *self._stable, *sorted(self._there)]

    def _next(self) -> int:
        self._version += 1
        return self._version


def links_of(event: TopologyEvent) -> Iterator[tuple[SiteId, SiteId, Link | None]]:
    """The links that are so, or are gone (None), by an event."""
    match event:
        case LinkSet(a, b, link):
            yield a, b, link
        case LinkRemoved(a, b):
            yield a, b, None
        case SiteMoved(site, source, target, link):
            yield site, target, link
            yield site, source, None
        case _:
            pass
