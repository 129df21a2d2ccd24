"""What the manager is told about the topology, as bytes: a record of its journal."""

from typing import Any

import msgspec

from peregrine.core.redeploying import TopologyChanged
from peregrine.core.stored_names import name_of
from peregrine.plan.redeploy.events import LinkRemoved, LinkSet, SiteMoved, SiteRemoved, SiteSet

_EVENTS: dict[str, Any] = {
    name_of(kind): msgspec.msgpack.Decoder(kind) for kind in (SiteSet, SiteRemoved, LinkSet, LinkRemoved, SiteMoved)
}
_event = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])


def encode(changed: TopologyChanged) -> bytes:
    return msgspec.msgpack.encode((name_of(type(changed.fact)), changed.fact), order="deterministic")


def decode(raw: bytes) -> TopologyChanged:
    kind, body = _event.decode(raw)
    return TopologyChanged(_EVENTS[kind].decode(body))
