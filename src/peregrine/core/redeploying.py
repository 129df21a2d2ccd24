"""Carries out topology changes: the third machine of the manager, beside the coordinator and mobility.

    facts -> a redeployment -> migrations before -> sites change their parents, wave by wave -> migrations after

What is to be done is planned elsewhere (`plan/redeploy/`, behind `Planning`); here it is done, step by step, as reports
come. Until the first site changes its parent a redeployment that fails is taken back: what has moved returns, and its
facts are considered again. After that there is no way back, only forward: a migration that cannot be carried out then
is left out, its keys stay where they are, and rows find them there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from peregrine.core.coordinator import Coordinator, CoordinatorEffect, PlanEnded, Status, ToRouter
from peregrine.core.keyspace import KeySet
from peregrine.core.messages import Attached, Rehome, Rehomed, Tick
from peregrine.core.mobility import Propose
from peregrine.core.placement import Placement
from peregrine.core.reconfigure import Move, Plan, taken_back
from peregrine.core.rehoming import Rehoming
from peregrine.core.topology import Link, Site, Topology
from peregrine.errors import ConfigurationError, OverlapError, PlanError
from peregrine.types import OpId, PlaceId, SiteId, SourceId

RETRY_MS = 1000


class Redeployment(Protocol):
    @property
    def number(self) -> int: ...
    @property
    def before(self) -> tuple[Plan, ...]: ...
    @property
    def rehomings(self) -> tuple[tuple[Rehoming, ...], ...]: ...
    @property
    def after(self) -> tuple[Plan, ...]: ...
    @property
    def contexts(self) -> tuple[object, ...]:
        """What changes where, in the words of whoever plans."""

    @property
    def facts(self) -> tuple[object, ...]:
        """For which it is. None: it puts right where keys are that others have moved."""


class Planning(Protocol):
    """What plans redeployments."""

    def tell(self, fact: object) -> bool:
        """A fact about the topology. What contradicts another is an error, and neither is believed. True if it needs no
        other to be carried out.
        """

    def plan(self) -> Redeployment | None: ...
    def why_not(self) -> Sequence[tuple[str, PlanError]]:
        """What the last `plan` had to put off."""

    def succeeded(self) -> None: ...
    def failed(self) -> None: ...
    def attached(self, source: SourceId, site: SiteId) -> bool:
        """False if it was known to be there."""

    def detached(self, source: SourceId) -> None: ...
    def moved(self, op: OpId, keys: KeySet, place: PlaceId) -> None:
        """By a plan of somebody else. Keys that are not above their producers now are planned again."""

    def arrived(self, op: OpId, keys: KeySet, place: PlaceId) -> None:
        """By a redeployment, or not: where keys are that it was to move. Likewise, but once."""

    def site(self, site: SiteId) -> Site: ...
    def link(self, a: SiteId, b: SiteId) -> Link: ...
    def deployed(self, redeployment: Redeployment, carried_out: Topology) -> tuple[Topology, Sequence[str]]:
        """The tree when everything is carried out: what rehomings have made of it, and what else is otherwise at what
        is affected. And where rehomings have not made of it what was planned. To be asked before `succeeded`.
        """

    def wrong(self, redeployment: Redeployment, placement: Placement, taken_back: bool) -> Sequence[str]:
        """What is not valid where a redeployment has changed something. To be asked when it has ended."""


@dataclass(frozen=True, slots=True)
class TopologyChanged:
    """An event: what is told about the topology, in the words of whoever plans."""

    fact: object


@dataclass(frozen=True, slots=True)
class PutOff:
    """An effect, for observers: this cannot be deployed now, or never; the last valid deployment is kept."""

    what: str
    error: ConfigurationError


@dataclass(frozen=True, slots=True)
class Redeployed:
    """An effect, for observers.

    What is `wrong` is no error of routers: keys that were left out, whose sources roam, or that somebody else has moved
    meanwhile are not where they would be put today, and rows find them all the same. But for those of sources that roam
    they are planned again at once; if that does not help, when something happens that may.
    """

    number: int
    outcome: Status  # DONE: sites have their new parents. See `complete`
    rehomed: tuple[Rehoming, ...]
    left_out: tuple[str, ...]  # plans that could not be carried out
    wrong: tuple[str, ...] = ()  # what is not valid now, of what was affected
    contexts: tuple[object, ...] = ()  # of what was deployed; none, if it was taken back

    @property
    def complete(self) -> bool:
        """Was everything done that was planned? DONE and not complete: some keys have not followed their sites."""
        return self.outcome is Status.DONE and not self.left_out


RedeployingEvent = TopologyChanged | Rehomed | PlanEnded | Attached | Tick
RedeployingEffect = CoordinatorEffect | Propose | PutOff | Redeployed


class Step(StrEnum):
    BEFORE = "before"  # migrations in the old tree
    REHOMING = "rehoming"
    AFTER = "after"  # migrations in the new one
    BACK = "back"  # it has failed: what has moved returns


@dataclass(slots=True)
class Running:
    redeployment: Redeployment
    plans: list[Plan]  # of this step, that have not been submitted
    step: Step = Step.BEFORE
    running: dict[str, None] = field(default_factory=dict)  # plans of this step
    done: list[Move] = field(default_factory=list)
    failed: bool = False
    wave: int = -1
    to_begin: list[Rehoming] = field(default_factory=list)  # of this wave: they wait for migrations, or for others
    open: dict[int, Rehome] = field(default_factory=dict)  # rehomings of this wave
    rehomed: list[Rehoming] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


class Redeploying:
    def __init__(self, coordinator: Coordinator, planning: Planning) -> None:
        self._coordinator = coordinator
        self._planning = planning
        self.current: Running | None = None
        self._stirred = False  # something has happened since it was last planned
        self._numbers = 0
        self._retry_at_ms = 0
        self._effects: list[RedeployingEffect] = []

    @property
    def planning(self) -> Planning:
        return self._planning

    @property
    def idle(self) -> bool:
        return self.current is None and not self._stirred

    def step(self, event: RedeployingEvent) -> list[RedeployingEffect]:
        self._effects = []
        match event:
            case TopologyChanged(fact):
                self._hear(fact)
            case Rehomed(_, number):
                self._on_rehomed(number)
            case PlanEnded():
                self._on_ended(event)
            case Attached(_, source, gone=True):
                self._planning.detached(source)
                self._stirred = True
            case Attached(site, source):
                if site in self._placement.topology and self._planning.attached(source, site):
                    self._stirred = True
            case Tick(now_ms):
                if now_ms >= self._retry_at_ms:
                    self._retry_at_ms = now_ms + RETRY_MS
                    self._send_again()
                if self.current is None and self._stirred:
                    self._plan()
                else:
                    self._go_on()
        return self._effects

    @property
    def _placement(self) -> Placement:
        return self._coordinator.placement

    # --- planning ---

    def _hear(self, fact: object) -> None:
        try:
            whole = self._planning.tell(fact)
        except ConfigurationError as error:
            self._effects.append(PutOff(str(fact), error))
            return
        self._stirred = True
        if whole and self.current is None:
            self._plan()

    def _plan(self) -> None:
        self._stirred = False
        redeployment = self._planning.plan()
        self._effects += [PutOff(what, error) for what, error in self._planning.why_not()]
        if redeployment is None:
            return
        leaving = [each.site for wave in redeployment.rehomings for each in wave if each.target is None]
        if self._coordinator.uses(leaving) or (not redeployment.facts and self._moving(redeployment)):
            self._planning.failed()  # again when those plans have ended
            return
        self._coordinator.closing = frozenset(leaving)
        self.current = Running(redeployment, list(redeployment.before))
        self._go_on()

    def _moving(self, redeployment: Redeployment) -> bool:
        """Is somebody else moving any of these keys? Then facts need not wait for them, and perhaps nothing is left to
        be put right.
        """
        moves = [move for plan in redeployment.after for move in plan.moves()]
        return any(self._coordinator.busy(move.op, move.keys) for move in moves)

    # --- carrying it out ---

    def _go_on(self) -> None:
        """As far as it goes without waiting for anybody."""
        while (now := self.current) is not None:
            self._submit(now)
            self._begin(now)
            if now.running or now.plans or now.to_begin or now.open:
                return
            self._next(now)
            if self.current is None:  # what came meanwhile need not wait for the next tick
                self._plan()

    def _submit(self, now: Running) -> None:
        plans, now.plans = now.plans, []
        for plan in plans:
            try:
                self._coordinator.check(plan)
            except PlanError as error:
                if now.step is Step.BEFORE:
                    now.failed = True
                elif isinstance(error, OverlapError):
                    now.plans.append(plan)  # somebody else moves these keys: later
                    continue
                now.left_out.append(plan.id)
                self._effects.append(PutOff(plan.id, error))
            else:
                now.running[plan.id] = None
                self._effects.append(Propose(plan))

    def _next(self, now: Running) -> None:
        """Everything of this step has ended."""
        match now.step:
            case Step.BEFORE if now.failed:
                now.step = Step.BACK
                self._coordinator.closing = frozenset()  # nobody leaves: keys may return there
                now.plans = list(taken_back(now.redeployment.before, now.done))
            case Step.BEFORE | Step.REHOMING:
                now.step = Step.REHOMING
                now.wave += 1
                if now.wave < len(now.redeployment.rehomings):
                    now.to_begin = list(now.redeployment.rehomings[now.wave])
                else:
                    now.step, now.plans = Step.AFTER, list(now.redeployment.after)
            case Step.AFTER | Step.BACK:
                self._end(now)

    def _begin(self, now: Running) -> None:
        waiting, now.to_begin = now.to_begin, []
        for rehoming in waiting:
            after = self._tree_after(rehoming)
            opened = [command.rehoming for command in now.open.values()]
            if any(self._share(rehoming, other) for other in opened) or self._coordinator.disturbed(
                rehoming.site, after
            ):
                now.to_begin.append(rehoming)
                continue
            self._numbers += 1
            gates = self._coordinator.changing(rehoming.site, after)
            topology = self._placement.topology
            below = topology.below(rehoming.site) if rehoming.site in topology else ()
            command = now.open[self._numbers] = Rehome(replace(rehoming, number=self._numbers), gates, below)
            self._effects.append(ToRouter(rehoming.site, command))

    def _share(self, one: Rehoming, other: Rehoming) -> bool:
        """Is a router on the ways of both, or is one that is on the way of one where the ways of the other meet? They
        may meet at the same site. (Of sites that join or leave only the way is learnt or forgotten.)
        """
        mine, theirs = self._ways(one), self._ways(other)
        if not mine or not theirs:
            return False
        return not mine.isdisjoint(theirs | {other.meets}) or one.meets in theirs

    def _ways(self, rehoming: Rehoming) -> set[SiteId]:
        """From the site to where its old way and its new one meet, without that."""
        if rehoming.source is None or rehoming.target is None:
            return set()
        path = self._placement.topology.path(rehoming.source, rehoming.target)
        return {rehoming.site, *path} - {rehoming.meets}

    def _send_again(self) -> None:
        for command in self.current.open.values() if self.current is not None else ():
            self._effects.append(ToRouter(command.rehoming.site, command))

    def _on_rehomed(self, number: int) -> None:
        now = self.current
        command = now.open.pop(number, None) if now is not None else None
        if now is None or command is None:
            return
        now.rehomed.append(command.rehoming)
        self._effects += self._coordinator.changed(command.rehoming.site, self._tree_after(command.rehoming))
        self._go_on()

    def _tree_after(self, rehoming: Rehoming) -> Topology:
        topology, site, target = self._placement.topology, rehoming.site, rehoming.target
        if target is None:
            return topology.without_site(site)
        link = self.link(rehoming)
        if rehoming.source is None:
            new = self._planning.site(site)
            return topology.with_site(site, target, link, new.hosts, new.cpu_price)
        return topology.with_parent(site, target, link)

    def is_open(self, rehoming: Rehoming) -> bool:
        """Has it been begun, and not been carried out?"""
        return self.current is not None and any(each.rehoming == rehoming for each in self.current.open.values())

    def link(self, rehoming: Rehoming) -> Link:
        """Between a site and its parent to be, as it was told."""
        assert rehoming.target is not None
        return self._planning.link(rehoming.site, rehoming.target)

    def hosts(self, site: SiteId) -> tuple[str, ...]:
        """Of a site that joins, as it was told."""
        return self._planning.site(site).hosts

    def _on_ended(self, ended: PlanEnded) -> None:
        now = self.current
        if now is None or ended.plan.id not in now.running:
            for migration in ended.moved:
                self._planning.moved(migration.op, migration.keys, migration.target)
            self._stirred = True
            self._go_on()
            return
        del now.running[ended.plan.id]
        moved = {(m.op, m.keys, m.source, m.target) for m in ended.moved}
        now.done += [m for m in ended.plan.moves() if (m.op, m.keys, m.source, m.target) in moved]
        if ended.outcome is not Status.DONE:
            now.failed = True
            now.left_out.append(ended.plan.id)
        self._go_on()

    def _end(self, now: Running) -> None:
        self.current = None
        self._coordinator.closing = frozenset()
        redeployment, taken_back = now.redeployment, now.step is Step.BACK
        wrong: list[str] = []
        if taken_back:
            self._planning.failed()
        else:
            topology, astray = self._planning.deployed(redeployment, self._placement.topology)
            wrong += astray
            self._planning.succeeded()
            self._effects += self._coordinator.changed(topology.root, topology)
        for plan in (*redeployment.before, *redeployment.after):
            for move in plan.moves():
                for place, keys in self._placement.where(move.op, move.keys):
                    self._planning.arrived(move.op, keys, place)
        wrong += self._planning.wrong(redeployment, self._placement, taken_back)
        self._effects.append(
            Redeployed(
                redeployment.number,
                Status.ABORTED if taken_back else Status.DONE,
                tuple(now.rehomed),
                tuple(now.left_out),
                tuple(wrong),
                () if taken_back else redeployment.contexts,
            )
        )
        self._stirred = True  # for what came meanwhile, and what was put off
