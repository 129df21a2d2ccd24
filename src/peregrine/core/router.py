"""The router of one site: late binding by (operator, key), on ordered logs.

`step` is the only thing that changes a router, and it is deterministic: see `core/messages.py` for what must be durable
when. A row is looked up in the rules and goes to a host of this site, up to the parent or down to a child; a producer
never knows where its consumer runs (Shepherd IV-A, Falcon III-C). What a migration changes about that is in
`core/legs.py`, what a site that changes its parent changes in `core/rehomings.py`. A router never runs user code and
never reads a clock.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby

from peregrine.core.gather import gathered
from peregrine.core.intake import Intake, RouterConfig
from peregrine.core.keyspace import KeySet
from peregrine.core.legs import Legs
from peregrine.core.messages import (
    Abort,
    Ahead,
    Append,
    Attach,
    Attached,
    Begin,
    ChunksHere,
    Committed,
    DeadLetter,
    Deliver,
    Effect,
    Emitted,
    Event,
    Fetch,
    FromAnyHost,
    FromGroups,
    FromHost,
    FromLink,
    FromSource,
    HandBack,
    HandedBack,
    KeepReplicas,
    Query,
    Reached,
    Rehome,
    Rehomed,
    Report,
    Send,
    SetOwner,
    Single,
    StopReplicas,
    Stray,
    Tick,
    Together,
    WarmUp,
)
from peregrine.core.migrate import Role
from peregrine.core.rehoming import Message
from peregrine.core.rehomings import Rehomings
from peregrine.core.replication import NOTHING_MOVED, StateMoved
from peregrine.core.routes import Down, InLeg, InRehoming, Local, Route, Sink, Up
from peregrine.core.rows import (
    ROW_SCHEMA,
    ChunksTaken,
    Clock,
    Entry,
    Item,
    Marker,
    Rows,
    StateRows,
    length,
)
from peregrine.core.rules import RuleTable, split
from peregrine.core.trail import Trail, explained
from peregrine.core.ways import Ways
from peregrine.errors import ProtocolError
from peregrine.types import MigrationId, OpId, PlaceId, SiteId, SourceId, site_of

SAY_AGAIN_MS = 1000
HAS_ITEMS = FromSource | FromLink | FromAnyHost

Way = None | SiteId | tuple[PlaceId, OpId]  # from a device, from a neighbour, from a host


class Router:
    intake_type: type[Intake] = Intake
    legs_type: type[Legs] = Legs
    rehomings_type: type[Rehomings] = Rehomings

    def __init__(self, config: RouterConfig) -> None:
        self.config = config
        self.site = config.site
        self.trail = Trail(f"router {config.site}")
        topology = config.topology
        self.ways = Ways(topology, config.site)
        home: Route = Local(topology.main_place(config.site)) if self.ways.is_root else Up()
        self.table: RuleTable[Route] = RuleTable(home)
        for spec in config.operators.values():
            self.table.add_op(spec.op, spec.groups)
            if spec.sink and self.ways.is_root:
                self.table.assign(spec.op, KeySet.everything(spec.groups), Sink())
        self.intake = self.intake_type(config, self.ways)
        self.legs = self.legs_type(self, config.mechanisms)
        self.rehomings = self.rehomings_type(self)
        self.now_ms = 0
        self.ends: dict[PlaceId, int] = {}  # next offset of each host log
        self.commits: dict[PlaceId, int] = {}
        self.applied: dict[PlaceId, int] = {}  # as far as told: at least what is committed
        self._effects: list[Effect] = []
        self._sent: dict[SiteId, tuple[int, int]] = {}  # session, last sequence number sent in it to each neighbour
        self._results = 0
        self._dead = 0
        self._strays: dict[tuple[OpId, str], SourceId] = {}
        self._attached: dict[SourceId, int] = {}
        self._heard: dict[SourceId, None] = {}  # sources, since where they are was last said
        self._say_again_at_ms = 0
        self.pressed_from_above = False

    @explained
    def step(self, event: Event) -> list[Effect]:
        """An event that this router cannot make sense of raises an error and changes nothing."""
        events = event.events if isinstance(event, Together) else (event,)
        for each in events:
            self.intake.vet(each)
        self._effects = []
        for has_items, run in groupby(events, lambda each: isinstance(each, HAS_ITEMS)):
            if has_items:
                for way, item in gathered(entered for each in run for entered in self._enter(each)):
                    self._go_on(way, item)
                    self.rehomings.review()
            else:
                for each in run:
                    self._obey(each)
                    self.rehomings.review()
        return self._effects

    def _enter(self, event: Single) -> Iterator[tuple[Way, Item]]:
        """What of an event is new here, and by which way it came."""
        match event:
            case FromSource(source):
                self._heard[source] = None
                for produced in self.intake.from_source(event):
                    if isinstance(produced, Rows) and not produced.batch.schema.equals(ROW_SCHEMA):
                        columns = ", ".join(ROW_SCHEMA.names)
                        self.dead_letter(f"rows of source {source} do not have the columns {columns}", produced)
                    else:
                        yield None, produced
            case FromLink(neighbour):
                for item in self.intake.from_link(event):
                    yield neighbour, item
            case FromHost(place, op):
                for output in self.intake.from_host(event):
                    yield (place, op), output
            case FromGroups(place, op):
                rows = self.intake.from_groups(event)
                if rows is not None:
                    yield (place, op), rows

    def _go_on(self, way: Way, item: Item) -> None:
        if isinstance(way, tuple) and isinstance(item, Rows | Clock):
            self.trail.meet(item)
            self.legs.output(*way, item)
        else:
            if isinstance(way, tuple) and isinstance(item, StateRows):
                if item.migration is not None:
                    self.reached(item.migration.id, "sent")
                else:
                    item = replace(item, source=way[0])
            self.receive(item, way if isinstance(way, str) else None)

    def _obey(self, event: Single) -> None:
        self.trail.about = None
        match event:
            case Committed(place, offset):
                self.commits[place] = max(offset, self.commits.get(place, 0))
                self.applied[place] = max(offset, self.applied.get(place, 0))
                self.legs.on_commit(place)
            case Ahead(place, offset):
                self.applied[place] = max(offset, self.applied.get(place, 0))
                self.legs.on_applied(place)
            case ChunksHere(fetch, bytes_moved):
                self.legs.on_chunks(fetch, bytes_moved)
            case Attach(source, nth, gone):
                self._attached[source] = nth
                if gone:
                    del self._attached[source]
                    self._heard.pop(source, None)
                self._effects.append(Attached(self.site, source, self.now_ms, nth, gone))
            case Tick(now_ms):
                self._on_tick(now_ms)
            case SetOwner(op, keys, place):
                self.table.assign(op, keys, self.toward(place))
            case KeepReplicas():
                self.legs.replicating.keep(event)
            case StopReplicas(op, keys, source, target):
                self.legs.replicating.stop(op, keys, source, target)
            case WarmUp(place, rows):
                self.append(place, replace(rows, sample=True))
            case Begin(migration):
                self.trail.about = migration.id
                self.legs.begin(migration)
            case Abort(migration):
                self.trail.note(migration.id, "abort")
                self.legs.abort(migration)
            case Query(migration):
                self.trail.about = migration.id
                self.legs.tell_status(migration)
            case Rehome(rehoming):
                self.trail.note(rehoming.site, "is to go from", str(rehoming.source), "to", str(rehoming.target))
                self.rehomings.begin(event)
            case HandedBack():
                departures = self.rehomings.old_branch.departures.values()
                site = event.neighbour if any(event.answers(each.hand_back) for each in departures) else self.site
                self.trail.note(site, "items handed back, of session", event.session)
                self.rehomings.handed_back(event)

    # --- what the outside may ask ---

    def accepts_rows(self) -> bool:
        """Back-pressure: may devices send? Links and hosts always may, or a migration could wait for itself."""
        return not self.pressed_from_above and all(
            end - self.commits.get(place, 0) <= self.config.host_lag_rows for place, end in self.ends.items()
        )

    @property
    def restless(self) -> bool:
        """Would a tick do more than tell the time, and say again who is connected?"""
        ticking = any(spec.ticks for spec in self.config.operators.values())
        return ticking or bool(self._strays) or self.legs.waits_for_time

    def hear_pressure(self, pressed: bool) -> None:
        """The parent says whether it accepts rows. A hint that is told again and again, so it is not journaled."""
        self.pressed_from_above = pressed

    def acked_source(self, source: SourceId) -> int:
        return self.intake.acked_source(source)

    def acked_link(self, neighbour: SiteId, session: int | None = None) -> int:
        return self.intake.acked_link(neighbour, session)

    @property
    def parent(self) -> SiteId | None:
        return self.ways.parent

    def hand_backs(self) -> list[HandBack]:
        """What has been asked for and has not been handed back: to be performed again after a restart."""
        return list(self.rehomings.hand_backs())

    def fetches(self) -> list[Fetch]:
        """What has been asked for and has not come: to be performed again after a restart."""
        return self.legs.fetching.pending()

    def pinned(self) -> set[bytes]:
        return self.legs.pinned()

    @explained
    def check(self) -> None:
        """Invariants that hold after every step."""
        for place, offset in self.commits.items():
            assert offset <= self.ends.get(place, 0), f"{place} committed {offset} of {self.ends.get(place, 0)} rows"
        self.legs.check()
        self.rehomings.check()

    def leftovers(self) -> list[str]:
        """What should not be there once every migration and every rehoming has ended."""
        return self.legs.leftovers() + self.rehomings.leftovers()

    # --- events ---

    def _on_tick(self, now_ms: int) -> None:
        self.now_ms = max(now_ms, self.now_ms)
        for (op, key), source in self._strays.items():
            self._effects.append(Stray(self.site, op, key, source))
        self._strays.clear()
        if self.now_ms >= self._say_again_at_ms:
            self._say_again_at_ms = self.now_ms + SAY_AGAIN_MS
            for source in self._heard:
                if source in self._attached:
                    self._effects.append(Attached(self.site, source, self.now_ms, self._attached[source]))
            self._heard.clear()
        for op, spec in self.config.operators.items():
            if spec.ticks:
                clock = Clock(op, KeySet.everything(spec.groups), None, now_ms)
                for route, keys in self.table.partition(op, clock.keys):
                    # Each place's clock is told by its own router; during a migration the anchor tells K's.
                    if isinstance(route, Local) or (isinstance(route, InLeg) and route.role is not Role.SOURCE):
                        self._dispatch(route, replace(clock, keys=keys), None)
        self.legs.replicating.refresh(self.now_ms)
        self.legs.on_tick()

    # --- routing ---

    def receive(self, item: Item, via: SiteId | None) -> None:
        """An item from a neighbour or from a host of this site."""
        self.trail.meet(item)
        if item.dest is not None and self.rehomings.turns_off(item, via, self.ways.has(item.dest)):
            return
        if isinstance(item, Marker):
            if item.owner is not None and (item.moves or item.dest != self.site):
                self.legs.learn_owner(item.migration, item.owner)
            self.rehomings.hear(item)
        if isinstance(item, StateRows) and item.origin is None:
            item = self.legs.fetching.depart(item)
        if isinstance(item, Message):
            self.rehomings.on_message(item, via)
        elif item.dest is not None and item.dest != self.site:
            self._pass_on(item, item.dest, via)
        elif isinstance(item, Rows | Clock):
            self.route(item if item.dest is None else replace(item, dest=None), via)
        elif isinstance(item, Marker):
            self.legs.on_marker(item)
        elif isinstance(item, ChunksTaken):
            self.legs.fetching.taken(item.pin)
        else:
            self.legs.on_state(item)

    def route(self, item: Rows | Clock, via: SiteId | None = None) -> None:
        """Late binding: where do these rows go from here?"""
        if item.stamp is not None:
            self.legs.on_stamped(item)
            return
        if item.gate is not None and (self.rehomings.closes(item, via) or self.legs.at_gate(item)):
            return
        if item.detour is not None and self.legs.returns_to_source(item):
            return
        if item.op not in self.config.operators:
            self.dead_letter(f"no operator {item.op!r} is deployed", item)
        elif isinstance(item, Clock):
            for route, keys in self.table.partition(item.op, item.keys):
                self._dispatch(route, replace(item, keys=keys), via)
        elif len(item) and (only := self.table.only_route(item.op)) is not None:
            self._dispatch(only, item, via)
        else:
            parts = split(item.batch, self.table.lookup(item.op, item.hashes))
            for route, batch in [(self.table.route(number), batch) for number, batch in parts]:
                self._dispatch(route, item if batch is item.batch else replace(item, batch=batch), via)

    def _dispatch(self, route: Route, item: Rows | Clock, via: SiteId | None) -> None:
        if not isinstance(route, Up) and self.rehomings.turns_off(item, via, stops=True):
            return
        match route:
            case Local(place):
                self.append(place, item)
            case Up():
                self.up(item)
            case Down(child):
                if via is None or via != self.parent:
                    self.note_strays(item)
                self.to_neighbour(child, item)
            case InRehoming(number):
                if via is None or via != self.parent:
                    self.note_strays(item)
                self.rehomings.treat(number, item, via)
            case InLeg(migration, role):
                self.legs.treat(migration, role, item)
            case Sink():
                if isinstance(item, Rows):
                    self._effects.append(Deliver(self._results, item))
                    self._results += len(item)

    def note_strays(self, item: Rows | Clock) -> None:
        """Rows on their way down came from below: their source has left the subtree that owns their key."""
        if isinstance(item, Rows) and self.config.operators[item.op].roaming:
            for key, source in zip(item.batch.column(0).to_pylist(), item.batch.column(2).to_pylist(), strict=True):
                self._strays[item.op, key] = source

    def toward(self, place: PlaceId) -> Route:
        """The route from here to a place."""
        site = site_of(place)
        if site == self.site:
            return Local(place)
        if (number := self.rehomings.turning(site)) is not None:
            return InRehoming(number)
        child = self.ways.below.get(site)
        return Up() if child is None else Down(child)

    def taught(self, op: OpId, keys: KeySet) -> None:
        """A marker tells where these keys live: what a rehoming knows of them is older."""
        self.rehomings.fence.taught(op, keys)

    # --- what legs and routing perform ---

    def append(self, place: PlaceId, entry: Entry) -> None:
        if isinstance(entry, Rows | Clock) and place in self.legs.halts:
            self.legs.halts.wait(place, entry)
            return
        offset = self.ends.get(place, 0)
        self.ends[place] = offset + length(entry)
        self.legs.replicating.saw(place, entry)
        self._effects.append(Append(place, offset, entry))

    def ask(self, place: PlaceId, keys: KeySet, control: Callable[[int, KeySet], Entry]) -> None:
        """One control row for each group that `keys` touches: a group is what a host applies and commits."""
        for group in keys.touched_groups():
            self.append(place, control(group, keys.in_group(group)))

    def send(self, item: Item, to: SiteId) -> None:
        if to == self.site:
            self.receive(item, None)
        else:
            self._pass_on(item, to, None)

    def _pass_on(self, item: Item, to: SiteId, via: SiteId | None) -> None:
        if self.rehomings.holds(item, to, via):
            return
        child = self.rehomings.child_towards(to, via)
        if child is not None:
            self.to_neighbour(child, item)
        elif self.ways.reaches(to):
            self.up(item)
        elif isinstance(item, StateRows) and item.migration is None:
            self.legs.fetching.refuse(item)  # a replica at a site that has left
        elif not isinstance(item, ChunksTaken):  # whoever kept those chunks has left, and needs no telling
            raise self.protocol_error(f"an item for {to}, which is not in the tree: {item}")

    def up(self, item: Item) -> None:
        if not self.rehomings.fences(item):
            assert self.parent is not None, f"{item} has no way from {self.site}"
            self.to_neighbour(self.parent, item)

    def to_neighbour(self, neighbour: SiteId, item: Item) -> None:
        session = self.intake.session(neighbour)
        before = self._sent.get(neighbour, (session, -1))
        seq = before[1] + 1 if before[0] == session else 0
        self._sent[neighbour] = session, seq
        self._effects.append(Send(neighbour, seq, item, session))

    def emitted(self, place: PlaceId, op: OpId, item: Rows | Clock) -> None:
        if isinstance(item, Rows):
            self._effects.append(Emitted(place, op, item))
        self.route(item)

    def dead_letter(self, reason: str, item: Rows | Clock) -> None:
        self._effects.append(DeadLetter(self._dead, reason, item))
        self._dead += 1

    def report(self, migration: MigrationId, status: str, moved: StateMoved = NOTHING_MOVED) -> None:
        self.trail.note(migration, "reports", status)
        self._effects.append(Report(self.site, migration, status, moved))

    def fetch(self, fetch: Fetch) -> None:
        self._effects.append(fetch)

    def hand_back(self, wanted: HandBack) -> None:
        self._effects.append(wanted)

    def rehomed(self, number: int) -> None:
        self.trail.note(self.site, "rehomed", number)
        self._effects.append(Rehomed(self.site, number))

    def reached(self, migration: MigrationId, step: str) -> None:
        self.trail.note(migration, "reached", step)
        self._effects.append(Reached(self.site, migration, step))

    def protocol_error(self, what: str) -> ProtocolError:
        return ProtocolError(f"router {self.site}: {what}", "this is a bug: keep the journal and replay it")
