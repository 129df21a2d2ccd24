"""What routers and their clients say to each other: names of actions, tickets, bodies as msgpack, tables as Arrow.

Rows, events and entries have their own bytes (core/wire.py, core/journal.py); here is only what is around them.
"""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from peregrine.core import wire
from peregrine.core.format_version import FORMAT
from peregrine.core.messages import Attached, Reached, Rehomed, Report, Stray
from peregrine.core.rows import ROW_SCHEMA, Rows
from peregrine.core.stored_names import name_of
from peregrine.core.topology import Link
from peregrine.errors import ProtocolError
from peregrine.types import SiteId

News = Report | Rehomed | Reached | Stray | Attached

OFFER, OFFERS, FRAME, NEWS, STATUS = "offer", "offers", "frame", "news", "status"
ADVANCE, FOLLOW, RELEASE, RESULTS = "advance", "follow", "release", "results"
NEIGHBOURS, PRESSURE, CHUNKS, RELAY = "neighbours", "pressure", "chunks", "relay"
TABLE = "table"  # what a ticket names, as an IPC stream: for callers of this machine (net/local_socket.py)
LOG, DEAD = "log", "dead"
SITE = "x-peregrine-site"  # header of a call that is meant for the router of one site and no other
VERSION = "x-peregrine-format"  # header of every call: the version of what is said (core/format_version.py)
NEXT = b"next_offset"  # in the schema's metadata of every table: where to read on
LOST = b"lost"  # the last word to who followed a log
NEWS_WAIT_S = 5.0
LONGEST_WAIT_S = 5.0

SLICE_SCHEMA = pa.schema(
    [
        pa.field("place", pa.string(), nullable=False),
        pa.field("op", pa.string(), nullable=False),
        pa.field("group", pa.int32(), nullable=False),
        pa.field("first_offset", pa.int64(), nullable=False),
        pa.field("offsets", pa.binary(), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
    ]
)
RESULT_SCHEMA = pa.schema(
    [pa.field("op", pa.string(), nullable=False), pa.field("position", pa.int64(), nullable=False), *ROW_SCHEMA]
)
DEAD_SCHEMA = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("item", pa.binary(), nullable=False),  # rows or a clock, as core/wire.py writes them
    ]
)

_encoder = msgspec.msgpack.Encoder()


class Detour(msgspec.Struct, frozen=True, array_like=True):
    """A router that passes on what is for another (net/relay.py), where that one listens as it knows it, and what the
    whole way is to feel like.
    """

    site: SiteId
    address: str
    onward: str
    latency_ms: float = 0.0
    bandwidth_mbps: float | None = None

    @classmethod
    def over(cls, link: Link, site: SiteId, address: str, onward: str) -> "Detour":
        return cls(site, address, onward, link.latency_ms, _limit(link))


class Neighbour(msgspec.Struct, frozen=True, array_like=True):
    """Where a neighbouring router listens, and what the link to it is to feel like (None: as it is)."""

    address: str
    latency_ms: float = 0.0
    bandwidth_mbps: float | None = None
    loss: float = 0.0  # the chance that a frame is lost and has to be sent again
    by: Detour | None = None  # how it is reached if not there

    def __post_init__(self) -> None:
        Link(self.latency_ms, math.inf if self.bandwidth_mbps is None else self.bandwidth_mbps, loss=self.loss)

    @classmethod
    def over(cls, link: Link, address: str, by: Detour | None = None) -> "Neighbour":
        return cls(address, link.latency_ms, _limit(link), link.loss, by)

    def feels_like(self, link: Link) -> bool:
        return self == Neighbour.over(link, self.address, self.by)


def _limit(link: Link) -> float | None:
    return link.bandwidth_mbps if math.isfinite(link.bandwidth_mbps) else None


class Ticket(msgspec.Struct, frozen=True, array_like=True):
    """["log", place, from, max_rows]; for dead letters the place is empty."""

    kind: str
    place: str
    position: int
    max_rows: int


class Status(msgspec.Struct, frozen=True):
    site: str
    ends: dict[str, int]
    commits: dict[str, int]
    accepts: bool
    results_end: int
    dead_end: int
    leftovers: list[str]
    events: int  # position in the journal
    journal_bytes: int  # since the last snapshot
    waiting: dict[str, int]  # items for each neighbour that it has not acknowledged, also of one that is none any more
    links: dict[str, str]  # of those that are neighbours now, what keeps a link from delivering; empty: nothing
    recovered: list[str]  # what was found damaged and cut off when the directory was opened
    rss: int  # bytes
    operators: list[str] = []  # that it routes to
    stale: int = 0  # (operator, source, target) whose replicas are not fresh
    parent: str = ""  # that it has now; the root has none, nor does a site that has not joined yet or has left


class NewsBatch(msgspec.Struct, frozen=True, array_like=True):
    next_index: int
    news: list[tuple[str, msgspec.Raw]]


_NEWS: dict[str, type[Any]] = {name_of(kind): kind for kind in (Report, Rehomed, Reached, Stray, Attached)}


def other_version(whom: str, told: str) -> ProtocolError:
    """What is said to a caller who speaks another version, before anything that it says is read."""
    return ProtocolError(
        f"{whom} speaks format {FORMAT}, and the caller format {told}",
        "run the same version of Peregrine in all processes of a deployment",
    )


def encode(body: Any) -> bytes:
    return _encoder.encode(body)


def encode_news(next_index: int, news: list[News]) -> bytes:
    return _encoder.encode((next_index, [(name_of(type(each)), each) for each in news]))


def decode_news(body: bytes) -> tuple[int, list[News]]:
    batch = msgspec.msgpack.decode(body, type=NewsBatch)
    return batch.next_index, [msgspec.msgpack.decode(raw, type=_NEWS[kind]) for kind, raw in batch.news]


def encode_table(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def decode_table(raw: bytes) -> pa.Table:
    return pa.ipc.open_stream(raw).read_all()


def results_of(records: Sequence[tuple[int, bytes]]) -> pa.Table:
    """`RESULT_SCHEMA`, of results as they lie in their log: made by who reads them, not by the router."""
    batches: list[pa.RecordBatch] = []
    for at, message in records:
        rows = wire.decode(message)
        assert isinstance(rows, Rows)
        ops, positions = pa.repeat(rows.op, len(rows)), pa.array(np.arange(at, at + len(rows), dtype=np.int64))
        batches.append(pa.record_batch([ops, positions, *rows.batch.columns], schema=RESULT_SCHEMA))
    table = pa.Table.from_batches(batches, RESULT_SCHEMA)
    return table.combine_chunks() if len(batches) > 1 else table


def with_next(schema: pa.Schema, position: int) -> pa.Schema:
    return schema.with_metadata({NEXT: str(position).encode()})


def next_of(schema: pa.Schema) -> int:
    return int(schema.metadata[NEXT])
