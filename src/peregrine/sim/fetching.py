"""Chunks in simulation: a store at each site that survives crashes, fetches that take time, and a collector.

A fetch takes a few chunks at a time, with the latency and the bandwidth of the links between. It ends with its router,
and waits while a router or a link on the way is down. The collector has no grace period: whatever is referred to only
by what was not written down yet, or not pinned yet, is gone at once.
"""

from collections.abc import Mapping
from typing import Protocol

from peregrine.core.chunks import MemoryChunks
from peregrine.core.messages import ChunksHere, Fetch, Single
from peregrine.core.router import Router
from peregrine.sim.network import SimLink
from peregrine.sim.world import World
from peregrine.types import OpId, PlaceId, SiteId

RETRY_MS = 60.0


class HostWithReferences(Protocol):
    @property
    def references(self) -> Mapping[tuple[OpId, int], set[bytes]]: ...


class SiteWithChunks(Protocol):
    site: SiteId
    machine: Router
    up: bool
    chunks: MemoryChunks
    links: dict[SiteId, SimLink]

    @property
    def hosts(self) -> Mapping[PlaceId, HostWithReferences]: ...
    def offer(self, event: Single) -> bool: ...


class SimFetch:
    """One fetch of one life of a router."""

    def __init__(
        self, world: World, near: SiteWithChunks, sites: Mapping[SiteId, SiteWithChunks], fetch: Fetch
    ) -> None:
        self._world = world
        self._near = near
        self._sites = sites
        self._fetch = fetch
        self._machine = near.machine  # a router that was restarted has another one
        self._moved = 0

    def go_on(self) -> None:
        near, fetch = self._near, self._fetch
        if not self._wanted():
            return
        lacking = [name for name in fetch.names if not near.chunks.has(name)]
        if not lacking:
            near.offer(ChunksHere(fetch.number, self._moved))
            return
        way = self._way()
        if way is None:
            self._world.after(RETRY_MS, self.go_on)
            return
        origin = self._sites[fetch.origin].chunks
        data = [origin.get(name) for name in lacking[: self._world.rng.randint(1, 4)]]
        delay_ms = sum(2 * link.latency_ms + sum(map(len, data)) * 8 / (link.bandwidth_mbps * 1000) for link in way)
        self._world.after(delay_ms, lambda: self._arrive(data))

    def _arrive(self, data: list[bytes]) -> None:
        if self._wanted() and self._way() is not None:
            for chunk in data:
                self._near.chunks.put(chunk)
                self._moved += len(chunk)
        self.go_on()

    def _wanted(self) -> bool:
        same_life = self._near.up and self._near.machine is self._machine
        return same_life and any(pending.number == self._fetch.number for pending in self._machine.fetches())

    def _way(self) -> list[SimLink] | None:
        """The links to the origin; None if something on the way is down."""
        way: list[SimLink] = []
        at = self._near
        while at.site != self._fetch.origin:
            ways = at.machine.ways
            hop = ways.below.get(self._fetch.origin) or ways.parent
            if hop is None or hop not in at.links or len(way) > len(self._sites):
                return None  # somebody is changing its parent just now
            link, at = at.links[hop], self._sites[hop]
            if not link.up or not at.up:
                return None
            way.append(link)
        return way


def collect(site: SiteWithChunks) -> None:
    """Remove the chunks of a site that nobody needs."""
    if site.up and site.chunks.chunks:
        needed = {name for host in site.hosts.values() for names in host.references.values() for name in names}
        site.chunks.keep_only(needed | site.machine.pinned())
