"""M: where C's old way and its new one meet, and one order is made of what takes either (docs/decisions/0022).

The rule: what C sends the new way, and what is for C's sites, waits until P has left: all that went the old way is
through then. What is fenced goes first, less what P has; then what was held for C; then C is told.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from peregrine.core.claims import Claims, take_keys, without
from peregrine.core.keyspace import KeySet
from peregrine.core.ports import Came, Ports
from peregrine.core.rehoming import Detach, Fenced, Join, Left, Rehoming, Said, Word
from peregrine.core.routes import Down, InRehoming
from peregrine.core.rows import Item
from peregrine.types import OpId, SiteId


@dataclass(slots=True)
class Turn:
    """Everything is held until P has left."""

    rehoming: Rehoming
    child: SiteId
    sites: frozenset[SiteId]
    claims: Claims  # until P has told which of these keys it had sent down to C
    old_child: SiteId
    fenced: list[tuple[Fenced, SiteId | None]] = field(default_factory=list)
    held: list[Came] = field(default_factory=list)
    told: Claims = ()  # by markers, since C left: P's word about these is older
    left: int | None = None  # the last item that P has of C


class Fence:
    def __init__(self, router: Ports) -> None:
        self._router = router
        self.turns: dict[int, Turn] = {}

    def turn(self, join: Join, via: SiteId) -> None:
        router, rehoming = self._router, join.rehoming
        old_child = router.ways.below[rehoming.site]
        claims = join.keys if rehoming.source != router.site else ()
        self.turns[rehoming.number] = Turn(rehoming, via, frozenset(join.sites), claims, old_child)
        if rehoming.source == router.site:
            router.table.replace(Down(old_child), InRehoming(rehoming.number))
        else:
            take_keys(router.table, claims, Down(old_child), InRehoming(rehoming.number))
        router.ways.below.update(dict.fromkeys(join.sites, via))
        for migration in join.gates:
            if migration.gate in router.ways.below and migration.gate not in join.sites:
                router.legs.stand_in(migration)
        router.receive(Detach(rehoming, join.mark, join.sites, join.keys), None)

    def holds(self, item: Item, dest: SiteId, via: SiteId | None) -> bool:
        for turn in self.turns.values():
            if turn.left is None and dest in turn.sites:
                turn.held.append((item, via))
                return True
        return False

    def fenced(self, fenced: Fenced, via: SiteId | None) -> None:
        turn = self.turns.get(fenced.rehoming.number)
        if turn is None:
            raise self._router.protocol_error(f"a fenced item of {fenced.rehoming}, which is over")
        if turn.left is None:
            turn.fenced.append((fenced, via))
        else:
            self._pass(fenced, via, turn.left)

    def left(self, left: Left, review: Callable[[], None]) -> None:
        """`review` lets rows go that are held, here or elsewhere, for keys of which something else is known now."""
        turn = self.turns[left.rehoming.number]
        self._follow(turn, left.keys)
        for op, claimed in without(turn.claims, turn.told):
            self._give_back(turn, op, claimed, left.keys)
        review()
        self._open(turn, left.mark, review)

    def taught(self, op: OpId, keys: KeySet) -> None:
        """What P tells of these is older: it told which keys it had sent down to C when C left."""
        for turn in self.turns.values():
            turn.told += ((op, keys),)

    def _follow(self, turn: Turn, left: Claims) -> None:
        """Keys that P had sent down to C go by where C is now, also those that C does not claim: their anchor is there,
        and their place has moved away from below it.
        """
        if turn.rehoming.source != self._router.site:
            followers = without(left, turn.told)
            take_keys(self._router.table, followers, Down(turn.old_child), InRehoming(turn.rehoming.number))

    def _give_back(self, turn: Turn, op: OpId, claimed: KeySet, left: Claims) -> None:
        """Keys that C claims and P had not sent there: how C came by them is still behind the fence."""
        back = without(((op, claimed),), left)
        take_keys(self._router.table, back, InRehoming(turn.rehoming.number), Down(turn.old_child))

    def _open(self, turn: Turn, mark: int, review: Callable[[], None]) -> None:
        """What is said in answer to what is released queues up behind what is held."""
        for fenced, via in turn.fenced:
            self._pass(fenced, via, mark)
            review()
        turn.fenced.clear()
        while turn.held:
            item, _ = turn.held.pop(0)
            self._router.to_neighbour(turn.child, item)
        turn.left = mark
        self._router.table.replace(InRehoming(turn.rehoming.number), Down(turn.child))
        self._router.to_neighbour(turn.child, Word(Said.OPENED, turn.rehoming))

    def _pass(self, fenced: Fenced, via: SiteId | None, mark: int) -> None:
        if fenced.number is None or fenced.number > mark:
            self._router.receive(fenced.item, via)

    def settle(self, word: Word) -> None:
        turn = self.turns.pop(word.rehoming.number)
        self._router.to_neighbour(turn.child, Word(Said.SETTLED, word.rehoming))
