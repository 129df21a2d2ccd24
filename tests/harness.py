"""A network of real routers and hosts in which the test decides by hand what moves next.

Nothing happens by itself: `send` hands rows of a source to a router, `deliver` takes items off a link, `work` lets a
host apply, hand over and commit. So an interleaving is written down as it happens. Logs and links read as short texts:

    car1#3      row 3 of key car1          car1#3~     muted        car1#3!     behind a gate
    <snapshot>  a control row              R>source    a marker and the role that it is meant for
    [car1]      state of these keys        @7          a clock with its time
"""

import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from peregrine.core import state
from peregrine.core.host import apply, by_group
from peregrine.core.intake import RouterConfig
from peregrine.core.keyspace import KeySet, stable_hash
from peregrine.core.log import MemoryLog
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.mechanisms.program import On
from peregrine.core.messages import (
    Abort,
    Append,
    Attached,
    Begin,
    Committed,
    DeadLetter,
    Deliver,
    Effect,
    Emitted,
    Event,
    FromHost,
    FromLink,
    FromSource,
    Report,
    Send,
    SetOwner,
    Stray,
    Tick,
)
from peregrine.core.migrate import Migration
from peregrine.core.operator import Operator, OpSpec
from peregrine.core.router import Router
from peregrine.core.rows import (
    UNCHAINED,
    Clock,
    DropKeys,
    Entry,
    Item,
    Marker,
    RestoreKeys,
    Row,
    Rows,
    StateRows,
    TakeSnapshot,
    batch_of,
    length,
    rows_of,
)
from peregrine.core.topology import Link, Topology
from peregrine.sim.operators import Ledger, emitter
from peregrine.types import MigrationId, OpId, PlaceId, SiteId, SourceId, site_of

GROUPS = 4
OP = OpId("app/count")
SINK = OpId("app/results")
CLOUD, REGION, EDGE1, EDGE2 = SiteId("cloud"), SiteId("region"), SiteId("edge1"), SiteId("edge2")
AT_CLOUD, AT_REGION, AT_EDGE1, AT_EDGE2 = PlaceId("cloud"), PlaceId("region"), PlaceId("edge1"), PlaceId("edge2")
LETTERS = {On.RECONFIG: "R", On.TERMINATE: "T", On.ABORT: "X"}
CONTROLS = {TakeSnapshot: "<snapshot>", RestoreKeys: "<restore>", DropKeys: "<drop>"}


def tree(hosts: Mapping[str, tuple[str, ...]] | None = None) -> Topology:
    """cloud over region over edge1 and edge2."""
    link = Link(10.0, 100.0)
    parents = {REGION: (CLOUD, link), EDGE1: (REGION, link), EDGE2: (REGION, link)}
    return Topology.tree(CLOUD, parents, {SiteId(site): names for site, names in (hosts or {}).items()})


def keys(*names: str, groups: int = GROUPS) -> KeySet:
    return KeySet.of_keys(groups, names)


def spec(**more: object) -> OpSpec:
    return OpSpec(OP, GROUPS, feeds=(SINK,), **more)  # type: ignore[arg-type]


def sink() -> OpSpec:
    return OpSpec(SINK, GROUPS, sink=True)


def row(key: str, seq: int, prev: int = UNCHAINED, source: str = "s", time_ms: int = 0) -> Row:
    return Row(key, SourceId(source), seq, prev, time_ms, time_ms, f"{key}#{seq}".encode())


def rows(*given: Row, op: OpId = OP, **flags: object) -> Rows:
    return Rows(op, batch_of(given), **flags)  # type: ignore[arg-type]


def migration(
    key_set: KeySet, source: PlaceId, target: PlaceId, anchor: SiteId, mechanism: str = "live", **more: object
) -> Migration:
    gate = tree().lca(site_of(source), site_of(target))
    fields: dict[str, object] = {"id": MigrationId("m"), "op": OP, "gate": gate, "store": CLOUD, **more}
    return Migration(keys=key_set, source=source, target=target, anchor=anchor, mechanism=mechanism, **fields)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Batch:
    """What a host has computed and not committed."""

    place: PlaceId
    end: int
    handovers: tuple[FromHost, ...]
    states: Mapping[tuple[OpId, int], bytes]


class Net:
    def __init__(
        self,
        topology: Topology | None = None,
        specs: Iterable[OpSpec] = (spec(), sink()),
        operators: Mapping[OpId, Operator] | None = None,
        owners: Iterable[tuple[KeySet, PlaceId]] = (),
        chunk_bytes: int = 1 << 16,
        host_lag_rows: int = 100_000,
        mechanisms: object = MECHANISMS,
        router: type[Router] = Router,
    ) -> None:
        self.topology = topology or tree()
        self.specs = {each.op: each for each in specs}
        self.operators = operators or {OP: Ledger(SINK)}
        self.chunk_bytes = chunk_bytes
        self.configs = {
            site: RouterConfig(site, self.topology, self.specs, mechanisms, host_lag_rows)  # type: ignore[arg-type]
            for site in self.topology.sites
        }
        self.routers = {site: router(config) for site, config in self.configs.items()}
        self.journals: dict[SiteId, list[Event]] = {site: [] for site in self.topology.sites}
        self.effects: dict[SiteId, list[list[Effect]]] = {site: [] for site in self.topology.sites}
        self.links: dict[tuple[SiteId, SiteId], deque[tuple[int, Item]]] = {}
        self.logs = {place: MemoryLog() for site in self.topology.sites for place in self.topology.places(site)}
        self.committed = dict.fromkeys(self.logs, 0)
        self.states: dict[PlaceId, dict[tuple[OpId, int], bytes]] = {place: {} for place in self.logs}
        self.emitted: list[tuple[str, PlaceId, int]] = []  # (key that emitted, where, seq), as they pass routers
        self.results: list[tuple[str, int]] = []  # (key that emitted, seq), as they land
        self.lines: dict[str, list[tuple[int, bytes]]] = {}  # results of each source and key: here order is promised
        self.reports: list[Report] = []
        self.strays: list[Stray] = []
        self.attached: list[Attached] = []
        self.dead: list[DeadLetter] = []
        self._seqs: dict[str, int] = {}
        for key_set, place in owners:
            self.own(key_set, place)

    # --- what a test does ---

    def own(self, key_set: KeySet, place: PlaceId, op: OpId = OP) -> None:
        for site in self.topology.sites:
            self.step(site, SetOwner(op, key_set, place))

    def step(self, site: SiteId, event: Event) -> list[Effect]:
        router = self.routers[site]
        self.journals[site].append(event)
        effects = list(router.step(event))
        router.check()
        self.effects[site].append(effects)
        for effect in effects:
            self._perform(site, effect)
        return effects

    def send(self, site: SiteId, *names: str, source: str = "s", time_ms: int = 0) -> list[Effect]:
        """One row for each key named, from a source that stays; it numbers its rows from 0 on."""
        first = self._seqs.get(source, 0)
        self._seqs[source] = first + len(names)
        given = [row(key, first + i, source=source, time_ms=time_ms) for i, key in enumerate(names)]
        return self.give(site, rows(*given), source)

    def give(self, site: SiteId, item: Rows | Clock, source: str = "s", seq: int | None = None) -> list[Effect]:
        if seq is None:
            seq = rows_of(item.batch)[-1].seq if isinstance(item, Rows) else self._seqs.get(source, 0)
        self._seqs[source] = max(self._seqs.get(source, 0), seq + 1)
        return self.step(site, FromSource(SourceId(source), ((seq, item),)))

    def begin(self, m: Migration) -> list[Effect]:
        return self.step(m.anchor, Begin(m))

    def abort(self, m: Migration) -> list[Effect]:
        return self.step(m.anchor, Abort(m))

    def tick(self, now_ms: int, *sites: SiteId) -> None:
        for site in sites or self.topology.sites:
            self.step(site, Tick(now_ms))

    def deliver(self, near: SiteId, far: SiteId, count: int = 1) -> None:
        """The next items of a link reach the other end."""
        for _ in range(count):
            seq, item = self.links[near, far].popleft()
            self.step(far, FromLink(near, seq, (item,)))

    def drain(self, near: SiteId, far: SiteId) -> None:
        self.deliver(near, far, len(self.links.get((near, far), ())))

    def compute(self, place: PlaceId, max_rows: int = 1 << 30) -> Batch | None:
        """A host applies the next stretch of its log; nothing leaves it yet."""
        entries = self.logs[place].read(self.committed[place], max_rows)
        if not entries:
            return None
        states, handovers = {}, []
        for (op, group), part in by_group(entries, {op: each.groups for op, each in self.specs.items()}).items():
            before = self.states[place].get((op, group), b"")
            emissions, states[op, group] = apply(self.operators[op], before, part, self.chunk_bytes)
            if emissions:
                handovers.append(FromHost(place, op, group, tuple(emissions)))
        return Batch(place, entries[-1][0] + length(entries[-1][1]), tuple(handovers), states)

    def hand_over(self, batch: Batch) -> None:
        for each in batch.handovers:
            self.step(SiteId(batch.place.partition("/")[0]), each)

    def commit(self, batch: Batch) -> None:
        self.states[batch.place].update(batch.states)
        self.committed[batch.place] = batch.end
        self.step(SiteId(batch.place.partition("/")[0]), Committed(batch.place, batch.end))

    def work(self, place: PlaceId, max_rows: int = 1 << 30) -> bool:
        batch = self.compute(place, max_rows)
        if batch is None:
            return False
        self.hand_over(batch)
        self.commit(batch)
        return True

    def settle(self, hosts: bool = True, links: bool = True) -> None:
        """Everything that can move does, until nothing does."""
        moved = True
        while moved:
            moved = False
            for (near, far), waiting in list(self.links.items()):
                if links and waiting:
                    self.deliver(near, far)
                    moved = True
            for place in self.logs:
                moved = (hosts and self.work(place)) or moved

    def stir(self, rng: random.Random) -> None:
        """One thing moves, chance says which: an item of a link, or a host by a few rows."""
        moves: list[Callable[[], object]] = [
            partial(self.deliver, near, far) for (near, far), waiting in self.links.items() if waiting
        ]
        moves += [
            partial(self.work, place, rng.choice((1, 3, 100)))
            for place, log in self.logs.items()
            if log.end > self.committed[place]
        ]
        if moves:
            rng.choice(moves)()

    # --- what a test reads ---

    def log(self, place: PlaceId, of: str | None = None) -> list[str]:
        """The log of a host; with `of`, only what concerns this key."""
        return [text for _, entry in self.logs[place].read(0, 1 << 30) for text in texts(entry, of)]

    def link(self, near: SiteId, far: SiteId) -> list[str]:
        return [text for _, item in self.links.get((near, far), ()) for text in texts(item, None)]

    def outputs(self, key: str) -> list[tuple[PlaceId, int]]:
        return [(place, seq) for of, place, seq in self.emitted if of == key]

    def landed(self, key: str) -> list[int]:
        return [seq for of, seq in self.results if of == key]

    def key_state(self, place: PlaceId, key: str, op: OpId = OP) -> object:
        """Value and books of a key at a place; None if it has none there."""
        group = stable_hash(key) % self.specs[op].groups
        return state.canonical(self.states[place].get((op, group), b"")).get(key)

    def whereabouts(self, key: str, op: OpId = OP) -> list[PlaceId]:
        return [place for place in self.logs if self.key_state(place, key, op) is not None]

    def statuses(self, of: str = "m") -> list[str]:
        """What was reported of a migration, without repeats: routers may tell a status again."""
        return list(dict.fromkeys(report.status for report in self.reports if report.migration == of))

    def leftovers(self) -> list[str]:
        return [left for router in self.routers.values() for left in router.leftovers()]

    # --- what a router wants done ---

    def _perform(self, site: SiteId, effect: Effect) -> None:
        match effect:
            case Append(place, offset, entry):
                self.logs[place].append(offset, entry)
            case Send(neighbour, seq, item):
                self.links.setdefault((site, neighbour), deque()).append((seq, item))
            case Emitted(place, _, out):
                self.emitted += [(emitter(each.source), place, each.seq) for each in rows_of(out.batch)]
            case Deliver(_, out):
                self.results += [(emitter(each.source), each.seq) for each in rows_of(out.batch)]
                for each in rows_of(out.batch):
                    self.lines.setdefault(each.source, []).append((each.seq, each.payload))
            case Report():
                self.reports.append(effect)
            case Stray():
                self.strays.append(effect)
            case Attached():
                self.attached.append(effect)
            case DeadLetter():
                self.dead.append(effect)


def texts(item: Entry | Item, of: str | None) -> list[str]:
    if isinstance(item, Rows):
        flags = "~" * item.muted + "!" * (item.gate is not None)
        return [f"{each.key}#{each.seq}{flags}" for each in rows_of(item.batch) if of in (None, each.key)]
    if isinstance(item, Clock):
        flags = "~" * item.muted + "!" * (item.gate is not None)
        return [f"@{item.time_ms}{flags}"] if of is None or of in item.keys else []
    if isinstance(item, Marker):
        return [f"{LETTERS.get(item.event, item.event.value)}>{item.role}"]
    if isinstance(item, StateRows):
        return [f"[{','.join(image.key for image in item.images)}]"]
    if of is not None:
        mine = [image.key for image in item.images] if isinstance(item, RestoreKeys) else item.keys
        if of not in mine:
            return []
    return [CONTROLS.get(type(item), f"<{type(item).__name__}>")]
