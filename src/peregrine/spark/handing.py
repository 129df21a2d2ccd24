"""Outputs on their way to the routers while the next place is worked on.

A query of many sites has outputs for many routers in each batch, and each of them syncs its journal before it answers:
one after the other they would take longer than the work. So they are handed over side by side, and whoever works on a
batch waits for all before it ends. Spark commits nothing before that, so nothing is committed that no router has. A
batch that is tried again hands over the same once more, perhaps while the first try still does: routers drop repeats.
"""

from collections.abc import Callable
from concurrent.futures import Future

from peregrine.spark.asking import callers


class Handing:
    """Of one call of Spark's."""

    def __init__(self, side_by_side: bool) -> None:
        """Where there is one place only, nobody needs a thread."""
        self._side_by_side = side_by_side
        self._under_way: list[Future[None]] = []

    def hand(self, call: Callable[[], None]) -> None:
        """All outputs of one place."""
        if self._side_by_side:
            self._under_way.append(callers().submit(call))
        else:
            call()

    def wait(self) -> None:
        """Until all routers have answered; raises what went wrong with any of them."""
        for each in self._under_way:
            each.result()
