"""A device: readings in, rows at the router of the site where it is, once each and in order.

A shell around core/source.py: a thread sends what has been produced, one batch at a time, and again what was not
acknowledged. With a directory, readings and moves are journaled before they are sent, and a device that was killed goes
on where it was: the same readings get the same numbers, and a router recognises what it has seen.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from peregrine.core.device_record import Acked, Beat, Moved, Read, Record, encode, recover, step
from peregrine.core.messages import Attach, FromSource, Single
from peregrine.core.source import Reading, Source
from peregrine.errors import ConfigurationError, PeregrineError, StorageError, Unreachable
from peregrine.log.record_log import Fsync, RecordLog
from peregrine.net import snapshots
from peregrine.net.client import RouterClient
from peregrine.net.directory_format import check_format
from peregrine.net.uplink import Uplinks
from peregrine.types import OpId, SiteId, SourceId

BACK_OFF_S = (0.02, 1.0)
CALL_S = 10.0
SNAPSHOT_BYTES = 4 << 20
log = logging.getLogger(__name__)


class Device:
    def __init__(
        self,
        source: SourceId,
        addresses: Mapping[SiteId, str],
        site: SiteId,
        token: str,
        roaming: bool = False,
        directory: Path | None = None,
        max_waiting_rows: int = 100_000,
        batch_rows: int = 1000,
        linger_ms: float = 10.0,
        fsync: Fsync = Fsync.GROUPED,
        uplinks: Uplinks | None = None,
        nth: int = 0,
    ) -> None:
        """`addresses` is looked up for each connection, so that it may change. A device that comes back from its
        directory is where it was last; `site` is for the first time. Devices of one process may share `uplinks`. `nth`:
        how often one of this name has connected before it was dismissed.
        """
        self._addresses = addresses
        self._token = token
        self._max_waiting_rows = max_waiting_rows
        self._batch_rows = batch_rows
        self._directory = directory
        # A row waits for others: a call for each costs more. It need not wait here and in an uplink.
        self._linger_s = 0.0 if uplinks is not None else linger_ms / 1000
        self._uplinks = uplinks
        self._journal: RecordLog | None = None
        self._journal_bytes = 0
        self._source = Source(source, site, roaming, batch_rows)
        if directory is not None:
            self._journal = self._recover(directory, fsync)
        self._source.moves = max(self._source.moves, nth)
        self.trouble = ""  # what keeps it from sending
        self.on_acked: Callable[[int], None] = lambda seq: None  # what is safe at a router, as soon as it is known
        self._attached = False
        self._stopping = False
        self._stir = threading.Condition()
        self._client: RouterClient | None = None
        self._thread = threading.Thread(target=self._run, name=f"device-{source}", daemon=True)
        self._thread.start()

    def _recover(self, directory: Path, fsync: Fsync) -> RecordLog:
        check_format(directory, "device", durable=fsync is not Fsync.OFF)
        journal = RecordLog(directory / "journal", SNAPSHOT_BYTES, fsync)
        position, self._source = snapshots.load(directory) or (0, self._source)
        self._source = recover(self._source, self._records(journal, position))
        return journal

    def _records(self, journal: RecordLog, position: int) -> Iterator[bytes]:
        while records := journal.read(position):
            for at, raw in records:
                self._journal_bytes += len(raw)
                position = at + 1
                yield raw

    # --- what a user calls ---

    def send(self, op: OpId, key: str, payload: bytes, time_ms: int | None = None) -> None:
        """Returns when the reading is taken; blocks while too many rows wait (back-pressure)."""
        now_ms = time.time_ns() // 1_000_000
        reading = Reading(op, key, now_ms if time_ms is None else time_ms, now_ms, payload)
        self._take_when_there_is_room(Read(reading))

    def heartbeat(self, op: OpId, groups: int, time_ms: int) -> None:
        """Says to all keys of an operator, behind what was sent, that nothing before this time comes any more."""
        self._take_when_there_is_room(Beat(op, groups, time_ms))

    def move(self, site: SiteId) -> None:
        """Connect to another site; what the old one has not acknowledged goes there."""
        if site not in self._addresses:
            raise ConfigurationError(f"no address of site {site!r}", f"known are {', '.join(sorted(self._addresses))}")
        with self._stir:
            if site != self._source.site:
                self._attached = False
                self._take(Moved(site))

    def flush(self, timeout_s: float = 30.0) -> bool:
        """Waits until everything that was sent is safe at a router; False if it is not by then."""
        with self._stir:
            return self._stir.wait_for(lambda: not self._source.backlog_rows and self._attached, timeout_s)

    def dismiss(self, timeout_s: float = 30.0) -> int:
        """It sends nothing more, also not when it comes back: says so when all that it was given is safe at a router,
        and closes. Returns how often it has connected. (One that is only closed is expected back.)
        """
        if not self.flush(timeout_s):
            raise Unreachable(
                f"device {self._source.id} still has {self.backlog_rows} rows to send {self.trouble}".rstrip(),
                "wait until its site takes them",
            )
        self.close()
        with RouterClient(self._addresses[self.site], self._token, CALL_S, self.site) as client:
            client.offer(Attach(self._source.id, self._source.moves, gone=True))
        return self._source.moves

    @property
    def taken(self) -> int:
        """Readings so far, in all its lives. One that comes back from its directory goes on with the reading of this
        number: what it took later died with it, unsent."""
        return self._source.next_seq

    @property
    def backlog_rows(self) -> int:
        return self._source.backlog_rows

    @property
    def source(self) -> SourceId:
        return self._source.id

    @property
    def site(self) -> SiteId:
        return self._source.site

    def close(self) -> None:
        """What is not acknowledged stays in the directory, if there is one."""
        with self._stir:
            self._stopping = True
            self._stir.notify_all()
        self._thread.join(CALL_S + 1)
        if self._client is not None and self._uplinks is None:
            self._client.close()
        if self._journal is not None:
            self._journal.close()

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- the machine, under the lock ---

    def _take_when_there_is_room(self, event: Record) -> None:
        with self._stir:
            self._stir.wait_for(lambda: self._stopping or self._source.backlog_rows < self._max_waiting_rows)
            if self._stopping:
                raise Unreachable(f"device {self._source.id} is closed {self.trouble}".rstrip(), "make a new one")
            self._take(event)

    def _take(self, event: Record) -> None:
        if self._journal is not None:
            raw = encode(event)
            try:
                self._journal.append(self._journal.end, raw)
            except StorageError:
                self._stopping = True  # what is on the disk and what has been numbered may differ now
                raise
            self._journal_bytes += len(raw)
        step(self._source, event)
        self._stir.notify_all()

    # --- the thread ---

    def _run(self) -> None:
        back_off_s = BACK_OFF_S[0]
        while not self._stopping:
            try:
                if not self._send_something():
                    with self._stir:
                        self._stir.wait_for(lambda: self._stopping or self._has_something(), 1.0)
                elif self._linger_s:
                    with self._stir:
                        self._stir.wait_for(lambda: self._stopping or self._in_a_hurry(), self._linger_s)
                back_off_s = BACK_OFF_S[0]
                self.trouble = ""
            except PeregrineError as error:
                if error.what != self.trouble:
                    log.info("source=%s site=%s trouble=%r", self._source.id, self._source.site, error.what)
                self.trouble = error.what
                with self._stir:
                    self._stopping = self._stopping or isinstance(error, StorageError)
                    self._source.lost()
                    self._stir.wait_for(lambda: self._stopping, back_off_s)
                back_off_s = min(2 * back_off_s, BACK_OFF_S[1])

    def _in_a_hurry(self) -> bool:
        return not self._attached or self._source.backlog_rows >= self._batch_rows

    def _has_something(self) -> bool:
        return not self._attached or self._source.backlog_rows > 0

    def _send_something(self) -> bool:
        with self._stir:
            site, nth, attached = self._source.site, self._source.moves, self._attached
            if attached and not self._source.backlog_rows:
                return False
            has_rows = self._source.backlog_rows > 0
        client = self._connected(site)
        # The first rows go with the word that it has come: they have waited long enough.
        comes = None if attached else self._hand(client, Attach(self._source.id, nth))
        acked = self._offer_batch(client, nth) if has_rows else None
        if comes is not None:
            comes.result()
        with self._stir:
            if comes is not None:
                self._attached = self._attached or nth == self._source.moves
                self._stir.notify_all()
            if nth == self._source.moves and acked is not None:
                self._take(Acked(acked))
                self._cut_journal()
                self.on_acked(acked)
        return True

    def _offer_batch(self, client: RouterClient, nth: int) -> int | None:
        if self._uplinks is not None and self._journal is None:
            return self._uplinks.offer(client, partial(self._batch, nth))
        batch = self._batch(nth)
        return None if batch is None else self._offer(client, batch)

    def _batch(self, nth: int) -> FromSource | None:
        """For the site where it was when it had connected so often; None, if it has moved."""
        with self._stir:
            return self._source.batch() if nth == self._source.moves else None

    def _offer(self, client: RouterClient, event: Single) -> int | None:
        return self._hand(client, event).result()

    def _hand(self, client: RouterClient, event: Single) -> "Future[int | None]":
        """With an uplink it goes together with what is offered next."""
        # What a router is told must not be told otherwise after a crash: where this device is and how its rows are
        # numbered is durable here first.
        if self._journal is not None:
            self._journal.sync()
        if self._uplinks is not None:
            return self._uplinks.hand(client, lambda: event)
        done: Future[int | None] = Future()
        done.set_result(client.offer(event))
        return done

    def _cut_journal(self) -> None:
        if self._journal is None or self._directory is None or self._journal_bytes < SNAPSHOT_BYTES:
            return
        position = self._journal.end
        self._journal.sync()
        snapshots.save(self._directory, position, self._source)
        self._journal.truncate(position)
        self._journal_bytes = 0

    def _connected(self, site: SiteId) -> RouterClient:
        address = self._addresses.get(site)
        if address is None:
            raise Unreachable(f"no address of site {site!r} is known yet", "wait until somebody tells it")
        if self._uplinks is not None:
            self._client = self._uplinks.client(address, self._token, site)
        elif self._client is None or (self._client.address, self._client.site) != (address, site):
            if self._client is not None:
                self._client.close()
            self._client = RouterClient(address, self._token, CALL_S, site)
        return self._client
