"""Which key goes first (Spacker's prioritisation): each takes units and gives them back in another order."""

import math
from collections.abc import Sequence
from hashlib import blake2b

from peregrine.plan.metrics import Metrics, Unit


def hot_first(units: Sequence[Unit], metrics: Metrics, /) -> Sequence[Unit]:
    """The busiest first: an overloaded place is relieved soonest (Spacker V-C3)."""
    return sorted(units, key=lambda unit: -metrics.load(unit).rows_per_s)


def by_arrival(units: Sequence[Unit], metrics: Metrics, /) -> Sequence[Unit]:
    """Those whose next row is due first (Meces): what would have to wait first is there first.

    A row is expected one mean gap behind the last one; units of which no row was seen come last.
    """

    def due_ms(unit: Unit) -> float:
        load = metrics.load(unit)
        if load.last_row_ms is None or not load.rows_per_s:
            return math.inf
        return load.last_row_ms + 1000 / load.rows_per_s

    return sorted(units, key=due_ms)


class Shuffled:
    """In an order that has nothing to do with the keys; the same one for the same seed, on every machine."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def __call__(self, units: Sequence[Unit], metrics: Metrics, /) -> Sequence[Unit]:
        return sorted(units, key=self._rank)

    def _rank(self, unit: Unit) -> bytes:
        return blake2b(f"{self._seed} {unit!r}".encode(), digest_size=8).digest()


RANDOM = Shuffled()
