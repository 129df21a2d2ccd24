"""Which keys have replicas, and where (Spacker's replication): kept during normal processing, for moves that may come.

A replica is worth most where it stays fresh for long and saves much: of keys that get few rows and have much state. It
is never where its key lives.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from peregrine.core.keyspace import stable_hash
from peregrine.errors import ConfigurationError
from peregrine.plan.metrics import Metrics, Unit
from peregrine.types import PlaceId

Replicas = Mapping[Unit, Sequence[PlaceId]]
POINTS = 64  # of each place on the ring: the more, the more even the shares


def no_replicas(keyspace: Sequence[Unit], metrics: Metrics, /) -> Replicas:
    return {}


class Ring:
    """Consistent hashing: where a place is added or removed, only the units go that come to it or were there."""

    def __init__(self, places: Sequence[PlaceId]) -> None:
        self._points = sorted((stable_hash(f"{place} {nth}"), place) for place in places for nth in range(POINTS))

    def places(self, unit: Unit, count: int, but: PlaceId | None = None) -> tuple[PlaceId, ...]:
        """The first `count` different places behind the unit, round the ring."""
        begin = bisect_right(self._points, stable_hash(str(unit)), key=lambda point: point[0])
        found: dict[PlaceId, None] = {}
        for _, place in chain(islice(self._points, begin, None), islice(self._points, begin)):
            if place != but:
                found[place] = None
            if len(found) == count:
                break
        return tuple(found)


@dataclass(frozen=True, slots=True)
class ConsistentHashing:
    """So many replicas of every key, spread over the places as Rhino does it."""

    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ConfigurationError(f"{self.count} replicas", "give at least 1, or the replication `none`")

    def __call__(self, keyspace: Sequence[Unit], metrics: Metrics, /) -> Replicas:
        ring = Ring(metrics.places)
        found = {unit: ring.places(unit, self.count, metrics.load(unit).place) for unit in keyspace}
        return {unit: places for unit, places in found.items() if places}


@dataclass(frozen=True, slots=True)
class Ratio:
    """Replicas of this share of the keys: of the quietest, and of these the largest."""

    share: float
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ConfigurationError(f"replicas of a share of {self.share} of the keys", "give a share from 0 to 1")

    def __call__(self, keyspace: Sequence[Unit], metrics: Metrics, /) -> Replicas:
        def worth(unit: Unit) -> tuple[float, int]:
            load = metrics.load(unit)
            return load.rows_per_s, -load.state_bytes

        chosen = sorted(keyspace, key=worth)[: round(self.share * len(keyspace))]
        return ConsistentHashing(self.count)(chosen, metrics)
