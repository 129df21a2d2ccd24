"""Carries out topology changes: the third machine of the manager, beside the coordinator and mobility.

    facts -> a redeployment -> migrations before -> sites change their parents, wave by wave -> migrations after

What is to be done is planned elsewhere (`plan/redeploy/`, behind `Planning`); here it is done, step by step, as reports
come. Until the first site changes its parent a redeployment that fails is taken back: what has moved returns, and its
facts are considered again. After that there is no way back, only forward: a migration that cannot be carried out then
is left out, its keys stay where they are, and rows find them there.

A site or a link that is lost in the middle holds up what has to go that way, and nobody else: a redeployment in which
nothing has happened for some time while others wait is let go. Rehomings that are not over are *late* then, and go on
beside what comes next (`core/waves.py`); migrations that are not over go on like those of anybody else.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from peregrine.core.coordinator import Coordinator, CoordinatorEffect, PlanEnded, Status, ToRouter
from peregrine.core.messages import Attached, Rehomed, Tick
from peregrine.core.mobility import Propose
from peregrine.core.placement import Placement
from peregrine.core.planning import Planning, Redeployment
from peregrine.core.reconfigure import Move, Plan, taken_back
from peregrine.core.rehoming import Rehoming
from peregrine.core.topology import Link
from peregrine.core.waves import Rehomer, Waves
from peregrine.errors import ConfigurationError, OverlapError, PlanError
from peregrine.types import SiteId

RETRY_MS = 1000
PATIENCE_MS = 10_000


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
    left_out: tuple[str, ...]  # plans that could not be carried out, or that go on and are not waited for
    wrong: tuple[str, ...] = ()  # what is not valid now, of what was affected
    contexts: tuple[object, ...] = ()  # of what was deployed; none, if it was taken back
    late: tuple[Rehoming, ...] = ()  # that go on beside what comes next. It is told again when they are over

    @property
    def complete(self) -> bool:
        """Was everything done that was planned? DONE and not complete: some sites are not where they were to go yet, or
        some keys have not followed theirs.
        """
        return self.outcome is Status.DONE and not self.left_out and not self.late


@dataclass(frozen=True, slots=True)
class Introduction:
    """Two routers that have to know where the other is, and by way of whom they reach each other if not straight."""

    lower: SiteId
    upper: SiteId
    link: Link
    by: tuple[SiteId, Link] | None  # and what the whole way by that one is like


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
    waves: Waves
    still_since_ms: int | None = None  # None: something has happened since the last tick
    step: Step = Step.BEFORE
    running: dict[str, None] = field(default_factory=dict)  # plans of this step
    done: list[Move] = field(default_factory=list)
    failed: bool = False
    left_out: list[str] = field(default_factory=list)


class Redeploying:
    def __init__(self, coordinator: Coordinator, planning: Planning, patience_ms: int = PATIENCE_MS) -> None:
        self._coordinator = coordinator
        self._planning = planning
        self._patience_ms = patience_ms
        self.current: Running | None = None
        self.rehomer = Rehomer(coordinator, planning)
        self._stirred = False  # something has happened since it was last planned
        self._retry_at_ms = 0
        self._effects: list[RedeployingEffect] = []

    @property
    def planning(self) -> Planning:
        return self._planning

    @property
    def under_way(self) -> bool:
        """Is there anything to do about what was told? Rehomings that are late are not waited for."""
        return self.current is not None or self._stirred

    @property
    def idle(self) -> bool:
        return not self.under_way and not self.rehomer.running

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
                self._on_tick(now_ms)
        return self._effects

    @property
    def _placement(self) -> Placement:
        return self._coordinator.placement

    def _on_tick(self, now_ms: int) -> None:
        if now_ms >= self._retry_at_ms:
            self._retry_at_ms = now_ms + RETRY_MS
            self._effects += [ToRouter(each.rehoming.site, each) for each in self.rehomer.commands()]
        now = self.current
        if now is not None:
            if now.still_since_ms is None:
                now.still_since_ms = now_ms
            elif now_ms - now.still_since_ms >= self._patience_ms and self._somebody_waits(now):
                self._give_way(now)
        if self.current is None and self._stirred:
            self._plan()
        else:
            self._go_on()

    # --- planning ---

    def _hear(self, fact: object) -> None:
        self._stirred = True  # by a contradiction, too: what was told before it holds then
        try:
            whole = self._planning.tell(fact)
        except ConfigurationError as error:
            self._effects.append(PutOff(str(fact), error))
            return
        if whole and self.current is None:
            self._plan()

    def _plan(self) -> None:
        self._stirred = False
        redeployment = self._planning.plan(self.rehomer.obstacles())
        self._effects += [PutOff(what, error) for what, error in self._planning.why_not()]
        if redeployment is None:
            return
        waves = Waves(redeployment.number, [wave for wave in redeployment.rehomings if wave])
        self.current = Running(redeployment, list(redeployment.before), waves)
        self._close()
        self._go_on()

    def _close(self) -> None:
        """Nothing moves to sites that are about to leave."""
        now = self.current
        planned = now.waves.remaining() if now is not None and now.step is not Step.BACK else ()
        coming = (*planned, *self.rehomer.remaining(late=True))
        self._coordinator.closing = frozenset(each.site for each in coming if each.target is None)

    # --- carrying it out ---

    def _go_on(self) -> None:
        """As far as it goes without waiting for anybody."""
        for waves in self.rehomer.late:
            self._resettle(waves)
        while (now := self.current) is not None:
            self._submit(now)
            if now.step is Step.REHOMING:
                self._effects += self.rehomer.go_on(now.waves)
            if now.running or now.plans or (now.step is Step.REHOMING and not now.waves.over):
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
        now.still_since_ms = None
        match now.step:
            case Step.BEFORE if now.failed:
                now.step = Step.BACK
                self._close()  # nobody leaves: keys may return there
                now.plans = list(taken_back(now.redeployment.before, now.done))
            case Step.BEFORE:
                now.step = Step.REHOMING
            case Step.REHOMING:
                now.step, now.plans = Step.AFTER, list(now.redeployment.after)
            case Step.AFTER | Step.BACK:
                self._end(now)

    def _on_rehomed(self, number: int) -> None:
        found = self.rehomer.carried_out(number)
        if found is None:
            return
        waves, effects = found
        self._effects += effects
        if self.current is not None and waves is self.current.waves:
            self.current.still_since_ms = None
        self._go_on()

    def is_open(self, rehoming: Rehoming) -> bool:
        """Has it been begun, and not been carried out?"""
        return any(command.rehoming == rehoming for command in self.rehomer.commands())

    def introductions(self, rehoming: Rehoming) -> list[Introduction]:
        """The site and its parent to be; and those on its ways who have lost each other meanwhile, because nobody there
        can go elsewhere before it is over.
        """
        site, source, target = rehoming.site, rehoming.source, rehoming.target
        if target is None:
            return []
        planning, topology = self._planning, self._placement.topology
        found = [Introduction(site, target, planning.link(site, target), planning.detour(site, target))]
        for near, far in pairwise(topology.path(source, target)) if source is not None else ():
            lower, upper = (near, far) if topology.parent(near) == far else (far, near)
            if (by := planning.detour(lower, upper)) is not None:
                found.append(Introduction(lower, upper, topology.link(lower), by))
        return found

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
        now.still_since_ms = None
        del now.running[ended.plan.id]
        moved = {(m.op, m.keys, m.source, m.target) for m in ended.moved}
        now.done += [m for m in ended.plan.moves() if (m.op, m.keys, m.source, m.target) in moved]
        if ended.outcome is not Status.DONE:
            now.failed = True
            now.left_out.append(ended.plan.id)
        self._go_on()

    # --- how it ends ---

    def _somebody_waits(self, now: Running) -> bool:
        """Something else was told, or keys could follow sites that have their new parents."""
        return self._stirred or (now.step is Step.REHOMING and bool(now.waves.done))

    def _give_way(self, now: Running) -> None:
        """Nothing has happened for long, and others wait: what is not over goes on without being waited for."""
        now.left_out += [*now.running, *(plan.id for plan in now.plans)]
        if now.step is Step.BEFORE:
            now.step = Step.BACK  # its facts are considered again, when the plans that run have ended
        elif now.step is Step.REHOMING:
            now.waves.late = True
            now.left_out += [plan.id for plan in now.redeployment.after]
        self._end(now)

    def _resettle(self, waves: Waves) -> None:
        """Rehomings that are late."""
        self._effects += self.rehomer.go_on(waves)
        if waves.over:
            self._close()
            self._planning.stirred()  # keys may follow now
            self._stirred = True
            self._effects.append(Redeployed(waves.redeployment, Status.DONE, tuple(waves.done), ()))

    def _end(self, now: Running) -> None:
        self.current = None
        self._close()
        redeployment, taken_back = now.redeployment, now.step is Step.BACK
        wrong: list[str] = []
        if taken_back:
            self._planning.failed()
        else:
            late = {each.site for each in self.rehomer.remaining()}
            topology, astray = self._planning.deployed(redeployment, self._placement.topology, late)
            wrong += astray
            self._planning.succeeded()
            self._effects += self._coordinator.changed(topology.root, topology)
        for plan in (*redeployment.before, *redeployment.after):
            for move in plan.moves():
                for place, keys in self._placement.where(move.op, move.keys):
                    self._planning.arrived(move.op, keys, place)
        wrong += self._planning.wrong(redeployment, self._placement, taken_back)
        rehomed, now.waves.done = tuple(now.waves.done), []
        self._effects.append(
            Redeployed(
                redeployment.number,
                Status.ABORTED if taken_back else Status.DONE,
                rehomed,
                tuple(now.left_out),
                tuple(wrong),
                () if taken_back else redeployment.contexts,
                tuple(now.waves.remaining()) if now.waves.late else (),
            )
        )
        self._stirred = True  # for what came meanwhile, and what was put off
