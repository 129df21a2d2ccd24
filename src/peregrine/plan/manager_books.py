"""What the manager keeps, and how it goes on with it after a crash: for a disk (control/durable_manager.py) and for the
simulator (sim/devices.py) alike.

Every record is durable before any effect of its step is performed: how the deployment began, what its sources feed, and
every event of the machine. A plan that cannot be carried out is in the journal too, and is refused again when that is
read. A snapshot is `Books`, so that the journal behind it can be cut.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from peregrine.core.coordinator import Cancel, PlanEnded, Submit
from peregrine.core.keyspace import KeySet
from peregrine.core.manager import Manager, ManagerEffect, ManagerEvent
from peregrine.core.messages import Attached, Rehomed, Report, Stray, Tick
from peregrine.core.redeploying import TopologyChanged
from peregrine.core.stored_names import name_of
from peregrine.core.validity import FedKeys, IndexedFeeds
from peregrine.errors import PeregrineError
from peregrine.plan.redeploy import told
from peregrine.types import OpId, PlaceId, SourceId

ENDED_KEPT = 10_000  # plans that ended: somebody may still ask how

Initial = tuple[tuple[OpId, KeySet, PlaceId], ...]
Make = Callable[[Initial, IndexedFeeds], Manager]  # the machine of a deployment that begins; its feeds grow later


@dataclass(frozen=True, slots=True)
class Placed:
    """The first record: the routers know where the keys are to be when rows begin to flow."""

    initial: Initial


@dataclass(frozen=True, slots=True)
class Fed:
    """A source produces for these operators and keys: plans are checked against it."""

    source: SourceId
    feeds: FedKeys


@dataclass(frozen=True, slots=True)
class Dwelling:
    """From here on keys wait so long before they follow a source. (Before, they waited as it was then.)"""

    dwell_ms: int


Recorded = ManagerEvent | Placed | Fed | Dwelling
_KINDS: dict[str, type[Any]] = {
    name_of(kind): kind for kind in (Placed, Fed, Dwelling, Submit, Cancel, Report, Rehomed, Tick, Attached, Stray)
}
_decoders = {name: msgspec.msgpack.Decoder(kind) for name, kind in _KINDS.items()}
_envelope = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])


def encode(record: Recorded) -> bytes:
    if isinstance(record, TopologyChanged):
        return msgspec.msgpack.encode((name_of(TopologyChanged), msgspec.Raw(told.encode(record))))
    return msgspec.msgpack.encode((name_of(type(record)), record), order="deterministic")


def decode(raw: bytes) -> Recorded:
    kind, body = _envelope.decode(raw)
    if kind == name_of(TopologyChanged):
        return told.decode(body)
    decoded: Recorded = _decoders[kind].decode(body)
    return decoded


@dataclass
class Books:
    """All that a restart must bring back."""

    machine: Manager | None = None  # until the deployment has been placed
    feeds: IndexedFeeds = field(default_factory=IndexedFeeds)
    ended: OrderedDict[str, PlanEnded] = field(default_factory=OrderedDict)

    @property
    def placed(self) -> Manager:
        assert self.machine is not None, "a deployment is placed before anything happens to it"
        return self.machine

    def is_news(self, record: Recorded) -> bool:
        """A quiet deployment writes nothing: nothing waits for the time, and the rest is known."""
        match record:
            case Tick():
                return not self.placed.idle
            case Dwelling(dwell_ms):
                return self.placed.mobility.dwell_ms != dwell_ms
            case Fed(source, feeds):
                return self.feeds.get(source) != feeds
        return True

    def apply(self, record: Recorded, make: Make) -> list[ManagerEffect]:
        """What follows from a record, which is durable. Raises an error, and changes nothing, for a bad plan."""
        match record:
            case Placed(initial):
                self.machine = make(initial, self.feeds)
                return []
            case Fed(source, feeds):
                self.feeds[source] = feeds
                return []
            case Dwelling(dwell_ms):
                self.placed.mobility.dwell_ms = dwell_ms
                return []
        effects = self.placed.step(record)
        for effect in effects:
            if isinstance(effect, PlanEnded):
                self.ended[effect.plan.id] = effect
                if len(self.ended) > ENDED_KEPT:
                    self.ended.popitem(last=False)
        return effects


def recover(books: Books, records: Iterable[bytes], make: Make) -> Books:
    """`books`: of the newest snapshot, or empty ones; `records`: those of the journal behind it. What was refused when
    it came is refused again.
    """
    for raw in records:
        record = decode(raw)
        try:
            books.apply(record, make)
        except PeregrineError:
            if isinstance(record, Placed | Fed | Dwelling):
                raise
    return books
