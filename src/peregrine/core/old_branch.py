"""The old branch of a rehoming: P, whom C leaves, and the routers from there up to below M (docs/decisions/0022).

The rule: P takes nothing more from C before it tells what it has of C, and returns what C does not have ahead of that.
The others turn C's sites upwards when DETACH passes them, and C's keys when P's word does.
"""

from dataclasses import dataclass, field

from peregrine.core.claims import Claims, keys_where, take_keys, without
from peregrine.core.messages import HandBack, HandedBack
from peregrine.core.ports import Came, Ports
from peregrine.core.rehoming import Detach, Left, Rehoming, Returned
from peregrine.core.routes import Down, InRehoming, Up
from peregrine.core.rows import Item
from peregrine.types import SiteId


@dataclass(slots=True)
class Departure:
    """P: waits for what it has to return."""

    rehoming: Rehoming
    hand_back: HandBack
    mark: int
    keys: Claims


@dataclass(slots=True)
class Parting:
    """Above P: only P knows which keys it had sent down to C, so rows of what C claims wait for its word."""

    rehoming: Rehoming
    child: SiteId
    claims: Claims
    held: list[Came] = field(default_factory=list)


class OldBranch:
    def __init__(self, router: Ports) -> None:
        self._router = router
        self.departures: dict[int, Departure] = {}
        self.partings: dict[int, Parting] = {}

    def detach(self, detach: Detach) -> None:
        """M has changed its ways and routes at JOIN: here it does something only if it is P as well."""
        router, rehoming, ways = self._router, detach.rehoming, self._router.ways
        keys: Claims = ()
        if rehoming.meets != router.site:
            child = ways.below[rehoming.site]
            for site in detach.sites:
                ways.below.pop(site, None)
            if detach.dest != router.site:
                self.partings[rehoming.number] = Parting(rehoming, child, detach.keys)
                take_keys(router.table, detach.keys, Down(child), InRehoming(rehoming.number))
            else:
                keys = keys_where(router.table, lambda route: route == Down(child))
                router.table.replace(Down(child), Up())
        if detach.dest == router.site:
            session = router.intake.session(rehoming.site)
            mark = router.intake.end_session(rehoming.site)
            hand_back = HandBack(rehoming.site, session, detach.mark)
            self.departures[rehoming.number] = Departure(rehoming, hand_back, mark, keys)
            router.hand_back(hand_back)

    def handed_back(self, back: HandedBack) -> None:
        for number, departure in list(self.departures.items()):
            if back.answers(departure.hand_back):
                del self.departures[number]
                for item in self._to_return(back):
                    self._router.receive(Returned(departure.rehoming, item), None)
                self._router.receive(Left(departure.rehoming, departure.mark, departure.keys), None)

    def _to_return(self, back: HandedBack) -> tuple[Item, ...]:
        return back.items

    def left(self, left: Left) -> None:
        """P's word passes."""
        router, number = self._router, left.rehoming.number
        parting = self.partings.pop(number, None)
        router.up(left)
        if parting is not None:
            # Of keys that C claims, what a marker has taught meanwhile holds; of others P's word.
            take_keys(router.table, without(left.keys, parting.claims), Down(parting.child), Up())
            take_keys(router.table, left.keys, InRehoming(number), Up())
            router.table.replace(InRehoming(number), Down(parting.child))
            for item, came in parting.held:
                router.receive(item, came)
