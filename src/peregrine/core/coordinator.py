"""Carries out plans: stage after stage, the migrations of a stage at the same time, on disjoint keys. In a plan that
overlaps, a stage begins when those before it have switched, and does not wait for the end that follows.

Like a router it is a deterministic machine over a durable journal of what happened to it, so a manager that died goes
on where it was. It sits on no data path and coordinates nothing in time: it begins migrations and notices their end.
Commands may be lost or repeated; routers recognise repeats, and `Tick` sends again what has not been answered.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from peregrine.core.keyspace import KeySet
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.mechanisms.program import Mechanism
from peregrine.core.messages import Abort, Begin, Command, Query, Report, Tick
from peregrine.core.migrate import Migration, Role
from peregrine.core.operator import OpSpec
from peregrine.core.placement import Placement
from peregrine.core.reconfigure import Move, Plan, Stage
from peregrine.core.replication import NOTHING_MOVED, StateMoved
from peregrine.core.rules import RuleTable
from peregrine.core.topology import Topology
from peregrine.core.validity import Producers, Validity
from peregrine.errors import OverlapError, PlanError, UnknownName
from peregrine.types import MigrationId, OpId, PlaceId, SiteId, site_of

RETRY_MS = 1000
TreeAfter = Callable[[Topology], Topology]  # what a site that changes its parent makes of a tree


class Status(StrEnum):
    DONE = "done"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Submit:
    plan: Plan


@dataclass(frozen=True, slots=True)
class Cancel:
    plan: str


@dataclass(frozen=True, slots=True)
class ToRouter:
    """Send a command. May be lost: it is sent again until it is answered."""

    site: SiteId
    command: Command


@dataclass(frozen=True, slots=True)
class PlanEnded:
    plan: Plan
    outcome: Status  # ABORTED if any of its migrations was, or never began
    moved: tuple[Migration, ...]
    state: StateMoved


CoordinatorEvent = Submit | Cancel | Report | Tick
CoordinatorEffect = ToRouter | PlanEnded


@dataclass(slots=True)
class Running:
    plan: Plan
    begun: int = 0  # stages
    cancelled: bool = False
    stopped: bool = False  # one of its migrations was aborted, or its rest cannot be carried out
    open: dict[MigrationId, Migration] = field(default_factory=dict)
    switched: set[MigrationId] = field(default_factory=set)  # of those that are open
    moved: list[Migration] = field(default_factory=list)
    state: StateMoved = NOTHING_MOVED
    waits: bool = False  # its next stage begins when a site has changed its parent
    tree: Topology | None = None  # in which its rest is known to be valid

    @property
    def stage(self) -> int:
        """The first that has not ended."""
        return min(map(stage_of, self.open), default=self.begun)

    def close(self, migration: MigrationId) -> None:
        del self.open[migration]
        self.switched.discard(migration)

    @property
    def rest(self) -> tuple[Stage, ...]:
        """What is to begin."""
        return () if self.cancelled or self.stopped else self.plan.stages[self.begun :]


class Coordinator:
    def __init__(
        self,
        placement: Placement,
        operators: Mapping[OpId, OpSpec],
        producers: Producers = lambda op, keys: (),
        mechanisms: Mapping[str, Mechanism] = MECHANISMS,
    ) -> None:
        self.placement = placement
        self.running: dict[str, Running] = {}
        self._operators = operators
        self.producers = producers
        self._validity = Validity(placement, operators, producers)
        self._mechanisms = mechanisms
        self._changing: dict[SiteId, TreeAfter] = {}  # sites that change their parents
        self._stood_in: dict[MigrationId, None] = {}  # migrations into such a site: others may stand in for their gate
        self.closing: frozenset[SiteId] = frozenset()  # sites that are about to leave
        self._known: set[str] = set()
        self._moving: RuleTable[bool] = RuleTable(False)  # the keys of all running plans
        self._alone: dict[str, None] = {}  # running plans with which nobody may share a place
        self._effects: list[CoordinatorEffect] = []
        self._retry_at_ms = 0

    def step(self, event: CoordinatorEvent) -> list[CoordinatorEffect]:
        """A plan that cannot be carried out raises an error and changes nothing."""
        self._effects = []
        match event:
            case Submit(plan):
                self.check(plan)
                self._known.add(plan.id)
                self.running[plan.id] = Running(plan, tree=self._topology)
                self._claim(plan, True)
                self._go_on(self.running[plan.id])
            case Cancel(plan_id):
                self._cancel(plan_id)
            case Report():
                self._on_report(event)
            case Tick(now_ms):
                if now_ms >= self._retry_at_ms:
                    self._retry_at_ms = now_ms + RETRY_MS
                    self._send_again()
        return self._effects

    @property
    def _topology(self) -> Topology:
        return self.placement.topology

    # --- the tree changes ---

    def changing(self, site: SiteId, after: TreeAfter) -> tuple[Migration, ...]:
        """From now on, and until it has changed its parent, nothing begins that moves keys into its subtree or out of
        it, or that could not go on afterwards. What runs goes on: of that, the migrations into the subtree.
        """
        self._changing[site] = after
        into = tuple(
            migration
            for run in self.running.values()
            for migration in run.open.values()
            if self._below(site, migration.target) and not self._below(site, migration.source)
        )
        self._stood_in.update(dict.fromkeys(migration.id for migration in into))
        return into

    def disturbed(self, site: SiteId, after: Topology) -> bool:
        """Is anything moving that must end before the site changes its parent? Keys whose producers' rows would come
        another way in the middle of it; and what has been waiting, since another change, for the word of its gate to
        pass where the outputs of its target do.
        """
        return any(
            self._validity.out_of_line(Move(m.op, m.keys, m.source, m.target, m.anchor), after) is not None
            or (m.id in self._stood_in and self._below(site, m.target) != self._below(site, PlaceId(m.gate)))
            for run in self.running.values()
            for m in run.open.values()
        )

    def changed(self, site: SiteId, topology: Topology) -> list[CoordinatorEffect]:
        """It has, and this is the tree now."""
        self._effects = []
        self._changing.pop(site, None)
        self.placement.topology = topology
        for run in list(self.running.values()):
            if run.waits:
                self._go_on(run)
        return self._effects

    def uses(self, site: SiteId) -> bool:
        """Does a running plan move anything to or from it?"""
        return any(site_of(place) == site for run in self.running.values() for place in _places(run.plan))

    def _crosses(self, move: Move) -> bool:
        return any(
            self._below(site, move.source) != self._below(site, move.target)
            or self._validity.out_of_line(move, after(self._topology)) is not None
            for site, after in self._changing.items()
        )

    def _below(self, site: SiteId, place: PlaceId) -> bool:
        return site in self._topology and self._topology.is_at_or_above(site, site_of(place))

    def knows(self, plan_id: str) -> bool:
        """Was it ever taken, whether it runs or has ended?"""
        return plan_id in self._known

    def busy(self, op: OpId, keys: KeySet) -> bool:
        self._moving.add_op(op, keys.groups)
        return any(moving for moving, _ in self._moving.partition(op, keys))

    def _claim(self, plan: Plan, moving: bool) -> None:
        for move in plan.moves():
            self._moving.add_op(move.op, move.keys.groups)
            self._moving.assign(move.op, move.keys, moving)
        if not moving:
            self._alone.pop(plan.id, None)
        elif self._mechanisms[plan.mechanism].alone:
            self._alone[plan.id] = None

    # --- is it a plan that can be carried out? ---

    def check(self, plan: Plan) -> None:
        if plan.id in self._known:
            raise PlanError(f"there is already a plan {plan.id!r}", "choose another id")
        if plan.mechanism not in self._mechanisms:
            raise UnknownName("mechanism", plan.mechanism, list(self._mechanisms))
        if not any(plan.stages):
            raise PlanError(f"plan {plan.id!r} moves nothing", "give at least one migration")
        for move in plan.moves():
            if site_of(move.target) in self.closing:
                raise OverlapError(f"{move.target} is about to leave", "choose another target")
        with self.placement.trial():
            for stage in plan.stages:
                self._validity.check_stage(stage, self._mechanisms[plan.mechanism], self._coming)
        self._check_overlap(plan)

    def _coming(self, op: OpId) -> list[Move]:
        """Running moves of operators that feed `op` or are fed by it."""
        related = {fed for fed in self._operators[op].feeds if not self._operators[fed].sink}
        related |= {feeder for feeder, spec in self._operators.items() if op in spec.feeds}
        return [m for run in self.running.values() for m in run.plan.moves() if m.op in related] if related else []

    def _check_overlap(self, plan: Plan) -> None:
        for mine in plan.moves():
            if self.busy(mine.op, mine.keys):
                run, keys = self._who_moves(mine)
                raise OverlapError(
                    f"plan {run.plan.id!r} is already moving {{{keys.describe()}}} of {mine.op}",
                    "wait until it has ended, or cancel it",
                )
        places = _places(plan)
        runs: Iterable[Running] = self.running.values()
        if not self._mechanisms[plan.mechanism].alone:
            runs = [self.running[other] for other in self._alone]
        for run in runs:
            shared = places & _places(run.plan)
            if shared:
                raise OverlapError(
                    f"a restart stops {', '.join(sorted(shared))} for all keys, and plan {run.plan.id!r} uses it",
                    "wait until it has ended, or cancel it",
                )

    def _who_moves(self, mine: Move) -> tuple[Running, KeySet]:
        for run in self.running.values():
            for theirs in run.plan.moves():
                if theirs.op == mine.op and not theirs.keys.isdisjoint(mine.keys):
                    return run, mine.keys & theirs.keys
        raise AssertionError(f"{mine.op} {{{mine.keys.describe()}}} is claimed by no running plan")

    # --- carrying it out ---

    def _go_on(self, run: Running) -> None:
        """Begin what may begin; a plan of which nothing is left has ended."""
        run.waits = False
        while run.rest and not run.waits and self._may_begin(run, run.rest[0]):
            run.waits = any(map(self._crosses, run.rest[0]))
            if not run.waits:
                self._begin_stage(run)
        if not run.open and not run.rest:
            complete = run.begun == len(run.plan.stages) and not run.stopped
            self._end(run, Status.DONE if complete else Status.ABORTED)

    def _may_begin(self, run: Running, stage: Stage) -> bool:
        """Nothing is under way, or what is has switched and has nothing to do with this stage."""
        if not run.open:
            return True
        if not run.plan.overlap or run.switched != run.open.keys() or self._mechanisms[run.plan.mechanism].alone:
            return False
        return not any(self._concerns(move, other) for move in stage for other in run.open.values())

    def _concerns(self, move: Move, other: Migration) -> bool:
        """As two migrations of one stage must not: by the same keys, or by operators that feed each other."""
        same = move.op == other.op and not move.keys.isdisjoint(other.keys)
        return same or self._validity.feed_each_other(move.op, other.op)

    def _begin_stage(self, run: Running) -> None:
        if run.tree is not self._topology and not self._still_valid(run):
            run.stopped = True
            return
        for i, move in enumerate(run.rest[0]):
            migration = self._migration(run.plan, move, MigrationId(f"{run.plan.id}.{run.begun}.{i}"))
            run.open[migration.id] = migration
            self._tell(migration, Role.ANCHOR, Begin(migration))
        run.begun += 1

    def _still_valid(self, run: Running) -> bool:
        """It was planned for another tree."""
        run.tree = self._topology
        mechanism, mine = self._mechanisms[run.plan.mechanism], set(run.plan.moves())
        try:
            with self.placement.trial():
                for m in run.open.values():
                    self.placement.move(m.op, m.keys, m.source, m.target)
                for stage in run.rest:
                    self._validity.check_stage(
                        stage, mechanism, lambda op: [move for move in self._coming(op) if move not in mine]
                    )
        except PlanError:
            return False
        return True

    def _migration(self, plan: Plan, move: Move, id: MigrationId) -> Migration:
        return Migration(
            id=id,
            op=move.op,
            keys=move.keys,
            source=move.source,
            target=move.target,
            anchor=move.anchor or self._anchor(move),
            mechanism=plan.mechanism,
            gate=self._topology.lca(site_of(move.source), site_of(move.target)),
            store=self._topology.root,
            caught_up_lag_rows=plan.caught_up_lag_rows,
            shed_below=plan.shed_below,
        )

    def _anchor(self, move: Move) -> SiteId:
        """One that is right in every tree that there will be meanwhile; D's router is, or the move would wait."""
        *others, last = self._validity.anchors(move)
        trees = [after(self._topology) for after in self._changing.values()]
        for site in others:
            if all(self._validity.out_of_line(replace(move, anchor=site), tree) is None for tree in trees):
                return site
        return last

    def _cancel(self, plan_id: str) -> None:
        """Take back what has not switched; what has, goes on to its end."""
        run = self.running.get(plan_id)
        if run is None:
            if plan_id in self._known:
                return  # it has ended meanwhile
            raise UnknownName("plan", plan_id, list(self.running))
        run.cancelled = True
        self._ask_again(run)
        self._go_on(run)

    def _on_report(self, report: Report) -> None:
        run = self.running.get(plan_of(report.migration))
        migration = None if run is None else run.open.get(report.migration)
        if run is None or migration is None:
            return
        match report.status:
            case "switched":
                run.switched.add(migration.id)
            case "aborted":
                run.stopped = True
                run.close(migration.id)
            case "done":
                run.close(migration.id)
                run.moved.append(migration)
                run.state += report.moved
                self.placement.move(migration.op, migration.keys, migration.source, migration.target)
        self._go_on(run)

    def _end(self, run: Running, outcome: Status) -> None:
        del self.running[run.plan.id]
        self._claim(run.plan, False)
        if not self.running:
            self._stood_in.clear()
        self._effects.append(PlanEnded(run.plan, outcome, tuple(run.moved), run.state))

    def _send_again(self) -> None:
        for run in self.running.values():
            self._ask_again(run)

    def _ask_again(self, run: Running) -> None:
        for migration in run.open.values():
            if migration.id not in run.switched:
                command = Abort(migration) if run.cancelled else Begin(migration)
                self._tell(migration, Role.ANCHOR, command)
            self._tell(migration, Role.TARGET, Query(migration))

    def _tell(self, migration: Migration, role: Role, command: Command) -> None:
        self._effects.append(ToRouter(migration.site(role), command))


def plan_of(migration: MigrationId) -> str:
    return migration.rsplit(".", 2)[0]


def stage_of(migration: MigrationId) -> int:
    return int(migration.rsplit(".", 2)[1])


def _places(plan: Plan) -> set[PlaceId]:
    return {place for move in plan.moves() for place in (move.source, move.target)}
