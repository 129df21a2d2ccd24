"""What planning knows of an operator, and the five inputs of Spacker IV-C that follow from it.

A strategy plans in units: keys, or groups of keys where there are too many of them. What nobody has measured counts as
idle and empty. Rates and sizes are estimates: they decide what is wise, never what is correct.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from peregrine.core.keyspace import group_of, stable_hash
from peregrine.types import OpId, PlaceId

Unit = str | int  # a key, or the number of a group

LEAST_SPAN_MS = 100.0  # a few rows at one moment are no rate
FRESH_MS = 1000.0  # a replica of a key that got a row since may be behind
STEEPEST = 8.0  # Zipf exponents above are one: nearly all rows are of one key


@dataclass(frozen=True, slots=True)
class Load:
    """Of one unit."""

    rows_per_s: float = 0.0
    state_bytes: int = 0
    last_row_ms: float | None = None  # None: nobody has seen a row of it
    place: PlaceId | None = None  # where it lives
    keys: int = 1

    def touched(self, within_ms: float) -> float:
        """The share of its keys that get a row within this time."""
        return 1 - math.exp(-self.rows_per_s / max(self.keys, 1) * within_ms / 1000)

    def __add__(self, other: "Load") -> "Load":
        rows = [each for each in (self.last_row_ms, other.last_row_ms) if each is not None]
        return Load(
            self.rows_per_s + other.rows_per_s,
            self.state_bytes + other.state_bytes,
            max(rows, default=None),
            self.place if self.place == other.place else None,
            self.keys + other.keys,
        )


IDLE = Load()


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the default strategy decides on (Spacker IV-C)."""

    rows_per_s: float
    skew: float  # the exponent of the Zipf distribution that the rates look like; 0: all the same
    key_bytes: float  # state of a key, on the average
    keys: int  # to migrate
    access_ratio: float  # the share of keys that get a row within a second
    carried_bytes: float  # of all of these keys, without what the target has a replica of that is still fresh


@dataclass(frozen=True, slots=True)
class Metrics:
    """Of one operator. `places` are those where its keys could live: where replicas may be put."""

    op: OpId
    groups: int
    loads: Mapping[Unit, Load]
    access_ratio: float = 0.0
    places: tuple[PlaceId, ...] = ()
    now_ms: float = 0.0
    replicated: frozenset[Unit] = frozenset()  # have a replica where they are to go

    def load(self, unit: Unit) -> Load:
        return self.loads.get(unit, IDLE)

    def total(self, units: Iterable[Unit]) -> Load:
        found = [self.load(unit) for unit in units]
        return sum(found[1:], found[0]) if found else Load(keys=0)

    def inputs(self, units: Sequence[Unit]) -> Inputs:
        loads = [self.load(unit) for unit in units]
        keys = sum(load.keys for load in loads)
        stale = (self.load(unit).touched(FRESH_MS) if unit in self.replicated else 1.0 for unit in units)
        return Inputs(
            rows_per_s=math.fsum(load.rows_per_s for load in loads),
            skew=zipf_exponent([load.rows_per_s for load in loads]),
            key_bytes=sum(load.state_bytes for load in loads) / keys if keys else 0.0,
            keys=keys,
            access_ratio=self.access_ratio,
            carried_bytes=math.fsum(load.state_bytes * share for load, share in zip(loads, stale, strict=True)),
        )

    def by_group(self) -> "Metrics":
        """The same with a unit for each group that has keys."""
        loads: dict[Unit, Load] = {}
        for unit, load in self.loads.items():
            group = unit if isinstance(unit, int) else group_of(stable_hash(unit), self.groups)
            loads[group] = loads[group] + load if group in loads else load
        return replace(self, loads=loads)


def zipf_exponent(rates: Iterable[float]) -> float:
    """The exponent that makes these rates the likeliest; keys without rows are left out.

    With shares p of ranks 1..n the likelihood is greatest where the mean of log(rank) is the one that the distribution
    expects. Unlike a line through the points in a log-log plot this is not led astray by the many rare keys.
    """
    ordered = np.sort([rate for rate in rates if rate > 0])[::-1]
    if len(ordered) < 2:
        return 0.0
    log_rank = np.log(np.arange(1, len(ordered) + 1))
    seen = float((ordered / ordered.sum()) @ log_rank)

    def expected(exponent: float) -> float:
        weights = np.exp(-exponent * log_rank)
        return float(weights @ log_rank / weights.sum())

    return _where(lambda exponent: expected(exponent) - seen, STEEPEST)


def _where(falling: Callable[[float], float], above: float) -> float:
    """Where a falling function becomes zero, between 0 and `above`."""
    below = 0.0
    if falling(below) <= 0:
        return below
    for _ in range(50):
        middle = (below + above) / 2
        below, above = (middle, above) if falling(middle) > 0 else (below, middle)
    return (below + above) / 2


@dataclass(frozen=True, slots=True)
class Seen:
    """What a stretch of a log tells about the keys in it."""

    rows_per_s: Mapping[str, float]
    last_row_ms: Mapping[str, float]
    keys_per_s: float  # how many different keys get a row within a second, on the average
    over_ms: float

    def access_ratio(self, keys: int) -> float:
        return min(self.keys_per_s / keys, 1.0) if keys else 0.0


NOTHING_SEEN = Seen({}, {}, 0.0, 0.0)


def seen(keys: Sequence[str], created_ms: npt.NDArray[np.float64], window_ms: float) -> Seen:
    """From the key and the time of each row. The window ends with the newest row, and is no longer than the rows reach
    back.
    """
    if not len(keys):
        return NOTHING_SEEN
    newest_ms = float(created_ms.max())
    begin_ms = max(float(created_ms.min()), newest_ms - window_ms)
    recent = created_ms >= begin_ms
    names, which, counts = np.unique(np.asarray(keys)[recent], return_inverse=True, return_counts=True)
    times_ms = created_ms[recent]
    last_ms = np.full(len(names), -np.inf)
    np.maximum.at(last_ms, which, times_ms)
    over_ms = max(newest_ms - begin_ms, LEAST_SPAN_MS)
    seconds = ((times_ms - begin_ms) // 1000).astype(np.int64)
    touched = len(np.unique(np.stack([which, seconds]), axis=1).T)
    return Seen(
        {str(name): 1000 * int(count) / over_ms for name, count in zip(names, counts, strict=True)},
        {str(name): float(at_ms) for name, at_ms in zip(names, last_ms, strict=True)},
        touched / max(over_ms / 1000, 1.0),
        over_ms,
    )


def measured(
    op: OpId,
    groups: int,
    rows: Seen,
    state_bytes: Mapping[str, int],
    owner: Callable[[str], PlaceId],
    places: Sequence[PlaceId] = (),
    now_ms: float = 0.0,
) -> Metrics:
    """From what was seen in the log and in the state store."""
    keys = sorted({*rows.rows_per_s, *state_bytes})
    loads: dict[Unit, Load] = {
        key: Load(rows.rows_per_s.get(key, 0.0), state_bytes.get(key, 0), rows.last_row_ms.get(key), owner(key))
        for key in keys
    }
    return Metrics(op, groups, loads, rows.access_ratio(len(keys)), tuple(places), now_ms)
