"""What enters a router and what it wants done.

A router is a deterministic machine over one durable journal of events: **an event must be in the journal before any
effect of its step is performed**. After a crash the journal is stepped through again; every effect carries its
position (offset or sequence number), so performing it a second time is recognised and harmless.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from peregrine.core.host import Emission
from peregrine.core.keyspace import KeySet
from peregrine.core.migrate import Migration
from peregrine.core.rehoming import Rehoming
from peregrine.core.replication import NOTHING_MOVED, StateMoved
from peregrine.core.rows import Clock, Entry, Item, Rows
from peregrine.types import MigrationId, OpId, PlaceId, SiteId, SourceId

REFRESH_MS = 500  # between two refreshes of replicas, as Falcon-HB has it

# --- events ---


@dataclass(frozen=True, slots=True)
class FromSource:
    """Rows and watermarks of a device, each with the source's sequence number of its last row."""

    source: SourceId
    items: tuple[tuple[int, Rows | Clock], ...]


@dataclass(frozen=True, slots=True)
class FromLink:
    """What a neighbouring router sent, numbered from `first_seq` on without gaps."""

    neighbour: SiteId
    first_seq: int
    items: tuple[Item, ...]
    session: int = 0  # numbers begin anew in each: it is that of the rehoming by which the two became neighbours


@dataclass(frozen=True, slots=True)
class HandedBack:
    """What `HandBack` asked for. Nothing more is sent in this session."""

    neighbour: SiteId
    session: int
    first_seq: int
    items: tuple[Item, ...]

    def answers(self, wanted: "HandBack") -> bool:
        return (self.neighbour, self.session) == (wanted.neighbour, wanted.session)


@dataclass(frozen=True, slots=True)
class FromHost:
    """Outputs of one group. They may come again after a crash of the host, cut differently.

    All that was emitted under one offset comes in one event: a second one with that offset would count as a repeat.
    """

    place: PlaceId
    op: OpId
    group: int
    emissions: tuple[Emission, ...]


@dataclass(frozen=True, slots=True)
class FromGroups:
    """As `FromHost`, of several groups: rows for one operator, and each of these groups has emitted nothing else."""

    place: PlaceId
    op: OpId
    groups: tuple[tuple[int, int], ...]  # each with the number of its rows, which lie together
    offsets: npt.NDArray[np.int64]
    rows: Rows


@dataclass(frozen=True, slots=True)
class Committed:
    """A host has durably applied its log up to (not including) this offset."""

    place: PlaceId
    offset: int


@dataclass(frozen=True, slots=True)
class Ahead:
    """A host has applied its log up to (not including) this offset, and commits that later. Told when a migration waits
    for it; what it emitted is here.
    """

    place: PlaceId
    offset: int


@dataclass(frozen=True, slots=True)
class ChunksHere:
    """What this `Fetch` asked for is in the chunk store of this site."""

    fetch: int
    bytes_moved: int  # of chunks that were not there before


@dataclass(frozen=True, slots=True)
class Attach:
    """A device has connected to this site, for the `nth` time that it connects anywhere; or it is `gone`, for good."""

    source: SourceId
    nth: int = 0
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    now_ms: int


@dataclass(frozen=True, slots=True)
class SetOwner:
    """Deployment: these keys live at this place. Sent to every router before rows flow."""

    op: OpId
    keys: KeySet
    place: PlaceId


@dataclass(frozen=True, slots=True)
class Begin:
    migration: Migration


@dataclass(frozen=True, slots=True)
class Abort:
    migration: Migration


@dataclass(frozen=True, slots=True)
class Query:
    """Tell (again) how this migration stands, in case that the manager missed it."""

    migration: Migration


@dataclass(frozen=True, slots=True)
class KeepReplicas:
    """From now on, refresh replicas of these keys of a place here at another place, until they move or are stopped."""

    op: OpId
    keys: KeySet
    source: PlaceId
    target: PlaceId
    every_ms: int = REFRESH_MS  # or longer, if the last refresh takes so long


@dataclass(frozen=True, slots=True)
class StopReplicas:
    """These replicas are not kept any more, and given up where they are. Of keys that have none it says nothing."""

    op: OpId
    keys: KeySet
    source: PlaceId
    target: PlaceId


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Rows that another place had, for a place here to practise on: it keeps nothing of them and emits nothing."""

    place: PlaceId
    rows: Rows


@dataclass(frozen=True, slots=True)
class Rehome:
    """This site is to change its parent. `gates`: migrations that run, into its subtree from outside of it. `sites`:
    what is below it; a site that has left may not have told it yet.
    """

    rehoming: Rehoming
    gates: tuple[Migration, ...] = ()
    sites: tuple[SiteId, ...] = ()


@dataclass(frozen=True, slots=True)
class Together:
    """Events that came at the same time, in one record of the journal: their small batches are routed as one."""

    events: "tuple[Single, ...]"


Command = SetOwner | Begin | Abort | Query | KeepReplicas | StopReplicas | WarmUp | Rehome
FromAnyHost = FromHost | FromGroups
Single = FromSource | FromLink | FromAnyHost | Committed | Ahead | ChunksHere | HandedBack | Attach | Tick | Command
Event = Single | Together


# --- effects ---


@dataclass(frozen=True, slots=True)
class Append:
    """Append to a place's host log at this offset."""

    place: PlaceId
    offset: int
    entry: Entry


@dataclass(frozen=True, slots=True)
class Send:
    """Send to a neighbouring router; kept until it has acknowledged `seq`."""

    neighbour: SiteId
    seq: int
    item: Item
    session: int = 0


@dataclass(frozen=True, slots=True)
class HandBack:
    """End this session, and tell what was sent in it behind `after` (None: behind what is acknowledged): `HandedBack`.

    Lost when the router stops: after a restart, what `Router.hand_backs` returns has to be performed again.
    """

    neighbour: SiteId
    session: int
    after: int | None


@dataclass(frozen=True, slots=True)
class Deliver:
    """Results, to be appended to the results log at this offset."""

    offset: int
    rows: Rows


@dataclass(frozen=True, slots=True)
class DeadLetter:
    offset: int
    reason: str
    rows: Rows | Clock


@dataclass(frozen=True, slots=True)
class Fetch:
    """Bring these chunks from the store of that site into that of this one, as far as it lacks them; then `ChunksHere`.

    Lost when the router stops: after a restart, what `Router.fetches` returns has to be fetched.
    """

    number: int
    names: tuple[bytes, ...]
    origin: SiteId


@dataclass(frozen=True, slots=True)
class Emitted:
    """For observers: outputs of a place passed its router (after any gate)."""

    place: PlaceId
    op: OpId
    rows: Rows


@dataclass(frozen=True, slots=True)
class Report:
    """To the manager, who may be away: it asks again with `Query`."""

    site: SiteId
    migration: MigrationId
    status: str  # begun, switched, done, aborted
    moved: StateMoved = NOTHING_MOVED


@dataclass(frozen=True, slots=True)
class Rehomed:
    """To the manager, who may be away: it asks again with the same `Rehome`."""

    site: SiteId
    number: int


@dataclass(frozen=True, slots=True)
class Reached:
    """For observers: how far a migration is. Nobody decides by it, so it may be lost; it may also come again."""

    site: SiteId
    migration: MigrationId
    step: str  # snapshot: asked of the old place's host; sent: state has left it; restored: all is in the new one's log


@dataclass(frozen=True, slots=True)
class Stray:
    """Rows of a key that is owned in one subtree came up (or in) here from somewhere else: its source has moved."""

    site: SiteId
    op: OpId
    key: str
    source: SourceId


@dataclass(frozen=True, slots=True)
class Attached:
    """Where a device is connected, or was until it was `gone`. Said again now and then while it is heard, in case that
    the manager missed it.
    """

    site: SiteId
    source: SourceId
    now_ms: int
    nth: int = 0
    gone: bool = False


Effect = (
    Append | Send | HandBack | Deliver | DeadLetter | Fetch | Emitted | Report | Rehomed | Reached | Stray | Attached
)
