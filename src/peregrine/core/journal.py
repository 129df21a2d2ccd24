"""A router's events as bytes: what its journal holds (decision 0001).

Items inside of an event are messages of `core/wire.py`, so rows stay Arrow from the device to the disk.
"""

from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from peregrine.core import wire
from peregrine.core.host import Emission
from peregrine.core.messages import (
    Abort,
    Ahead,
    Attach,
    Begin,
    ChunksHere,
    Committed,
    Event,
    FromGroups,
    FromHost,
    FromLink,
    FromSource,
    HandedBack,
    KeepReplicas,
    Query,
    Rehome,
    SetOwner,
    StopReplicas,
    Tick,
    Together,
    WarmUp,
)
from peregrine.core.rows import Clock, Marker, Rows, StateRows
from peregrine.core.stored_names import name_of
from peregrine.errors import CorruptMarker
from peregrine.types import PlaceId

_PLAIN: dict[str, type[Any]] = {
    name_of(kind): kind
    for kind in (
        *(Committed, Ahead, ChunksHere, Attach, Tick, SetOwner),
        *(Begin, Abort, Query, KeepReplicas, StopReplicas, Rehome),
    )
}
_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
_plain = {name: msgspec.msgpack.Decoder(kind) for name, kind in _PLAIN.items()}
_from_source = msgspec.msgpack.Decoder(tuple[str, list[tuple[int, bytes]]])
_from_link = msgspec.msgpack.Decoder(tuple[str, int, list[bytes], int])
_handed_back = msgspec.msgpack.Decoder(tuple[str, int, int, list[bytes]])
_together = msgspec.msgpack.Decoder(list[bytes])
_warm_up = msgspec.msgpack.Decoder(tuple[str, bytes])
_Groups = tuple[tuple[int, Annotated[int, msgspec.Meta(ge=1)]], ...]
_from_groups = msgspec.msgpack.Decoder(tuple[str, str, _Groups, bytes, bytes])
_from_host = msgspec.msgpack.Decoder(tuple[str, str, int, list[tuple[bytes, bytes]]])


def encode(event: Event) -> bytes:
    body: Any
    match event:
        case FromSource(source, items):
            body = (source, [(seq, wire.encode(item)) for seq, item in items])
        case FromLink(neighbour, first_seq, received, session):
            return from_link(neighbour, first_seq, [wire.encode(item) for item in received], session)
        case HandedBack(neighbour, session, first_seq, kept):
            body = (neighbour, session, first_seq, [wire.encode(item) for item in kept])
        case FromHost(place, op, group, emissions):
            body = (place, op, group, [(e.offsets.tobytes(), wire.encode(e.item)) for e in emissions])
        case FromGroups(place, op, groups, offsets, rows):
            body = (place, op, groups, offsets.tobytes(), wire.encode(rows))
        case WarmUp(place, rows):
            body = (place, wire.encode(rows))
        case Together(events):
            return together([encode(each) for each in events])
        case _:
            body = event
    return _encoder.encode((name_of(type(event)), body))


def from_link(neighbour: str, first_seq: int, messages: list[bytes], session: int) -> bytes:
    """The bytes of a `FromLink` of items that are bytes already."""
    return _encoder.encode((name_of(FromLink), (neighbour, first_seq, messages, session)))


def together(events: list[bytes]) -> bytes:
    """The bytes of a `Together` of events that are bytes already."""
    return _encoder.encode((name_of(Together), events))


def decode(data: bytes) -> Event:
    """Raises CorruptMarker for bytes that are not an event."""
    try:
        kind, body = _decoder.decode(data)
        match kind:
            case "from-source":
                source, kept = _from_source.decode(body)
                return FromSource(source, tuple((seq, _of(item, Rows, Clock)) for seq, item in kept))  # type: ignore[arg-type]
            case "from-link":
                neighbour, first_seq, items, session = _from_link.decode(body)
                return FromLink(neighbour, first_seq, tuple(map(wire.decode_item, items)), session)  # type: ignore[arg-type]
            case "handed-back":
                neighbour, session, first_seq, items = _handed_back.decode(body)
                return HandedBack(neighbour, session, first_seq, tuple(map(wire.decode_item, items)))  # type: ignore[arg-type]
            case "from-host":
                place, op, group, emissions = _from_host.decode(body)
                return FromHost(place, op, group, tuple(_emission(*e) for e in emissions))  # type: ignore[arg-type]
            case "from-groups":
                place, op, groups, offsets, rows = _from_groups.decode(body)
                found = FromGroups(place, op, groups, _numbers(offsets), _of(rows, Rows))  # type: ignore[arg-type]
                if {sum(count for _, count in groups), len(found.offsets)} != {len(found.rows)}:
                    raise ValueError("rows of several groups that do not add up")
                return found
            case "warm-up":
                warmed, rows = _warm_up.decode(body)
                return WarmUp(PlaceId(warmed), _of(rows, Rows))
            case "together":
                events = tuple(decode(each) for each in _together.decode(body))
                if any(isinstance(each, Together) for each in events):
                    raise ValueError("a Together inside of another")
                return Together(events)  # type: ignore[arg-type]
            case _ if kind in _plain:
                event: Event = _plain[kind].decode(body)
                return event
    except (msgspec.DecodeError, ValueError) as error:
        raise _corrupt(data, str(error)) from error
    raise _corrupt(data, f"no event is called {kind!r}")


def _numbers(raw: bytes) -> npt.NDArray[np.int64]:
    return np.frombuffer(raw, np.int64)


def _emission(offsets: bytes, item: bytes) -> Emission:
    return Emission(_numbers(offsets), _of(item, Rows, Clock, Marker, StateRows))


def _of(message: bytes, *kinds: type[Any]) -> Any:
    item = wire.decode(message)
    if not isinstance(item, kinds):
        raise ValueError(f"a {type(item).__name__} where it cannot be")
    return item


def _corrupt(data: bytes, why: str) -> CorruptMarker:
    return CorruptMarker(
        f"an event of {len(data)} bytes in a journal cannot be read: {why}",
        "restore the journal from before the damage; what follows it was never acknowledged as durable",
    )
