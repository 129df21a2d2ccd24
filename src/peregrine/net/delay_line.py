"""What an emulated link does to frames: when each arrives, and when the sender hears that it has.

Time is given, so nothing here waits. Latency holds both ways. Loss is what TCP makes of it: a lost frame is sent again
after a time-out of one round trip and a little, and those behind it wait for it, so order is kept. Acknowledgements are
late but not lost: each tells all up to a number, so the next one makes good for it.
"""

import math
import random
from collections import deque
from itertools import takewhile

from peregrine.core.link import Frame
from peregrine.net.protocol import Neighbour

WINDOW_BYTES = 8 << 20
CALL_BYTES = 2 << 20  # of frames that are due, in one call: the other side answers nobody else meanwhile
LEAST_TIMEOUT_S = 0.02
TOGETHER = 0.05  # frames that arrive within this share of the latency arrive together: a call costs a millisecond
QUICK_CALL_S = 0.005  # a call that takes no longer says nothing: there is always something else to do
CALLS_TO_HOLD = 2  # if it does, somebody is busy: frames wait for others so many times as long as it takes longer


class DelayLine:
    def __init__(self, to: Neighbour, chance: random.Random) -> None:
        self.lost_frames = 0
        self.latency_s = to.latency_ms / 1000
        self._bytes_per_s = to.bandwidth_mbps * 125_000 if to.bandwidth_mbps else math.inf
        self._loss = to.loss
        self._chance = chance
        # A full link has a round trip's worth on its way.
        on_its_way = 2 * self.latency_s * self._bytes_per_s if math.isfinite(self._bytes_per_s) else 0.0
        self.window_bytes = WINDOW_BYTES + int(on_its_way)
        self._free_at_s = 0.0  # when the last frame has left
        self._hold_s = 0.0  # how long a frame that has arrived waits for others, if there are any
        self._coming: deque[tuple[float, Frame[bytes]]] = deque()
        self._answers: deque[tuple[float, int]] = deque()  # when, last number

    @property
    def next_s(self) -> float:
        """When something is to be done at either end."""
        return min(self._handed_over_s, self._answers[0][0] if self._answers else math.inf)

    @property
    def _handed_over_s(self) -> float:
        """When the first frame is: with the last of those that it waits for. They are on their way, so it is known."""
        if not self._coming:
            return math.inf
        until_s = self._coming[0][0] + self._hold_s
        *_, last_s = takewhile(lambda due_s: due_s <= until_s, (due_s for due_s, _ in self._coming))
        return last_s

    def put(self, frame: Frame[bytes], now_s: float) -> None:
        takes_s = frame.size / self._bytes_per_s
        self._free_at_s = max(self._free_at_s, now_s) + takes_s
        due_s = self._free_at_s + self.latency_s
        while self._loss and self._chance.random() < self._loss:
            self.lost_frames += 1
            due_s += 2 * self.latency_s + LEAST_TIMEOUT_S + takes_s
        if self._coming:
            due_s = max(due_s, self._coming[-1][0])
        self._coming.append((due_s, frame))

    def calls_take(self, call_s: float) -> None:
        """How long it takes to hand over a frame, lately."""
        self._hold_s = min(CALLS_TO_HOLD * max(call_s - QUICK_CALL_S, 0.0), self.latency_s / 2)

    def arrived(self, now_s: float) -> Frame[bytes] | None:
        """The frames that have arrived by now, if any, and those close behind them, joined into one."""
        if not self._coming or self._handed_over_s > now_s:
            return None
        first_seq, size = self._coming[0][1].first_seq, 0
        messages: list[bytes] = []
        until_s = now_s + TOGETHER * self.latency_s
        while self._coming and self._coming[0][0] <= until_s:
            if messages and size + self._coming[0][1].size > CALL_BYTES:
                break
            _, frame = self._coming.popleft()
            messages += frame.items
            size += frame.size
        return Frame(first_seq, messages, size)

    def answer(self, seq: int, now_s: float) -> None:
        """The other end has all up to `seq`; the word of it sets out."""
        self._answers.append((now_s + self.latency_s, seq))

    def acked(self, now_s: float) -> int | None:
        """The last number that the sender knows to be safe by now, if it has heard anything new."""
        heard = None
        while self._answers and self._answers[0][0] <= now_s:
            _, heard = self._answers.popleft()
        return heard
