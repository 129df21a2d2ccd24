"""When it is time for an epoch of continuous places: Spark commits what their process has done since the last one.

What Spark does then takes a core for a tenth of a second, which rows feel on a small machine. So epochs are long while
rows flow, are those of all places at once, and come when rows have stopped. A place that no process follows has one at
once: its task starts the process again.
"""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from peregrine.spark.served import CONTINUOUS, Served
from peregrine.types import PlaceId

QUIET_S = 0.3  # without a new row anywhere
ALONE_S = 3.0  # without a new row at one place, while others go on
TASKS_EVERY_S = 30.0  # also without rows: a process that lives is not forgotten


class Log(NamedTuple):
    committed: int
    end: int
    left: bool = False  # no process follows it


class Epochs:
    def __init__(self, epoch_s: float, epoch_rows: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._epoch_s = epoch_s
        self._epoch_rows = epoch_rows
        self._clock_s = clock_s
        self._places: frozenset[PlaceId] = frozenset()
        self._waiting_s: dict[PlaceId, float] = {}  # since when there is something to commit
        self._grown_s: dict[PlaceId, tuple[int, float]] = {}  # how long a log was, and since when
        self._tasks_s = float("-inf")

    def places(self, served: Mapping[PlaceId, Served]) -> frozenset[PlaceId]:
        """Those that are continuous now. When there are others than before, all get a task at once."""
        found = frozenset(place for place, each in served.items() if each.runner == CONTINUOUS)
        if found != self._places:
            self._places, self._tasks_s = found, float("-inf")
        return found

    def is_due(self, logs: Mapping[PlaceId, Log], anyway: bool = False) -> bool:
        """Is it time? `anyway`: there is a batch in any case, so that whatever is there goes with it."""
        now_s = self._clock_s()
        for place, log in logs.items():
            if self._grown_s.get(place, (-1, 0.0))[0] != log.end:
                self._grown_s[place] = log.end, now_s
        waiting = {place: log for place, log in logs.items() if log.end > log.committed}
        self._waiting_s = {place: self._waiting_s.get(place, now_s) for place in waiting}
        quiet_s = [now_s - self._grown_s[place][1] for place in waiting]
        due = bool(waiting) and (
            anyway
            or min(quiet_s) >= QUIET_S
            or max(quiet_s) >= ALONE_S
            or any(log.left or log.end - log.committed >= self._epoch_rows for log in waiting.values())
            or any(now_s - since_s >= self._epoch_s for since_s in self._waiting_s.values())
        )
        if due:
            self._waiting_s.clear()
        return due

    def wants_tasks(self) -> bool:
        now_s = self._clock_s()
        if now_s - self._tasks_s < TASKS_EVERY_S:
            return False
        self._tasks_s = now_s
        return True
