"""When it is time for an epoch of a continuous place: Spark commits what its process has done since the last one.

What Spark does then takes a core for a tenth of a second, which rows feel on a small machine. So epochs are long while
rows flow, and come at once when they have stopped.
"""

import time
from collections.abc import Callable, Mapping

from peregrine.spark.served import CONTINUOUS, Served
from peregrine.types import PlaceId

QUIET_S = 0.3  # without a new row
TASKS_EVERY_S = 20.0  # also without rows: a process that has died is found, and one that lives is not forgotten


class Epochs:
    def __init__(self, epoch_s: float, epoch_rows: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._epoch_s = epoch_s
        self._epoch_rows = epoch_rows
        self._clock_s = clock_s
        self._places: frozenset[PlaceId] = frozenset()
        self._last_s: dict[PlaceId, float] = {}
        self._grown_s: dict[PlaceId, tuple[int, float]] = {}  # how long a log was, and since when
        self._tasks_s = float("-inf")

    def places(self, served: Mapping[PlaceId, Served]) -> frozenset[PlaceId]:
        """Those that are continuous now. When there are others than before, all get a task at once."""
        found = frozenset(place for place, each in served.items() if each.runner == CONTINUOUS)
        if found != self._places:
            self._places, self._tasks_s = found, float("-inf")
        return found

    def end(self, place: PlaceId, start: int, end: int) -> int:
        """Of the next epoch, from `start` in a log that is so long; `start` itself if it is not time."""
        now_s = self._clock_s()
        last_s = self._last_s.setdefault(place, now_s)
        if self._grown_s.get(place, (-1, 0.0))[0] != end:
            self._grown_s[place] = end, now_s
        if end <= start:
            self._last_s[place] = now_s
            return start
        quiet = now_s - self._grown_s[place][1] >= QUIET_S
        if not quiet and now_s - last_s < self._epoch_s and end - start < self._epoch_rows:
            return start
        self._last_s[place] = now_s
        return end

    def wants_tasks(self) -> bool:
        now_s = self._clock_s()
        if now_s - self._tasks_s < TASKS_EVERY_S:
            return False
        self._tasks_s = now_s
        return True
