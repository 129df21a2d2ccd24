"""What one cell found."""

from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Felt:
    """What those who read results feel, in Shepherd's words."""

    downtime_ms: float  # the longest time without any result, by how much it is longer than in the calm
    late: int  # results that came later than agreed
    recovery_ms: float  # from the first to the last of these


@dataclass(frozen=True, slots=True)
class Roamed:
    """What a source that drives put on links beside state, and what was begun in vain."""

    row_bytes_on_links: int  # from the first hand-over until all has settled
    row_bytes_in_calm: int  # of as many rows when nothing moves: only results are on links
    row_bytes_up: int  # of those while it drives, rows of the source on their way up to where its key is,
    row_bytes_down: int  # and from there down: the detour to the old edge, and copies while the key moves
    given_up: int  # second legs


def pause_ms(cost: measure.Cost) -> float:
    """What `plan.predict` means by it, as results show it: how much later the slowest came than a slow one usually."""
    return max(cost.peak_jitter_ms - (cost.calm.p99_ms - cost.calm.mean_ms), 0.0)


@dataclass(frozen=True)
class Measured:
    """`trouble` says why there is nothing: the mechanism does not apply, or the run failed. Beside figures it says what
    they do not tell.
    """

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
    dip: float | None = None  # at the switch: the share by which fewer results came, for a while
    dip_before: float | None = None  # while what is to take over was started in the background
    handover: float | None = None  # the worst of all, as a share of a round trip and a trigger interval
    handover_of_others: float | None = None  # what those felt meanwhile who stayed where they are
    changes: int | None = None  # of the topology, all of them carried out
    deployment_ms: float | None = None  # the mean, from when a change was told until it was carried out
    event_time_ms: float | None = None  # the mean latency of results meanwhile
    felt: Felt | None = None
    roamed: Roamed | None = None
    per_month: float | None = None  # dollars


def of_results(
    cell: Cell,
    outputs: measure.Outputs,
    calm_ms: float,
    requested_ms: float,
    ended_ms: float,
    until_ms: float,
    **more: Any,
) -> Measured:
    """Where no plan tells when it began and ended: what results felt, held against the calm before it."""
    steady = outputs.steady(calm_ms, requested_ms)
    cost = measure.cost_of_results(cell.setting.mechanism, outputs, steady, requested_ms, ended_ms, until_ms)
    return Measured(cell, cost, outputs.between(calm_ms, until_ms), **more)
