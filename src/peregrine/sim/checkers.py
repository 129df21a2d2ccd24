"""Independent checks of a finished run against a run of the same input in which nothing was changed and nothing failed.

They look at results and states only, never at how the run came to them.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import msgspec

from peregrine import proof
from peregrine.core import state
from peregrine.core.keyspace import KeySet
from peregrine.core.large import Spill
from peregrine.core.rows import UNCHAINED, Row, rows_of
from peregrine.core.source import Reading
from peregrine.sim.simulation import Simulation
from peregrine.types import OpId, PlaceId, SourceId, site_of

Line = tuple[str, str, str]  # (results of, key, source): within it the order is promised


@dataclass(frozen=True)
class Violation:
    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}"


def check(run: Simulation, reference: Simulation) -> list[Violation]:
    violations = [*_ended(run), *_one_emitter(run), *_above_producers(run)]
    if not run.scenario.lossless:
        return violations + _shed_exactly(run, reference)
    return violations + _same_results(run, reference) + _same_states(run, reference)


def prove(run: Simulation) -> proof.Proof:
    """The figures of a run and, where they know more, what the checks say."""
    reference = Simulation(run.scenario.reference()).run()
    rows_in = sum(isinstance(what, Reading) for script in run.scenario.sources for _, what in script.sends)
    (here, _), (there, _) = states(run), states(reference)
    found = proof.prove(rows_in, results(run), results(reference), here, there)
    return replace(found, violations=tuple(str(violation) for violation in check(run, reference)))


def results(run: Simulation) -> dict[Line, list[tuple[int, bytes]]]:
    lines: dict[Line, list[tuple[int, bytes]]] = {}
    for delivered in run.routers[run.scenario.topology.root].results:
        for row in rows_of(delivered.rows.batch):
            lines.setdefault((delivered.rows.op, row.key, row.source), []).append((row.seq, row.payload))
    return lines


def states(run: Simulation) -> tuple[dict[tuple[OpId, str], bytes], list[str]]:
    """The state of every key, and the keys that are at two places."""
    found: dict[tuple[OpId, str], bytes] = {}
    twice: list[str] = []
    for place, host in sorted(run.hosts.items()):
        for (op, _), blob in sorted(host.states.items()):
            for key, content in state.canonical(blob, host.chunks).items():
                if (op, key) in found:
                    twice.append(f"{op} {key} (also at {place})")
                found[op, key] = msgspec.msgpack.encode(content)
    return found, twice


def _ended(run: Simulation) -> list[Violation]:
    violations = []
    if not run.observed.finished:
        open_plans = ", ".join(run.manager.machine.coordinator.running) or "none"
        violations.append(
            Violation("every migration ends", f"not at rest after the last input; open plans: {open_plans}")
        )
    for site, router in run.routers.items():
        for left in router.machine.leftovers():
            violations.append(Violation("nothing is left behind", f"{site}: {left}"))
        if (leaving := router.machine.legs.fetching.leaving()) and run.observed.finished:
            violations.append(Violation("nothing is left behind", f"{site}: chunks are kept for {leaving} states"))
    if run.observed.finished:
        violations += _replicas(run)
    for reason in run.observed.dead_letters:
        violations.append(Violation("no dead letters", reason))
    return violations


def _replicas(run: Simulation) -> list[Violation]:
    """Each belongs to a key that is to have it, and is what the host of that key believes to have sent."""
    found: dict[tuple[OpId, PlaceId, PlaceId, str], list[bytes]] = {}
    believed: dict[tuple[OpId, PlaceId, PlaceId, str], list[bytes]] = {}
    violations = []
    for router in run.routers.values():
        for op, source, target, image in router.machine.legs.replicas.all():
            found[op, source, target, image.key] = image.shipped
            if not run.routers[site_of(source)].machine.legs.replicating.keeps(op, source, target, image.key):
                what = f"{target} has a replica of {op} {image.key} of {source} that nobody keeps"
                violations.append(Violation("nothing is left behind", what))
    for source, host in run.hosts.items():
        for (op, _), blob in host.states.items():
            for key, ks in state.decode(blob, Spill(host.chunks)).items():
                believed.update({(op, source, PlaceId(to), key): sent for to, sent in ks.sent.items()})
    for op, source, target, key in sorted(believed.keys() | found.keys()):
        at = op, source, target, key
        if believed.get(at) != found.get(at):
            what = f"{op} {key}: {target} does not have what {source} believes to have sent"
            violations.append(Violation("replicas are what was sent", what))
    return violations


def _above_producers(run: Simulation) -> list[Violation]:
    """Where sites change their parents, every key is at or above what produces for it when all is at rest (Falcon
    III-B): but for keys that follow their sources by themselves, and those of which the manager said that they cannot
    move. These are the planner's word, so operators that have any are counted.
    """
    if not run.scenario.changes or not run.observed.finished:
        return []
    violations: list[Violation] = []
    for op, spec in sorted(run.manager.machine.coordinator.placement.operators.items()):
        told = run.cannot_move().get(op, KeySet.nothing(spec.groups))
        if not spec.roaming:
            run.observed.amiss += any(_not_above(run, op, told))
            rest = KeySet.everything(spec.groups) - told
            violations += [Violation("keys are above their producers", what) for what in _not_above(run, op, rest)]
    return violations


def _not_above(run: Simulation, op: OpId, asked: KeySet) -> Iterator[str]:
    """By the manager's books and the tree that it has, and not by those of its planner, who decides what to mend."""
    coordinator = run.manager.machine.coordinator
    placement, topology = coordinator.placement, coordinator.placement.topology
    for place, keys in placement.where(op, asked):
        for name, at in (*coordinator.producers(op, keys), *placement.upstream(op)):
            if at in topology and not topology.is_at_or_above(site_of(place), at):
                yield f"{op} at {place} is not above {name}, which produces for it at {at}"


def _one_emitter(run: Simulation) -> list[Violation]:
    """At most one place emits for a key at any time: places follow each other as the key has moved.

    That holds for what was emitted, in the order that it has in the end, and for what each gate lets through, in turn.
    Two gates are not compared by the clock: an output of a row that had come from above goes through a gate up there,
    and is still on its way when the next one goes through the gate at home. Where sites change their parents the same
    is true of one gate, behind a fence.
    """
    violations = [Violation("one place emits for a key", f"twice: {each}") for each in run.observed.twice]
    if not run.scenario.ordered:
        return violations
    emitters = [
        (op, key, [place for place, _ in groupby(by[seq] for seq in sorted(by))])
        for (op, key, _), by in run.observed.outputs.items()
    ]
    if not run.scenario.changes:
        emitters += [(op, key, places) for (_, op, key), places in run.observed.emitters.items()]
    home = run.scenario.topology.main_place(run.scenario.topology.root)
    for op, key, places in sorted(emitters):
        owner = next((place for o, keys, place in run.scenario.initial if o == op and key in keys), home)
        path = [owner, *(m.target for m in run.observed.moved if m.op == op and key in m.keys)]
        rest = iter(path)
        if not all(place in rest for place in places):
            violations.append(
                Violation("one place emits for a key", f"{op} {key} was at {path} but emitted at {places}")
            )
    return violations


def _same_results(run: Simulation, reference: Simulation) -> list[Violation]:
    violations = []
    mine, theirs = results(run), results(reference)
    for line in sorted(mine.keys() | theirs.keys()):
        got, expected = mine.get(line, []), theirs.get(line, [])
        if got == expected or (not run.scenario.ordered and Counter(got) == Counter(expected)):
            continue
        lost, extra = Counter(expected) - Counter(got), Counter(got) - Counter(expected)
        where = " ".join(line)
        if lost:
            violations.append(Violation("none lost", f"{where}: {len(lost)} outputs, first {min(lost)}"))
        if extra:
            violations.append(Violation("none repeated", f"{where}: {len(extra)} outputs, first {min(extra)}"))
        if not lost and not extra:
            violations.append(
                Violation("order per key", f"{where}: {[s for s, _ in got]} not {[s for s, _ in expected]}")
            )
    return violations


def _same_states(run: Simulation, reference: Simulation) -> list[Violation]:
    mine, twice = states(run)
    theirs, _ = states(reference)
    violations = [Violation("state at one place", each) for each in twice]
    for op, key in sorted(mine.keys() | theirs.keys()):
        if mine.get((op, key)) != theirs.get((op, key)):
            problem = (
                "is missing" if (op, key) not in mine else "should not be" if (op, key) not in theirs else "differs"
            )
            violations.append(Violation("state equal to the reference", f"{op} {key} {problem}"))
    return violations


def _shed_exactly(run: Simulation, reference: Simulation) -> list[Violation]:
    """For `shed` the loss equals what was declared: each shed key goes on from nothing, all others as if undisturbed.

    What should be is computed from the input alone: the rows of each key, with its value lost after as many rows as
    each declaration says. Where several sources feed a key their order is open, so only its outputs are counted.
    """
    losses: dict[str, list[int]] = {}
    for _, shed in run.observed.shed:
        for key, rows in shed:
            losses.setdefault(key, []).append(rows)
    (op,) = [op for op, spec in run.scenario.specs.items() if spec.roaming]
    got, undisturbed = results(run), results(reference)
    values, expected_values = _values(run, op), _values(reference, op)
    violations = []
    for key in run.scenario.keys_of[op]:
        mine = {line: outputs for line, outputs in got.items() if line[1] == key}
        expected = {line: outputs for line, outputs in undisturbed.items() if line[1] == key}
        expected_value = expected_values.get(key)
        sources = [s.id for s in run.scenario.sources if any(key in keys for _, keys in run.scenario.feeds[s.id])]
        if _count(mine) != _count(expected):
            lost = _count(expected) - _count(mine)
            violations.append(Violation("shed loses values, not rows", f"{key}: {lost} outputs are missing"))
        if key in losses and len(sources) > 1:
            continue
        if key in losses:
            outputs, expected_value = _with_losses(run, op, key, sources[0], losses[key])
            expected = dict.fromkeys(expected, outputs)
        if mine != expected or values.get(key) != expected_value:
            declared = f"declared lost after {losses[key]} rows" if key in losses else "never declared lost"
            violations.append(Violation("shed as declared", f"{key} differs from what it should be, {declared}"))
    return violations


def _count(lines: dict[Line, list[tuple[int, bytes]]]) -> int:
    return sum(len(outputs) for outputs in lines.values())


def _values(run: Simulation, op: OpId) -> dict[str, Any]:
    blobs = [(blob, host.chunks) for host in run.hosts.values() for (of, _), blob in host.states.items() if of == op]
    return {key: ks.value for blob, chunks in blobs for key, ks in state.decode(blob, Spill(chunks)).items()}


def _with_losses(
    run: Simulation, op: OpId, key: str, source: SourceId, losses: list[int]
) -> tuple[list[tuple[int, bytes]], Any]:
    """The outputs and the last value of one key if its value is lost after so many rows, again and again."""
    script = next(script for script in run.scenario.sources if script.id == source)
    outputs: list[tuple[int, bytes]] = []
    value, count = None, 0
    left = list(losses)
    for seq, (_, reading) in enumerate(script.sends):
        if not isinstance(reading, Reading) or reading.key != key:
            continue
        while left and count == left[0]:
            value, count = None, 0
            left.pop(0)
        row = Row(key, source, seq, UNCHAINED, reading.time_ms, reading.created_ms, reading.payload)
        value, outs = run.scenario.operators[op].on_row(key, value, row, {})
        outputs += [(out.seq, out.payload) for out in outs]
        count += 1
    if left and count == left[0]:
        value = None
    return outputs, msgspec.msgpack.decode(msgspec.msgpack.encode(value))
