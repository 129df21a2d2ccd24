"""C: the site that changes its parent, and what wants to go up from it meanwhile (docs/decisions/0022).

The rule: C takes nothing more from P before it tells what it has of P. What P may lack goes first, with the numbers by
which M finds repeats; all that follows goes to M's fence, until that has opened and nothing is missing that only the
fence could judge. What wants to go up from a site that has no parent waits for one.
"""

from collections.abc import Container
from dataclasses import dataclass, field

from peregrine.core.claims import Claims, keys_where
from peregrine.core.messages import HandBack, HandedBack, Rehome
from peregrine.core.migrate import Role
from peregrine.core.ports import Ports
from peregrine.core.rehoming import Fenced, Join, Rehoming, Said, Word
from peregrine.core.routes import Down, InLeg, Local, Route
from peregrine.core.rows import Item
from peregrine.types import MigrationId, SiteId, site_of


@dataclass(slots=True)
class Leaving:
    """On its way from one parent to the other."""

    rehoming: Rehoming
    hand_back: HandBack | None  # what it waits for
    fencing: bool
    waiting: list[Item] = field(default_factory=list)  # for what P may lack: that goes first
    opened: bool = False


class Home:
    def __init__(self, router: Ports) -> None:
        self._router = router
        self._number = 0  # of the last rehoming in which this site is C
        self.leaving: Leaving | None = None
        self.homeless: list[Item] = []  # what wants to go up from a site that has no parent (yet, or any more)
        self._left: dict[SiteId, int] = {}  # parents that it left for none, and the session that was not ended

    def begin(self, command: Rehome, over: Container[MigrationId]) -> None:
        """A command that is repeated only gets an answer. `over`: the word of whose gates has passed here."""
        rehoming, ways, router = command.rehoming, self._router.ways, self._router
        if self.leaving is not None and rehoming.number >= self._number:
            if rehoming.number == self._number:
                return
            raise router.protocol_error(f"{rehoming} while {self.leaving.rehoming} is not over")
        if rehoming.number <= self._number:
            router.rehomed(rehoming.number)
            return
        if rehoming.source != ways.parent or rehoming.target in command.sites:
            raise router.protocol_error(f"{rehoming}, whose parent is {ways.parent}")
        self._number = rehoming.number
        for gone in [site for site in ways.below if site not in command.sites]:
            del ways.below[gone]
        if rehoming.target is None:
            router.up(Word(Said.LEAVE, rehoming))
            if ways.parent is not None:
                self._left[ways.parent] = router.intake.session(ways.parent)
            ways.parent = None
            ways.below.clear()  # they have left before it
            router.rehomed(rehoming.number)
            return
        hand_back, mark = None, -1
        if rehoming.source is not None:
            session = router.intake.session(rehoming.source)
            mark = router.intake.end_session(rehoming.source)
            hand_back = HandBack(rehoming.source, session, None)
            router.hand_back(hand_back)
        ways.parent = rehoming.target
        if self._left.pop(rehoming.target, None) != router.intake.session(rehoming.target):
            # Else the two just go on, behind what there was still to tell when it left.
            router.intake.begin_session(rehoming.target, rehoming.number)
        gates = tuple(m for m in command.gates if m.id not in over)
        sites = (router.site, *ways.below)
        router.to_neighbour(rehoming.target, Join(rehoming, mark, sites, self._claims(), gates))
        self.leaving = Leaving(rehoming, hand_back, fencing=rehoming.source is not None)
        homeless, self.homeless = self.homeless, []
        for item in homeless:
            router.up(item)

    def _claims(self) -> Claims:
        """The keys that are here or below, and not only on their way here."""
        return keys_where(self._router.table, self._is_claimed)

    def _is_claimed(self, route: Route) -> bool:
        if isinstance(route, InLeg) and route.role is Role.ANCHOR:
            leg = self._router.legs.book.get(route.migration, route.role)
            return leg is not None and self._router.ways.has(site_of(leg.migration.source))
        return isinstance(route, Local | Down | InLeg)

    def fences(self, item: Item) -> bool:
        """What goes up from a site that is on its way: False if it just goes."""
        leaving = self.leaving
        if self._router.ways.parent is None and not self._router.ways.is_root:
            self.homeless.append(item)
            return True
        if leaving is None or not leaving.fencing:
            return False
        if leaving.hand_back is not None:
            leaving.waiting.append(item)
        else:
            self._router.to_neighbour(self._parent(), Fenced(leaving.rehoming, item))
        return True

    def handed_back(self, back: HandedBack) -> None:
        leaving = self.leaving
        if leaving is not None and leaving.hand_back is not None and back.answers(leaving.hand_back):
            self._resend(leaving, back)

    def _resend(self, leaving: Leaving, back: HandedBack) -> None:
        """What P may not have, with the numbers by which M finds out; then what has come meanwhile."""
        leaving.hand_back = None
        for number, item in enumerate(back.items, start=back.first_seq):
            self._router.to_neighbour(self._parent(), Fenced(leaving.rehoming, item, number))
        for item in leaving.waiting:
            self._router.up(item)
        leaving.waiting.clear()
        if leaving.opened:
            self._settle(leaving)

    def opened(self, word: Word) -> None:
        leaving = self._my(word)
        if leaving.hand_back is None:
            self._settle(leaving)
        else:
            leaving.opened = True  # only the fence finds repeats among what is handed back

    def _settle(self, leaving: Leaving) -> None:
        leaving.fencing = False
        self._router.up(Word(Said.SETTLE, leaving.rehoming))

    def settled(self, word: Word) -> None:
        self._my(word)
        self.leaving = None
        self._router.rehomed(word.rehoming.number)

    def _my(self, word: Word) -> Leaving:
        assert self.leaving is not None and self.leaving.rehoming == word.rehoming, f"{word} for another"
        return self.leaving

    def _parent(self) -> SiteId:
        assert self._router.ways.parent is not None
        return self._router.ways.parent
