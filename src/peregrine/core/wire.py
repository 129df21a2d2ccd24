"""Items and entries as bytes: what routers send each other, and what the log of a host holds on a disk.

A message is a kind, a checksum and a body. Rows are an Arrow IPC stream behind a small header; everything else is
msgpack with one spelling for each value. What does not decode raises `CorruptMarker` before anybody has acted on it.
"""

from binascii import crc32
from typing import Any

import msgspec
import pyarrow as pa

from peregrine.core.rehoming import Detach, Fenced, Join, Left, Rehoming, Returned, Word
from peregrine.core.rows import (
    ROW_SCHEMA,
    AskRipe,
    ChunksTaken,
    Clock,
    DropKeys,
    Entry,
    ForgetSent,
    Item,
    Marker,
    RestoreKeys,
    Rows,
    StateRows,
    TakeSnapshot,
)
from peregrine.errors import CorruptMarker
from peregrine.types import MigrationId, OpId, SiteId

_KINDS: dict[bytes, type[Any]] = {
    b"C": Clock,
    b"M": Marker,
    b"S": StateRows,
    b"T": TakeSnapshot,
    b"E": RestoreKeys,
    b"D": DropKeys,
    b"A": AskRipe,
    b"F": ForgetSent,
    b"K": ChunksTaken,
    b"J": Join,
    b"X": Detach,
    b"L": Left,
    b"W": Word,
}
_KIND_OF = {of: kind for kind, of in _KINDS.items()}
_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoders = {kind: msgspec.msgpack.Decoder(of) for kind, of in _KINDS.items()}


class RowsHeader(msgspec.Struct, array_like=True):
    op: OpId
    stamp: MigrationId | None
    dest: SiteId | None
    detour: MigrationId | None
    muted: bool
    sample: bool
    gate: MigrationId | None


_header_decoder = msgspec.msgpack.Decoder(RowsHeader)
# Items that carry another item, which is a message of its own inside of theirs.
_returned = msgspec.msgpack.Decoder(tuple[Rehoming, bytes])
_fenced = msgspec.msgpack.Decoder(tuple[Rehoming, bytes, int | None])


def encode(item: Item | Entry) -> bytes:
    if isinstance(item, Rows):
        kind = b"R"
        header = _encoder.encode(
            RowsHeader(item.op, item.stamp, item.dest, item.detour, item.muted, item.sample, item.gate)
        )
        body = len(header).to_bytes(4, "little") + header + item.batch.serialize().to_pybytes()
    elif isinstance(item, Returned):
        kind, body = b"B", _encoder.encode((item.rehoming, encode(item.item)))
    elif isinstance(item, Fenced):
        kind, body = b"N", _encoder.encode((item.rehoming, encode(item.item), item.number))
    else:
        kind = _KIND_OF[type(item)]
        body = _encoder.encode(item)
    message: bytes = kind + crc32(body).to_bytes(4, "little") + body
    return message


def decode(message: bytes, schema: pa.Schema = ROW_SCHEMA) -> Item | Entry:
    kind, checksum, body = message[:1], message[1:5], message[5:]
    if crc32(body).to_bytes(4, "little") != checksum:
        raise _corrupt(message, "its checksum does not fit")
    try:
        if kind == b"R":
            return _decode_rows(body, schema)
        if kind == b"B":
            rehoming, inner = _returned.decode(body)
            return Returned(rehoming, decode_item(inner))
        if kind == b"N":
            rehoming, inner, number = _fenced.decode(body)
            return Fenced(rehoming, decode_item(inner), number)
        if kind not in _decoders:
            raise _corrupt(message, f"it has the unknown kind {kind!r}")
        item: Item | Entry = _decoders[kind].decode(body)
    except (msgspec.DecodeError, pa.ArrowException, ValueError) as error:
        raise _corrupt(message, str(error)) from error
    return item


def _decode_rows(body: bytes, schema: pa.Schema) -> Rows:
    size = int.from_bytes(body[:4], "little")
    header = _header_decoder.decode(body[4 : 4 + size])
    batch = pa.ipc.read_record_batch(pa.py_buffer(body[4 + size :]), schema)
    return Rows(header.op, batch, header.stamp, header.dest, header.detour, header.muted, header.sample, header.gate)


def _corrupt(message: bytes, why: str) -> CorruptMarker:
    return CorruptMarker(
        f"a message of {len(message)} bytes that starts with {message[:12].hex()} cannot be read: {why}",
        "nothing was changed; have the sender repeat it, and check that both ends run the same version",
    )


def decode_item(message: bytes) -> Item:
    """What one router sent to another."""
    found = decode(message)
    if not isinstance(found, Item):
        raise _corrupt(message, f"a {type(found).__name__} does not travel between routers")
    return found


def decode_entry(message: bytes) -> Entry:
    """What lies in the log of a host."""
    found = decode(message)
    if not isinstance(found, Entry):
        raise _corrupt(message, f"a {type(found).__name__} does not lie in the log of a host")
    return found
