"""Experiments, cell after cell: what is there already is skipped, what fails is said and the next one runs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from peregrine.bench.engine.definition import Cell, Definition, cells
from peregrine.bench.engine.measured import Measured
from peregrine.bench.engine.store import Store
from peregrine.bench.spark import machine
from peregrine.bench.spark.experiment import broken, proved
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.mechanisms.program import Movement
from peregrine.errors import PeregrineError

HEAT_S = 6.0


@dataclass(frozen=True)
class Progress:
    """Told when cells begin that share a deployment, and when each of them has ended."""

    cell: Cell
    done: int
    all: int
    news: str = ""  # empty: it begins
    wrong: bool = False


Find = Callable[[list[Cell], bool], list[Measured]]


def run(
    definition: Definition,
    size: str,
    folder: Path,
    again: bool = False,
    say: Callable[[Progress], None] = lambda news: None,
    find: Find | None = None,
) -> list[str]:
    """What is wrong with what was run, in words; empty if nothing is. `find` runs cells that share a deployment; it is
    told whether they are the first.
    """
    store = Store(folder, size)
    every = cells(definition, size)
    store.prune(definition.name, every)
    wanted = [cell for cell in every if again or not store.has(cell)]
    done = len(every) - len(wanted)
    described = machine.describe()
    wrong: list[str] = []
    for nth, group in enumerate(groups(definition, wanted)):
        say(Progress(group[0], done, len(every)))
        for each in (find or on_spark)(group, nth == 0):
            done += 1
            complaints = _complaints(each)
            wrong += [f"{definition.name}: {each.cell.name}: {complaint}" for complaint in complaints]
            if not each.failed:  # one that failed runs again the next time
                store.keep(each, described)
            news = "; ".join(complaints) or each.trouble or _figures(each)
            say(Progress(each.cell, done, len(every), news, bool(complaints)))
    return wrong


def groups(definition: Definition, wanted: list[Cell]) -> Iterator[list[Cell]]:
    """Cells that run in one deployment."""
    for _, same in groupby(wanted, key=lambda cell: cell.x):
        together: list[Cell] = []
        for cell in same:
            if definition.reuse and may_share(cell):
                together.append(cell)
            else:
                yield [cell]
        if together:
            yield together


def may_share(cell: Cell) -> bool:
    """Does it leave nothing behind that the next cell, or the proof of the run, would notice?"""
    mechanism = MECHANISMS.get(cell.setting.mechanism)
    if mechanism is None or mechanism.checkpoint_assisted or cell.setting.hosts is not None:
        return False
    # Where no state travels, what the new place has instead is its own: a difference would be blamed on all cells.
    return mechanism.ordered and mechanism.lossless and mechanism.movement is not Movement.NONE


def on_spark(group: list[Cell], heat: bool) -> list[Measured]:
    from peregrine.bench.engine.cell import run_cells
    from peregrine.bench.spark import stream

    try:
        if heat:
            stream.heat(HEAT_S)
        return run_cells(group)
    except PeregrineError as error:
        return [Measured(cell, trouble=error.what, failed=True) for cell in group]


def _complaints(measured: Measured) -> list[str]:
    """What must not be: a failure, or a proof that does not hold. Without order, as declared, is no fault."""
    if measured.failed:
        return [measured.trouble]
    if measured.proof is None:
        return []
    proof = proved(measured.proof)
    if measured.cell.setting.mechanism == "live-unordered":
        proof["out_of_order"] = 0
    return broken({"proofs": {"proof": proof}})


def _figures(measured: Measured) -> str:
    cost = measured.cost
    assert cost is not None
    return (
        f"disruption {cost.disruption_ms:,.0f}, jitter {cost.peak_jitter_ms:,.0f}, freeze {cost.freeze_ms:,.0f},"
        f" duration {cost.duration_ms:,.0f} ms, {cost.bytes_moved:,} bytes"
    )
