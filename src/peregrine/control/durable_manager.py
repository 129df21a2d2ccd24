"""The manager on a disk: what happened to it is journaled before it acts, so that one that died goes on where it was.

    journal/    how the deployment began, what its sources feed, and every event of the machine
    snapshot    all of that at one position, so that the journal behind it can be cut

The rule is the one of the routers: a record is on the disk before any effect of its step is performed. A plan that
cannot be carried out is refused before it is journaled and leaves no trace. Who calls sees to it that only one thread
does at a time.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from peregrine.control import changing
from peregrine.core.coordinator import Cancel, PlanEnded, Submit
from peregrine.core.keyspace import KeySet
from peregrine.core.manager import Manager, ManagerEffect, ManagerEvent
from peregrine.core.messages import Attached, Rehomed, Report, Stray, Tick
from peregrine.core.redeploying import TopologyChanged
from peregrine.core.validity import FedKeys, IndexedFeeds
from peregrine.errors import PeregrineError
from peregrine.log.record_log import Fsync, RecordLog
from peregrine.net import snapshots
from peregrine.types import OpId, PlaceId, SourceId

SNAPSHOT_BYTES = 4 << 20
ENDED_KEPT = 10_000  # plans that ended: somebody may still ask how

Initial = tuple[tuple[OpId, KeySet, PlaceId], ...]


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
    kind.__name__: kind for kind in (Placed, Fed, Dwelling, Submit, Cancel, Report, Rehomed, Tick, Attached, Stray)
}
_decoders = {name: msgspec.msgpack.Decoder(kind) for name, kind in _KINDS.items()}
_envelope = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])


def encode(record: Recorded) -> bytes:
    if isinstance(record, TopologyChanged):
        return msgspec.msgpack.encode((TopologyChanged.__name__, msgspec.Raw(changing.encode(record))))
    return msgspec.msgpack.encode((type(record).__name__, record), order="deterministic")


def decode(raw: bytes) -> Recorded:
    kind, body = _envelope.decode(raw)
    if kind == TopologyChanged.__name__:
        return changing.decode(body)
    decoded: Recorded = _decoders[kind].decode(body)
    return decoded


@dataclass
class Books:
    """All that a restart must bring back."""

    machine: Manager | None  # until the deployment has been placed
    feeds: IndexedFeeds
    ended: OrderedDict[str, PlanEnded]


class DurableManager:
    def __init__(
        self, directory: Path, make: Callable[[Initial, IndexedFeeds], Manager], fsync: Fsync = Fsync.GROUPED
    ) -> None:
        """`make` builds the machine of a deployment that begins; the feeds that it gets grow later."""
        self._make = make
        self._directory = directory
        self._durable = fsync is not Fsync.OFF
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._journal = RecordLog(directory / "journal", SNAPSHOT_BYTES, fsync)
        self._journal_bytes = 0
        found: tuple[int, Books] | None = snapshots.load(directory)
        position, self._books = found or (0, Books(None, IndexedFeeds(), OrderedDict()))
        while records := self._journal.read(position):
            for at, raw in records:
                self._apply(decode(raw))
                self._journal_bytes += len(raw)
                position = at + 1

    @property
    def placed(self) -> bool:
        """Has this deployment begun before? Then owners have moved since, and must not be set again."""
        return self._books.machine is not None

    @property
    def machine(self) -> Manager:
        assert self._books.machine is not None, "a deployment is placed before anything happens to it"
        return self._books.machine

    def ended(self, plan_id: str) -> PlanEnded | None:
        return self._books.ended.get(plan_id)

    def place(self, initial: Initial) -> None:
        """After every router has been told."""
        self._write(Placed(initial))
        self._apply(Placed(initial))

    def dwell(self, dwell_ms: int) -> None:
        if self.machine.mobility.dwell_ms != dwell_ms:
            self._write(Dwelling(dwell_ms))
            self._apply(Dwelling(dwell_ms))

    def feed(self, source: SourceId, feeds: FedKeys) -> None:
        if self._books.feeds.get(source) != feeds:
            self._write(Fed(source, feeds))
            self._apply(Fed(source, feeds))

    def step(self, event: ManagerEvent) -> list[ManagerEffect]:
        """What follows from the event, which is durable. Raises a PlanError, and changes nothing, for a bad plan, which
        is refused again when the journal is read.
        """
        if isinstance(event, Tick) and self.machine.idle:
            return []  # nothing waits for the time: a quiet deployment writes nothing
        self._write(event)
        effects = self._apply(event, told=True)
        if self._journal_bytes >= SNAPSHOT_BYTES:
            self.snapshot()
        return effects

    def snapshot(self) -> None:
        position = self._journal.end
        snapshots.save(self._directory, position, self._books, self._durable)
        self._journal.truncate(position)
        self._journal_bytes = 0

    def close(self) -> None:
        self._journal.close()

    def _write(self, record: Recorded) -> None:
        raw = encode(record)
        self._journal.append(self._journal.end, raw)
        self._journal.sync()
        self._journal_bytes += len(raw)

    def _apply(self, record: Recorded, told: bool = False) -> list[ManagerEffect]:
        match record:
            case Placed(initial):
                self._books.machine = self._make(initial, self._books.feeds)
                return []
            case Fed(source, feeds):
                self._books.feeds[source] = feeds
                return []
            case Dwelling(dwell_ms):
                self.machine.mobility.dwell_ms = dwell_ms
                return []
        try:
            effects = self.machine.step(record)
        except PeregrineError:
            if told:
                raise
            return []  # it was refused when it came, and is refused again
        for effect in effects:
            if isinstance(effect, PlanEnded):
                self._books.ended[effect.plan.id] = effect
                if len(self._books.ended) > ENDED_KEPT:
                    self._books.ended.popitem(last=False)
        return effects
