"""The new branch of a rehoming: the routers from Q, to whom C comes, up to below M (docs/decisions/0022).

The rule: what comes from above for C's sites has been put in order at M, and goes down. All else between them and this
branch takes the long way, by M, and the short one only when all that went the long way is through: between SETTLE and
SETTLED it waits.
"""

from dataclasses import dataclass, field

from peregrine.core.claims import take_keys
from peregrine.core.migrate import Role
from peregrine.core.ports import Came, Ports
from peregrine.core.rehoming import Join, Rehoming, Word
from peregrine.core.routes import Down, InRehoming, Up
from peregrine.core.rows import Clock, Item, Marker, Rows
from peregrine.types import SiteId


@dataclass(slots=True)
class Approach:
    rehoming: Rehoming
    child: SiteId
    sites: frozenset[SiteId]
    settling: bool = False
    held: list[Came] = field(default_factory=list)


class NewBranch:
    def __init__(self, router: Ports) -> None:
        self._router = router
        self.approaches: dict[int, Approach] = {}

    def join(self, join: Join, via: SiteId) -> None:
        rehoming = join.rehoming
        self.approaches[rehoming.number] = Approach(rehoming, via, frozenset(join.sites))
        take_keys(self._router.table, join.keys, Up(), InRehoming(rehoming.number))
        self._router.up(join)

    def settle(self, word: Word) -> None:
        self.approaches[word.rehoming.number].settling = True
        self._router.up(word)

    def settled(self, word: Word) -> None:
        """What is for C's sites goes ahead of SETTLED, what came from there and turned off follows it: then whatever is
        said in answer to any of it comes where it belongs. From here on it is the short way.
        """
        router, approach, turned_off = self._router, self.approaches[word.rehoming.number], []
        for item, via in approach.held:
            if via == approach.child:
                turned_off.append((item, via))
            else:
                router.to_neighbour(approach.child, item)
        router.to_neighbour(approach.child, word)
        del self.approaches[approach.rehoming.number]
        router.ways.below.update(dict.fromkeys(approach.sites, approach.child))
        router.table.replace(InRehoming(approach.rehoming.number), Down(approach.child))
        for item, via in turned_off:
            router.receive(item, via)

    # --- where things go meanwhile ---

    def child_towards(self, dest: SiteId, via: SiteId | None) -> SiteId | None:
        for approach in self.approaches.values():
            if dest in approach.sites:
                # What comes down has been put in order above; all else has to go there first.
                return approach.child if self._from_above(via) else None
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
        for approach in self.approaches.values():
            if approach.settling and dest in approach.sites and not self._from_above(via):
                approach.held.append((item, via))
                return True
        return False

    def treat(self, number: int, item: Rows | Clock, via: SiteId | None) -> None:
        approach = self.approaches.get(number)
        assert approach is not None, f"a rule leads to rehoming {number}, which is not open"
        if self._from_above(via):
            self._router.to_neighbour(approach.child, item)
        elif approach.settling:
            approach.held.append((item, via))
        else:
            self._router.up(item)

    def _from_above(self, via: SiteId | None) -> bool:
        return via is not None and via == self._router.ways.parent
