"""What a router does for the migrations in which it plays a role.

A leg is one migration at one router in one role. Events reach it in markers, in band; the mechanism's table says which
primitives to perform, and this file performs them. Falcon III-E is the model: the anchor starts and ends the copying of
K, everything else follows from markers that lie in the same streams as the rows.

One order for K, always: at any time the rows of K are put in order at one router. Before R that is the router of S;
R hands it to the anchor (`Defer`: S's router sends there whatever did not come from there), and T hands it to D's router.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from peregrine.core.keyspace import KeySet, group_of, stable_hash
from peregrine.core.mechanisms import program as do
from peregrine.core.mechanisms.program import Mechanism, On
from peregrine.core.migrate import Migration, Role
from peregrine.core.replication import ReplicaStore
from peregrine.core.routes import InLeg, Local, Route
from peregrine.core.rows import (
    AskRipe,
    Clock,
    DropKeys,
    Entry,
    ForgetSent,
    Item,
    KeyImage,
    Marker,
    RestoreKeys,
    Rows,
    StateRows,
    TakeSnapshot,
    split_keys,
)
from peregrine.core.rules import RuleTable
from peregrine.errors import ProtocolError
from peregrine.types import MigrationId, OpId, PlaceId, SiteId, site_of

REMEMBERED = 10_000  # migrations that ended: a late duplicate of their messages must be recognised


class Ports(Protocol):
    """What a leg needs of its router."""

    site: SiteId
    table: RuleTable[Route]
    ends: dict[PlaceId, int]
    commits: dict[PlaceId, int]

    def append(self, place: PlaceId, entry: Entry) -> None: ...
    def ask(self, place: PlaceId, keys: KeySet, control: Callable[[int, KeySet], Entry]) -> None: ...
    def send(self, item: Item, to: SiteId) -> None: ...
    def route(self, item: Rows | Clock, via: SiteId | None = None) -> None: ...
    def toward(self, place: PlaceId) -> Route: ...
    def emitted(self, place: PlaceId, op: OpId, rows: Rows) -> None: ...
    def note_strays(self, item: Rows | Clock) -> None: ...
    def report(self, migration: MigrationId, status: str, shed: tuple[tuple[str, int], ...] = (), bytes_moved: int = 0) -> None: ...
    def protocol_error(self, what: str) -> ProtocolError: ...


@dataclass(slots=True)
class Leg:
    migration: Migration
    role: Role
    missing: KeySet  # target, store: state that has not come; source: groups that are not ripe
    unacked: KeySet  # target: parts of K whose end at S is not confirmed
    static_missing: KeySet
    switched: bool = False  # anchor
    aborting: set[Role] = field(default_factory=set)  # anchor: who has not undone its part yet
    deferring: bool = False  # source
    flushing: bool = False  # source: rows that went to the anchor are on their way back
    holding: bool = False
    fetching: bool = False
    sweeping: bool = False
    fetched: KeySet | None = None
    muted: bool = False
    gated: bool = False
    ripe_asked: dict[int, int | None] = field(default_factory=dict)  # group -> until when, of those not ripe
    held: list[Rows | Clock] = field(default_factory=list)
    behind_gate: list[tuple[OpId, Rows]] = field(default_factory=list)
    donated: list[StateRows] = field(default_factory=list)
    arrived: StateRows | None = None  # the state of which STATE speaks
    catch_up_to: int | None = None  # offset up to which D's host must have come
    caught_up: bool = False
    shed: list[tuple[str, int]] = field(default_factory=list)
    bytes_moved: int = 0

    @property
    def place(self) -> PlaceId:
        return self.migration.source if self.role is Role.SOURCE else self.migration.target


@dataclass(frozen=True, slots=True)
class Ended:
    how: str
    shed: tuple[tuple[str, int], ...] = ()
    bytes_moved: int = 0


class Legs:
    def __init__(self, router: Ports, mechanisms: Mapping[str, Mechanism]) -> None:
        self._router = router
        self._mechanisms = mechanisms
        self._legs: dict[tuple[MigrationId, Role], Leg] = {}
        self._ended: OrderedDict[tuple[MigrationId, Role], Ended] = OrderedDict()
        self._halted: dict[PlaceId, list[Rows | Clock]] = {}
        self.replicas = ReplicaStore()

    # --- commands of the manager ---

    def begin(self, migration: Migration) -> None:
        at = (migration.id, Role.ANCHOR)
        if at in self._legs or at in self._ended:
            self.tell_status(migration)
            return
        self._legs[at] = self._new(migration, Role.ANCHOR)
        self._router.report(migration.id, "begun")
        self._perform(self._legs[at], On.BEGIN)

    def abort(self, migration: Migration) -> None:
        """Before the switch: undo, S never noticed. After it there is no way back: roll forward."""
        at = (migration.id, Role.ANCHOR)
        leg = self._legs.get(at)
        if leg is None:
            if at not in self._ended:
                self._end(at, "aborted")  # a BEGIN that comes after this is too late
            self.tell_status(migration)
        elif not leg.aborting:
            leg.aborting = {Role.SOURCE, Role.TARGET}
            self._assign(migration, self._router.toward(migration.source))
            for role in (Role.SOURCE, Role.TARGET):
                self._tell(leg, role, On.ABORT)

    def tell_status(self, migration: Migration) -> None:
        for role in (Role.ANCHOR, Role.TARGET):
            ended = self._ended.get((migration.id, role))
            if ended is not None and ended.how in ("switched", "aborted", "done"):
                self._router.report(migration.id, ended.how, ended.shed, ended.bytes_moved)

    # --- what arrives ---

    def on_marker(self, marker: Marker) -> None:
        migration, role, event = marker.migration, marker.role, marker.event
        at = (migration.id, role)
        if at in self._ended:
            return
        leg = self._legs.get(at)
        if leg is None:
            if role is Role.ANCHOR:
                raise self._router.protocol_error(f"{event} for {migration.id}, whose anchor this never was")
            leg = self._legs[at] = self._new(migration, role)
        match event:
            case On.ABORT | On.FLUSH | On.FLUSHED | On.UNDONE:
                self._undo(leg, marker)
            case On.ACK:
                leg.unacked -= marker.keys
                if not leg.unacked:
                    self._perform(leg, event)
            case On.RIPE:
                self._ripened(leg, marker)
            case On.FETCH:
                self._snapshot(leg, self._one(leg, event, do.Snapshot), marker.keys)
            case _:
                if event is On.READY and (leg.aborting or leg.switched):
                    return
                self._perform(leg, event)
        if role is Role.SOURCE and event is self._mechanisms[migration.mechanism].last_at_source:
            self._end(at, "left")

    def on_state(self, state: StateRows) -> None:
        migration = state.migration
        if migration is None:
            self.replicas.keep(state)
            return
        role = Role.STORE if state.dest == migration.store and not self._is_target(state) else Role.TARGET
        at = (migration.id, role)
        if at in self._ended:
            return  # it was aborted meanwhile
        leg = self._legs.get(at)
        if leg is None:
            leg = self._legs[at] = self._new(migration, role)
        leg.bytes_moved += sum(image.bytes_moved for image in state.images)
        if state.static:
            self.replicas.keep(state)
            leg.static_missing -= state.covers
            if not leg.static_missing:
                self._perform(leg, On.STATIC)
            return
        leg.shed.extend(state.shed)
        leg.missing -= state.covers
        leg.arrived = state
        if role is Role.STORE:
            leg.donated.append(state)
        self._perform(leg, On.STATE)
        if not leg.missing:
            leg.catch_up_to = self._router.ends.get(leg.place, 0)
            self._perform(leg, On.COMPLETE)
            self._check_caught_up(leg)
        elif leg.sweeping:
            self._sweep(leg)

    def _is_target(self, state: StateRows) -> bool:
        """Does `indirect` state come from the store (or need none)? Then it is for the target."""
        assert state.migration is not None
        steps = self._mechanisms[state.migration.mechanism].steps(Role.STORE, On.COMPLETE)
        return not steps or (state.migration.id, Role.STORE) in self._ended

    def on_stamped(self, item: Rows | Clock) -> None:
        """Rows that the anchor has put in order, at the place that it sent them to."""
        assert item.stamp is not None
        target = self._legs.get((item.stamp, Role.TARGET))
        source = self._legs.get((item.stamp, Role.SOURCE))
        item = replace(item, stamp=None)
        if source is not None:
            self._router.append(source.migration.source, item)
        elif target is not None:
            self._into_target(target, item)
        else:
            raise self._router.protocol_error(f"rows of {item.op} that nobody here expects")

    def treat(self, migration: MigrationId, role: Role, item: Rows | Clock) -> None:
        """Rows of K that came by the rules."""
        leg = self._legs[migration, role]
        m = leg.migration
        match role:
            case Role.ANCHOR:
                item = replace(item, detour=None)
                for place in (m.source, m.target):
                    if site_of(place) != self._router.site:
                        stamped = replace(item, stamp=m.id, dest=site_of(place))
                        self._router.send(stamped, site_of(place))
                    elif place == m.target:
                        self._into_target(self._legs[m.id, Role.TARGET], item)
                    else:
                        self._router.append(place, item)
            case Role.SOURCE:
                self._router.note_strays(item)
                if not leg.flushing:
                    self._router.send(replace(item, dest=m.anchor, detour=m.id), m.anchor)
                elif item.detour == m.id:
                    self._router.append(m.source, replace(item, detour=None))
                else:
                    leg.held.append(item)
            case Role.TARGET:
                self._into_target(leg, item)
            case Role.STORE:
                raise self._router.protocol_error(f"rows of {item.op} at the store of {migration}")

    def _into_target(self, leg: Leg, item: Rows | Clock) -> None:
        if leg.holding and leg.missing:
            waits, passes = split_keys(item, leg.missing)
            if waits is not None:
                leg.held.append(waits)
                if leg.fetching:
                    self._fetch(leg, waits)
            if passes is None:
                return
            item = passes
        self._router.append(
            leg.migration.target,
            replace(item, detour=None, muted=leg.muted, gate=leg.migration.id if leg.gated else None),
        )

    def output(self, place: PlaceId, op: OpId, rows: Rows) -> None:
        """Outputs of a host of this site: those behind a closed gate wait."""
        leg = self._legs.get((rows.gate, Role.TARGET)) if rows.gate is not None else None
        if leg is not None and leg.gated:
            leg.behind_gate.append((op, rows))
        else:
            self._router.emitted(place, op, rows if rows.gate is None else replace(rows, gate=None))

    def on_commit(self, place: PlaceId) -> None:
        for leg in list(self._legs.values()):
            if leg.role is Role.TARGET and leg.migration.target == place:
                self._check_caught_up(leg)

    def on_tick(self) -> None:
        for leg in list(self._legs.values()):
            for group, until_ms in leg.ripe_asked.items():
                self._ask_ripe(leg, leg.migration.keys.in_group(group), until_ms)

    def learn_owner(self, migration: Migration) -> None:
        """The anchor has switched: K lives at D now, and this router is on the way there."""
        self._assign(migration, self._router.toward(migration.target))

    # --- the primitives ---

    def _perform(self, leg: Leg, event: On) -> None:
        for step in self._mechanisms[leg.migration.mechanism].steps(leg.role, event):
            self._do(leg, step)

    def _do(self, leg: Leg, step: do.Step) -> None:
        m, router = leg.migration, self._router
        match step:
            case do.Copy():
                self._assign(m, InLeg(m.id, Role.ANCHOR))
            case do.Switch():
                leg.switched = True
                self.learn_owner(m)
                self._end((m.id, Role.ANCHOR), "switched")
                router.report(m.id, "switched")
            case do.Mark(event, roles):
                for role in roles:
                    self._tell(leg, role, event)
            case do.Tell(role, event):
                self._tell(leg, role, event)
            case do.Defer():
                if m.site(Role.SOURCE) != m.anchor:
                    leg.deferring = True
                    self._assign(m, InLeg(m.id, Role.SOURCE))
            case do.Snapshot():
                self._snapshot(leg, step, m.keys)
            case do.Ripen():
                self._ask_ripe(leg, m.keys, None)
            case do.Drop():
                router.ask(m.source, m.keys, lambda group, keys: DropKeys(m.op, group, keys, ack=m))
            case do.Own():
                self._assign(m, InLeg(m.id, Role.TARGET))
            case do.Hold(fetch):
                leg.holding, leg.fetching = True, fetch
            case do.Sweep():
                leg.sweeping = True
                self._sweep(leg)
            case do.Restore(marks_only):
                self._restore(leg, marks_only)
            case do.Release():
                self._release(leg)
            case do.Mute():
                leg.muted = True
            case do.Unmute():
                leg.muted = False
            case do.Gate():
                leg.gated = True
            case do.Open():
                leg.gated = False
                for op, rows in leg.behind_gate:
                    router.emitted(m.target, op, replace(rows, gate=None))
                leg.behind_gate.clear()
            case do.Halt():
                self._halted.setdefault(leg.place, [])
            case do.Resume():
                for item in self._halted.pop(leg.place, []):
                    router.append(leg.place, item)
            case do.Collect():
                self._end((m.id, Role.STORE), "collected")
                for state in leg.donated:
                    router.send(replace(state, dest=m.site(Role.TARGET)), m.site(Role.TARGET))
            case do.Done():
                self._assign(m, Local(m.target))
                self._end((m.id, Role.TARGET), "done")
                self.tell_status(m)
            case _:
                raise AssertionError(f"no such primitive: {step}")

    def _snapshot(self, leg: Leg, step: do.Snapshot, keys: KeySet) -> None:
        m = leg.migration
        dest = m.site(step.to)
        self._router.ask(
            m.source,
            keys,
            lambda group, part: TakeSnapshot(
                m.op, group, part, m.target, dest, m, step.drop, step.delta, step.static, m.shed_below if step.shed else 0
            ),
        )

    def _restore(self, leg: Leg, marks_only: bool) -> None:
        m, state = leg.migration, leg.arrived
        assert state is not None
        images: dict[int, list[KeyImage]] = {}
        for image in state.images:
            whole = self.replicas.complete(m.op, m.target, image)
            images.setdefault(group_of(stable_hash(image.key), m.keys.groups), []).append(whole)
        for group, part in sorted(images.items()):
            self._router.append(m.target, RestoreKeys(m.op, group, tuple(part), marks_only))

    def _release(self, leg: Leg) -> None:
        held, leg.held = leg.held, []
        for item in held:
            self._into_target(leg, item)

    def _fetch(self, leg: Leg, waiting: Rows | Clock) -> None:
        if isinstance(waiting, Rows):
            keys = KeySet.of_keys(leg.missing.groups, waiting.batch.column(0).to_pylist()) - self._fetched(leg)
            if keys:
                leg.fetched = self._fetched(leg) | keys
                self._tell(leg, Role.SOURCE, On.FETCH, keys)

    def _sweep(self, leg: Leg) -> None:
        """One group of what nobody has asked for; the next when it has come."""
        rest = leg.missing - self._fetched(leg)
        if rest:
            part = rest.in_group(rest.touched_groups()[0])
            leg.fetched = self._fetched(leg) | part
            self._tell(leg, Role.SOURCE, On.FETCH, part)

    def _fetched(self, leg: Leg) -> KeySet:
        return leg.fetched if leg.fetched is not None else KeySet.nothing(leg.missing.groups)

    def _ask_ripe(self, leg: Leg, keys: KeySet, until_ms: int | None) -> None:
        m = leg.migration
        self._router.ask(m.source, keys, lambda group, part: AskRipe(m.op, group, part, m, until_ms))

    def _ripened(self, leg: Leg, marker: Marker) -> None:
        (group,) = marker.keys.touched_groups()
        if marker.until_ms is not None:
            leg.ripe_asked[group] = marker.until_ms
            return
        leg.ripe_asked.pop(group, None)
        if not leg.missing:
            return  # answers to questions that were asked twice
        leg.missing -= marker.keys
        if not leg.missing:
            self._perform(leg, On.RIPE)

    def _check_caught_up(self, leg: Leg) -> None:
        m = leg.migration
        if leg.catch_up_to is None or leg.caught_up or (m.id, leg.role) in self._ended:
            return
        if self._router.commits.get(m.target, 0) >= leg.catch_up_to - m.caught_up_lag_rows:
            leg.caught_up = True
            self._perform(leg, On.CAUGHT_UP)

    # --- abort ---

    def _undo(self, leg: Leg, marker: Marker) -> None:
        m = leg.migration
        match marker.event, leg.role:
            case On.ABORT, Role.SOURCE:
                self._router.ask(m.source, m.keys, lambda group, part: ForgetSent(m.op, group, part, m.target))
                if leg.deferring:
                    # Rows that were sent to the anchor are still on their way back: newer ones wait for them.
                    leg.flushing = True
                    self._tell(leg, Role.ANCHOR, On.FLUSH)
                else:
                    self._undone(leg)
            case On.FLUSH, Role.ANCHOR:
                self._tell(leg, Role.SOURCE, On.FLUSHED)
            case On.FLUSHED, Role.SOURCE:
                self._assign(m, Local(m.source))
                for item in leg.held:
                    self._router.append(m.source, item)
                self._undone(leg)
            case On.ABORT, Role.TARGET:
                self.replicas.discard(m.op, m.target, m.keys)
                self._router.ask(m.target, m.keys, lambda group, part: DropKeys(m.op, group, part))
                self._undone(leg)
            case On.UNDONE, Role.ANCHOR:
                assert marker.told_by is not None
                leg.aborting.discard(marker.told_by)
                if not leg.aborting:
                    self._end((m.id, Role.ANCHOR), "aborted")
                    self._router.report(m.id, "aborted")
            case _:
                raise self._router.protocol_error(f"{marker.event} reached the {leg.role} of {m.id}")

    def _undone(self, leg: Leg) -> None:
        self._end((leg.migration.id, leg.role), "undone")
        self._tell(leg, Role.ANCHOR, On.UNDONE)

    # --- small things ---

    def hold_halted(self, place: PlaceId, item: Rows | Clock) -> bool:
        if place not in self._halted:
            return False
        self._halted[place].append(item)
        return True

    def halted(self, place: PlaceId) -> bool:
        return place in self._halted

    def _tell(self, leg: Leg, role: Role, event: On, keys: KeySet | None = None) -> None:
        m = leg.migration
        marker = Marker(event, role, m, m.keys if keys is None else keys, moves=leg.switched, told_by=leg.role)
        self._router.send(marker, marker.dest)

    def _assign(self, migration: Migration, route: Route) -> None:
        self._router.table.assign(migration.op, migration.keys, route)

    def _new(self, migration: Migration, role: Role) -> Leg:
        return Leg(migration, role, migration.keys, migration.keys, migration.keys)

    def _one(self, leg: Leg, event: On, kind: type[do.Snapshot]) -> do.Snapshot:
        for step in self._mechanisms[leg.migration.mechanism].steps(leg.role, event):
            if isinstance(step, kind):
                return step
        raise self._router.protocol_error(f"{leg.migration.mechanism} does not fetch")

    def _end(self, at: tuple[MigrationId, Role], how: str) -> None:
        leg = self._legs.pop(at, None)
        self._ended[at] = Ended(how, tuple(leg.shed), leg.bytes_moved) if leg is not None else Ended(how)
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

    def check(self) -> None:
        for (mid, role), leg in self._legs.items():
            assert not leg.behind_gate or leg.gated, f"{mid}: outputs wait at an open gate"
            assert not leg.held or leg.holding or leg.flushing, f"{mid}: rows are held by nobody"
            if leg.holding:  # else a later row of the same key would overtake them
                settled = [item for item in leg.held if split_keys(item, leg.missing)[1] is not None]
                assert not settled, f"{mid}: rows of keys that are settled are still held"

    def leftovers(self) -> list[str]:
        left = [f"leg {mid} as {role}" for mid, role in self._legs]
        left += [f"{len(leg.held)} held batches of {mid}" for (mid, _), leg in self._legs.items() if leg.held]
        left += [f"{len(leg.behind_gate)} gated batches of {mid}" for (mid, _), leg in self._legs.items() if leg.behind_gate]
        left += [f"{len(items)} batches at halted {place}" for place, items in self._halted.items()]
        return left
