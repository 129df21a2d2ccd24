"""What a router does about sites that change their parents: as the site itself, as its old parent, on either branch,
and where the two ways meet (docs/decisions/0022; the names C, P, Q, M are those of `core/rehoming.py`).

The rule: what one site sends to another arrives once and in causal order, also across the change. So C's items wait at
M's fence until P has told what it has of C, M holds what is for C until P has returned what C does not have, and the
new branch takes the short way only when all that went the long way is through.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from peregrine.core.intake import Intake
from peregrine.core.keyspace import KeySet
from peregrine.core.legs import Legs
from peregrine.core.mechanisms.program import On
from peregrine.core.messages import HandBack, HandedBack, Rehome
from peregrine.core.migrate import Role
from peregrine.core.rehoming import Claims, Detach, Fenced, Join, Left, Message, Rehoming, Returned, Said, Word
from peregrine.core.routes import Down, InLeg, InRehoming, Local, Route, Up
from peregrine.core.rows import Clock, Item, Marker, Rows, split_keys
from peregrine.core.rules import RuleTable
from peregrine.core.ways import Ways
from peregrine.errors import ProtocolError
from peregrine.types import MigrationId, OpId, SiteId, site_of

REMEMBERED = 10_000  # migrations whose gates need nobody to stand in for them any more
Came = tuple[Item, SiteId | None]  # an item, and the neighbour that it came from


class Ports(Protocol):
    """What rehomings need of their router."""

    site: SiteId
    table: RuleTable[Route]
    ways: Ways
    intake: Intake
    legs: Legs

    def receive(self, item: Item, via: SiteId | None) -> None: ...
    def route(self, item: Rows | Clock, via: SiteId | None = None) -> None: ...
    def to_neighbour(self, neighbour: SiteId, item: Item) -> None: ...
    def up(self, item: Item) -> None: ...
    def hand_back(self, wanted: HandBack) -> None: ...
    def rehomed(self, number: int) -> None: ...
    def protocol_error(self, what: str) -> ProtocolError: ...


@dataclass(slots=True)
class Leaving:
    """C: on its way from one parent to the other."""

    rehoming: Rehoming
    hand_back: HandBack | None  # what it waits for
    fencing: bool
    waiting: list[Item] = field(default_factory=list)  # for what P may lack: that goes first
    opened: bool = False


@dataclass(slots=True)
class Departure:
    """P: waits for what it has to return."""

    rehoming: Rehoming
    hand_back: HandBack
    mark: int
    keys: Claims


@dataclass(slots=True)
class Parting:
    """The old branch: only P knows which keys it had sent down to C, so rows of what C claims wait for its word."""

    rehoming: Rehoming
    child: SiteId
    claims: Claims
    held: list[Came] = field(default_factory=list)


@dataclass(slots=True)
class Turn:
    """M: holds everything until P has left."""

    rehoming: Rehoming
    child: SiteId
    sites: frozenset[SiteId]
    claims: Claims  # until P has told which of these keys it had sent down to C
    old_child: SiteId
    fenced: list[tuple[Fenced, SiteId | None]] = field(default_factory=list)
    held: list[Came] = field(default_factory=list)
    left: int | None = None  # the last item that P has of C


@dataclass(slots=True)
class Approach:
    """The new branch."""

    rehoming: Rehoming
    child: SiteId
    sites: frozenset[SiteId]
    settling: bool = False
    held: list[Came] = field(default_factory=list)


class Rehomings:
    def __init__(self, router: Ports) -> None:
        self._router = router
        self._number = 0  # of the last one in which this site is C
        self.leaving: Leaving | None = None
        self.departures: dict[int, Departure] = {}
        self.partings: dict[int, Parting] = {}
        self.turns: dict[int, Turn] = {}
        self.approaches: dict[int, Approach] = {}
        self.homeless: list[Item] = []  # what wants to go up from a site that has no parent (yet, or any more)
        self._left: dict[SiteId, int] = {}  # parents that it left for none, and the session that was not ended
        self._joined: dict[SiteId, int] = {}  # sites that have come by here -> the last rehoming that brought them
        self._over: OrderedDict[MigrationId, None] = OrderedDict()  # the word of whose gates has passed here

    # --- C ---

    def begin(self, command: Rehome) -> None:
        """A command that is repeated only gets an answer."""
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
        gates = tuple(m for m in command.gates if m.id not in self._over)
        sites = (router.site, *ways.below)
        router.to_neighbour(rehoming.target, Join(rehoming, mark, sites, self._claims(), gates))
        self.leaving = Leaving(rehoming, hand_back, fencing=rehoming.source is not None)
        homeless, self.homeless = self.homeless, []
        for item in homeless:
            router.up(item)

    def _claims(self) -> Claims:
        """The keys that are here or below, and not only on their way here."""
        return self._keys_where(self._is_claimed)

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

    def _on_opened(self, word: Word) -> None:
        leaving = self._my(word)
        if leaving.hand_back is None:
            self._settle(leaving)
        else:
            leaving.opened = True  # only the fence finds repeats among what is handed back

    def _settle(self, leaving: Leaving) -> None:
        leaving.fencing = False
        self._router.up(Word(Said.SETTLE, leaving.rehoming))

    def _my(self, word: Word) -> Leaving:
        assert self.leaving is not None and self.leaving.rehoming == word.rehoming, f"{word} for another"
        return self.leaving

    # --- what arrives ---

    def on_message(self, message: Message, via: SiteId | None) -> None:
        match message:
            case Join():
                self._on_join(message, via)
            case Detach():
                self._on_detach(message)
            case Returned(item=item):
                if message.dest == self._router.site:
                    self._router.receive(item, self._router.ways.parent)
                else:
                    self._teach(item)
                    self._forward(message, via)
            case Left():
                self._on_left(message, via)
            case Fenced():
                self._on_fenced(message, via)
            case Word(Said.OPENED) if message.dest == self._router.site:
                self._on_opened(message)
            case Word(Said.SETTLE):
                self._on_settle(message)
            case Word(Said.SETTLED):
                self._on_settled(message)
            case Word(Said.LEAVE):
                self._on_leave(message, via)
            case _:
                self._forward(message, via)

    def _on_join(self, join: Join, via: SiteId | None) -> None:
        router, rehoming = self._router, join.rehoming
        assert via is not None
        self._joined.update(dict.fromkeys(join.sites, rehoming.number))
        if rehoming.source is None:  # nothing was ever sent to it or by it
            router.ways.below.update(dict.fromkeys(join.sites, via))
            if join.dest == router.site:
                router.to_neighbour(via, Word(Said.SETTLED, rehoming))
            else:
                router.up(join)
        elif join.dest != router.site:
            self.approaches[rehoming.number] = Approach(rehoming, via, frozenset(join.sites))
            self._take_keys(join.keys, Up(), InRehoming(rehoming.number))
            router.up(join)
        else:
            self._turn(join, via)

    def _turn(self, join: Join, via: SiteId) -> None:
        router, rehoming = self._router, join.rehoming
        old_child = router.ways.below[rehoming.site]
        claims = join.keys if rehoming.source != router.site else ()
        self.turns[rehoming.number] = Turn(rehoming, via, frozenset(join.sites), claims, old_child)
        if rehoming.source == router.site:
            router.table.replace(Down(old_child), InRehoming(rehoming.number))
        else:
            self._take_keys(claims, Down(old_child), InRehoming(rehoming.number))
        router.ways.below.update(dict.fromkeys(join.sites, via))
        for migration in join.gates:
            if migration.gate in router.ways.below and migration.gate not in join.sites:
                router.legs.stand_in(migration)
        self.on_message(Detach(rehoming, join.mark, join.sites, join.keys), None)

    def _on_detach(self, detach: Detach) -> None:
        router, rehoming, ways = self._router, detach.rehoming, self._router.ways
        keys: Claims = ()
        if rehoming.meets != router.site:
            child = ways.below[rehoming.site]
            for site in detach.sites:
                ways.below.pop(site, None)
            if detach.dest != router.site:
                self.partings[rehoming.number] = Parting(rehoming, child, detach.keys)
                self._take_keys(detach.keys, Down(child), InRehoming(rehoming.number))
            else:
                keys = self._keys_where(lambda route: route == Down(child))
                router.table.replace(Down(child), Up())
        if detach.dest != router.site:
            self._forward(detach, None)
            return
        session = router.intake.session(rehoming.site)
        mark = router.intake.end_session(rehoming.site)
        hand_back = HandBack(rehoming.site, session, detach.mark)
        self.departures[rehoming.number] = Departure(rehoming, hand_back, mark, keys)
        router.hand_back(hand_back)

    def handed_back(self, back: HandedBack) -> None:
        """Told again after a crash it means nothing."""
        leaving = self.leaving
        if leaving is not None and _answers(back, leaving.hand_back):
            self._resend(leaving, back)
        for number, departure in list(self.departures.items()):
            if _answers(back, departure.hand_back):
                del self.departures[number]
                for item in self._to_return(back):
                    self.on_message(Returned(departure.rehoming, item), None)
                self.on_message(Left(departure.rehoming, departure.mark, departure.keys), None)

    def _to_return(self, back: HandedBack) -> tuple[Item, ...]:
        return back.items

    def _on_left(self, left: Left, via: SiteId | None) -> None:
        router, number = self._router, left.rehoming.number
        if left.dest == router.site:
            turn = self.turns[number]
            for op, claimed in turn.claims:
                self._give_back(turn, op, claimed, left.keys)
            self.review()
            self._open(turn, left.mark)
            return
        parting = self.partings.pop(number, None)
        router.up(left)
        if parting is not None:
            # Of keys that C claims, what a marker has taught meanwhile holds; of others P's word.
            self._take_keys(_without(left.keys, parting.claims), Down(parting.child), Up())
            self._take_keys(left.keys, InRehoming(number), Up())
            router.table.replace(InRehoming(number), Down(parting.child))
            for item, came in parting.held:
                router.receive(item, came)

    def _give_back(self, turn: Turn, op: OpId, claimed: KeySet, left: Claims) -> None:
        """Keys that C claims and P had not sent there: how C came by them is still behind the fence."""
        self._take_keys(_without(((op, claimed),), left), InRehoming(turn.rehoming.number), Down(turn.old_child))

    def _on_fenced(self, fenced: Fenced, via: SiteId | None) -> None:
        turn = self.turns.get(fenced.rehoming.number)
        if fenced.dest != self._router.site:
            self._teach_fenced(fenced.item)
            self._router.up(fenced)
        elif turn is None:
            raise self._router.protocol_error(f"a fenced item of {fenced.rehoming}, which is over")
        elif turn.left is None:
            turn.fenced.append((fenced, via))
        else:
            self._pass_fence(fenced, via, turn.left)

    # --- M ---

    def _open(self, turn: Turn, mark: int) -> None:
        """What is said in answer to what is released queues up behind what is held."""
        for fenced, via in turn.fenced:
            self._pass_fence(fenced, via, mark)
            self.review()
        turn.fenced.clear()
        while turn.held:
            item, _ = turn.held.pop(0)
            self._router.to_neighbour(turn.child, item)
        turn.left = mark
        self._router.table.replace(InRehoming(turn.rehoming.number), Down(turn.child))
        self._router.to_neighbour(turn.child, Word(Said.OPENED, turn.rehoming))

    def _pass_fence(self, fenced: Fenced, via: SiteId | None, mark: int) -> None:
        if fenced.number is None or fenced.number > mark:
            self._router.receive(fenced.item, via)

    def _on_settle(self, word: Word) -> None:
        if word.dest == self._router.site:
            turn = self.turns.pop(word.rehoming.number)
            self._router.to_neighbour(turn.child, Word(Said.SETTLED, word.rehoming))
        else:
            self.approaches[word.rehoming.number].settling = True
            self._router.up(word)

    # --- the new branch ---

    def _on_settled(self, word: Word) -> None:
        router, approach = self._router, self.approaches.get(word.rehoming.number)
        if word.dest == router.site:
            self._my(word)
            self.leaving = None
            router.rehomed(word.rehoming.number)
        elif approach is None:
            self._forward(word, router.ways.parent)
        else:
            self._take_the_short_way(approach, word)

    def _take_the_short_way(self, approach: Approach, settled: Word) -> None:
        """What is for C's sites goes ahead of SETTLED, what came from there and turned off follows it: then whatever is
        said in answer to any of it comes where it belongs.
        """
        router, turned_off = self._router, []
        for item, via in approach.held:
            if via == approach.child:
                turned_off.append((item, via))
            else:
                router.to_neighbour(approach.child, item)
        router.to_neighbour(approach.child, settled)
        del self.approaches[approach.rehoming.number]
        router.ways.below.update(dict.fromkeys(approach.sites, approach.child))
        router.table.replace(InRehoming(approach.rehoming.number), Down(approach.child))
        for item, via in turned_off:
            router.receive(item, via)

    # --- where things go meanwhile ---

    def turning(self, site: SiteId) -> int | None:
        """The rehoming that decides about what is for a site, if any."""
        for turn in self.turns.values():
            if site in turn.sites and turn.left is None:
                return turn.rehoming.number
        for approach in self.approaches.values():
            if site in approach.sites:
                return approach.rehoming.number
        return None

    def child_towards(self, dest: SiteId, via: SiteId | None) -> SiteId | None:
        for approach in self.approaches.values():
            if dest in approach.sites:
                # What comes down has been put in order above; all else has to go there first.
                return approach.child if via is not None and via == self._router.ways.parent else None
        return self._router.ways.below.get(dest)

    def turns_off(self, item: Item, via: SiteId | None, stops: bool) -> bool:
        """From a child of which not all is through that went the long way: True if it has to wait for that."""
        for approach in self.approaches.values():
            if approach.settling and via == approach.child and stops:
                approach.held.append((item, via))
                return True
        return False

    def closes(self, output: Rows | Clock, via: SiteId | None) -> bool:
        """Does the word that closes its gate wait here? Then it waits behind that."""
        return any(
            isinstance(held, Marker) and held.role is Role.GATE and held.migration.id == output.gate
            for approach in self.approaches.values()
            for held, _ in approach.held
        ) and self.turns_off(output, via, stops=True)

    def holds(self, item: Item, dest: SiteId, via: SiteId | None) -> bool:
        """An item for a site that is on its way."""
        for approach in self.approaches.values():
            from_above = via is not None and via == self._router.ways.parent
            if approach.settling and dest in approach.sites and not from_above:
                approach.held.append((item, via))
                return True
        for turn in self.turns.values():
            if turn.left is None and dest in turn.sites:
                turn.held.append((item, via))
                return True
        return False

    def treat(self, number: int, item: Rows | Clock, via: SiteId | None) -> None:
        """Rows that rules lead to a site that is on its way."""
        holding, approach = self.turns.get(number) or self.partings.get(number), self.approaches.get(number)
        if holding is not None:
            holding.held.append((item, via))
            return
        assert approach is not None, f"a rule leads to rehoming {number}, which is not open"
        if via is not None and via == self._router.ways.parent:
            self._router.to_neighbour(approach.child, item)
        elif approach.settling:
            approach.held.append((item, via))
        else:
            self._router.up(item)

    def review(self) -> None:
        """Rows that are held for keys of which something else is known now go where that says, ahead of later ones."""
        holdings: list[Turn | Parting | Approach] = [
            *self.turns.values(),
            *self.partings.values(),
            *self.approaches.values(),
        ]
        for holding in holdings:
            held, holding.held = holding.held, []
            for item, via in held:
                if isinstance(item, Rows | Clock) and item.dest is None:
                    self._review(holding, item, via)
                else:
                    holding.held.append((item, via))

    def _review(self, holding: Turn | Parting | Approach, item: Rows | Clock, via: SiteId | None) -> None:
        rest: Rows | Clock | None = item
        for route, keys in self._router.table.partition(item.op, self._everything(item.op)):
            part, rest = split_keys(rest, keys) if rest is not None else (None, None)
            if part is None:
                continue
            if via == holding.child and isinstance(holding, Approach):
                waits = route != Up()
            else:
                waits = route == InRehoming(holding.rehoming.number)
            if waits:
                holding.held.append((part, via))
            else:
                self._router.route(part, via)

    def _forward(self, message: Message, via: SiteId | None) -> None:
        """Past what is held: it was on its way before."""
        child = self.child_towards(message.dest, via)
        if child is not None:
            self._router.to_neighbour(child, message)
        else:
            self._router.up(message)

    # --- what passing items teach ---

    def _teach(self, item: Item) -> None:
        """A marker on a way that it did not take at first."""
        if isinstance(item, Marker):
            if item.moves and site_of(item.migration.target) != self._router.site:  # who has the keys knows it
                self._router.legs.learn_owner(item.migration)
            self.hear(item)

    def _teach_fenced(self, item: Item) -> None:
        """A marker on the new branch that has not passed M. A place that is here or below learns of it from M."""
        if isinstance(item, Marker) and item.moves and not self._router.ways.has(site_of(item.migration.target)):
            self._router.legs.learn_owner(item.migration)

    def hear(self, marker: Marker) -> None:
        """The word of a gate to its target passes, or that there is nothing to wait for: who stands in for it opens."""
        m = marker.migration
        opens = marker.event is On.ACK and marker.role is Role.TARGET and marker.told_by is Role.GATE
        undone = marker.event is On.ABORT and marker.role is Role.TARGET
        undone |= marker.event is On.UNDONE and marker.told_by is Role.SOURCE
        if opens or undone:
            self._over[m.id] = None
            if len(self._over) > REMEMBERED:
                self._over.popitem(last=False)
            self._router.legs.stood_in(m)

    # --- sites that are gone ---

    def _on_leave(self, word: Word, via: SiteId | None) -> None:
        """It may have come back by another way meanwhile, alone or below another that has moved: that is what holds."""
        ways, rehoming = self._router.ways, word.rehoming
        if rehoming.number < self._joined.get(rehoming.site, 0):
            return
        if via is not None and ways.below.get(rehoming.site) == via:
            del ways.below[rehoming.site]
            if ways.parent is not None:
                self._router.up(word)

    # --- keys ---

    def _keys_where(self, wanted: Callable[[Route], bool]) -> Claims:
        table = self._router.table
        found: list[tuple[OpId, KeySet]] = []
        for op in table.ops():
            found += [(op, keys) for route, keys in table.partition(op, self._everything(op)) if wanted(route)]
        return tuple(found)

    def _everything(self, op: OpId) -> KeySet:
        return KeySet.everything(self._router.table.groups_of(op))

    def _take_keys(self, keys: Claims, before: Route, after: Route) -> None:
        """Of these keys, those that take one route take another now."""
        table = self._router.table
        for op, some in keys:
            for route, part in table.partition(op, some):
                if route == before:
                    table.assign(op, part, after)

    def _parent(self) -> SiteId:
        assert self._router.ways.parent is not None
        return self._router.ways.parent

    # --- what others may ask ---

    def hand_backs(self) -> Iterator[HandBack]:
        if self.leaving is not None and self.leaving.hand_back is not None:
            yield self.leaving.hand_back
        for departure in self.departures.values():
            yield departure.hand_back

    def check(self) -> None:
        for turn in self.turns.values():
            assert turn.left is None or not (turn.fenced or turn.held), f"{turn.rehoming}: held although P has left"
        for approach in self.approaches.values():
            assert approach.settling or not approach.held, f"{approach.rehoming}: held before it settles"

    def leftovers(self) -> list[str]:
        left = [f"{self.leaving.rehoming} is open"] if self.leaving is not None else []
        left += [f"{len(self.homeless)} items have no way up"] if self.homeless else []
        left += [f"{each.rehoming}: nothing was handed back" for each in self.departures.values()]
        for turn in self.turns.values():
            left.append(f"{turn.rehoming} meets here: {len(turn.fenced)} fenced, {len(turn.held)} held")
        left += [f"{each.rehoming} parts here: {len(each.held)} held" for each in self.partings.values()]
        left += [f"{each.rehoming} settles: {len(each.held)} held" for each in self.approaches.values()]
        table = self._router.table
        routes = {route for op in table.ops() for route in table.routes_of(op)}
        left += [f"keys are still in rehoming {each.number}" for each in routes if isinstance(each, InRehoming)]
        return left


def _answers(back: HandedBack, wanted: HandBack | None) -> bool:
    return wanted is not None and (back.neighbour, back.session) == (wanted.neighbour, wanted.session)


def _without(some: Claims, others: Claims) -> Claims:
    rest = []
    for op, keys in some:
        for other, theirs in others:
            if other == op:
                keys -= theirs
        if keys:
            rest.append((op, keys))
    return tuple(rest)
