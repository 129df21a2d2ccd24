"""An application on the host's one function, batch after batch and operator after operator, and how long that takes.

Measured is what a Python process of Spark does with a batch: split its rows into groups, apply each group to its state,
which is bytes before and after. What lies between two operators is done here too, as a router does it, but the clock
stands still. Time is that of the processor, so other work on the machine disturbs less; it is that of one core.
"""

import gc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from time import process_time

from peregrine.bench.apps.feed import Sent
from peregrine.core import state
from peregrine.core.chain import chained, deployed, in_order
from peregrine.core.gather import gathered
from peregrine.core.host import apply, by_group
from peregrine.core.operator import Operator, OpSpec
from peregrine.core.rows import Clock, Row, Rows, batch_of, length, rows_of
from peregrine.types import OpId

Results = list[tuple[str, str, bytes]]  # (result, key, record), sorted


@dataclass
class Work:
    """What one operator did."""

    seconds: float = 0.0
    rows_in: int = 0
    clocks_in: int = 0
    rows_out: int = 0
    keys: int = 0  # at the end of the rows, before the last windows close
    state_bytes: int = 0


@dataclass
class Run:
    rows: int
    works: dict[OpId, Work]
    results: Results = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return sum(work.seconds for work in self.works.values())

    @property
    def us_per_row(self) -> float:
        return self.seconds / self.rows * 1e6


def run(
    specs: Mapping[OpId, OpSpec], operators: Mapping[OpId, Operator], steps: Sequence[Sequence[Sent]], batch_rows: int
) -> Run:
    """`steps` is what each record puts into logs, and as its last one the end of time."""
    host = _Host(specs, operators)
    *records, end = steps
    gc.collect()
    gc.freeze()  # as in a process of Spark: what is there to stay is not searched
    try:
        for first in range(0, len(records), batch_rows):
            host.take(chain.from_iterable(records[first : first + batch_rows]))
        host.weigh()
        host.take(end)
    finally:
        gc.unfreeze()
    return Run(len(records), host.works, sorted(host.results))


class _Host:
    def __init__(self, specs: Mapping[OpId, OpSpec], operators: Mapping[OpId, Operator]) -> None:
        self._specs = deployed(specs)
        self._operators = chained(specs, operators)
        self._order = in_order(self._specs)
        self._states: dict[tuple[OpId, int], bytes] = {}
        self._offsets = dict.fromkeys(self._order, 0)
        self.works = {op: Work() for op in self._order if not self._specs[op].sink}
        self.results: Results = []

    def take(self, sent: Iterable[Sent]) -> None:
        """One batch of every operator: whoever is fed comes later in the order."""
        waiting: dict[OpId, list[Rows | Clock]] = {op: [] for op in self._order}
        for op, items in _logged(sent).items():
            waiting[op] += items
        for op in self._order:
            if self._specs[op].sink:
                for rows in waiting[op]:
                    assert isinstance(rows, Rows)
                    self.results += [(op, row.key, row.payload) for row in rows_of(rows.batch)]
            elif waiting[op]:
                for item in self._apply(op, waiting[op]):
                    waiting[item.op].append(item)

    def weigh(self) -> None:
        for (op, _), blob in self._states.items():
            keys = state.decode(blob)
            self.works[op].keys += len(keys)
            self.works[op].state_bytes += len(blob) - len(keys.clocks)  # without what is kept once for a group

    def _apply(self, op: OpId, items: list[Rows | Clock]) -> list[Rows | Clock]:
        work, groups, operator = self.works[op], self._specs[op].groups, self._operators[op]
        entries = []
        for item in items:
            entries.append((self._offsets[op], item))
            self._offsets[op] += length(item)
            work.rows_in += len(item) if isinstance(item, Rows) else 0
            work.clocks_in += isinstance(item, Clock)
        emissions = []
        began = process_time()
        for (_, group), mine in by_group(entries, {op: groups}).items():
            made, self._states[op, group] = apply(operator, self._states.get((op, group), b""), mine)
            emissions += made
        work.seconds += process_time() - began
        outs: list[Rows | Clock] = []
        for _, out in gathered((None, each.item) for each in emissions):
            assert isinstance(out, Rows | Clock)
            outs.append(out)
            work.rows_out += len(out) if isinstance(out, Rows) else 0
        return outs


def _logged(sent: Iterable[Sent]) -> dict[OpId, list[Rows | Clock]]:
    """As it lies in the log of each operator: rows between two clocks are one batch of Arrow."""
    by_op: dict[OpId, list[Row | Clock]] = {}
    for op, what in sent:
        by_op.setdefault(op, []).append(what)
    logs: dict[OpId, list[Rows | Clock]] = {}
    for op, whats in by_op.items():
        log = logs[op] = []
        for is_row, run in groupby(whats, lambda each: isinstance(each, Row)):
            if is_row:
                log.append(Rows(op, batch_of([each for each in run if isinstance(each, Row)])))
            else:
                log += [each for each in run if isinstance(each, Clock)]
    return logs
