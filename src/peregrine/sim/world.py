"""Virtual time: a heap of what happens when. One seed, one order of events, always."""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class World:
    seed: int
    now_ms: float = 0.0
    events: int = 0
    story: list[tuple[float, str]] = field(default_factory=list)
    _heap: list[tuple[float, int, Callable[[], object]]] = field(default_factory=list)
    _count: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(f"world:{self.seed}")

    def after(self, delay_ms: float, action: Callable[[], object]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._count, action))

    def every(self, interval_ms: float, action: Callable[[], bool]) -> None:
        """Again and again, as long as the action returns True."""

        def again() -> None:
            if action():
                self.after(interval_ms, again)

        self.after(interval_ms, again)

    def tell(self, text: str) -> None:
        self.story.append((self.now_ms, text))

    def run_next(self) -> bool:
        if not self._heap:
            return False
        self.now_ms, _, action = heapq.heappop(self._heap)
        self.events += 1
        action()
        return True
