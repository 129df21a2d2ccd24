"""Outputs on their way to the routers while the next shard is worked on.

A query of many sites has outputs for many routers in each batch, and each of them syncs its journal before it answers:
one after the other they would take longer than the work. So they are handed over side by side, and the last shard of a
task waits for all. Spark commits nothing before a task has ended, so nothing is committed that no router has. A task
that is tried again hands over the same once more, perhaps while the first try still does: routers drop repeats.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from peregrine.spark.asking import callers

UNKNOWN = 0  # how many shards a task has: then each waits for its own outputs


@dataclass
class Handing:
    """Of one process, which works on one task at a time."""

    _task: int | None = None
    _left: int = 0  # shards of this task that are not done
    _under_way: "list[Future[None]]" = field(default_factory=list)

    def begin(self, task: int | None, shards: int) -> None:
        """A shard of this task, which has so many, all of them worked on here: a batch is one task (`host.start`)."""
        if task is None:
            shards = UNKNOWN
        if task != self._task or shards == UNKNOWN:
            self._task, self._left, self._under_way = task, max(shards, 1), []

    def hand(self, call: Callable[[], None]) -> None:
        if self._left > 1:
            self._under_way.append(callers().submit(call))
        else:
            call()

    def end(self) -> None:
        """The shard is done. Raises what went wrong with any of those that it waits for."""
        self._left -= 1
        if self._left <= 0:
            waited_for, self._under_way = self._under_way, []
            for each in waited_for:
                each.result()


handing = Handing()
