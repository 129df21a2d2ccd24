"""Sources that roam (Falcon III-F): their keys follow them, in two moves, without a row lost or out of order.

A router notices rows of a key that is owned below another child (`Stray`), and sends them down there meanwhile. The
first move brings the key up to that router, where all paths of the source meet; the second, once the source has stayed
`dwell_ms` at one site, down to that site. Back during the first: it finishes, the router above serves both. Back (or
further away) during the second: it is cancelled. Order while a source is in doubt is kept by the host, see `Row.prev`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from peregrine.core.attachments import Attachments
from peregrine.core.coordinator import Coordinator, PlanEnded, Status
from peregrine.core.keyspace import KeySet
from peregrine.core.messages import Attached, Stray, Tick
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.topology import Topology
from peregrine.errors import PlanError
from peregrine.types import OpId, SiteId, SourceId, site_of


class Phase(StrEnum):
    UP = "up"  # first move
    DWELL = "dwell"  # at the router above, waiting for the source to settle
    DOWN = "down"  # second move


@dataclass(slots=True)
class Trip:
    op: OpId
    key: str
    source: SourceId
    phase: Phase
    plan: str
    target: SiteId


@dataclass(frozen=True, slots=True)
class Propose:
    plan: Plan


@dataclass(frozen=True, slots=True)
class GiveUp:
    plan: str


MobilityEvent = Stray | Attached | Tick | PlanEnded
MobilityEffect = Propose | GiveUp


class Mobility:
    def __init__(self, coordinator: Coordinator, attachments: Attachments, dwell_ms: int = 5000) -> None:
        self._coordinator = coordinator
        self.dwell_ms = dwell_ms
        self._attachments = attachments
        self._since_ms: dict[SourceId, int] = {}
        self._moves: dict[SourceId, int] = {}  # how often each source has moved, as far as is known
        self.trips: dict[tuple[OpId, str], Trip] = {}
        self._count = 0

    @property
    def _topology(self) -> Topology:
        return self._coordinator.placement.topology

    def step(self, event: MobilityEvent) -> list[MobilityEffect]:
        match event:
            case Attached():
                return list(self._attached(event))
            case Stray():
                return list(self._stray(event))
            case PlanEnded(plan, outcome):
                self._ended(plan, outcome)
                return []
            case Tick(now_ms):
                return [effect for trip in list(self.trips.values()) for effect in self._settled(trip, now_ms)]

    def is_old(self, news: Attached) -> bool:
        """Is something newer known of where its source is?"""
        return news.nth < self.next_nth(news.source)

    def next_nth(self, source: SourceId) -> int:
        """Of a source that was gone and comes back, at least."""
        return self._moves.get(source, 0)

    def _attached(self, news: Attached) -> Iterable[MobilityEffect]:
        site, source = news.site, news.source
        if news.gone:  # rows of it may still be under way from where it is known to be
            self._moves[source] = news.nth + 1
            return
        self._moves[source] = news.nth
        if self._attachments.attach(source, site) != site:
            self._since_ms[source] = news.now_ms
        for trip in self.trips.values():
            if trip.source == source and trip.phase is Phase.DOWN and trip.target != site:
                yield GiveUp(trip.plan)

    def _stray(self, stray: Stray) -> Iterable[MobilityEffect]:
        at = (stray.op, stray.key)
        trip = self.trips.get(at)
        if trip is not None and trip.phase is not Phase.DWELL:
            return
        owner = self._coordinator.placement.owner(*at)
        if stray.site not in self._topology:
            return  # it has left meanwhile
        if site_of(owner) == stray.site or not self._topology.is_at_or_above(stray.site, site_of(owner)):
            return  # the news is older than what the manager already did
        move = Move(stray.op, self._keys(*at), owner, self._topology.main_place(stray.site), anchor=stray.site)
        yield from self._go(Trip(stray.op, stray.key, stray.source, Phase.UP, "", stray.site), move)

    def _settled(self, trip: Trip, now_ms: int) -> Iterable[MobilityEffect]:
        if trip.phase is not Phase.DWELL or now_ms - self._since_ms.get(trip.source, now_ms) < self.dwell_ms:
            return
        site = self._attachments.at(trip.source)
        owner = self._coordinator.placement.owner(trip.op, trip.key)
        if (
            site is None
            or site not in self._topology
            or site_of(owner) == site
            or not self._topology.is_at_or_above(site_of(owner), site)
        ):
            del self.trips[trip.op, trip.key]
            return
        move = Move(trip.op, self._keys(trip.op, trip.key), owner, self._topology.main_place(site))
        yield from self._go(Trip(trip.op, trip.key, trip.source, Phase.DOWN, "", site), move)

    def _go(self, trip: Trip, move: Move) -> Iterable[MobilityEffect]:
        plan = Plan(f"roam{self._count}-{trip.phase}", ((move,),), note=f"{trip.source} roams")
        if self._coordinator.busy(move.op, move.keys):
            return  # somebody else moves it now: the next stray or tick tries again
        try:
            self._coordinator.check(plan)
        except PlanError:
            # Other sources of the key are elsewhere, or a consumer is not above: it stays where all of them meet.
            self.trips.pop((trip.op, trip.key), None)
            return
        self._count += 1
        trip.plan = plan.id
        self.trips[trip.op, trip.key] = trip
        yield Propose(plan)

    def _ended(self, plan: Plan, outcome: Status) -> None:
        for at, trip in list(self.trips.items()):
            if trip.plan != plan.id:
                continue
            if trip.phase is Phase.DOWN and outcome is Status.DONE:
                del self.trips[at]
            else:
                trip.phase = Phase.DWELL

    def _keys(self, op: OpId, key: str) -> KeySet:
        groups = self._coordinator.placement.operators[op].groups
        return KeySet.of_keys(groups, [key])
