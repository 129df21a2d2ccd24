"""What reaches a router about the migrations in which it plays a role.

Events come in markers, in band; the mechanism's table says which primitives to perform (`core/primitives.py` does).
Falcon III-E is the model: the anchor starts and ends the copying of K, and everything else follows from markers that
lie in the same streams as the rows.

One order for K, always: at any time the rows of K are put in order at one router. Before R that is the router of S;
R hands it to the anchor (`Defer`: S's router sends there whatever did not come from there), and T hands it to D's
router.
"""

from collections.abc import Mapping
from dataclasses import replace

from peregrine.core.fetching import Fetching
from peregrine.core.keyspace import KeySet
from peregrine.core.leg import Leg, LegBook, Ports
from peregrine.core.mechanisms.program import Mechanism, On, Open
from peregrine.core.migrate import Migration, Role
from peregrine.core.primitives import Halts, ask_ripe, perform, snapshot_fetched, sweep
from peregrine.core.replicating import Replicating
from peregrine.core.replication import ReplicaStore, StateMoved
from peregrine.core.routes import Route
from peregrine.core.rows import Clock, Marker, Rows, StateRows, split_keys
from peregrine.core.undo import undo
from peregrine.types import MigrationId, OpId, PlaceId, site_of


class Legs:
    def __init__(self, router: Ports, mechanisms: Mapping[str, Mechanism]) -> None:
        self.router = router
        self.book = LegBook()
        self.halts = Halts(router)
        self.replicas = ReplicaStore()
        self.fetching = Fetching(router, self.replicas)
        self.replicating = Replicating(router, self.fetching, self.halts)
        self._mechanisms = mechanisms

    # --- commands of the manager ---

    def begin(self, migration: Migration) -> None:
        """Repeated or late commands only get an answer."""
        new = self.book.get(migration.id, Role.ANCHOR) is None
        leg = self.book.open(migration, Role.ANCHOR)
        if leg is None or not new:
            self.tell_status(migration)
            return
        self.router.report(migration.id, "begun")
        self.happen(leg, On.BEGIN)

    def abort(self, migration: Migration) -> None:
        """Before the switch: undo, S never noticed. After it there is no way back: roll forward.

        One that has not begun here, and never will, is undone all the same: somebody may wait for it (`stand_in`).
        """
        leg = self.book.open(migration, Role.ANCHOR)
        if leg is None:
            self.tell_status(migration)
        elif not leg.aborting:
            leg.aborting = {Role.SOURCE, Role.TARGET}
            self.learn_owner(migration, migration.source)
            for role in (Role.SOURCE, Role.TARGET):
                self.tell(leg, role, On.ABORT)

    def tell_status(self, migration: Migration) -> None:
        for role in (Role.ANCHOR, Role.TARGET):
            ended = self.book.ended(migration.id, role)
            if ended is not None and ended.how in ("switched", "aborted", "done"):
                self.router.report(migration.id, ended.how, ended.moved)

    # --- what arrives in band ---

    def on_marker(self, marker: Marker) -> None:
        migration, role = marker.migration, marker.role
        known = self.book.get(migration.id, role) is not None
        leg = self.book.open(migration, role)
        if leg is None:
            return  # about a leg that has ended
        if role is Role.ANCHOR and not known:
            raise self.router.protocol_error(f"{marker.event} for {migration.id}, whose anchor this never was")
        match marker.event:
            case On.ABORT | On.FLUSH | On.FLUSHED | On.UNDONE:
                self.undo(leg, marker)
            case On.ACK:
                leg.unacked -= marker.keys
                if not leg.unacked:
                    self.happen(leg, On.ACK)
            case On.RIPE:
                self._on_ripe(leg, marker)
            case On.FETCH:
                snapshot_fetched(self, leg, marker.keys)
            case On.READY | On.HANDOVER if leg.aborting:
                pass
            case event:
                self.happen(leg, event)
        if role is Role.SOURCE and marker.event is self.mechanism(migration).last_at_source:
            self.book.end(migration.id, role, "left")
            self.replicating.leave(migration.op, migration.keys, migration.source)

    def on_state(self, state: StateRows) -> None:
        """It waits until its chunks are here; in the meantime nobody has heard of it."""
        if state.migration is not None and self.book.ended(state.migration.id, self._receiver(state)) is not None:
            self.fetching.refuse(state)  # aborted meanwhile
            return
        self.fetching.arrive(state)
        self.use_state()

    def on_chunks(self, fetch: int, bytes_moved: int) -> None:
        self.fetching.here(fetch, bytes_moved)
        self.use_state()

    def use_state(self) -> None:
        while (ready := self.fetching.next_ready()) is not None:
            self._use(ready.state, ready.bytes_moved)

    def _use(self, state: StateRows, fetched_bytes: int) -> None:
        if state.migration is None:
            if state.static:
                self.replicas.keep(state)
            else:
                self.replicas.discard(state.op, state.whose, state.target, state.covers)
            return
        leg = self.book.open(state.migration, self._receiver(state))
        if leg is None:
            return  # aborted meanwhile
        inline_bytes = sum(image.bytes_moved for image in state.images)
        leg.moved += StateMoved(inline_bytes + len(state.clocks) + fetched_bytes, shed=state.shed)
        if state.static:
            self.replicas.keep(state)
            leg.static_missing -= state.covers
            if not leg.static_missing:
                self.happen(leg, On.STATIC)
            return
        leg.missing -= state.covers
        leg.arrived = state
        if leg.role is Role.STORE:
            leg.donated.append(state)
        self.happen(leg, On.STATE)
        if not leg.missing:
            if leg.role is Role.TARGET:
                self.router.reached(leg.migration.id, "restored")
            leg.catch_up_to = self.router.ends.get(leg.place, 0)
            self.happen(leg, On.COMPLETE)
            self._check_caught_up(leg)
        elif leg.sweeping:
            sweep(self, leg)

    def _receiver(self, state: StateRows) -> Role:
        """State of `indirect` is for the store until the store has collected all of it."""
        m = state.migration
        assert m is not None
        stored = bool(self.mechanism(m).steps(Role.STORE, On.COMPLETE))
        at_store = state.dest == m.store and self.book.ended(m.id, Role.STORE) is None
        return Role.STORE if stored and at_store else Role.TARGET

    def on_stamped(self, item: Rows | Clock) -> None:
        """Rows that the anchor has put in order, at the place that it sent them to."""
        assert item.stamp is not None
        source = self.book.get(item.stamp, Role.SOURCE)
        target = self.book.get(item.stamp, Role.TARGET)
        item = replace(item, stamp=None)
        if source is not None:
            self.router.append(source.migration.source, item)
        elif target is not None:
            self.into_target(target, item)
        else:
            raise self.router.protocol_error(f"rows of {item.op} that nobody here expects")

    def returns_to_source(self, item: Rows | Clock) -> bool:
        """At the anchor, after an abort: S's router waits for these. They go the way that FLUSHED will go, addressed:
        rules may lead them another, or hold them up, while S's site changes its parent.
        """
        leg = self.book.get(item.detour, Role.ANCHOR) if item.detour is not None else None
        if leg is None or not leg.aborting:
            return False
        source = leg.migration.site(Role.SOURCE)
        self.router.send(replace(item, dest=source), source)
        return True

    def treat(self, migration: MigrationId, role: Role, item: Rows | Clock) -> None:
        """Rows of K that came by the rules."""
        self.router.trail.about = migration
        leg = self.book.get(migration, role)
        assert leg is not None, f"a rule leads to {migration} as {role}, which is not open"
        match role:
            case Role.ANCHOR:
                self._copy(leg.migration, replace(item, detour=None))
            case Role.SOURCE:
                self._defer(leg, item)
            case Role.TARGET:
                self.into_target(leg, item)
            case Role.GATE | Role.STORE:
                raise self.router.protocol_error(f"a rule leads rows of {item.op} to the {role} of {migration}")

    def _copy(self, m: Migration, item: Rows | Clock) -> None:
        for place in (m.source, m.target):
            if site_of(place) != self.router.site:
                self.router.send(replace(item, stamp=m.id, dest=site_of(place)), site_of(place))
            elif place == m.source:
                self.router.append(place, item)
            else:
                self.into_target(self.book.get(m.id, Role.TARGET), item)

    def _defer(self, leg: Leg, item: Rows | Clock) -> None:
        m = leg.migration
        self.router.note_strays(item)
        if not leg.flushing:
            self.router.send(replace(item, dest=m.anchor, detour=m.id), m.anchor)
        elif item.detour == m.id:
            self.router.append(m.source, replace(item, detour=None))
        else:
            leg.held.append(item)

    def into_target(self, leg: Leg | None, item: Rows | Clock) -> None:
        assert leg is not None, "the target is told before the first row is copied to it"
        if leg.holding and leg.missing:
            waits, passes = split_keys(item, leg.missing)
            if waits is not None:
                leg.held.append(waits)
                self._fetch(leg, waits)
            if passes is None:
                return
            item = passes
        gate = leg.migration.id if leg.gated else None
        self.router.append(leg.migration.target, replace(item, detour=None, muted=leg.muted, gate=gate))

    def _fetch(self, leg: Leg, waiting: Rows | Clock) -> None:
        if leg.fetching and isinstance(waiting, Rows):
            keys = KeySet.of_keys(leg.missing.groups, waiting.batch.column(0).to_pylist()) - leg.fetched
            if keys:
                leg.fetched |= keys
                self.tell(leg, Role.SOURCE, On.FETCH, keys)

    def output(self, place: PlaceId, op: OpId, item: Rows | Clock) -> None:
        """Outputs of a host of this site, and the clocks that it passes on behind them.

        A host may be slower than the word that the gate is open: what it emits then for rows that were marked has
        nothing to wait for. Its consumer may be below the gate by now, and would pass the mark on as its own.
        """
        if item.gate is not None and self.book.ended(item.gate, Role.TARGET) is not None:
            item = replace(item, gate=None)
        if item.gate is None:
            self.router.emitted(place, op, item)
        else:
            self.router.route(item)

    def at_gate(self, item: Rows | Clock) -> bool:
        """Outputs that must pass a gate: True if it stands here, and they wait or have passed it."""
        assert item.gate is not None
        leg = self.book.get(item.gate, Role.GATE)
        if leg is not None and leg.closed:
            leg.behind_gate.append(item)
            return True
        opened = self.book.ended(item.gate, Role.GATE)
        if opened is not None and opened.migration is not None:
            self.passed_gate(opened.migration, item)
            return True
        return False

    def passed_gate(self, migration: Migration, item: Rows | Clock) -> None:
        self.router.emitted(migration.target, migration.op, replace(item, gate=None))

    def stand_in(self, migration: Migration) -> None:
        """The target has moved, and what it emits passes here, not the gate: it waits here for the gate's word."""
        if self.mechanism(migration).steps(Role.GATE, On.TERMINATE):
            leg = self.book.open(migration, Role.GATE)
            if leg is not None:
                leg.closed = leg.stands_in = True

    def stood_in(self, migration: Migration) -> None:
        leg = self.book.get(migration.id, Role.GATE)
        if leg is not None and leg.stands_in:
            perform(self, leg, Open())

    # --- what the router notices ---

    def on_commit(self, place: PlaceId) -> None:
        self.fetching.on_commit(place)
        self.replicating.on_commit(place)
        self.on_applied(place)

    def on_applied(self, place: PlaceId) -> None:
        for leg in self.book:
            if leg.role is Role.TARGET and leg.migration.target == place:
                self._check_caught_up(leg)

    def _check_caught_up(self, leg: Leg) -> None:
        m = leg.migration
        if leg.catch_up_to is None or leg.caught_up or self.book.get(*leg.at) is None:
            return
        if self.router.applied.get(m.target, 0) >= leg.catch_up_to - m.caught_up_lag_rows:
            leg.caught_up = True
            self.happen(leg, leg.then)

    @property
    def waits_for_hosts(self) -> bool:
        """Does a migration go on as soon as a host has applied more?"""
        return any(leg.catch_up_to is not None and not leg.caught_up for leg in self.book)

    @property
    def waits_for_time(self) -> bool:
        return self.replicating.keeps_any or any(leg.unripe for leg in self.book)

    def on_tick(self) -> None:
        for leg in self.book:
            unripe, leg.unripe = leg.unripe, {}  # a slow host is not asked again before it has answered
            for group, until_ms in unripe.items():
                ask_ripe(self, leg, leg.migration.keys.in_group(group), until_ms)

    def _on_ripe(self, leg: Leg, marker: Marker) -> None:
        (group,) = marker.keys.touched_groups()
        if marker.until_ms is not None:
            leg.unripe[group] = marker.until_ms
            return
        leg.missing -= marker.keys
        if not leg.missing:
            self.happen(leg, On.RIPE)

    def learn_owner(self, migration: Migration, owner: PlaceId) -> None:
        """The anchor has switched or given up: K lives there now, and this router is on the way."""
        self.router.taught(migration.op, migration.keys)
        self.assign(migration, self.router.toward(owner))

    # --- what primitives use ---

    def happen(self, leg: Leg, event: On) -> None:
        self.router.trail.note(leg.migration.id, leg.role.value, event.value)
        for step in self.mechanism(leg.migration).steps(leg.role, event):
            perform(self, leg, step)

    def undo(self, leg: Leg, marker: Marker) -> None:
        undo(self, leg, marker)

    def tell(self, leg: Leg, role: Role, event: On, keys: KeySet | None = None) -> None:
        m = leg.migration
        self.router.trail.note(m.id, leg.role.value, "tells", role.value, event.value)
        marker = Marker(event, role, m, m.keys if keys is None else keys, moves=leg.switched, told_by=leg.role)
        self.router.send(marker, marker.dest)

    def assign(self, migration: Migration, route: Route) -> None:
        self.router.table.assign(migration.op, migration.keys, route)

    def mechanism(self, migration: Migration) -> Mechanism:
        return self._mechanisms[migration.mechanism]

    # --- for tests and simulation ---

    def check(self) -> None:
        for leg in self.book:
            self.router.trail.about = leg.migration.id
            leg.check()

    def pinned(self) -> set[bytes]:
        """The chunks that the collector of this site must leave alone, whatever the states of its hosts refer to."""
        donated = {name for leg in self.book for state in leg.donated for name in state.stored}
        return self.fetching.pinned() | self.replicas.stored() | donated

    def leftovers(self) -> list[str]:
        left = self.halts.leftovers() + self.fetching.leftovers()
        for leg in self.book:
            waits = f", {len(leg.held)} batches held, {len(leg.behind_gate)} behind its gate"
            left.append(f"{leg.migration.id} is open as {leg.role}{waits if leg.held or leg.behind_gate else ''}")
        return left
