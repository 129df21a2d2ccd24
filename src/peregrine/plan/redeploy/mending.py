"""Keys that are not where the planner has put them: which of them are to be looked at, and which looked in vain.

A plan of somebody else may end while sites change their parents, and a plan of a redeployment may be left out. The keys
are then where nobody has asked whether they are above their producers in the tree that there is now. The rule: each of
them is looked at once; what cannot be put right is told, and waits until something happens that may help. So there is
an end, whatever fails.
"""

from collections.abc import Callable

from peregrine.core.keyspace import KeySet
from peregrine.errors import PlanError
from peregrine.plan.redeploy.layout import Layout
from peregrine.plan.redeploy.placing import Placing
from peregrine.plan.redeploy.world import NO_SHIFT, World
from peregrine.types import OpId, PlaceId

Doubts = dict[OpId, KeySet]


def nobody_moves(op: OpId, keys: KeySet) -> bool:
    return False


def note(doubts: Doubts, op: OpId, keys: KeySet) -> None:
    doubts[op] = doubts[op] | keys if op in doubts else keys


class Mending:
    def __init__(self, world: World, layout: Layout) -> None:
        self._world, self._layout = world, layout
        self.doubted: Doubts = {}
        self.in_vain: Doubts = {}
        self._again = False  # something has happened since the last look at those
        self.refused: tuple[tuple[str, PlanError], ...] = ()  # by the last look
        self.busy: Callable[[OpId, KeySet], bool] = nobody_moves  # does somebody move any of these keys just now?
        self.awaited: Doubts = {}  # keys with producers whose sites are on their way

    @property
    def open(self) -> bool:
        """May anything be amiss?"""
        return bool(self.doubted or self.in_vain)

    def found(self, op: OpId, keys: KeySet, place: PlaceId, in_vain: bool = False) -> None:
        """These keys are there, whatever was planned. `in_vain`: although it was tried to put them right."""
        elsewhere = [part for at, part in self._layout.partition(op, keys).items() if at != place]
        self._layout.assign(op, keys, place)
        for part in elsewhere:
            note(self.in_vain if in_vain else self.doubted, op, part)

    def stirred(self) -> None:
        """Something has happened: what was in vain may be possible now."""
        self._again = True

    def look(self) -> Doubts:
        """The keys that have to move, and can, as far as the planner knows. What was in vain waits for all others, so
        that it does not hold them up, and so does what somebody is moving, or whose producers are: perhaps nothing is
        left to be put right when that has ended. Nothing has changed afterwards.
        """
        wrong: Doubts = {}
        moving: Doubts = {}
        while not wrong and (self.doubted or (self._again and self.in_vain)):
            if self.doubted:
                doubts, self.doubted = self.doubted, {}
                self._again &= bool(self.in_vain)  # what has happened so far is known now
            else:
                doubts, self.in_vain, self._again = self.in_vain, {}, False
            wrong = self._wrong(doubts, moving)
        self.put_back(moving)
        return wrong

    def give_up(self, doubts: Doubts, why: PlanError) -> None:
        for op, keys in doubts.items():
            note(self.in_vain, op, keys)
            self.refused += ((f"{op} {{{keys.describe()}}}", why),)

    def put_back(self, doubts: Doubts) -> None:
        """They could not be looked after now."""
        for op, keys in doubts.items():
            note(self.doubted, op, keys)

    def place(self, doubts: Doubts) -> Placing:
        placing = Placing(self._world, self._layout, NO_SHIFT)
        placing.place_doubted(doubts)
        return placing

    def _wrong(self, doubts: Doubts, moving: Doubts) -> Doubts:
        """Operator by operator: one that has nowhere to go, or that somebody moves, does not hold up the others."""
        wrong, changes = {}, self._layout.changes
        for op in sorted(doubts, key=lambda each: (self._layout.rank[each], each)):
            mark, keys = changes.mark(), doubts[op]
            if op in self.awaited and (awaited := keys & self.awaited[op]):
                note(moving, op, awaited)
                keys -= awaited
            try:
                moved = self.place({op: keys}).moved
                if any(self.busy(each, part) for each, part in moved.items()):
                    changes.undo_to(mark)
                    note(moving, op, keys)
                elif moved:
                    wrong[op] = keys
            except PlanError as error:
                changes.undo_to(mark)
                self.give_up({op: keys}, error)
        changes.undo_to(0)
        return wrong
