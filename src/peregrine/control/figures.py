"""The figures at the end of the demonstration: what the reconfigurations cost, and the proof; as tables and as JSON."""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from peregrine import measure
from peregrine.control.drive import PLAN, Course, Marks
from peregrine.control.watch import Journey, Watch
from peregrine.measure import PHASES, Cost, Steady
from peregrine.proof import Proof

SETTLED = 0.25  # of the time between the end of one reconfiguration and the next does not count as steady
WHAT_IS_LATE = """\
Disruption: the time in which results of these keys are late, by Falcon's
definition: at or above the mean + 5 sigma of the calm before. 0: none was late;
it does not say that none was slower. After the car has driven on, its rows make
a detour by way of the cloud until its key has followed. Where the calm has a
small sigma, the detour alone is late, and reconfiguration 2 counts its time."""


@dataclass(frozen=True)
class Reconfiguration:
    """What a journey cost its own keys, and all others meanwhile."""

    journey: Journey
    moved: Cost
    others: Cost


@dataclass(frozen=True)
class Figures:
    course: Course
    marks: Marks
    calm: Steady  # of all keys, before anything moved
    usual_silence_ms: float  # the longest one before anything moved: between two batches
    rows_per_s: float
    reconfigurations: list[Reconfiguration]
    proof: Proof


def figures(course: Course, watch: Watch, marks: Marks, proof: Proof) -> Figures:
    calm = watch.outputs().between(marks.steady_ms, marks.moved_ms)
    return Figures(
        course,
        marks,
        calm.steady(marks.steady_ms, marks.moved_ms),
        measure.freeze_ms(calm.emitted_ms, marks.steady_ms, marks.moved_ms),
        len(calm) / (marks.moved_ms - marks.steady_ms) * 1000,
        list(_reconfigurations(watch, marks)),
        proof,
    )


def _reconfigurations(watch: Watch, marks: Marks) -> Iterator[Reconfiguration]:
    """Each against the steady state before the event that began it: the request, or that the car drove."""
    journeys = [each for each in watch.journeys.values() if each.ended]
    first = next(each for each in journeys if each.plan == PLAN)
    first_ended_ms = max(first.steps.values())
    settled_ms = first_ended_ms + SETTLED * (marks.drove_ms - first_ended_ms)
    for i, journey in enumerate(journeys):
        until_ms = min(journeys[i + 1].steps.values()) if i + 1 < len(journeys) else marks.ended_ms
        if journey is first:
            calm_ms, requested_ms, until_ms = (marks.steady_ms, marks.moved_ms), marks.moved_ms, marks.drove_ms
        else:
            calm_ms, requested_ms = (settled_ms, marks.drove_ms), None
        if i == 1:
            requested_ms = marks.drove_ms
        costs = [
            measure.cost(journey.plan, each, watch.timeline, each.steady(*calm_ms), requested_ms, until_ms)
            for each in (watch.outputs(journey.keys), watch.outputs(but=journey.keys))
        ]
        yield Reconfiguration(journey, *costs)


# --- tables ---


def show(console: Console, found: Figures) -> None:
    calm = found.calm
    console.print("\nSteady state, before anything moved", style="bold")
    table = _table(header=False)
    table.add_row("rows a second", f"{found.rows_per_s:,.0f}")
    table.add_row("latency: mean, sigma, p99", f"{calm.mean_ms:,.0f}, {calm.sigma_ms:,.0f}, {calm.p99_ms:,.0f} ms")
    table.add_row("longest silence between two results", f"{found.usual_silence_ms:,.0f} ms")
    console.print(table)
    console.print("\nThe reconfigurations, as the keys that moved felt them (ms)", style="bold")
    console.print(_costs(found))
    console.print(Text(WHAT_IS_LATE, style="dim"), soft_wrap=True)
    console.print("\nCompared with a run in which nothing moved", style="bold")
    console.print(_proof(found.proof))
    for violation in found.proof.violations:
        console.print(Text(f"violation: {violation}", style="bold red"))


def _costs(found: Figures) -> Table:
    table = _table()
    table.add_column("")
    for number, each in enumerate(found.reconfigurations, start=1):
        table.add_column(f"{number} {each.journey.what}\n{each.journey.way}", justify="right")
    costs = [each.moved for each in found.reconfigurations]

    def row(name: str, values: list[float | None], style: str = "") -> None:
        table.add_row(name, *("-" if value is None else f"{value:,.0f}" for value in values), style=style)

    row("late from (mean + 5 sigma)", [each.calm.disrupted_from_ms for each in costs])
    row("disruption (late for)", [each.disruption_ms for each in costs])
    row("peak latency jitter", [each.peak_jitter_ms for each in costs])
    row("freeze (longest silence)", [each.freeze_ms for each in costs])
    row("reconfiguration duration", [each.duration_ms for each in costs])
    for phase in PHASES.values():
        row(f"  {phase}", [each.phases_ms.get(phase) for each in costs], style="dim")
    row("state movement", [each.state_movement_ms for each in costs])
    row("bytes moved", [each.bytes_moved for each in costs])
    row("disruption of all other keys", [each.others.disruption_ms for each in found.reconfigurations])
    return table


def _proof(proof: Proof) -> Table:
    table = _table(header=False)
    differ = len(proof.states_that_differ)
    state = f"{differ} of {proof.states} differ" if differ else "identical"
    facts: tuple[tuple[str, str, bool], ...] = (
        ("rows in", f"{proof.rows_in:,}", True),
        ("rows out", f"{proof.rows_out:,}", proof.rows_out == proof.rows_in),
        ("lost", f"{proof.lost:,}", not proof.lost),
        ("repeated", f"{proof.repeated:,}", not proof.repeated),
        ("out of order", f"{proof.out_of_order:,}", not proof.out_of_order),
        ("state", state, not differ),
    )
    for name, value, fine in facts:
        table.add_row(name, Text(value, style="green" if fine else "bold red"))
    return table


def _table(header: bool = True) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False, show_header=header)
    if not header:
        table.add_column(min_width=37)
        table.add_column(justify="right")
    return table


# --- JSON ---


def as_dict(found: Figures) -> dict[str, Any]:
    proof = found.proof
    return {
        "course": asdict(found.course),
        "cores": os.cpu_count(),
        "steady": {**asdict(found.calm), "rows_per_s": found.rows_per_s, "longest_silence_ms": found.usual_silence_ms},
        "reconfigurations": [
            {
                "plan": each.journey.plan,
                "keys": each.journey.keys,
                "source": each.journey.source,
                "target": each.journey.target,
                "moved_keys": _cost(each.moved),
                "other_keys": _cost(each.others),
            }
            for each in found.reconfigurations
        ],
        "proof": {**asdict(proof), "holds": proof.holds},
    }


def _cost(cost: Cost) -> dict[str, Any]:
    figures = {**asdict(cost), "duration_ms": cost.duration_ms}
    for name in ("plan", "requested_ms", "ended_ms"):
        del figures[name]
    return figures
