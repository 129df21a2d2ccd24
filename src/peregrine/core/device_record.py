"""What a device keeps: every reading and every move that it has taken, as records of a journal.

A snapshot is the `Source` itself, so that the journal behind it can be cut. A record is durable before anything that
follows from it is sent: what is taken and not yet durable dies with the device, and whoever gave it gives it again
(`Source.next_seq` says from where on). So the same readings get the same numbers, and a router recognises repeats.
"""

from collections.abc import Iterable

import msgspec

from peregrine.core.keyspace import KeySet
from peregrine.core.rows import Clock
from peregrine.core.source import Reading, Source
from peregrine.types import OpId, SiteId


class Moved(msgspec.Struct, tag="moved"):
    site: str


class Read(msgspec.Struct, tag="read"):
    reading: Reading


class Beat(msgspec.Struct, tag="beat"):
    op: str
    groups: int
    time_ms: int


class Acked(msgspec.Struct, tag="acked"):
    """Not synced by itself: what is forgotten of it is sent again, and recognised."""

    seq: int


Record = Moved | Read | Beat | Acked
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def encode(record: Record) -> bytes:
    return msgspec.msgpack.encode(record)


def step(source: Source, record: Record) -> None:
    match record:
        case Read(reading):
            source.produce(reading)
        case Beat(op, groups, time_ms):
            source.heartbeat(Clock(OpId(op), KeySet.everything(groups), source.id, time_ms))
        case Moved(site):
            source.move(SiteId(site))
        case Acked(seq):
            source.acked(seq)


def recover(source: Source, records: Iterable[bytes]) -> Source:
    """`source`: of the newest snapshot, or a new one; `records`: those of the journal behind it."""
    for raw in records:
        step(source, _decoder.decode(raw))
    source.lost()
    return source
