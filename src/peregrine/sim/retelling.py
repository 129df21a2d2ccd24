"""Runs a script and retells it: what happened when, and how the outcome compares with the undisturbed run.

A script says everything that goes wrong, so nothing else may: in a `Steady` world every delay is the middle of its
range, and a change of the code moves no line of a story that it does not concern. With a seed the same script runs with
all of the simulator's chance: then the story is another one, and the outcome must still be right.
"""

import random
from collections.abc import Iterable, MutableSequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from peregrine.core.coordinator import Cancel, Submit
from peregrine.core.messages import Append, Deliver, Effect, Emitted, KeepReplicas, Report, StopReplicas
from peregrine.core.reconfigure import Plan
from peregrine.core.rows import DropKeys, RestoreKeys, TakeSnapshot
from peregrine.errors import PlanError
from peregrine.proof import Proof
from peregrine.sim.checkers import prove
from peregrine.sim.operators import emitter
from peregrine.sim.script import Script
from peregrine.sim.simulation import Simulation
from peregrine.types import OpId, PlaceId, SiteId, site_of


class Steady(random.Random):
    """No chance at all: the middle of every range, the last of every choice, and what is unlikely never happens."""

    def random(self) -> float:
        return 0.5

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2

    def randint(self, a: int, b: int) -> int:
        return (a + b) // 2

    def choice(self, seq: Any) -> Any:
        return seq[-1]

    def shuffle(self, x: MutableSequence[Any]) -> None:
        pass


@dataclass(frozen=True)
class Retold:
    story: str
    violations: tuple[str, ...]


def retell(script: Script, seed: int | None = None) -> Retold:
    run = Simulation(script.scenario if seed is None else replace(script.scenario, seed=seed))
    if seed is None:
        run.world.rng = Steady()
        run.manager.chance = Steady()
        for source in run.sources.values():
            source.chance = Steady()
        for router in run.routers.values():
            router.store.chance = Steady()
    teller = _Teller(run, script)
    run.run()
    proof = prove(run)
    lines = [*_happened(run), "", *_outcome(run, proof), *_slowest(teller.slowest_ms), *_moved(run), *_where(run)]
    lines += [f"violation: {violation}" for violation in proof.violations]
    return Retold("\n".join(lines) + "\n", proof.violations)


class _Teller:
    """Gives the commands of a script, and adds to the story of a run what can be seen of its migrations."""

    def __init__(self, run: Simulation, script: Script) -> None:
        self._run = run
        self.slowest_ms: dict[str, float] = {}  # from a row to its result at the root, the longest of each key
        self._announced: set[str] = set()
        self._emits: dict[tuple[OpId, str], PlaceId] = {}
        for at_ms, asked in script.replicas:
            if at_ms:
                run.at(at_ms, partial(self._ask_for_replicas, asked))
            else:
                run.routers[site_of(asked.source)].offer(asked)
        for at_ms, command in script.commands:
            run.at(at_ms, partial(self._give, command))
        run.watchers.append(self._on_effect)

    def _give(self, command: Submit | Cancel) -> None:
        tell, manager = self._run.world.tell, self._run.manager
        if not manager.up:
            tell(f"the manager is away and does not hear: {type(command).__name__.lower()}")
        elif isinstance(command, Submit):
            try:
                manager.offer(command)
                self._announce(command.plan, "submitted")
            except PlanError as error:
                self._run.observed.refused += 1
                tell(f"{command.plan.id} refused: {error.what}; {error.remedy}")
        elif command.plan in manager.machine.coordinator.running:
            tell(f"{command.plan} cancelled")
            manager.offer(command)
        else:
            tell(f"{command.plan} has ended: nothing to cancel")

    def _ask_for_replicas(self, asked: KeepReplicas | StopReplicas) -> None:
        site = site_of(asked.source)
        does = "stop replicas" if isinstance(asked, StopReplicas) else "replicas"
        of = f"{does} of {asked.op} {{{asked.keys.describe()}}} {asked.source} -> {asked.target}"
        heard = self._run.routers[site].offer(asked)
        self._run.world.tell(of if heard else f"router {site} is away and does not hear: {of}")

    def _announce(self, plan: Plan, how: str) -> None:
        self._announced.add(plan.id)
        moves = "; ".join(f"{m.op} {{{m.keys.describe()}}} {m.source} -> {m.target}" for m in plan.moves())
        self._run.world.tell(f"{plan.id} {how}: {plan.mechanism}, {moves}")

    def _on_effect(self, site: SiteId, effect: Effect) -> None:
        match effect:
            case Report(_, id, "begun"):
                for running in self._run.manager.machine.coordinator.running.values():
                    if id in running.open and running.plan.id not in self._announced:
                        self._announce(running.plan, f"submitted because {running.plan.note}")
            case Report(_, id, "done", moved) if moved.shed:
                self._run.world.tell(f"{id} sheds {', '.join(f'{key} after {rows} rows' for key, rows in moved.shed)}")
            case Append(place, _, TakeSnapshot() as entry) if entry.migration is not None:
                does = "ships ahead" if entry.static else "snapshots and drops" if entry.drop else "snapshots"
                does = "tells what is beside the windows of" if entry.beside_windows else does
                self._tell_keys(f"{place} {does} ", entry.keys.describe())
            case Append(place, _, RestoreKeys(images=images, beside_windows=beside)) if images:
                what = "hears what is beside the windows of" if beside else "restores"
                self._tell_keys(f"{place} {what} ", ",".join(image.key for image in images))
            case Append(place, _, DropKeys(keys=keys)):
                self._tell_keys(f"{place} drops ", keys.describe())
            case Emitted():
                self._tell_new_emitter(effect)
            case Deliver(_, rows):
                created = zip(
                    rows.batch.column("source").to_pylist(), rows.batch.column("created_ms").to_pylist(), strict=True
                )
                for source, created_ms in created:
                    latency_ms = self._run.world.now_ms - created_ms
                    self.slowest_ms[emitter(source)] = max(self.slowest_ms.get(emitter(source), 0.0), latency_ms)
            case _:
                pass

    def _tell_keys(self, what: str, keys: str) -> None:
        """Control rows come one for each group: what is said together is told together."""
        world = self._run.world
        if world.story and world.story[-1][0] == world.now_ms and world.story[-1][1].startswith(what):
            _, keys_before = world.story.pop()[1].split(what)
            keys = f"{keys_before},{keys}"
        world.tell(what + keys)

    def _tell_new_emitter(self, emitted: Emitted) -> None:
        batch = emitted.rows.batch
        first: dict[str, int] = {}
        for source, seq in zip(batch.column("source").to_pylist(), batch.column("seq").to_pylist(), strict=True):
            first.setdefault(emitter(source), seq)
        of = "window" if self._run.scenario.specs[emitted.op].windowed else "row"
        for key, seq in first.items():
            if self._emits.get((emitted.op, key), emitted.place) != emitted.place:
                self._run.world.tell(f"{emitted.place} emits {key} from {of} {seq} on")
            self._emits[emitted.op, key] = emitted.place


def _happened(run: Simulation) -> Iterable[str]:
    told = set()
    for at_ms, what in run.world.story:
        if what in told and "(said" in what:
            continue  # routers answer the manager again and again
        told.add(what)
        yield f"{at_ms:5.0f}  {what}"


def _outcome(run: Simulation, proof: Proof) -> Iterable[str]:
    states = (
        f"{len(proof.states_that_differ)} of {proof.states} states differ"
        if proof.states_that_differ
        else "state equal"
    )
    yield f"rows in {proof.rows_in}, rows out {proof.rows_out}"
    if run.scenario.lossless:
        yield f"lost {proof.lost}, repeated {proof.repeated}, out of order {proof.out_of_order}, {states}"
    else:
        yield f"{proof.lost} outputs have another value, out of order {proof.out_of_order}, {states}"


def _slowest(slowest_ms: dict[str, float]) -> Iterable[str]:
    yield "slowest result: " + ", ".join(f"{key} {ms:.0f} ms" for key, ms in sorted(slowest_ms.items()))


def _moved(run: Simulation) -> Iterable[str]:
    moved = run.observed.state
    ways = ((moved.transfer, "whole"), (moved.patch, "in part"), (moved.reload, "from a replica"))
    keys = "; ".join(f"{count} {'keys' if count > 1 else 'key'} {how}" for count, how in ways if count)
    if keys:
        yield f"state moved: {keys}; {moved.bytes_moved} bytes"


def _where(run: Simulation) -> Iterable[str]:
    placement, topology = run.manager.machine.coordinator.placement, run.scenario.topology
    for op in sorted(placement.operators):
        for place, keys in sorted(placement.instances(op).items()):
            if place != topology.main_place(topology.root):
                yield f"{op} {{{keys.describe()}}} lives at {place}"
