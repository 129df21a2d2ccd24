"""Rows, and everything else that travels between routers or lies in a log.

`Item` is what flows between routers; `Entry` is what lies in a host's log. Rows are columnar (one Arrow record batch of
one operator's input); what a router decides about them (order, muting, gate) is said once for the batch, because a
router splits batches by decision anyway. A control row says *when* something happens by where it lies in the log:
there is no other way for one component to tell another.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from peregrine.core.chunks import chunk_name
from peregrine.core.keyspace import KeySet, stable_hash
from peregrine.core.mechanisms.program import On
from peregrine.core.migrate import Migration, Role
from peregrine.core.rehoming import Message
from peregrine.types import MigrationId, OpId, PlaceId, SiteId, SourceId

ROW_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("hash", pa.uint64(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("prev", pa.int64(), nullable=False),
        pa.field("time_ms", pa.int64(), nullable=False),
        pa.field("created_ms", pa.int64(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)

_ROW_STRUCT = pa.struct(list(ROW_SCHEMA))

FIRST = -1  # `prev` of a roaming source's first row of a key
UNCHAINED = -2  # `prev` of a row whose source stays where it is: its path alone keeps the order

Hashes = npt.NDArray[np.uint64]


class Row(msgspec.Struct, frozen=True, gc=False):
    """One row by itself, as operators see it. (source, seq) is its identity.

    `prev` is the seq of the row before it from the same source for the same operator and key. A source that roams
    fills it in, because its rows may then overtake each other on different paths (Falcon III-F, ping-pong).
    """

    key: str
    source: SourceId
    seq: int
    prev: int
    time_ms: int
    created_ms: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one operator that share what routers have decided about them."""

    op: OpId
    batch: pa.RecordBatch
    stamp: MigrationId | None = None  # put in order by the anchor of this migration
    dest: SiteId | None = None  # goes to this site, whatever the rules on the way say
    detour: MigrationId | None = None  # was sent to this migration's anchor by the old place's router
    muted: bool = False  # apply, emit nothing
    sample: bool = False  # apply to scratch state, emit nothing (warm-up)
    gate: MigrationId | None = None  # of rows to apply: copied onto what they emit; of outputs: must pass this gate

    @property
    def hashes(self) -> Hashes:
        hashes: Hashes = self.batch.column(1).to_numpy()
        return hashes

    def __len__(self) -> int:
        return int(self.batch.num_rows)


@dataclass(frozen=True, slots=True)
class Clock:
    """Time as a fact in the log: a source's watermark for these keys, or (without a source) a tick of the wall
    clock. One that an operator passes on to the next is called `operator/source`, and speaks for a part of its keys.
    """

    op: OpId
    keys: KeySet
    source: SourceId | None
    time_ms: int
    stamp: MigrationId | None = None
    dest: SiteId | None = None
    detour: MigrationId | None = None
    muted: bool = False
    gate: MigrationId | None = None
    part: KeySet | None = None  # keys of the operator that has passed it on: a watermark when there is one for all keys
    # Of a roaming source: its number, and the last row or heartbeat before it of each key that it has sent rows for.
    seq: int | None = None
    behind: tuple[tuple[str, int], ...] = ()

    def only(self, keys: KeySet) -> "Clock":
        """What it says to these keys, all of which it speaks to."""
        return replace(self, keys=keys, behind=tuple(each for each in self.behind if each[0] in keys))


@dataclass(frozen=True, slots=True)
class Marker:
    """An event on its way to the router that plays `role` in a migration, behind the rows that went before it."""

    event: On
    role: Role
    migration: Migration
    keys: KeySet  # which part of K it speaks of
    moves: bool = False  # the anchor has switched: every router on the way learns where K lives now
    until_ms: int | None = None  # RIPE: the end of the youngest window that must close first
    told_by: Role | None = None  # UNDONE: whose

    @property
    def dest(self) -> SiteId:
        return self.migration.site(self.role)

    @property
    def owner(self) -> PlaceId | None:
        """Where K lives from here on, if the marker tells: at D after a switch, at S for good after an abort."""
        if self.moves:
            return self.migration.target
        return self.migration.source if self.event is On.ABORT and self.role is Role.SOURCE else None


@dataclass(frozen=True, slots=True)
class KeyImage:
    """The state of one key: what is small travels inline, its value in content-addressed chunks.

    `chunks` names the chunks of the value in order. `data` has those that the receiver lacks, unless the value has
    spilled: then its chunks, like the buckets of maps in a value, stay in chunk stores, and are fetched from there.
    """

    key: str
    version: int
    books: bytes  # duplicate check, rows that wait for an earlier one, watermarks
    chunks: tuple[bytes, ...]
    data: tuple[tuple[bytes, bytes], ...]
    stored: tuple[bytes, ...] = ()  # what must be in the chunk store of a site before a host there can use the image
    spilled: bool = False  # `chunks` are among them

    @property
    def shipped(self) -> list[bytes]:
        """What a place that was sent this image has of the key's value: its chunks or, if they stay in stores, one name
        for all of them.
        """
        return [chunk_name(b"".join(self.chunks))] if self.spilled else list(self.chunks)

    @property
    def bytes_moved(self) -> int:
        return len(self.books) + sum(len(chunk) for _, chunk in self.data)


@dataclass(frozen=True, slots=True)
class StateRows:
    """State on its way to a place. `covers` are the keys that this message settles, those without state included."""

    op: OpId
    target: PlaceId
    dest: SiteId
    covers: KeySet
    images: tuple[KeyImage, ...]
    migration: Migration | None = None  # None: a replica that is kept fresh, or, if not static, given up
    static: bool = False
    shed: tuple[tuple[str, int], ...] = ()  # (key, rows that its lost value had seen)
    origin: SiteId | None = None  # whose chunk store has what the images name: the site that keeps it until...
    pin: int = 0  # ...it is told, under this number, that the chunks have been taken
    clocks: bytes = b""  # what clocks have told these keys, those without state included (core/watermarks.py)
    source: PlaceId | None = None  # of a replica: the place whose keys these are

    @property
    def whose(self) -> PlaceId:
        """The place that it comes from."""
        place = self.source if self.migration is None else self.migration.source
        assert place is not None, "a router says whose replicas it lets out"
        return place

    @property
    def stored(self) -> tuple[bytes, ...]:
        return tuple(dict.fromkeys(name for image in self.images for name in image.stored))


@dataclass(frozen=True, slots=True)
class ChunksTaken:
    """To the site that has kept chunks for state on its way: nobody will fetch them any more."""

    dest: SiteId
    pin: int


Item = Rows | Clock | Marker | StateRows | ChunksTaken | Message


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Emit the state of `keys` (all of one group) as it is at this position."""

    op: OpId
    group: int
    keys: KeySet
    target: PlaceId
    dest: SiteId
    migration: Migration | None = None
    drop: bool = False
    delta: bool = False
    static: bool = False
    shed_below: int = 0
    beside_windows: bool = False  # only what is beside their windows


@dataclass(frozen=True, slots=True)
class RestoreKeys:
    op: OpId
    group: int
    images: tuple[KeyImage, ...]  # with all of their chunks
    beside_windows: bool = False  # keep the windows that are here
    clocks: bytes = b""


@dataclass(frozen=True, slots=True)
class DropKeys:
    """Forget `keys`; with `ack`, tell that migration's gate (or target) that everything before has been emitted."""

    op: OpId
    group: int
    keys: KeySet
    ack: Migration | None = None
    ack_to: Role = Role.GATE


@dataclass(frozen=True, slots=True)
class AskRipe:
    """Are the windows that were open when this was first asked closed? Answered with a RIPE marker either way."""

    op: OpId
    group: int
    keys: KeySet
    migration: Migration
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class ForgetSent:
    """`place` no longer has the chunks of `keys` that were sent to it: send all of them next time."""

    op: OpId
    group: int
    keys: KeySet
    place: PlaceId


Control = TakeSnapshot | RestoreKeys | DropKeys | AskRipe | ForgetSent
Entry = Rows | Clock | Control


def length(entry: Entry) -> int:
    """How many offsets an entry takes in a log: one for each row, one for a control row."""
    return len(entry) if isinstance(entry, Rows) else 1


def batch_of(rows: Iterable[Row]) -> pa.RecordBatch:
    return batch_from(
        [
            (row.key, stable_hash(row.key), row.source, row.seq, row.prev, row.time_ms, row.created_ms, row.payload)
            for row in rows
        ]
    )


def batch_from(values: Sequence[tuple[str, int, str, int, int, int, int, bytes]]) -> pa.RecordBatch:
    """One conversion of all columns: with a handful of rows the number of calls is what costs, and with many it costs
    no more.
    """
    return pa.RecordBatch.from_struct_array(pa.array(values, _ROW_STRUCT))


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    return list(map(Row, *(batch.column(i).to_pylist() for i in (0, 2, 3, 4, 5, 6, 7))))


def concat(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(list(batches))


def split_keys(item: Rows | Clock, keys: KeySet) -> tuple[Rows | Clock | None, Rows | Clock | None]:
    """(what concerns `keys`, what does not), each None if empty; the order of rows is kept."""
    if isinstance(item, Clock):
        inside, outside = item.keys & keys, item.keys - keys
        return item.only(inside) if inside else None, item.only(outside) if outside else None
    mask = keys.contains(item.hashes)
    if mask.all():
        return item, None
    if not mask.any():
        return None, item
    return replace(item, batch=item.batch.filter(pa.array(mask))), replace(
        item, batch=item.batch.filter(pa.array(~mask))
    )
