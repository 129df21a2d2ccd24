"""Windows of so many records of a key. They know no time and no lateness: a record tells what it completes.

Records are kept in panes: so many records that they divide both size and slide.
"""

from math import gcd
from typing import Any

from peregrine.app.logic import Emit, Key, Moment, Timeless
from peregrine.app.window_contents import Contents


class CountWindows(Timeless):
    """Merges all panes for each result. A state is [records so far, panes]."""

    def __init__(self, size: int, slide: int, contents: Contents) -> None:
        self.size, self.slide = size, slide
        self.pane = gcd(size, slide)
        self._contents, self._zero, self._add = contents, contents.zero, contents.add

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        if state is None:
            state = [0, []]
        count, panes = state
        if count % self.pane == 0:
            panes.append(self._zero())
            if len(panes) * self.pane > self.size:
                del panes[0]
        panes[-1] = self._add(panes[-1], record, at.time_ms)
        state[0] = count = count + 1
        if count % self.slide:
            return state, []
        results = self._contents.results(key, None, self._contents.merge(panes))
        emits = [Emit(result, at.time_ms) for result in results]
        return (state if self.slide < self.size else None), emits


class LastRecords(Timeless):
    """For many panes of bounded contents: each result merges two accumulators, however many records it tells of.

    A state is [records so far, older, newer, all newer]. `newer` are panes; `older[-1]` is everything older in the
    window, `older[-2]` the same without its oldest pane, and so on. When all of `older` has left the window, it is made
    anew from `newer`: a queue of two stacks, one merge for each pane that ever leaves.
    """

    WORTHWHILE = 12  # panes; with fewer, merging them all is cheaper

    def __init__(self, size: int, slide: int, contents: Contents) -> None:
        self.slide, self.pane = slide, gcd(size, slide)
        self.panes = size // self.pane
        self._contents, self._zero, self._add = contents, contents.zero, contents.add

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        if state is None:
            state = [0, [], [], self._zero()]
        count, older, newer, _ = state
        if count % self.pane == 0:
            if len(older) + len(newer) == self.panes:
                if not older:
                    older = self._turn(state)
                    newer = state[2]
                older.pop()
            newer.append(self._zero())
        newer[-1] = self._add(newer[-1], record, at.time_ms)
        state[3] = self._add(state[3], record, at.time_ms)
        state[0] = count = count + 1
        if count % self.slide:
            return state, []
        whole = self._contents.merge((older[-1], state[3])) if older else state[3]
        return state, [Emit(result, at.time_ms) for result in self._contents.results(key, None, whole)]

    def _turn(self, state: Any) -> list[Any]:
        """Makes the newer panes the older ones."""
        older: list[Any] = []
        for pane in reversed(state[2]):
            older.append(self._contents.merge((pane, older[-1])) if older else pane)
        state[1:] = older, [], self._zero()
        return older
