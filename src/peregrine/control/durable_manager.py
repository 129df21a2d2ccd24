"""The manager on a disk: what happened to it is journaled before it acts, so that one that died goes on where it was.

    format      which version of all this it is
    journal/    how the deployment began, what its sources feed, and every event of the machine
    snapshot    all of that at one position, so that the journal behind it can be cut

What a record is and what follows from it is told in plan/manager_books.py. The rule is the one of the routers: a record
is on the disk before any effect of its step is performed. Who calls sees to it that only one thread does at a time.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

from peregrine.core.coordinator import PlanEnded
from peregrine.core.manager import Manager, ManagerEffect, ManagerEvent
from peregrine.core.validity import FedKeys
from peregrine.errors import ProtocolError
from peregrine.log.record_log import Fsync, RecordLog
from peregrine.net import snapshots
from peregrine.net.directory_format import check_format
from peregrine.plan.manager_books import Books, Dwelling, Fed, Initial, Make, Placed, Recorded, encode, recover
from peregrine.types import SourceId

SNAPSHOT_BYTES = 4 << 20
log = logging.getLogger(__name__)


class DurableManager:
    def __init__(self, directory: Path, make: Make, fsync: Fsync = Fsync.GROUPED) -> None:
        self._make = make
        self._directory = directory
        self._durable = fsync is not Fsync.OFF
        check_format(directory, "manager", durable=self._durable)
        self._journal = RecordLog(directory / "journal", SNAPSHOT_BYTES, fsync)
        self._journal_bytes = 0
        found: tuple[int, Books] | None = snapshots.load(directory)
        position, books = found or (0, Books())
        self._books = recover(books, self._records(position), make)

    def _records(self, position: int) -> Iterator[bytes]:
        while records := self._journal.read(position):
            for at, raw in records:
                self._journal_bytes += len(raw)
                position = at + 1
                yield raw

    @property
    def placed(self) -> bool:
        """Has this deployment begun before? Then owners have moved since, and must not be set again."""
        return self._books.machine is not None

    @property
    def machine(self) -> Manager:
        return self._books.placed

    def ended(self, plan_id: str) -> PlanEnded | None:
        return self._books.ended.get(plan_id)

    def place(self, initial: Initial) -> None:
        """After every router has been told."""
        self._take(Placed(initial))

    def dwell(self, dwell_ms: int) -> None:
        self._take(Dwelling(dwell_ms))

    def feed(self, source: SourceId, feeds: FedKeys) -> None:
        self._take(Fed(source, feeds))

    def step(self, event: ManagerEvent) -> list[ManagerEffect]:
        """What follows from the event, which is durable. Raises a PlanError, and changes nothing, for a bad plan, which
        is refused again when the journal is read.
        """
        effects = self._take(event)
        if self._journal_bytes >= SNAPSHOT_BYTES:
            self.snapshot()
        return effects

    def snapshot(self) -> None:
        """One that cannot be written is tried again later: the journal has everything."""
        position = self._journal.end
        self._journal_bytes = 0
        try:
            snapshots.save(self._directory, position, self._books, self._durable)
        except ProtocolError as error:
            log.error("manager: no snapshot: %s", error)
            return
        self._journal.truncate(position)

    def close(self) -> None:
        self._journal.close()

    def _take(self, record: Recorded) -> list[ManagerEffect]:
        if not self._books.is_news(record):
            return []
        raw = encode(record)
        self._journal.append(self._journal.end, raw)
        self._journal.sync()
        self._journal_bytes += len(raw)
        return self._books.apply(record, self._make)
