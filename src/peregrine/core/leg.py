"""A leg: one migration at one router in one role, and the book that a router keeps of its legs."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from peregrine.core.keyspace import KeySet
from peregrine.core.mechanisms.program import On
from peregrine.core.messages import Fetch
from peregrine.core.migrate import Migration, Role
from peregrine.core.replication import NOTHING_MOVED, StateMoved
from peregrine.core.routes import Route
from peregrine.core.rows import Clock, Entry, Item, Rows, StateRows, split_keys
from peregrine.core.rules import RuleTable
from peregrine.core.trail import Trail
from peregrine.errors import ProtocolError
from peregrine.types import MigrationId, OpId, PlaceId, SiteId

REMEMBERED = 10_000  # migrations that ended: a late duplicate of their messages must be recognised


class Ports(Protocol):
    """What legs need of their router."""

    site: SiteId
    trail: Trail
    table: RuleTable[Route]
    ends: dict[PlaceId, int]
    commits: dict[PlaceId, int]
    applied: dict[PlaceId, int]

    def append(self, place: PlaceId, entry: Entry) -> None: ...
    def ask(self, place: PlaceId, keys: KeySet, control: Callable[[int, KeySet], Entry]) -> None: ...
    def send(self, item: Item, to: SiteId) -> None: ...
    def toward(self, place: PlaceId) -> Route: ...
    def taught(self, op: OpId, keys: KeySet) -> None: ...
    def route(self, item: Rows | Clock, via: SiteId | None = None) -> None: ...
    def emitted(self, place: PlaceId, op: OpId, item: Rows | Clock) -> None: ...
    def note_strays(self, item: Rows | Clock) -> None: ...
    def fetch(self, fetch: Fetch) -> None: ...
    def report(self, migration: MigrationId, status: str, moved: StateMoved = ...) -> None: ...
    def reached(self, migration: MigrationId, step: str) -> None: ...
    def protocol_error(self, what: str) -> ProtocolError: ...


@dataclass(slots=True)
class Leg:
    """Most fields belong to one role; all start as if nothing had happened."""

    migration: Migration
    role: Role
    # anchor
    switched: bool = False
    aborting: set[Role] = field(default_factory=set)  # who has not undone its part yet
    # source
    deferring: bool = False
    flushing: bool = False  # rows that went to the anchor are on their way back
    unripe: dict[int, int] = field(default_factory=dict)  # groups that were not ripe when last asked -> until when
    # target
    holding: bool = False
    fetching: bool = False
    sweeping: bool = False
    muted: bool = False
    gated: bool = False
    catch_up_to: int | None = None  # offset up to which D's host must have come
    caught_up: bool = False
    then: On = On.CAUGHT_UP  # what happens when it is
    # gate
    closed: bool = False
    behind_gate: list[Rows | Clock] = field(default_factory=list)
    stands_in: bool = False  # for a gate that the target's outputs do not pass any more
    # target and store: state that came
    arrived: StateRows | None = None  # that of which STATE speaks
    donated: list[StateRows] = field(default_factory=list)
    moved: StateMoved = NOTHING_MOVED
    # source and target
    held: list[Rows | Clock] = field(default_factory=list)
    # parts of K, shrinking (or, `fetched`, growing) as things happen
    missing: KeySet = field(init=False)  # target, store: state that has not come; source: groups that are not ripe
    static_missing: KeySet = field(init=False)
    unacked: KeySet = field(init=False)  # gate, target: whose end at S is not confirmed
    fetched: KeySet = field(init=False)

    def __post_init__(self) -> None:
        self.missing = self.static_missing = self.unacked = self.migration.keys
        self.fetched = KeySet.nothing(self.migration.keys.groups)

    @property
    def at(self) -> tuple[MigrationId, Role]:
        return self.migration.id, self.role

    @property
    def place(self) -> PlaceId:
        return self.migration.source if self.role is Role.SOURCE else self.migration.target

    def check(self) -> None:
        name = f"{self.migration.id} as {self.role}"
        assert not self.behind_gate or self.closed, f"{name}: outputs wait at an open gate"
        assert not self.held or self.holding or self.flushing, f"{name}: rows are held by nobody"
        if self.holding:  # else a later row of the same key would overtake them
            settled = [item for item in self.held if split_keys(item, self.missing)[1] is not None]
            assert not settled, f"{name}: rows of keys that are settled are still held"


@dataclass(frozen=True, slots=True)
class Ended:
    how: str
    moved: StateMoved = NOTHING_MOVED
    migration: Migration | None = None  # unknown if it was aborted before it began


class LegBook:
    """Legs that are open, and how those that are not have ended."""

    def __init__(self) -> None:
        self._open: dict[tuple[MigrationId, Role], Leg] = {}
        self._ended: OrderedDict[tuple[MigrationId, Role], Ended] = OrderedDict()

    def __iter__(self) -> Iterator[Leg]:
        return iter(list(self._open.values()))

    def get(self, migration: MigrationId, role: Role) -> Leg | None:
        return self._open.get((migration, role))

    def open(self, migration: Migration, role: Role) -> Leg | None:
        """The leg, new if there was none; None if it has ended."""
        at = (migration.id, role)
        if at in self._ended:
            return None
        if at not in self._open:
            self._open[at] = Leg(migration, role)
        return self._open[at]

    def ended(self, migration: MigrationId, role: Role) -> Ended | None:
        return self._ended.get((migration, role))

    def end(self, migration: MigrationId, role: Role, how: str) -> None:
        leg = self._open.pop((migration, role), None)
        self._ended[migration, role] = Ended(how, leg.moved, leg.migration) if leg else Ended(how)
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)
