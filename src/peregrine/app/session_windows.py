"""Sessions: windows that grow with their records, and become one when a record comes between them."""

from typing import Any

from peregrine.app.logic import NEVER, Emit, Key, Moment
from peregrine.app.window_contents import Contents
from peregrine.app.windows import Span

LATE = 1  # the side output
# A state is [next, ended, sessions]: before `next` there is nothing to do, sessions with an end up to `ended` are told.
NEXT, ENDED, SESSIONS = 0, 1, 2
# A session is [start, end, contents]; they do not touch, and stand in the order of time.
START, END, ACC = 0, 1, 2


class SessionWindows:
    """A record at the very end of a session still extends it (start + gap, as in Spark), so a session cannot be told
    before the watermark is behind that moment: here, ends are one millisecond later than what results say.
    """

    def __init__(self, gap_ms: int, contents: Contents, lateness_ms: int) -> None:
        self.reach_ms, self.lateness_ms = gap_ms + 1, lateness_ms
        self._contents, self._add = contents, contents.add

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        time_ms = at.time_ms
        if time_ms < at.watermark_ms:
            return self._on_straggler(key, state, record, at)
        if state is None:
            state = [time_ms + self.reach_ms, NEVER, []]
        else:
            last = state[SESSIONS][-1]
            if last[START] <= time_ms < last[END]:
                last[ACC] = self._add(last[ACC], record, time_ms)
                last[END] = max(last[END], time_ms + self.reach_ms)  # `next` is then too early: that does no harm
                return state, []
        self._place(state, record, time_ms)
        return state, []

    def on_time(self, key: Key, state: Any, at: Moment) -> tuple[Any, list[Emit]]:
        watermark_ms = at.watermark_ms
        if state is None or watermark_ms < state[NEXT]:
            return state, []
        emits: list[Emit] = []
        stay = []
        next_ms = None
        for session in state[SESSIONS]:
            due_ms = session[END]
            if due_ms <= watermark_ms:
                if due_ms > state[ENDED]:
                    self._tell(key, session, emits)
                due_ms += self.lateness_ms
            if due_ms > watermark_ms:
                stay.append(session)
                next_ms = due_ms if next_ms is None else min(next_ms, due_ms)
        return ([next_ms, watermark_ms, stay] if stay else None), emits

    def open_ends(self, state: Any) -> list[int]:
        """Of the sessions about which something may still be told. As they were when the sessions began: one that has
        grown since is still the same.
        """
        return [] if state is None else [session[START] + self.reach_ms for session in state[SESSIONS]]

    def _tell(self, key: Key, session: Any, emits: list[Emit]) -> None:
        end = session[END] - 1
        emits += [Emit(each, end) for each in self._contents.results(key, Span(session[START], end), session[ACC])]

    def _on_straggler(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        """A record behind the watermark. What that ends, it ends ahead of the record."""
        time_ms, watermark_ms = at.time_ms, at.watermark_ms
        state, emits = self.on_time(key, state, at)
        sessions = state[SESSIONS] if state is not None else []
        low, high = self._touched(sessions, time_ms)
        if low == high and time_ms + self.reach_ms + self.lateness_ms <= watermark_ms:
            return state, [*emits, Emit(record, time_ms, LATE)]
        if state is None:
            state = [time_ms + self.reach_ms + self.lateness_ms, watermark_ms, []]
        state[ENDED] = watermark_ms
        session = self._place(state, record, time_ms)
        if session[END] <= watermark_ms:
            self._tell(key, session, emits)
        return state, emits

    def _place(self, state: Any, record: Any, time_ms: int) -> Any:
        """The session in which the record is now: a new one, or one made of those that it touches."""
        sessions = state[SESSIONS]
        low, high = self._touched(sessions, time_ms)
        session: list[Any] = [time_ms, time_ms + self.reach_ms, None]
        if low == high:
            acc = self._contents.zero()
        else:
            session[START] = min(time_ms, sessions[low][START])
            session[END] = max(time_ms + self.reach_ms, sessions[high - 1][END])
            acc = self._contents.merge([each[ACC] for each in sessions[low:high]])
        session[ACC] = self._add(acc, record, time_ms)
        sessions[low:high] = [session]
        due_ms = session[END] + (self.lateness_ms if session[END] <= state[ENDED] else 0)
        state[NEXT] = min(state[NEXT], due_ms)
        return session

    def _touched(self, sessions: list[Any], time_ms: int) -> tuple[int, int]:
        """Where the sessions of a record of this time stand. Looks from the end: records mostly come in order."""
        high = len(sessions)
        while high and sessions[high - 1][START] >= time_ms + self.reach_ms:
            high -= 1
        low = high
        while low and sessions[low - 1][END] > time_ms:
            low -= 1
        return low, high
