"""One run: the machines of a scenario in one world, until everything has come to rest."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from peregrine.core import snapshot
from peregrine.core.attachments import Attachments
from peregrine.core.coordinator import Cancel, Status, Submit, ToRouter
from peregrine.core.intake import RouterConfig
from peregrine.core.keyspace import KeySet
from peregrine.core.manager import Manager, ManagerEffect
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.mechanisms.program import Mechanism
from peregrine.core.messages import (
    Attached,
    DeadLetter,
    Effect,
    Emitted,
    KeepReplicas,
    Rehome,
    Rehomed,
    Report,
    SetOwner,
    StopReplicas,
    Stray,
    Tick,
)
from peregrine.core.migrate import Migration
from peregrine.core.mobility import Phase
from peregrine.core.placement import Placement
from peregrine.core.redeploying import PutOff, Redeployed, TopologyChanged
from peregrine.core.rehoming import Rehoming
from peregrine.core.replication import NOTHING_MOVED, StateMoved
from peregrine.core.router import Router
from peregrine.core.rows import Clock, Rows, rows_of
from peregrine.core.source import Reading, Source
from peregrine.core.topology import Link
from peregrine.core.validity import AttachedProducers, IndexedFeeds
from peregrine.errors import PeregrineError, PlanError
from peregrine.plan.manager_books import Fed, Initial, Placed, Recorded
from peregrine.plan.redeploy.planning import PlannedChanges, planning_of
from peregrine.sim.changes import Change, links_of
from peregrine.sim.chaos import draw_plan
from peregrine.sim.continuous import ContinuousHost
from peregrine.sim.devices import SimManager, SimSource
from peregrine.sim.fetching import collect
from peregrine.sim.machines import SimHost, SimRouter
from peregrine.sim.network import Network
from peregrine.sim.operators import emitter
from peregrine.sim.scenario import Fault, Scenario
from peregrine.sim.store import Codec
from peregrine.sim.world import World
from peregrine.types import MigrationId, OpId, PlaceId, SiteId, SourceId, site_of

TICK_MS = 40.0
PATIENCE_MS = 60_000.0
PATIENCES_MS = (0, 50, 300, 1000, 10_000)  # of the manager, with a topology change in which nothing happens


@dataclass(frozen=True)
class Doubles:
    """What a test may put in the place of the real thing, to show that the checkers notice."""

    router: type[Router] = Router
    host: type[SimHost] = SimHost
    mechanisms: Mapping[str, Mechanism] = field(default_factory=lambda: MECHANISMS)
    codec: Codec = snapshot  # of snapshots: machines that are built wrong are not known to the real one


Line = tuple[OpId, str, SourceId]  # what outputs are for, their key and source: within it they have an order


@dataclass
class Observed:
    """What a run did, for the checkers."""

    # (gate, operator, key for which it emits) -> the places whose outputs it let through, in turn
    emitters: dict[tuple[SiteId, OpId, str], list[PlaceId]] = field(default_factory=dict)
    # (operator, key for which it emits, line of its outputs) -> seq -> where it was emitted
    outputs: dict[tuple[OpId, str, Line], dict[int, PlaceId]] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)  # outputs that were emitted more than once
    moved: list[Migration] = field(default_factory=list)
    shed: list[tuple[Migration, tuple[tuple[str, int], ...]]] = field(default_factory=list)
    dead_letters: list[str] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    rehomed: int = 0
    put_off: int = 0
    late: int = 0
    detours: int = 0
    amiss: int = 0
    crashes: int = 0
    finished: bool = False
    state: StateMoved = NOTHING_MOVED


class Simulation:
    def __init__(self, scenario: Scenario, doubles: Doubles | None = None) -> None:
        self.scenario = scenario
        self.world = World(scenario.seed)
        self.observed = Observed()
        self.watchers: list[Callable[[SiteId, Effect], None]] = []  # told of every effect; they must change nothing
        self._doubles = doubles or Doubles()
        self._ticking = True
        self._shed_of: dict[MigrationId, tuple[tuple[str, int], ...]] = {}
        self._inputs = 0  # scripted things that have not happened yet
        self._build()

    # --- building ---

    def _build(self) -> None:
        scenario, world, topology = self.scenario, self.world, self.scenario.topology
        groups = {op: spec.groups for op, spec in scenario.specs.items()}
        self.network: Network[SimRouter] = Network(world, bad_frames=0.02 if scenario.faults else 0.0)
        self.routers: dict[SiteId, SimRouter] = self.network.routers
        self.hosts: dict[PlaceId, SimHost] = {}
        for site in (*topology.sites, *scenario.spare):
            config = RouterConfig(site, topology, scenario.specs, self._doubles.mechanisms, scenario.host_lag_rows)
            chance = random.Random(f"store:{scenario.seed}:{site}") if scenario.faults else None
            router = self.routers[site] = SimRouter(world, partial(self._doubles.router, config), self, chance)
            router.store.codec = self._doubles.codec
            for place in topology.places(site) if site in topology else (PlaceId(site),):
                kind = ContinuousHost if place in scenario.continuous else self._doubles.host
                host = kind(world, place, router, scenario.operators, groups, scenario.chunk_bytes, scenario.sizes)
                self.hosts[place] = router.hosts[place] = host
        for router in self.routers.values():
            router.sites = self.routers
            router.connect = self.network.open
        for site in topology.sites:
            parent = topology.parent(site)
            if parent is not None:
                self.network.set(site, parent, topology.link(site))
                for near, far in ((site, parent), (parent, site)):
                    self.routers[near].link(far, 0).begin()
        founding: list[Recorded] = [Fed(source, feeds) for source, feeds in scenario.feeds.items()]
        founding.append(Placed(scenario.initial))
        chance = random.Random(f"manager:{scenario.seed}") if scenario.faults else None
        self.manager = SimManager(world, self._make_manager, self._manager_effect, founding, chance)
        self.manager.codec = self._doubles.codec
        for site, router in self.routers.items():
            for op, keys, place in scenario.initial:
                if site in topology and topology.is_at_or_above(site, site_of(place)):
                    router.offer(SetOwner(op, keys, place))
            world.every(TICK_MS, partial(self._tick, router))
        world.every(100.0, self._tick_manager)
        self.sources = {script.id: self._source(script.id) for script in scenario.sources}
        for i, at_ms in enumerate(scenario.reconfigure_at_ms):
            self._later(at_ms, partial(self._reconfigure, i))
        self._lost_links: list[tuple[SiteId, SiteId]] = []
        self._all_found = False
        for change in scenario.changes:
            self._later(change.at_ms, partial(self._change, change))
        if scenario.changes:
            self._later(max(change.at_ms for change in scenario.changes) + 300.0, self._find_links)
        for fault in scenario.faults:
            self._later(fault.at_ms, partial(self._strike, fault))
        self._keep_replicas()

    def _make_manager(self, initial: Initial, feeds: IndexedFeeds) -> Manager:
        scenario = self.scenario
        placement = Placement(scenario.topology, scenario.specs, initial)
        attachments = Attachments()  # sources become known as they come
        producers = AttachedProducers(feeds, attachments)
        planning = planning_of(scenario.topology, scenario.specs, initial, feeds) if scenario.changes else None
        return Manager(
            placement,
            scenario.specs,
            attachments,
            producers,
            self._doubles.mechanisms,
            scenario.dwell_ms,
            planning,
            random.Random(f"patience:{scenario.seed}").choice(PATIENCES_MS),
        )

    def _source(self, id: SourceId) -> SimSource:
        script = next(script for script in self.scenario.sources if script.id == id)
        chance = random.Random(f"device:{self.scenario.seed}:{id}") if self.scenario.faults else None
        make = partial(Source, id, script.site, script.roaming)
        source = SimSource(self.world, make, self.routers, chance=chance)
        for at_ms, what in script.sends:
            self._later(at_ms, partial(self._produce, source, what))
        for at_ms, site in script.moves:
            self._later(at_ms, partial(self._move_source, source, site))
        self.manager.offer(Attached(script.site, id, 0))  # who makes a device waits until the manager has heard of it
        return source

    def _keep_replicas(self) -> None:
        """Some runs keep replicas, so that `replica` has something to reload. Some are stopped, and kept again."""
        if "replica" not in self.scenario.mechanisms or self.scenario.changes:
            return  # a site that leaves would have to be left out first
        rng, topology = self.world.rng, self.scenario.topology
        changes = random.Random(f"replicas:{self.scenario.seed}")
        places = [place for site in topology.sites for place in topology.places(site)]
        for op in sorted(self.scenario.operators):
            groups = self.scenario.specs[op].groups
            for source in places:
                target = rng.choice(places)
                if source == target or self.scenario.specs[op].stateless:
                    continue
                offer = self.routers[site_of(source)].offer
                keep = KeepReplicas(op, KeySet.everything(groups), source, target, changes.choice((1, 1, 100, 500)))
                offer(keep)
                while changes.random() < 0.5:
                    some = KeySet.of_groups(groups, changes.sample(range(groups), changes.randint(1, groups)))
                    stop = StopReplicas(op, some, source, target)
                    self._later(changes.uniform(50.0, 2000.0), partial(offer, changes.choice((stop, keep))))

    def at(self, at_ms: float, action: Callable[[], object]) -> None:
        """Before the run: let something happen at this time. The run does not come to rest before it has."""
        self._later(at_ms, action)

    def _later(self, at_ms: float, action: Any) -> None:
        self._inputs += 1

        def happen() -> None:
            self._inputs -= 1
            action()

        self.world.after(at_ms, happen)

    # --- what happens ---

    def run(self) -> "Simulation":
        world = self.world
        deadline = None
        next_look = 0.0
        while world.run_next():
            if world.now_ms < next_look:
                continue
            next_look = world.now_ms + 20.0
            if self._at_rest():
                self.observed.finished = True
                break
            if deadline is None and not self._inputs:
                deadline = world.now_ms + PATIENCE_MS
            if deadline is not None and world.now_ms > deadline:
                break
        world.tell("at rest" if self.observed.finished else "still busy: gave up waiting")
        return self

    def _at_rest(self) -> bool:
        if self._inputs or not all(source.idle for source in self.sources.values()):
            return False
        machine = self.manager.machine
        roaming = any(trip.phase is not Phase.DWELL for trip in machine.mobility.trips.values())
        changing = machine.redeploying is not None and not machine.redeploying.idle
        if not self.manager.up or machine.coordinator.running or roaming or changing:
            self._ticking = True  # also after late news of a source: the manager asks again when it is time
            return False
        self._ticking = False  # from here on only what is already on its way
        return all(router.idle for router in self.routers.values()) and all(host.idle for host in self.hosts.values())

    def _tick(self, router: SimRouter) -> bool:
        if self._ticking:
            router.offer(Tick(int(self.world.now_ms)))
        collect(router)
        for host in router.hosts.values():
            host.tell_commit()
            host.wake()
        router.tell_pressure()
        return True

    def _tick_manager(self) -> bool:
        if self._ticking:
            self.manager.offer(Tick(int(self.world.now_ms)))
        return True

    def _produce(self, source: SimSource, what: Any) -> None:
        source.give(what if isinstance(what, Reading) else Clock(what.op, what.keys, source.machine.id, what.time_ms))

    def _move_source(self, source: SimSource, site: SiteId) -> None:
        if source.machine.site != site:
            self.world.tell(f"{source.machine.id} moves from {source.machine.site} to {site}")
        source.move(site)

    def _reconfigure(self, number: int) -> None:
        if not self.manager.up:
            return
        rng = self.world.rng
        coordinator = self.manager.machine.coordinator
        for attempt in range(12):  # most plans that chance draws are refused: that they are is tested too
            plan = draw_plan(rng, self.scenario, coordinator.placement, f"plan{number}-{attempt}")
            if plan is None:
                continue
            try:
                self.manager.offer(Submit(plan))
                break
            except PlanError:
                self.observed.refused += 1
        else:
            return
        moves = "; ".join(f"{m.op} {{{m.keys.describe()}}} {m.source} -> {m.target}" for m in plan.moves())
        self.world.tell(f"{plan.id} submitted: {plan.mechanism}, {moves}")
        chosen_anchor = any(move.anchor is not None for move in plan.moves())
        if rng.random() < (0.7 if chosen_anchor else 0.2):  # an abort is hardest where the anchor is a way off
            self._later(rng.uniform(0.0, 200.0), partial(self._cancel, plan.id))

    def _cancel(self, plan: str) -> None:
        if self.manager.up and plan in self.manager.machine.coordinator.running:
            self.world.tell(f"{plan} cancelled")
            self.manager.offer(Cancel(plan))

    def _strike(self, fault: Fault) -> None:
        target: Any = {
            "router": self.routers,
            "host": self.hosts,
            "source": self.sources,
            "manager": {"manager": self.manager},
        }.get(fault.kind, {}).get(fault.target)  # type: ignore[attr-defined]
        if fault.kind == "link":
            self._break_link(SiteId(fault.target), fault.for_ms)
        elif fault.kind == "slow":
            host = self.hosts[PlaceId(fault.target)]
            host.slowness = 6.0
            self.world.tell(f"{fault.target} is slow")
            self._later(fault.for_ms, partial(setattr, host, "slowness", 1.0))
        elif fault.kind in ("router", "host") and self.world.rng.random() < 0.5:
            target.doomed = partial(self._crash, fault, target)  # at the worst moment
        else:
            self._crash(fault, target)

    def _crash(self, fault: Fault, target: Any) -> None:
        if target.up:
            self.observed.crashes += 1
            self.world.tell(f"{_named(fault)} crashes")
            target.crash()
            self._later(fault.for_ms, partial(self._restart, fault, target))

    def _restart(self, fault: Fault, target: Any) -> None:
        self.world.tell(f"{_named(fault)} is back")
        target.restart()

    def _break_link(self, child: SiteId, for_ms: float) -> None:
        parent = self.routers[child].machine.parent
        if parent is None:
            return
        self.world.tell(f"link {child} - {parent} breaks")
        self.network.break_off(child, parent)

        def heal() -> None:
            self.world.tell(f"link {child} - {parent} is back")
            self.network.heal(child, parent)

        self._later(for_ms, heal)

    def _change(self, change: Change) -> None:
        """Of the topology: it happens, and the manager hears of it."""
        self.world.tell(f"topology: {change.event}")
        if change.happens:
            for a, b, link in links_of(change.event):
                if link is not None:
                    self.network.set(a, b, link)
                elif change.breaks:
                    self._lose(a, b)
        for after_ms in change.told_after_ms:
            self._later(after_ms, partial(self._tell_change, TopologyChanged(change.event)))

    def _lose(self, a: SiteId, b: SiteId) -> None:
        """Mostly, a link that somebody needs to change parents holds so long. If not, that waits until it is back."""
        redeploying = self.manager.machine.redeploying
        busy = redeploying is not None and redeploying.rehomer.commands()
        if self._all_found:
            return
        if self.network.is_set(a, b) and busy and self.world.rng.random() < 0.9:
            self._later(40.0, partial(self._lose, a, b))
        else:
            self.network.remove(a, b)
            self._lost_links.append((a, b))

    def _go_round(self, rehoming: Rehoming) -> None:
        """Routers are told of another way before they are told to change their parent, once and again."""
        redeploying = self.manager.machine.redeploying
        assert redeploying is not None
        for each in redeploying.introductions(rehoming):
            if each.by is not None and self.network.go_round(each.lower, each.upper, *each.by):
                self.world.tell(f"{each.lower} - {each.upper} by way of {each.by[0]}")
                self.observed.detours += 1

    def _find_links(self) -> None:
        """At the end everything can be reached, if not as a neighbour: what was on its way gets there."""
        self._all_found = True
        for a, b in self._lost_links:
            if not self.network.is_set(a, b):
                self.network.set(a, b, Link(20.0))

    def _tell_change(self, news: TopologyChanged) -> None:
        if not self.manager.offer(news):
            self._later(50.0, partial(self._tell_change, news))

    def cannot_move(self) -> Mapping[OpId, KeySet]:
        """Keys that are not above their producers, and of which the manager has told why."""
        redeploying = self.manager.machine.redeploying
        planning = redeploying.planning if redeploying is not None else None
        return planning.planner.mending.in_vain if isinstance(planning, PlannedChanges) else {}

    def _refused(self, error: PeregrineError) -> None:
        """A command, by a router that does not know yet what it is about: the manager sends it again."""
        self.world.tell(f"refused: {error.what}")

    # --- what is seen ---

    def _note_outputs(self, place: PlaceId, op: OpId, rows: Rows) -> None:
        for row in rows_of(rows.batch):
            line = self.observed.outputs.setdefault((op, emitter(row.source), (rows.op, row.key, row.source)), {})
            if row.seq in line:
                self.observed.twice.append(f"{rows.op} {row.key} {row.seq} at {line[row.seq]} and at {place}")
            line[row.seq] = place

    def on_effect(self, site: SiteId, effect: Effect) -> None:
        """Of a router, once, when it is performed."""
        for watch in self.watchers:
            watch(site, effect)
        match effect:
            case Emitted(place, op, rows):
                for source in rows.batch.column(2).to_pylist():
                    places = self.observed.emitters.setdefault((site, op, emitter(source)), [])
                    if not places or places[-1] != place:
                        places.append(place)
                self._note_outputs(place, op, rows)
            case DeadLetter(_, reason):
                self.observed.dead_letters.append(reason)
            case Report():
                self.world.tell(f"{effect.migration} {effect.status} (said {site})")
                if effect.moved.shed:
                    self._shed_of[effect.migration] = effect.moved.shed
                self._to_manager(site, effect)
            case Rehomed():
                self.world.tell(f"{site} has changed its parent ({effect.number})")
                self._to_manager(site, effect)
            case Stray() | Attached():
                self._to_manager(site, effect)
            case _:
                pass

    def _to_manager(self, site: SiteId, news: Report | Rehomed | Stray | Attached) -> None:
        delay = self._latency_ms(site) + 0.5
        if not self._lost():
            self.world.after(delay, lambda: self.manager.offer(news))

    def _lost(self) -> bool:
        """Some of what the manager and the routers tell each other never arrives."""
        return bool(self.scenario.faults) and self.world.rng.random() < 0.05

    def _latency_ms(self, site: SiteId) -> float:
        """To the manager; the way may change, how long it takes does not matter much."""
        topology = self.scenario.topology
        return topology.latency_ms(site, topology.root) if site in topology else 20.0

    def _manager_effect(self, effect: ManagerEffect) -> None:
        if isinstance(effect, ToRouter):
            delay = self._latency_ms(effect.site) + 0.5
            router, command = self.routers[effect.site], effect.command
            if isinstance(command, Rehome):
                self.world.tell(f"{command.rehoming}, by {command.rehoming.meets}")
                self._go_round(command.rehoming)
            if not self._lost():
                self.world.after(delay, lambda: router.offer(command, refused=self._refused))
            return
        if isinstance(effect, PutOff):
            self.world.tell(f"put off: {effect.what}: {effect.error}")
            self.observed.put_off += 1
            return
        if isinstance(effect, Redeployed):
            left_out = f", without {', '.join(effect.left_out)}" if effect.left_out else ""
            wrong = f", not valid: {'; '.join(effect.wrong)}" if effect.wrong else ""
            late = f", not over: {', '.join(map(str, effect.late))}" if effect.late else ""
            self.world.tell(f"redeployment {effect.number} {effect.outcome}{left_out}{wrong}{late}")
            self.observed.rehomed += len(effect.rehomed)
            self.observed.late += len(effect.late)
            return
        self.world.tell(f"{effect.plan.id} {effect.outcome}")
        self.observed.moved.extend(effect.moved)
        self.observed.shed.extend((m, self._shed_of.get(m.id, ())) for m in effect.moved)
        self.observed.state += effect.state
        self.observed.ended[effect.plan.mechanism] += len(effect.moved)
        self.observed.ended["cancelled"] += effect.outcome is not Status.DONE


def _named(fault: Fault) -> str:
    return fault.target if fault.kind == fault.target else f"{fault.kind} {fault.target}"
