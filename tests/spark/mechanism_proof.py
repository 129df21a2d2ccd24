"""What a mechanism did to an application: its results against the oracle, its states against a run where nothing moves.

A mechanism is held to what its table promises: `live-unordered` to all but order, `shed` to the loss that it declares.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby

from oracles.everything import Everything, Sent
from peregrine import App, proof
from peregrine.app.compile import compile_app
from peregrine.bench.engine.reference import Reference
from peregrine.control.auditing import audit_deployment
from peregrine.control.running import Running
from peregrine.core.mechanisms import MECHANISMS
from peregrine.types import OpId

SHEDDING = "tm_app"  # each key has one sender, and each row one result: what a lost value does can be said exactly
SHED_BELOW = 60  # rows that a key has seen

Records = Mapping[str, list[tuple]]  # of each result, sorted


@dataclass
class Cell:
    """What a mechanism did to an application."""

    mechanism: str
    application: str
    moved: dict[OpId, int] = field(default_factory=dict)  # legs
    refused: dict[OpId, str] = field(default_factory=dict)
    shed: dict[str, list[int]] = field(default_factory=dict)  # key -> rows that each lost value had seen
    wrong: list[str] = field(default_factory=list)

    @property
    def says(self) -> str:
        if self.wrong:
            return "; ".join(self.wrong)
        if not self.moved:
            return f"does not apply: {next(iter(self.refused.values()))}"
        moved = ", ".join(f"{_name(op)} {legs}x" for op, legs in self.moved.items())
        stayed = f"; not {', '.join(map(_name, self.refused))}" if self.refused else ""
        lost = f"; {sum(map(len, self.shed.values()))} values shed as declared" if self.shed else ""
        return f"ok ({moved}{stayed}{lost})"


def _name(op: OpId) -> str:
    return op.partition("/")[2]


def judge(running: Running, apps: list[Everything], cells: Mapping[str, Cell]) -> None:
    """After everything is drained: writes into the cells what is wrong."""
    lines = running.deployment.result_lines()
    states = proof.values(running.deployment.states())
    violations = audit_deployment(running.deployment, running.initial)
    for each in apps:
        cell, own = cells[each.name], f"{each.name}/"
        expected, should = _with_losses(each, cell.shed) if cell.shed else (each.expected, _undisturbed(each))
        for result, records in expected.items():
            found = each.found(result, running.records(own + result))
            if found != records:
                cell.wrong.append(f"{result}: {_difference(found, records)}")
            if cell.shed and found == each.expected[result]:
                cell.wrong.append(f"{result}: values were shed, and nothing shows it")
        own_states = {at: value for at, value in states.items() if at[0].startswith(own)}
        mine = _lines(lines, own, cell)
        proved = proof.prove(len(each.sent), mine, mine, own_states, should)  # what is lost or repeated the oracle says
        if proved.out_of_order and MECHANISMS[cell.mechanism].ordered:
            cell.wrong.append(f"{proved.out_of_order} results out of order")
        if proved.states_that_differ:
            few = ", ".join(proved.states_that_differ[:3])
            cell.wrong.append(f"{len(proved.states_that_differ)} of {proved.states} states differ: {few}")
        cell.wrong += [text for text in violations if (own in text or "/" not in text) and not _allowed(text, cell)]


def _lines(lines: proof.Lines, own: str, cell: Cell) -> proof.Lines:
    """Of the application's results; a key that has lost its value numbers them from the beginning again."""
    mine = {line: rows for line, rows in lines.items() if line[0].startswith(own)}
    return {line: rows for line, rows in mine.items() if line[2].rpartition(">")[2] not in cell.shed}


def _allowed(violation: str, cell: Cell) -> bool:
    """What a mechanism that promises less may do."""
    unordered = not MECHANISMS[cell.mechanism].ordered and "but emitted at" in violation
    return unordered or not cell.shed.keys().isdisjoint(re.split("[ >]", violation))


_known: dict[str, proof.States] = {}  # the same for every mechanism


def _undisturbed(each: Everything) -> proof.States:
    if each.name not in _known:
        _known[each.name] = proof.values(_in_memory(each.in_memory, each.sent).blobs())
    return _known[each.name]


def _with_losses(each: Everything, losses: Mapping[str, list[int]]) -> tuple[Records, proof.States]:
    """Each key begins anew after as many rows as it is said to have lost."""
    sources = compile_app(each.app).sources
    left = {key: list(rows) for key, rows in losses.items()}
    parts: list[list[Sent]] = [[]]
    part: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    for device, source, record in each.sent:
        (reading,) = sources[source].readings(record, device, 0)
        key = reading.key
        while left.get(key) and rows[key] == left[key][0]:
            left[key].pop(0)
            rows[key] = 0
            part[key] += 1
        rows[key] += 1
        parts += [[] for _ in range(part[key] + 1 - len(parts))]
        parts[part[key]].append((device, source, record))
    runs = [_in_memory(each.in_memory, sent) for sent in parts]
    records = {result: [record for run in runs for record in run.results(result)] for result in each.expected}
    states: proof.States = {}
    for run in runs:
        states |= proof.values(run.blobs())
    lost_at_last = {key for key, rest in left.items() if rest}
    return (
        {result: each.found(result, found) for result, found in records.items()},
        {at: value for at, value in states.items() if at[1] not in lost_at_last},
    )


def _in_memory(app: App, sent: list[Sent]) -> Reference:
    made = Reference(compile_app(app))
    for (device, source), rows in groupby(sent, key=lambda each: each[:2]):
        made.send(source, [record for _, _, record in rows], sender=device)
    made.finish()
    return made


def _difference(found: list[tuple], should: list[tuple]) -> str:
    lost, more = Counter(should) - Counter(found), Counter(found) - Counter(should)
    return f"of {len(should)} lost {lost.total()} {list(lost)[:2]}, more {more.total()} {list(more)[:2]}"
