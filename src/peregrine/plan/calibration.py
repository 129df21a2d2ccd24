"""What is much and what is little on the machine at hand: the thresholds of the adaptive strategy.

Spacker IV-C: "high and low are relative, with quantitative values depending on actual hardware and workloads". So each
threshold is where, of two choices that were measured side by side, the other one becomes the better (`derived`). The
defaults are for nobody who has measured: they follow from figures of a micro-batch host on two cores.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import msgspec

from peregrine.errors import ConfigurationError

NEVER = 1e18  # a threshold that nothing reaches; JSON knows no infinity


@dataclass(frozen=True, slots=True)
class Goal:
    """How much a spike of the latency, the completion time and the overhead beforehand weigh against each other."""

    spike: float = 1.0
    completion: float = 1.0
    overhead: float = 1.0


ALIKE = Goal()


@dataclass(frozen=True, slots=True)
class Calibration:
    high_rows_per_s: float = 5_000.0  # a quarter of what a host works off when nothing else is to be done
    high_skew: float = 0.5
    large_key_bytes: float = 64 * 1024.0  # from here on state leaves the blob of its group
    many_keys: float = 256.0
    low_access_ratio: float = 0.1
    round_bytes: float = 4e6  # travel in the time that a round of a migration takes anyway
    less_chunks: int = 4
    more_chunks: int = 16
    replicated_share: float = 0.5

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2)


DEFAULTS = Calibration()


def from_json(text: bytes | str) -> Calibration:
    try:
        return msgspec.json.decode(text, type=Calibration)
    except msgspec.DecodeError as error:
        raise ConfigurationError(
            f"a calibration that cannot be read: {error}", "measure again, or remove it"
        ) from error


@dataclass(frozen=True, slots=True)
class Measured:
    """One migration: the value of the input that was varied, which choice was made, and what it cost."""

    input: str  # a key of CHOICES
    value: float
    choice: str
    spike_ms: float
    completion_ms: float
    overhead_ms: float = 0.0


# Which threshold an input gives, and between which choices: the first below it, the second above.
CHOICES: Mapping[str, tuple[str, str, str]] = {
    "rows_per_s": ("high_rows_per_s", "random", "hot-first"),
    "skew": ("high_skew", "random", "hot-first"),
    "key_bytes": ("large_key_bytes", "all-at-once", "chunks"),
    "keys": ("many_keys", "more-chunks", "less-chunks"),
    "access_ratio": ("low_access_ratio", "replicas", "none"),
}


def derived(measured: Iterable[Measured], goal: Goal = ALIKE, start: Calibration = DEFAULTS) -> Calibration:
    """Every threshold for which there are measurements; the others stay as they are in `start`."""
    by_input: dict[str, list[Measured]] = {}
    for each in measured:
        if each.input not in CHOICES:
            raise ConfigurationError(f"a measurement of {each.input!r}", f"measure one of: {', '.join(CHOICES)}")
        by_input.setdefault(each.input, []).append(each)
    found = start
    for name, points in by_input.items():
        threshold, below, above = CHOICES[name]
        costs = sorted(_costs(points, goal).items())
        crossing = crossover([(value, of[below], of[above]) for value, of in costs if below in of and above in of])
        if crossing is not None:
            found = replace(found, **{threshold: crossing})  # type: ignore[arg-type]
    return found


def crossover(points: Sequence[tuple[float, float, float]]) -> float | None:
    """Where the second cost becomes and stays the lower one, of (value, first cost, second cost) by value.

    NEVER if it does not; None without points. Values are far apart, so the middle of two is their geometric one,
    weighted by how clearly each of them speaks.
    """
    if not points:
        return None
    lead = [(value, math.log(max(first, 1e-9)) - math.log(max(second, 1e-9))) for value, first, second in points]
    if lead[-1][1] <= 0:
        return NEVER
    crossing = lead[0][0]
    for (low, before), (high, after) in pairwise(lead):
        if before <= 0 < after:
            share = -before / (after - before)
            crossing = high if low <= 0 else low ** (1 - share) * high**share
    return crossing


def _costs(points: Iterable[Measured], goal: Goal) -> dict[float, dict[str, float]]:
    """value -> choice -> its weighted cost: each part relative to the best at that value."""
    at: dict[float, dict[str, list[Measured]]] = {}
    for each in points:
        at.setdefault(each.value, {}).setdefault(each.choice, []).append(each)
    found = {}
    for value, choices in at.items():
        parts = {choice: _mean(each) for choice, each in choices.items()}
        best = [max(min(part[i] for part in parts.values()), 1.0) for i in range(3)]
        weights = (goal.spike, goal.completion, goal.overhead)
        found[value] = {
            choice: sum(w * max(each, 1.0) / b for w, each, b in zip(weights, part, best, strict=True))
            for choice, part in parts.items()
        }
    return found


def _mean(points: Sequence[Measured]) -> tuple[float, float, float]:
    return tuple(  # type: ignore[return-value]
        math.fsum(values) / len(points)
        for values in zip(*((p.spike_ms, p.completion_ms, p.overhead_ms) for p in points), strict=True)
    )
