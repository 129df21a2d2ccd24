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


@dataclass(frozen=True)
class Measured:
    """`trouble` says why there is nothing: the mechanism does not apply, or the run failed."""

    cell: Cell
    cost: measure.Cost | None = None
    outputs: measure.Outputs | None = None  # from the calm on
    trigger_ms: float | None = None
    bytes_on_links: int | None = None  # of the whole run; None if other cells were part of it
    proof: Proof | None = None
    forecast: Forecast | None = None
    seconds: float = 0.0
    trouble: str = ""
    failed: bool = False
