"""Tumbling and sliding windows of event time.

Records are kept once, in panes whose length divides both size and slide, so that a record touches one accumulator in
however many windows it is; a window merges its panes when it ends. A tumbling window is its only pane.
"""

from bisect import bisect_left
from math import gcd
from typing import Any

from peregrine.app.logic import NEVER, Emit, Key, Moment
from peregrine.app.window_contents import Contents
from peregrine.app.windows import Span

LATE = 1  # the side output
# A state is [next, ended, panes]: before `next` there is nothing to do, windows with an end up to `ended` are told, and
# panes are contents by the start of the pane.
NEXT, ENDED, PANES = 0, 1, 2


class TimeWindows:
    """An end is that of a window; it is aligned if it is size + n * slide."""

    def __init__(self, size_ms: int, slide_ms: int, contents: Contents, lateness_ms: int) -> None:
        self.size_ms, self.slide_ms, self.lateness_ms = size_ms, slide_ms, lateness_ms
        self.pane_ms = gcd(size_ms, slide_ms)
        self._contents, self._zero, self._add = contents, contents.zero, contents.add

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        time_ms = at.time_ms
        if time_ms < at.watermark_ms:
            return self._on_straggler(key, state, record, at)
        # None of the windows in which it is has ended.
        pane = time_ms - time_ms % self.pane_ms
        if state is None:
            return [self._first_end(pane), NEVER, {pane: self._add(self._zero(), record, time_ms)}], []
        panes = state[PANES]
        acc = panes.get(pane)
        if acc is None:
            panes[pane] = self._add(self._zero(), record, time_ms)
            state[NEXT] = min(state[NEXT], self._first_end(pane))
        else:
            panes[pane] = self._add(acc, record, time_ms)
        return state, []

    def on_time(self, key: Key, state: Any, at: Moment) -> tuple[Any, list[Emit]]:
        if state is None or at.watermark_ms < state[NEXT]:
            return state, []
        watermark_ms, panes = at.watermark_ms, state[PANES]
        starts = sorted(panes)
        emits: list[Emit] = []
        next_ms = self._tell_ended(key, state, starts, watermark_ms, emits)
        state[ENDED] = watermark_ms
        for start in starts:
            forgotten_ms = self._last_end(start) + self.lateness_ms
            if forgotten_ms > watermark_ms:
                state[NEXT] = forgotten_ms if next_ms is None else min(next_ms, forgotten_ms)
                return state, emits
            del panes[start]
        return None, emits

    def open_ends(self, state: Any) -> list[int]:
        """Of the windows about which something may still be told."""
        if state is None:
            return []
        told_ms = state[ENDED] - self.lateness_ms
        found = {end for pane in state[PANES] for end in self._ends(pane, told_ms)}
        return sorted(found)

    def _tell_ended(self, key: Key, state: Any, starts: list[int], until_ms: int, emits: list[Emit]) -> int | None:
        """Of each window that has records and ended by then, in the order of ends. The end that comes next, if any."""
        panes, ended_ms, low = state[PANES], state[ENDED], 0
        while low < len(starts):
            ends = self._ends(starts[low], ended_ms)
            if not ends:
                low += 1
                continue
            if ends[0] > until_ms:
                return ends[0]
            ended_ms = ends[0]
            self._tell(key, panes, starts, low, ended_ms, emits)
        return None

    def _tell(self, key: Key, panes: dict[int, Any], starts: list[int], low: int, end: int, emits: list[Emit]) -> None:
        parts = [panes[start] for start in starts[low : bisect_left(starts, end, low)]]
        results = self._contents.results(key, Span(end - self.size_ms, end), self._contents.merge(parts))
        emits += [Emit(result, end - 1) for result in results]

    def _on_straggler(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        """A record behind the watermark. What that ends, it ends ahead of the record."""
        time_ms, watermark_ms = at.time_ms, at.watermark_ms
        state, emits = self.on_time(key, state, at)
        pane = time_ms - time_ms % self.pane_ms
        ends = self._ends(pane, watermark_ms - self.lateness_ms)
        if not ends:
            return state, [*emits, Emit(record, time_ms, LATE)]
        if state is None:
            state = [ends[-1] + self.lateness_ms, watermark_ms, {}]
        panes = state[PANES]
        panes[pane] = self._add(panes[pane] if pane in panes else self._zero(), record, time_ms)
        state[ENDED] = watermark_ms
        starts = sorted(panes) if ends[0] <= watermark_ms else []
        for end in ends:
            if end > watermark_ms:
                state[NEXT] = min(state[NEXT], end)
                break
            self._tell(key, panes, starts, bisect_left(starts, end - self.size_ms), end, emits)
        return state, emits

    def _first_end(self, pane: int) -> int:
        """Of the windows with this pane."""
        return ((pane - self.size_ms) // self.slide_ms + 1) * self.slide_ms + self.size_ms

    def _last_end(self, pane: int) -> int:
        return pane // self.slide_ms * self.slide_ms + self.size_ms

    def _ends(self, pane: int, after_ms: int) -> range:
        """Of the windows with this pane that end after a time."""
        first = max(
            self._first_end(pane), ((after_ms - self.size_ms) // self.slide_ms + 1) * self.slide_ms + self.size_ms
        )
        return range(first, self._last_end(pane) + 1, self.slide_ms)
