"""Experiments, cell after cell: what is there already is skipped, what fails is said and the next one runs."""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import groupby
from pathlib import Path

from peregrine.bench.engine.definition import REPLAYS, Cell, Definition, cells
from peregrine.bench.engine.measured import Measured
from peregrine.bench.engine.store import Store
from peregrine.bench.spark import machine
from peregrine.bench.spark.experiment import broken, proved
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.mechanisms.program import Movement
from peregrine.errors import PeregrineError, UnknownName

HEAT_S = 6.0


@dataclass(frozen=True)
class Progress:
    """Told when cells begin that share a deployment, and when each of them has ended."""

    cell: Cell
    done: int
    all: int
    news: str = ""  # empty: it begins
    wrong: bool = False


@dataclass(frozen=True)
class Only:
    """Some of the cells: of these variants and where the axis says this. Nothing named: all."""

    variants: Sequence[str] = ()
    values: Sequence[str] = ()

    def of(self, cells: Sequence[Cell]) -> list[Cell]:
        for kind, wanted, known in (
            ("variant", self.variants, [cell.variant for cell in cells]),
            ("value", self.values, [cell.x_label for cell in cells]),
        ):
            for name in wanted:
                if name not in known:
                    raise UnknownName(kind, name, list(dict.fromkeys(known)))
        return [
            cell
            for cell in cells
            if (not self.variants or cell.variant in self.variants) and (not self.values or cell.x_label in self.values)
        ]


ALL = Only()
Find = Callable[[list[Cell], bool], list[Measured]]


def run(
    definition: Definition,
    size: str,
    folder: Path,
    again: bool = False,
    say: Callable[[Progress], None] = lambda news: None,
    find: Find | None = None,
    only: Only = ALL,
    cold: bool = True,
) -> list[str]:
    """What is wrong with what was run, in words; empty if nothing is. `find` runs cells that share a deployment; it is
    told whether they are the first in this process, if it is `cold`.
    """
    store = Store(folder, size)
    every = cells(definition, size)
    store.prune(definition.name, every)
    every = only.of(every)
    wanted = [cell for cell in every if again or not store.has(cell)]
    done = len(every) - len(wanted)
    described = machine.describe()
    wrong: list[str] = []
    for nth, group in enumerate(groups(definition, wanted)):
        say(Progress(group[0], done, len(every)))
        with unsearched():
            found = (find or _finder(definition, group[0]))(group, cold and nth == 0)
        for each in found:
            done += 1
            complaints = _complaints(each)
            wrong += [f"{definition.name}: {each.cell.name}: {complaint}" for complaint in complaints]
            if not each.skipped:  # one that failed is kept as such, and runs again the next time
                store.keep(each, described)
            news = "; ".join(complaints) or each.trouble or _figures(each)
            say(Progress(each.cell, done, len(every), news, bool(complaints)))
    return wrong


@contextmanager
def unsearched() -> Iterator[None]:
    """What sends rows and reads results must not stop to look for garbage, of which earlier cells have left much."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


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
    if cell.setting.mechanism in REPLAYS:
        return False  # it has operators of its own
    mechanism = MECHANISMS.get(cell.setting.mechanism)
    if mechanism is None:
        return True  # by strategy: pause, progressive or replica
    # Where no state travels, what the new place has instead is its own: a difference would be blamed on all cells.
    return mechanism.ordered and mechanism.lossless and mechanism.movement is not Movement.NONE


def _finder(definition: Definition, cell: Cell) -> Find:
    """Of the cells that run with this one."""
    kind = "replaying" if cell.setting.mechanism in REPLAYS else definition.kind
    if kind == "peers":
        from peregrine.bench.peers.run import find

        return find
    if kind != "mechanisms":
        return one_by_one(import_module(f"peregrine.bench.engine.{kind}").run_cell)
    return on_spark


def one_by_one(run_cell: Callable[[Cell], Measured]) -> Find:
    """Each in a deployment of its own."""

    def found(cell: Cell) -> Measured:
        began_s = time.monotonic()
        try:
            measured = run_cell(cell)
            return replace(measured, seconds=time.monotonic() - began_s)
        except PeregrineError as error:
            return Measured(cell, trouble=error.what, failed=True)

    def find(group: list[Cell], heat: bool) -> list[Measured]:
        from peregrine.bench.spark import stream

        if heat:
            stream.heat(HEAT_S)
        return [found(cell) for cell in group]

    return find


def on_spark(group: list[Cell], heat: bool) -> list[Measured]:
    """Those behind one that failed get another deployment."""
    from peregrine.bench.engine.cell import run_cells
    from peregrine.bench.spark import stream
    from peregrine.spark.query import forget_session, running_jvm

    found: list[Measured] = []
    while left := [cell for cell in group if cell not in [each.cell for each in found]]:
        try:
            if heat:
                stream.heat(HEAT_S)
                heat = False
            found += run_cells(left)
        except Exception as error:  # whatever it is, the other experiments can run
            told = error.what if isinstance(error, PeregrineError) else f"{type(error).__name__}: {error}"
            found += [Measured(cell, trouble=told, failed=True) for cell in left]
            if running_jvm() is None:
                forget_session()
    return found


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
    if cost is None:
        calm = measured.calm
        steady = "" if calm is None else f"steady mean {calm.mean_ms:,.1f}, p99 {calm.p99_ms:,.1f} ms"
        return steady or f"{measured.max_rows_per_s or 0:,.0f} rows/s"
    if measured.deployment_ms is not None:
        return (
            f"{measured.changes} changes, each deployed in {measured.deployment_ms:,.0f} ms,"
            f" latency {measured.event_time_ms:,.0f} ms, before {cost.calm.mean_ms:,.0f} ms,"
            f" jitter {cost.peak_jitter_ms:,.0f} ms"
        )
    if measured.per_month is not None:
        return f"$ {measured.per_month:,.2f} a month, jitter {cost.peak_jitter_ms:,.0f} ms"
    if (felt := measured.felt) is not None:
        return (
            f"downtime {felt.downtime_ms:,.0f} ms, {felt.late:,} results late, for {felt.recovery_ms:,.0f} ms;"
            f" jitter {cost.peak_jitter_ms:,.0f}, duration {cost.duration_ms:,.0f} ms"
        )
    more = ""
    if measured.handover is not None:
        more = f", worst hand-over {measured.handover:.2f} of a round trip and a trigger interval"
        more += f" (meanwhile {measured.handover_of_others:.2f} for those who stay)"
    if measured.dip is not None:
        more = f", {measured.dip:.1%} fewer results at the switch"
    # Where nobody has planned a move, no report tells its bytes; links do.
    moved = cost.bytes_moved or measured.bytes_on_links or 0
    return (
        f"disruption {cost.disruption_ms:,.0f}, jitter {cost.peak_jitter_ms:,.0f}, freeze {cost.freeze_ms:,.0f},"
        f" duration {cost.duration_ms:,.0f} ms, {moved:,} bytes{more}"
    )
