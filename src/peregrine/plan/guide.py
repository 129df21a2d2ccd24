"""The guide: knows where routers and devices are, and which router each device should use (Falcon III-F; ETSI MEC).

Routers register and renew; one that does not for `lease_ms` is gone. Devices say which router they use whenever they
ask, so nothing has to be remembered for them but where they were seen last, and a guide that begins anew knows what it
needs as soon as everybody has spoken. Until a lease has passed it sends nobody away from a router that it does not know
yet. Times are handed in; they need not be those of any other machine, except that of a sighting, which its observer
gives: of two sightings of a device the later one counts.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from peregrine.errors import ConfigurationError
from peregrine.plan.nearest import Coverage, Geometry, Position, Whereabouts, check
from peregrine.types import SiteId, SourceId


@dataclass(frozen=True, slots=True)
class Sighting:
    """A device was at a position, at a time of its observer."""

    device: SourceId
    position: Position
    time_ms: int


@dataclass(frozen=True, slots=True)
class Use:
    """A device uses the router of a site, which it has found at an address (`host:port`; empty: it has none)."""

    device: SourceId
    site: SiteId
    address: str


@dataclass(frozen=True, slots=True)
class Notice:
    """To a device: use the router of this site, at this address."""

    device: SourceId
    site: SiteId
    address: str


@dataclass(slots=True)
class _Seen:
    sighting: Sighting
    heard_ms: int  # when somebody last spoke of the device, by the clock of the guide


class Guide:
    def __init__(
        self, geometry: Geometry, now_ms: int, margin_m: float, lease_ms: int, forget_ms: int = 600_000
    ) -> None:
        """What nobody has spoken of for `forget_ms` is forgotten: a device that asks again says where it is."""
        if not (margin_m >= 0 and lease_ms > 0 and forget_ms > 0):
            raise ConfigurationError(
                f"a guide with a margin of {margin_m} m, leases of {lease_ms} ms, forgetting after {forget_ms} ms",
                "give a margin of 0 or more, and times above 0",
            )
        self.margin_m = margin_m
        self._lease_ms = lease_ms
        self._forget_ms = forget_ms
        self._began_ms = now_ms
        self._now_ms = now_ms
        self._knew_all = False
        self._geometry = geometry
        self._routers: dict[SiteId, Whereabouts] = {}
        self._covered: Coverage | None = None  # made when it is asked for: many routers may register at once
        self._renewed_ms: dict[SiteId, int] = {}
        self._seen: dict[SourceId, _Seen] = {}

    # --- what happens to it ---

    def register(self, router: Whereabouts, now_ms: int) -> bool:
        """Also renews. True if what it tells devices may be something else now."""
        self._pass(now_ms)
        check(self._geometry, router.position)
        self._renewed_ms[router.site] = self._now_ms
        if self._routers.get(router.site) == router:
            return False
        self._routers[router.site] = router
        self._covered = None
        return True

    def withdraw(self, site: SiteId, now_ms: int) -> bool:
        self._pass(now_ms)
        return self._remove([site] if site in self._routers else [])

    def see(self, sightings: Iterable[Sighting], now_ms: int) -> set[SourceId]:
        """Which of the devices are somewhere else now."""
        self._pass(now_ms)
        sightings = tuple(sightings)
        for sighting in sightings:
            check(self._geometry, sighting.position)
        moved = set()
        for sighting in sightings:
            seen = self._seen.get(sighting.device)
            if seen is None or sighting.time_ms > seen.sighting.time_ms:
                self._seen[sighting.device] = _Seen(sighting, self._now_ms)
                moved.add(sighting.device)
            elif sighting == seen.sighting:
                seen.heard_ms = self._now_ms
        return moved

    def tick(self, now_ms: int) -> bool:
        """Leases end, and what is old is forgotten. True if what it tells devices may be something else now."""
        self._pass(now_ms)
        settled = not self._knew_all and self._knows_all
        self._knew_all = self._knows_all
        over = [site for site, renewed_ms in self._renewed_ms.items() if self._now_ms - renewed_ms > self._lease_ms]
        old = [device for device, seen in self._seen.items() if self._now_ms - seen.heard_ms > self._forget_ms]
        for device in old:
            del self._seen[device]
        return self._remove(over) or settled

    # --- what is asked of it ---

    @property
    def routers(self) -> tuple[Whereabouts, ...]:
        return tuple(self._routers.values())

    @property
    def devices(self) -> int:
        return len(self._seen)

    def nearest(self, position: Position) -> Whereabouts | None:
        site = self._coverage.nearest(position)
        return None if site is None else self._routers[site]

    def notices(self, uses: Iterable[Use]) -> list[Notice]:
        """To those who should use another router, or find theirs at another address."""
        return [notice for use in uses if (notice := self._notice(use)) is not None]

    def _notice(self, use: Use) -> Notice | None:
        site: SiteId | None = use.site
        seen = self._seen.get(use.device)
        if seen is not None and (use.site in self._routers or self._knows_all):
            site = self._coverage.choice(seen.sighting.position, use.site, self.margin_m)
        router = self._routers.get(site) if site is not None else None
        if router is None or (router.site, router.address) == (use.site, use.address):
            return None
        return Notice(use.device, router.site, router.address)

    @property
    def _knows_all(self) -> bool:
        """Whoever lives has renewed since it began."""
        return self._now_ms - self._began_ms > self._lease_ms

    @property
    def _coverage(self) -> Coverage:
        if self._covered is None:
            self._covered = Coverage(self._geometry, self._routers.values())
        return self._covered

    def _remove(self, sites: list[SiteId]) -> bool:
        for site in sites:
            del self._routers[site], self._renewed_ms[site]
        if sites:
            self._covered = None
        return bool(sites)

    def _pass(self, now_ms: int) -> None:
        self._now_ms = max(self._now_ms, now_ms)
