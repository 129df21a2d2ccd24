"""All applications at once, each with a mechanism by which its operators move while rows flow, and what came of it.

Half of the groups of each operator go along its route: what devices feed goes down to an edge, to the other edge and up
again, what is behind it between region and cloud. An operator that a mechanism does not fit is refused, and stays.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mechanism_proof import SHED_BELOW, SHEDDING, Cell, judge

from oracles.everything import Everything
from peregrine import Link, Topology, run
from peregrine.app.compile import Compiled, compile_app
from peregrine.control.running import Running
from peregrine.control.transform_places import place_of
from peregrine.core.chain import deployed
from peregrine.core.coordinator import PlanEnded
from peregrine.core.keyspace import KeySet
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.messages import KeepReplicas
from peregrine.core.operator import OpSpec
from peregrine.core.reconfigure import Move, Plan, Stage, even_chunks, in_chunks
from peregrine.errors import PlanError
from peregrine.types import PlaceId, SiteId, site_of

CLOUD, REGION, EDGE1, EDGE2 = (SiteId(name) for name in ("cloud", "region", "edge1", "edge2"))
LINK = Link(latency_ms=5)
TOPOLOGY = Topology.tree(CLOUD, {REGION: (CLOUD, LINK), EDGE1: (REGION, LINK), EDGE2: (REGION, LINK)})
LEGS = 3
PIECES = 24  # in which the rows are sent
PIECE_S = 0.5  # between two, until all has moved
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Moving:
    """An operator, the half of its keys that moves, and where to."""

    spec: OpSpec
    keys: KeySet
    places: tuple[PlaceId, ...]  # where the keys are at first, and where they go, leg after leg
    legs: tuple[int, ...]  # in which leg of the run

    def move(self, leg: int) -> Move | None:
        if leg not in self.legs:
            return None
        nth = self.legs.index(leg)
        return Move(self.spec.op, self.keys, self.places[nth], self.places[nth + 1])


def course(apps: list[Everything], by: Mapping[str, str], directory: Path) -> list[Cell]:
    """Runs them in one deployment. `by`: the mechanism of each application."""
    cells = {each.name: Cell(by[each.name], each.name) for each in apps}
    movings = {each.name: _movings(compile_app(each.app), by[each.name]) for each in apps}
    at = {moving.spec.op: {site_of(moving.places[0]): None} for of_app in movings.values() for moving in of_app}
    with run(*(each.app for each in apps), topology=TOPOLOGY, at=at, directory=directory, keep_journal=True) as running:
        for each in apps:
            _refuse(running, cells[each.name], movings[each.name])
        ended = _flow(running, apps, list(_rounds(running, cells, movings)))
        _note(cells, ended)
        judge(running, apps, cells)
    return list(cells.values())


def _movings(compiled: Compiled, mechanism: str) -> list[Moving]:
    """What is in the middle of a chain goes up and comes back before what is behind it comes down (Falcon III-B)."""
    specs = {op: spec for op, spec in deployed(compiled.specs).items() if not spec.sink}
    fed = {target.op for ingress in compiled.sources.values() for target in ingress.targets}
    last = {op for op, spec in specs.items() if not any(each in specs for each in spec.feeds)}
    long = bool(specs.keys() - fed - last)
    found = []
    for op, spec in specs.items():
        if op in fed:
            sites, legs = (REGION, EDGE1, EDGE2, REGION), (0, 1, 2)
        elif op not in last:
            sites, legs = (REGION, CLOUD, REGION), (0, 1)
        elif long:
            sites, legs = (CLOUD, REGION), (2,)
        else:
            sites, legs = (CLOUD, REGION, CLOUD), (0, 1)
        if not MECHANISMS[mechanism].ordered and op not in last:
            legs = ()  # whoever is behind it would get rows in another order, and may say so
        places = tuple(place_of(op, site) if op in compiled.transforms else PlaceId(site) for site in sites)
        found.append(Moving(spec, KeySet.of_groups(spec.groups, range(0, spec.groups, 2)), places, legs))
    return found


# --- how it runs ---

Round = Callable[[], list[str]]  # begins to move something, and gives the plans' names


def _refuse(running: Running, cell: Cell, movings: list[Moving]) -> None:
    """What does not fit is refused by the system, which says why; and nothing else is."""
    needs = MECHANISMS[cell.mechanism].needs
    for moving in movings:
        spec = moving.spec
        has = {"stateless": spec.stateless, "windowed": spec.windowed, "static sources": not spec.roaming}
        lacks = " and ".join(sorted(need for need in needs if not has[need]))
        if not lacks or not moving.legs:
            continue
        first = Move(spec.op, moving.keys, *moving.places[:2])
        try:
            running.deployment.submit(Plan(f"refused-{spec.op}", ((first,),), cell.mechanism))
            cell.wrong.append(f"{spec.op} was moved by {cell.mechanism}, though it is not {lacks}")
        except PlanError as error:
            cell.refused[spec.op] = f"it needs operators that are {lacks}"
            if f"needs an operator that is {lacks}; {spec.op} is not" not in str(error):
                cell.wrong.append(f"{spec.op} was refused for another reason: {error}")


def _rounds(running: Running, cells: dict[str, Cell], movings: dict[str, list[Moving]]) -> Iterator[Round]:
    """All at once; but what stops whole hosts does it alone, operator after operator."""
    for leg in range(LEGS):
        moves: dict[str, list[tuple[Move, int]]] = {}
        for name, cell in cells.items():
            fit = [moving for moving in movings[name] if moving.spec.op not in cell.refused]
            below = SHED_BELOW if cell.mechanism == "shed" and name == SHEDDING else 0
            found = moves.setdefault(cell.mechanism, [])
            found += [(move, below) for moving in fit if (move := moving.move(leg)) is not None]
        together = [
            Plan(f"{move.op} {leg}", _stages(mechanism, move), mechanism, shed_below=below)
            for mechanism, found in moves.items()
            for move, below in found
            if not MECHANISMS[mechanism].alone
        ]
        alone = [
            Plan(f"{mechanism} {leg}", tuple((move,) for move, _ in found), mechanism)
            for mechanism, found in moves.items()
            if found and MECHANISMS[mechanism].alone
        ]
        if any(MECHANISMS[plan.mechanism].checkpoint_assisted for plan in together):
            yield lambda plans=together: _keep_replicas(running, plans)
        if together:
            yield lambda plans=together: _submit(running, plans)
        for plan in alone:
            yield lambda plan=plan: _restart(running, plan)


def _stages(mechanism: str, move: Move) -> tuple[Stage, ...]:
    stages: tuple[Stage, ...] = ((move,),)
    return in_chunks(stages, even_chunks(move.keys, 2)) if MECHANISMS[mechanism].chunked else stages


def _submit(running: Running, plans: list[Plan]) -> list[str]:
    for plan in plans:
        running.deployment.submit(plan)
    return [plan.id for plan in plans]


def _keep_replicas(running: Running, plans: list[Plan]) -> list[str]:
    for plan in plans:
        for move in plan.moves() if MECHANISMS[plan.mechanism].checkpoint_assisted else ():
            router = running.deployment.clients[site_of(move.source)]
            router.offer(KeepReplicas(move.op, move.keys, move.source, move.target))
    return []


def _restart(running: Running, plan: Plan) -> list[str]:
    """It stops the host's query, and who supervises that starts it again; here also those of DataFrame operators."""
    running.deployment.submit(plan)
    for each in running.transforms.queries.values():
        each.query.stop()
    return [plan.id]


def _flow(running: Running, apps: list[Everything], rounds: list[Round]) -> list[PlanEnded]:
    """Rows piece after piece, and in equal distances, but not before the last one has ended, a round."""
    names = sorted({device for each in apps for device, _, _ in each.sent})
    devices = {name: running.device(name, (REGION, EDGE1, EDGE2)[i % 3]) for i, name in enumerate(names)}
    plans: list[str] = []
    manager = running.deployment.driver
    due = [PIECES * (nth + 1) // (len(rounds) + 1) for nth in range(len(rounds))]
    for nth in range(PIECES):
        if rounds and nth >= due[-len(rounds)] and manager.idle:
            plans += rounds.pop(0)()
        for each in apps:
            begin, end = (len(each.sent) * n // PIECES for n in (nth, nth + 1))
            for device, source, record in each.sent[begin:end]:
                devices[device].send(f"{each.name}/{source}", record)
        until_s = time.monotonic() + PIECE_S
        while (rounds or not manager.idle) and time.monotonic() < until_s:
            time.sleep(PIECE_S / 10)
    for device in devices.values():
        device.finish()
    while rounds:  # rows were faster than the machine
        for plan in plans:
            running.deployment.wait(plan, PATIENCE_S)
        plans += rounds.pop(0)()
    ended = [running.deployment.wait(plan, PATIENCE_S) for plan in plans]
    running.finish(PATIENCE_S)
    return ended


def _note(cells: dict[str, Cell], ended: list[PlanEnded]) -> None:
    for each in ended:
        for op in dict.fromkeys(move.op for move in each.plan.moves()):
            cell = cells[op.partition("/")[0]]
            cell.moved[op] = cell.moved.get(op, 0) + 1
            if each.outcome != "done":
                cell.wrong.append(f"plan {each.plan.id} was {each.outcome}")
        for key, rows in each.state.shed:
            cell.shed.setdefault(key, []).append(rows)
