"""What a router does about sites that change their parents (docs/decisions/0022; the names C, P, Q, M are those of
`core/rehoming.py`): which of its parts a message is for, and where things go meanwhile, whichever part decides it.

As C it acts in `core/home.py`, as P and on the rest of the old branch in `core/old_branch.py`, as M in `core/fence.py`,
on the new branch in `core/new_branch.py`. It may be several of these at a time, also for one rehoming (M and P).

The rule: what one site sends to another arrives once and in causal order, also across the change. So C's items wait at
M's fence until P has told what it has of C, M holds what is for C until P has returned what C does not have, and the
new branch takes the short way only when all that went the long way is through.
"""

from collections import OrderedDict
from collections.abc import Iterator

from peregrine.core.claims import everything
from peregrine.core.fence import Fence, Turn
from peregrine.core.home import Home
from peregrine.core.mechanisms.program import On
from peregrine.core.messages import HandBack, HandedBack, Rehome
from peregrine.core.migrate import Role
from peregrine.core.new_branch import Approach, NewBranch
from peregrine.core.old_branch import OldBranch, Parting
from peregrine.core.ports import Ports
from peregrine.core.rehoming import Detach, Fenced, Join, Left, Message, Returned, Said, Word
from peregrine.core.routes import InRehoming, Up
from peregrine.core.rows import Clock, Item, Marker, Rows, split_keys
from peregrine.types import MigrationId, SiteId, site_of

REMEMBERED = 10_000  # migrations whose gates need nobody to stand in for them any more


class Rehomings:
    def __init__(self, router: Ports) -> None:
        self._router = router
        self.home = Home(router)
        self.old_branch = OldBranch(router)
        self.fence = Fence(router)
        self.new_branch = NewBranch(router)
        self._joined: dict[SiteId, int] = {}  # sites that have come by here -> the last rehoming that brought them
        self._over: OrderedDict[MigrationId, None] = OrderedDict()  # the word of whose gates has passed here

    # --- what arrives ---

    def begin(self, command: Rehome) -> None:
        self.home.begin(command, self._over)

    def handed_back(self, back: HandedBack) -> None:
        """Told again after a crash it means nothing."""
        self.home.handed_back(back)
        self.old_branch.handed_back(back)

    def on_message(self, message: Message, via: SiteId | None) -> None:
        here = message.dest == self._router.site
        match message:
            case Join():
                self._on_join(message, via)
            case Detach():
                self.old_branch.detach(message)
                if not here:
                    self._forward(message, None)
            case Returned(item=item) if here:
                self._router.receive(item, self._router.ways.parent)
            case Returned(item=item):
                self._teach(item)
                self._forward(message, via)
            case Left() if here:
                self.fence.left(message, self.review)
            case Left():
                self.old_branch.left(message)
            case Fenced() if here:
                self.fence.fenced(message, via)
            case Fenced():
                self._teach_fenced(message)
                self._router.up(message)
            case Word(Said.OPENED) if here:
                self.home.opened(message)
            case Word(Said.SETTLE) if here:
                self.fence.settle(message)
            case Word(Said.SETTLE):
                self.new_branch.settle(message)
            case Word(Said.SETTLED) if here:
                self.home.settled(message)
            case Word(Said.SETTLED, rehoming) if rehoming.number in self.new_branch.approaches:
                self.new_branch.settled(message)
            case Word(Said.SETTLED):
                self._forward(message, self._router.ways.parent)
            case Word(Said.LEAVE):
                self._on_leave(message, via)
            case _:
                self._forward(message, via)

    def _forward(self, message: Message, via: SiteId | None) -> None:
        """Past what is held: it was on its way before."""
        child = self.child_towards(message.dest, via)
        if child is not None:
            self._router.to_neighbour(child, message)
        else:
            self._router.up(message)

    # --- sites that come and go ---

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
            self.new_branch.join(join, via)
        else:
            self.fence.turn(join, via)

    def _on_leave(self, word: Word, via: SiteId | None) -> None:
        """It may have come back by another way meanwhile, alone or below another that has moved: that is what holds."""
        ways, rehoming = self._router.ways, word.rehoming
        if rehoming.number < self._joined.get(rehoming.site, 0):
            return
        if via is not None and ways.below.get(rehoming.site) == via:
            del ways.below[rehoming.site]
            if ways.parent is not None:
                self._router.up(word)

    # --- where things go meanwhile ---

    def turning(self, site: SiteId) -> int | None:
        """The rehoming that decides about what is for a site, if any."""
        for turn in self.fence.turns.values():
            if site in turn.sites and turn.left is None:
                return turn.rehoming.number
        for approach in self.new_branch.approaches.values():
            if site in approach.sites:
                return approach.rehoming.number
        return None

    def child_towards(self, dest: SiteId, via: SiteId | None) -> SiteId | None:
        return self.new_branch.child_towards(dest, via)

    def fences(self, item: Item) -> bool:
        return self.home.fences(item)

    def turns_off(self, item: Item, via: SiteId | None, stops: bool) -> bool:
        return self.new_branch.turns_off(item, via, stops)

    def closes(self, output: Rows | Clock, via: SiteId | None) -> bool:
        return self.new_branch.closes(output, via)

    def holds(self, item: Item, dest: SiteId, via: SiteId | None) -> bool:
        """An item for a site that is on its way."""
        return self.new_branch.holds(item, dest, via) or self.fence.holds(item, dest, via)

    def treat(self, number: int, item: Rows | Clock, via: SiteId | None) -> None:
        """Rows that rules lead to a site that is on its way."""
        holding = self.fence.turns.get(number) or self.old_branch.partings.get(number)
        if holding is not None:
            holding.held.append((item, via))
        else:
            self.new_branch.treat(number, item, via)

    def review(self) -> None:
        """Rows that are held for keys of which something else is known now go where that says, ahead of later ones.

        They go as if they had come only now. If a migration of their keys has begun meanwhile, what its anchor makes of
        them is held again: behind the marker that says so.
        """
        holdings: list[Turn | Parting | Approach] = [
            *self.fence.turns.values(),
            *self.old_branch.partings.values(),
            *self.new_branch.approaches.values(),
        ]
        for holding in holdings:
            going: list[tuple[Rows | Clock, SiteId | None]] = []
            held, holding.held = holding.held, []
            for item, via in held:
                if isinstance(item, Rows | Clock) and item.dest is None:
                    for part, waits in self._parts(holding, item, via):
                        if waits:
                            holding.held.append((part, via))
                        else:
                            going.append((part, via))
                else:
                    holding.held.append((item, via))
            for part, via in going:
                self._router.route(part, via)

    def _parts(
        self, holding: Turn | Parting | Approach, item: Rows | Clock, via: SiteId | None
    ) -> Iterator[tuple[Rows | Clock, bool]]:
        """Of rows that are held: what still has to wait, and what has not."""
        rest: Rows | Clock | None = item
        table = self._router.table
        for route, keys in table.partition(item.op, everything(table, item.op)):
            part, rest = split_keys(rest, keys) if rest is not None else (None, None)
            if part is None:
                continue
            if via == holding.child and isinstance(holding, Approach):
                yield part, route != Up()
            else:
                yield part, route == InRehoming(holding.rehoming.number)

    # --- what passing items teach ---

    def _teach(self, item: Item) -> None:
        """A marker on a way that it did not take at first."""
        if isinstance(item, Marker):
            if item.owner is not None and site_of(item.owner) != self._router.site:  # who has the keys knows it
                self._router.legs.learn_owner(item.migration, item.owner)
            self.hear(item)

    def _teach_fenced(self, fenced: Fenced) -> None:
        """A marker on the new branch that has not passed M.

        Where one of its places is here or below, it comes back from M, behind the rows that went ahead of it. And what
        C had sent to P (it has a number) was in JOIN's claims, and may be older than what P returns.
        """
        item, ways = fenced.item, self._router.ways
        if fenced.number is None and isinstance(item, Marker) and item.owner is not None:
            m = item.migration
            if not ways.has(site_of(m.source)) and not ways.has(site_of(m.target)):
                self._router.legs.learn_owner(m, item.owner)

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

    # --- what others may ask ---

    def hand_backs(self) -> Iterator[HandBack]:
        leaving = self.home.leaving
        if leaving is not None and leaving.hand_back is not None:
            yield leaving.hand_back
        for departure in self.old_branch.departures.values():
            yield departure.hand_back

    def check(self) -> None:
        for turn in self.fence.turns.values():
            self._router.trail.about = turn.rehoming.site
            assert turn.left is None or not (turn.fenced or turn.held), f"{turn.rehoming}: held although P has left"
        for approach in self.new_branch.approaches.values():
            self._router.trail.about = approach.rehoming.site
            assert approach.settling or not approach.held, f"{approach.rehoming}: held before it settles"

    def leftovers(self) -> list[str]:
        home, old_branch = self.home, self.old_branch
        left = [f"{home.leaving.rehoming} is open"] if home.leaving is not None else []
        left += [f"{len(home.homeless)} items have no way up"] if home.homeless else []
        left += [f"{each.rehoming}: nothing was handed back" for each in old_branch.departures.values()]
        for turn in self.fence.turns.values():
            left.append(f"{turn.rehoming} meets here: {len(turn.fenced)} fenced, {len(turn.held)} held")
        left += [f"{each.rehoming} parts here: {len(each.held)} held" for each in old_branch.partings.values()]
        left += [f"{each.rehoming} settles: {len(each.held)} held" for each in self.new_branch.approaches.values()]
        table = self._router.table
        routes = {route for op in table.ops() for route in table.routes_of(op)}
        left += [f"keys are still in rehoming {each.number}" for each in routes if isinstance(each, InRehoming)]
        return left
