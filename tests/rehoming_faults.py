"""Ways in which changing parents can be built wrong: each leaves out a part of decision 0022."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from peregrine.core.claims import Claims
from peregrine.core.fence import Fence, Turn
from peregrine.core.home import Home, Leaving
from peregrine.core.intake import Intake
from peregrine.core.keyspace import KeySet
from peregrine.core.legs import Legs
from peregrine.core.messages import HandedBack
from peregrine.core.migrate import Migration
from peregrine.core.new_branch import NewBranch
from peregrine.core.old_branch import OldBranch
from peregrine.core.ports import Ports
from peregrine.core.rehoming import Fenced, Left, Message, Word
from peregrine.core.rehomings import Rehomings
from peregrine.core.router import Router
from peregrine.core.rows import Clock, Item, Marker, Rows
from peregrine.core.validity import Validity
from peregrine.types import OpId, PlaceId, SiteId, site_of

Patch = Callable[[pytest.MonkeyPatch], None]
T = TypeVar("T")


class NoFence(Home):
    """C sends its rows as if nothing had happened."""

    def fences(self, item: Item) -> bool:
        leaving = self.leaving
        return leaving is not None and leaving.hand_back is not None and super().fences(item)

    def _resend(self, leaving: Leaving, back: HandedBack) -> None:
        leaving.fencing = False
        super()._resend(leaving, replace(back, items=()))
        for item in back.items:
            self._router.up(item)


class NoMark(Rehomings):
    """M does not know what P has of C."""

    def on_message(self, message: Message, via: SiteId | None) -> None:
        super().on_message(replace(message, mark=-1) if isinstance(message, Left) else message, via)


class NothingReturns(OldBranch):
    """What P had for C is lost."""

    def _to_return(self, back: HandedBack) -> tuple[Item, ...]:
        return ()


class NothingHeld(Rehomings):
    """M sends to C at once, ahead of what P returns."""

    def holds(self, item: Item, dest: SiteId, via: SiteId | None) -> bool:
        for turn in self.fence.turns.values():
            if turn.left is None and dest in turn.sites:
                self._router.to_neighbour(turn.child, item)
                return True
        return super().holds(item, dest, via)

    def treat(self, number: int, item: Rows | Clock, via: SiteId | None) -> None:
        if number in self.fence.turns:
            self._router.to_neighbour(self.fence.turns[number].child, item)
        else:
            super().treat(number, item, via)


class ShortWayAtOnce(Rehomings):
    """The new branch sends to C as soon as it has heard of it."""

    def child_towards(self, dest: SiteId, via: SiteId | None) -> SiteId | None:
        return super().child_towards(dest, self._router.ways.parent)

    def treat(self, number: int, item: Rows | Clock, via: SiteId | None) -> None:
        super().treat(number, item, self._router.ways.parent if number in self.new_branch.approaches else via)


class NothingTurnsOff(NewBranch):
    def turns_off(self, item: Item, via: SiteId | None, stops: bool) -> bool:
        return False


class NoSettling(Rehomings):
    """What turns off on the new branch does not wait for what took the long way."""

    def __init__(self, router: Ports) -> None:
        super().__init__(router)
        self.new_branch = NothingTurnsOff(router)

    def holds(self, item: Item, dest: SiteId, via: SiteId | None) -> bool:
        if any(dest in approach.sites for approach in self.new_branch.approaches.values()):
            return False
        return super().holds(item, dest, via)


class Hasty(Home):
    """C does not wait for what P may lack: it goes behind the fence's end."""

    def opened(self, word: Word) -> None:
        self._settle(self._my(word))

    def _resend(self, leaving: Leaving, back: HandedBack) -> None:
        if leaving.fencing:
            super()._resend(leaving, back)
        else:
            leaving.hand_back = None
            for item in (*back.items, *leaving.waiting):
                self._router.up(item)
            leaving.waiting.clear()


class ClaimsBelieved(Fence):
    """M believes C about keys of which P has not heard yet."""

    def _give_back(self, turn: Turn, op: OpId, claimed: KeySet, left: Claims) -> None:
        pass


class NothingTaught(Rehomings):
    """Markers that go back or behind the fence teach nobody on their way."""

    def _teach(self, item: Item) -> None:
        pass

    def _teach_fenced(self, fenced: Fenced) -> None:
        pass


class OldNewsTeaches(Rehomings):
    """What C had sent before it left teaches the new branch, also if something newer has come back since."""

    def _teach_fenced(self, fenced: Fenced) -> None:
        super()._teach_fenced(replace(fenced, number=None))


class FencedMarkersTeachAll(Rehomings):
    """A marker behind the fence teaches also who has one of its places, and rows ahead of it, from above."""

    def _teach_fenced(self, fenced: Fenced) -> None:
        item = fenced.item
        if isinstance(item, Marker) and item.owner is not None and not self._router.ways.has(site_of(item.owner)):
            self._router.legs.learn_owner(item.migration, item.owner)


class LastWordIsOfP(Fence):
    """What a marker has taught gives way to what P tells, which is older."""

    def taught(self, op: OpId, keys: KeySet) -> None:
        pass


class AbortsTeachNobody(Legs):
    """Only the anchor knows that keys stay where they are."""

    def learn_owner(self, migration: Migration, owner: PlaceId) -> None:
        if owner == migration.target or self.router.site == migration.anchor:
            super().learn_owner(migration, owner)


class RulesTurnRowsBack(Legs):
    """After an abort rows go back to the source by the rules, FLUSHED by its address."""

    def returns_to_source(self, item: Rows | Clock) -> bool:
        return False


class OldBranchKeepsKeys(Rehomings):
    """The old branch never hears which keys have gone."""

    def on_message(self, message: Message, via: SiteId | None) -> None:
        forgets = isinstance(message, Left) and message.dest != self._router.site
        super().on_message(replace(message, keys=()) if forgets else message, via)  # type: ignore[call-arg]


class KeysAreForgotten(Home):
    """Only sites are announced above, not keys."""

    def _claims(self) -> Claims:
        return ()


class GatesStandOpen(Rehomings):
    """Outputs go on, although the word that closes their gate is held where they pass."""

    def closes(self, output: Rows | Clock, via: SiteId | None) -> bool:
        return False


class OldSessionGoesOn(Intake):
    """Items are taken from a neighbour to whom it was told what had been taken."""

    def end_session(self, neighbour: SiteId) -> int:
        return self.acked_link(neighbour)


class NobodyStandsIn(Legs):
    """Outputs of a place that has moved do not wait for the gate that they do not pass any more."""

    def stand_in(self, migration: Migration) -> None:
        pass


def rehomings_with(
    home: type[Home] = Home, old_branch: type[OldBranch] = OldBranch, fence: type[Fence] = Fence
) -> type[Rehomings]:
    class WithWrongPart(Rehomings):
        def __init__(self, router: Ports) -> None:
            super().__init__(router)
            self.home = home(router)
            self.old_branch = old_branch(router)
            self.fence = fence(router)

    return _named(WithWrongPart)


def router_with(
    rehomings: type[Rehomings] = Rehomings, intake: type[Intake] = Intake, legs: type[Legs] = Legs
) -> type[Router]:
    class Wrong(Router):
        rehomings_type = rehomings
        intake_type = intake
        legs_type = legs

    return _named(Wrong)


def _named(made: type[T]) -> type[T]:
    """By a name in this module: a snapshot is read by it."""
    made.__qualname__ = made.__name__ = f"{made.__name__}{len(globals())}"
    globals()[made.__name__] = made
    return made


ROUTERS: dict[str, type[Router]] = {
    "no fence": router_with(rehomings_with(home=NoFence)),
    "no mark": router_with(NoMark),
    "nothing returns": router_with(rehomings_with(old_branch=NothingReturns)),
    "nothing is held where the ways meet": router_with(NothingHeld),
    "the short way at once": router_with(ShortWayAtOnce),
    "no settling": router_with(NoSettling),
    "the end of the fence does not wait for what is handed back": router_with(rehomings_with(home=Hasty)),
    "claims are believed": router_with(rehomings_with(fence=ClaimsBelieved)),
    "markers that turn back teach nobody": router_with(NothingTaught),
    "old news teaches": router_with(OldNewsTeaches),
    "fenced markers teach all": router_with(FencedMarkersTeachAll),
    "the parent that was left has the last word": router_with(rehomings_with(fence=LastWordIsOfP)),
    "aborts teach nobody": router_with(legs=AbortsTeachNobody),
    "rules turn rows back": router_with(legs=RulesTurnRowsBack),
    "the old branch keeps the keys": router_with(OldBranchKeepsKeys),
    "keys are not announced": router_with(rehomings_with(home=KeysAreForgotten)),
    "outputs pass a gate whose word is held": router_with(GatesStandOpen),
    "the old session goes on": router_with(intake=OldSessionGoesOn),
    "nobody stands in for a gate": router_with(legs=NobodyStandsIn),
}


def _any_anchor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Validity, "_all_below", lambda self, move, site: True)


PATCHES: dict[str, Patch] = {
    "the old place decides the order although rows come from above": _any_anchor,
}
