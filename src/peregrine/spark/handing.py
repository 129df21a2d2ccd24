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

    def __init__(self, places: int) -> None:
        self._left = places  # that have not handed anything over
        self._under_way: list[Future[None]] = []

    def hand(self, call: Callable[[], None]) -> None:
        """All outputs of one place. Those of the last need not wait for a thread."""
        self._left -= 1
        if self._left > 0:
            self._under_way.append(callers().submit(call))
        else:
            call()

    def wait(self) -> None:
        """Until all routers have answered; raises what went wrong with any of them."""
        for each in self._under_way:
            each.result()
