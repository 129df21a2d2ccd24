"""What one cell found."""

from dataclasses import dataclass

from peregrine import measure
from peregrine.bench.engine.definition import Cell
from peregrine.proof import Proof


@dataclass(frozen=True)
class Forecast:
    """What was predicted, when predictions had learnt from so many migrations."""

    duration_ms: float
    bytes_moved: float
    lessons: int
    pause_ms: float = 0.0


def pause_ms(cost: measure.Cost) -> float:
    """What `plan.predict` means by it, as results show it: how much later the slowest came than a slow one usually."""
    return max(cost.peak_jitter_ms - (cost.calm.p99_ms - cost.calm.mean_ms), 0.0)


@dataclass(frozen=True)
class Measured:
    """`trouble` says why there is nothing: the mechanism does not apply, or the run failed."""

    cell: Cell
    cost: measure.Cost | None = None
    outputs: measure.Outputs | None = None  # from the calm on
    trigger_ms: float | None = None
    bytes_on_links: int | None = None  # from the calm on, until it had settled
    proof: Proof | None = None
    forecast: Forecast | None = None
    seconds: float = 0.0
    trouble: str = ""
    failed: bool = False
    skipped: bool = False  # what it needs is not here: it runs when it is
    calm: measure.Steady | None = None  # where there is no cost that tells it
    max_rows_per_s: float | None = None  # of a run at saturation
    dip: float | None = None  # the share by which fewer results came, for a while
