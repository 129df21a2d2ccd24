"""Which links are there, by what their ends say: suspected when they fall silent, lost when they stay so (ISQD 3.1).

A site tells, again and again, to which neighbours it delivers. A link is heard while both of its ends tell so; a site
that is dead, hangs or cannot be asked tells nothing, so all of its links fall silent. What becomes of a link:

    UP         -- silent for suspect_ms --> SUSPECTED   nothing is told: it may be back in a moment
    SUSPECTED  -- heard -->                 UP
    SUSPECTED  -- silent for lost_ms -->    DOWN        LinkRemoved
    DOWN       -- heard -->                 RETURNING
    RETURNING  -- silent for suspect_ms --> DOWN        nothing is told: it was never back
    RETURNING  -- heard for steady_ms -->   UP          LinkSet, with a higher version

So a link that flaps is no flood of events: from LinkRemoved to LinkSet it takes steady_ms, and from there to the next
LinkRemoved lost_ms - suspect_ms, at least. A site all of whose links are lost is lost; that is no event of its own, for
`SiteRemoved` means a site that is to leave and still runs.

Times are handed in. Time in which nobody looked is not silence: of a longer gap between two looks only a fourth of
suspect_ms counts, as if the observer had slept and had not lost everything meanwhile. So it has to look more often.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from peregrine.core.topology import Link, Topology
from peregrine.errors import ConfigurationError
from peregrine.plan.redeploy.events import LinkRemoved, LinkSet
from peregrine.types import SiteId

Ends = tuple[SiteId, SiteId]


class Health(StrEnum):
    UP = "up"
    SUSPECTED = "suspected"
    DOWN = "down"
    RETURNING = "returning"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a link must be silent to be suspected and to be lost, and heard to be back."""

    suspect_ms: int = 2000
    lost_ms: int = 6000
    steady_ms: int = 2000

    def __post_init__(self) -> None:
        if not (4 <= self.suspect_ms <= self.lost_ms and self.steady_ms > 0):
            raise ConfigurationError(
                f"links are suspected after {self.suspect_ms} ms, lost after {self.lost_ms} ms "
                f"and back after {self.steady_ms} ms",
                "give times above 0 (suspect_ms: from 4 on), and suspect not later than you give up",
            )


@dataclass(slots=True)
class _Watched:
    link: Link
    health: Health
    told_ms: dict[SiteId, int]  # when each end last told that it delivers to the other
    since_ms: int  # when it came back, while it is RETURNING

    @property
    def heard_ms(self) -> int:
        return min(self.told_ms.values())


class Detector:
    def __init__(self, patience: Patience, now_ms: int, first_version: int = 1) -> None:
        """Versions grow from `first_version` on: one that begins anew must begin above what was told before."""
        self._patience = patience
        self._version = first_version - 1
        self._last_ms = now_ms
        self._now_ms = 0  # time that was looked at
        self._links: dict[Ends, _Watched] = {}
        self._gap_ms = patience.suspect_ms // 4

    # --- what happens to it ---

    def watch(self, a: SiteId, b: SiteId, link: Link) -> None:
        """A link that is there by plan: heard now, and missed from then on. Of one that is watched, how it is now."""
        ends = _ends(a, b)
        if ends in self._links:
            self._links[ends].link = link
        else:
            self._links[ends] = _Watched(link, Health.UP, {a: self._now_ms, b: self._now_ms}, self._now_ms)

    def watch_all(self, topology: Topology) -> None:
        for site in topology.sites:
            above = topology.parent(site)
            if above is not None:
                self.watch(site, above, topology.link(site))

    def unwatch(self, a: SiteId, b: SiteId) -> None:
        """A link that is gone by plan: nobody misses it."""
        self._links.pop(_ends(a, b), None)

    def told(self, site: SiteId, delivers_to: Iterable[SiteId], now_ms: int) -> None:
        """A site says to whom it delivers. Of links that are not watched nothing is noted."""
        self._pass(now_ms)
        for other in delivers_to:
            watched = self._links.get(_ends(site, other))
            if watched is not None:
                watched.told_ms[site] = self._now_ms

    def tick(self, now_ms: int) -> list[LinkRemoved | LinkSet]:
        """What has become of the links. Not judged when one end tells: the other may be about to."""
        self._pass(now_ms)
        return [event for ends in self._links if (event := self._verdict(*ends)) is not None]

    # --- what is asked of it ---

    @property
    def health(self) -> Mapping[Ends, Health]:
        return {ends: watched.health for ends, watched in self._links.items()}

    @property
    def lost_sites(self) -> frozenset[SiteId]:
        """Sites that have links, and all of them are lost."""
        there = {site for ends, each in self._links.items() if not _is_lost(each) for site in ends}
        return frozenset(site for ends in self._links for site in ends) - there

    def _pass(self, now_ms: int) -> None:
        self._now_ms += min(max(now_ms - self._last_ms, 0), self._gap_ms)
        self._last_ms = max(now_ms, self._last_ms)

    def _verdict(self, a: SiteId, b: SiteId) -> LinkRemoved | LinkSet | None:
        watched = self._links[a, b]
        silent_ms = self._now_ms - watched.heard_ms
        is_silent = silent_ms >= self._patience.suspect_ms
        match watched.health:
            case Health.UP | Health.SUSPECTED if silent_ms >= self._patience.lost_ms:
                watched.health = Health.DOWN
                return LinkRemoved(a, b, self._next_version())
            case Health.UP | Health.SUSPECTED:
                watched.health = Health.SUSPECTED if is_silent else Health.UP
            case Health.DOWN if not is_silent:
                watched.health, watched.since_ms = Health.RETURNING, self._now_ms
            case Health.RETURNING if is_silent:
                watched.health = Health.DOWN
            case Health.RETURNING if watched.heard_ms - watched.since_ms >= self._patience.steady_ms:
                watched.health = Health.UP
                return LinkSet(a, b, watched.link, self._next_version())
            case _:
                pass
        return None

    def _next_version(self) -> int:
        self._version += 1
        return self._version


def _is_lost(watched: _Watched) -> bool:
    return watched.health in (Health.DOWN, Health.RETURNING)


def _ends(a: SiteId, b: SiteId) -> Ends:
    """Of a link that is the same in both directions."""
    return (a, b) if a < b else (b, a)
