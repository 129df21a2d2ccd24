"""How many keys go at a time (Spacker's progressiveness): each cuts an order into chunks and leaves it as it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from peregrine.errors import ConfigurationError
from peregrine.plan.metrics import Load, Metrics, Unit

Chunks = Sequence[Sequence[Unit]]


def all_at_once(order: Sequence[Unit], metrics: Metrics, /) -> Chunks:
    return [order] if order else []


@dataclass(frozen=True, slots=True)
class NChunks:
    """So many chunks with about as many units each; fewer, if there are fewer units."""

    count: int

    def __post_init__(self) -> None:
        _positive("number of chunks", self.count)

    def __call__(self, order: Sequence[Unit], metrics: Metrics, /) -> Chunks:
        count = min(self.count, len(order))
        bounds = [nth * len(order) // count for nth in range(count + 1)] if count else []
        return [order[first:end] for first, end in pairwise(bounds)]


@dataclass(frozen=True, slots=True)
class BySize:
    """Chunks of at most so many bytes of state; a unit that is larger is one by itself."""

    limit_bytes: int

    def __post_init__(self) -> None:
        _positive("size of a chunk", self.limit_bytes)

    def __call__(self, order: Sequence[Unit], metrics: Metrics, /) -> Chunks:
        return _filled(order, metrics, self.limit_bytes, lambda load: load.state_bytes)


@dataclass(frozen=True, slots=True)
class Pace:
    """What a chunk takes: a round of the mechanism, however small it is, and what its state and keys add."""

    round_ms: float = 500.0
    ms_per_mb: float = 30.0
    ms_per_key: float = 0.1

    def of(self, load: Load) -> float:
        """Beside the round."""
        return load.state_bytes / 1e6 * self.ms_per_mb + load.keys * self.ms_per_key


USUAL_PACE = Pace()


@dataclass(frozen=True, slots=True)
class ByTime:
    """Chunks that are predicted to take no longer than this, as far as one unit and one round do not already."""

    limit_ms: float
    pace: Pace = USUAL_PACE

    def __post_init__(self) -> None:
        _positive("time of a chunk", self.limit_ms)

    def __call__(self, order: Sequence[Unit], metrics: Metrics, /) -> Chunks:
        return _filled(order, metrics, self.limit_ms - self.pace.round_ms, self.pace.of)


def _filled(order: Sequence[Unit], metrics: Metrics, limit: float, size: Callable[[Load], float]) -> Chunks:
    chunks: list[list[Unit]] = []
    room = 0.0
    for unit in order:
        needs = size(metrics.load(unit))
        if not chunks or needs > room:
            chunks.append([])
            room = limit
        chunks[-1].append(unit)
        room -= needs
    return chunks


def _positive(what: str, value: float) -> None:
    if not value > 0:
        raise ConfigurationError(f"a {what} of {value}", "give one above 0")
