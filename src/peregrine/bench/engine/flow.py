"""Rows into a running application at a steady rate, and its results out of it.

Rows are made a second at a time while they flow, so a run may take as long as it takes. Event time is the time of
sending: then the latency of what a window emits means the same as that of what a row emits.
"""

import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from peregrine.app.compile import Compiled
from peregrine.bench.engine.applications import Application
from peregrine.bench.engine.definition import Setting
from peregrine.bench.spark.stream import READ_WAIT_S, SEND_EVERY_S, now_ms
from peregrine.control.running import Running
from peregrine.control.watch import Watch
from peregrine.errors import PeregrineError
from peregrine.types import OpId

Sent = tuple[str, str, dict[str, Any]]  # (device, source, record)
CAUGHT_UP_S = 2.0  # worth of rows that may wait: some batches, on a busy machine
STEADY_S = 1.0
PATIENCE_S = 180.0


class Feed:
    """What devices send, in the order of sending."""

    def __init__(self, application: Application, setting: Setting) -> None:
        self.application = application
        self.setting = setting
        self._sources = setting.devices or setting.edges
        first = next(iter(self._tables(0, 0).values()))["source"][0].as_py()
        self.devices = [f"{first.rstrip('0123456789')}{n}" for n in range(self._sources)]

    def records(self, start_ms: int) -> Iterator[tuple[int, Sent]]:
        """For ever: (due in so many microseconds, what)."""
        ahead_us = self.setting.preload_rows * 1_000_000 // self.setting.rows_per_s
        nth = 0
        while True:
            found = []
            for source, table in self._tables(nth, start_ms - ahead_us // 1000).items():
                names = [name for name in table.schema.names if name not in ("source", "sent_us")]
                rows = table.select(names).to_pylist()
                for due_us, device, row in zip(
                    table["sent_us"].to_pylist(), table["source"].to_pylist(), rows, strict=True
                ):
                    found.append((max(due_us - ahead_us, 0), (device, source, row)))
            found.sort(key=lambda each: each[0])
            yield from found
            nth += 1

    def first(self, compiled: Compiled, seconds: float) -> Iterator[tuple[str, OpId, str]]:
        """(device, operator, key) of each row preloaded or of the first seconds, without sending any."""
        for due_us, (device, source, record) in self.records(0):
            if due_us > seconds * 1_000_000:
                return
            for reading in compiled.sources[source].readings(record, device, 0):
                yield device, reading.op, reading.key

    def _tables(self, nth: int, start_ms: int) -> Any:
        setting = self.setting
        return self.application.slice(nth, setting.rows_per_s, self._sources, start_ms, setting.feed)


class Flow:
    """Sends from `start` until `stop`, and reads results from the beginning on."""

    def __init__(self, running: Running, feed: Feed, sites: list[str]) -> None:
        """Device n is at site n."""
        self.running = running
        self.sent: list[Sent] = []
        self.silent: set[str] = set()  # devices that have nothing to say for now
        self._feed = feed
        self._senders = {name: running.device(name, site) for name, site in zip(feed.devices, sites, strict=True)}
        self._extra: deque[Sent] = deque()
        self._sending = threading.Event()
        self._reading = threading.Event()
        self._failed: BaseException | None = None
        self._threads: list[threading.Thread] = []

    def start(self, watch: Watch) -> None:
        self._sending.set()
        self._reading.set()
        self._threads = [
            threading.Thread(target=self._send, name="sender", daemon=True),
            threading.Thread(target=self._read, args=(watch,), name="reader", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def warm_up(self, seconds: float) -> None:
        """So long, and until the hosts have applied what was there by then and have followed for a while: what is late
        now would count as usual later.
        """
        time.sleep(seconds)
        if self._feed.setting.runner == "continuous":
            return  # what is applied is committed much later
        limit_rows = self._feed.setting.rows_per_s * CAUGHT_UP_S
        deadline_s = time.monotonic() + PATIENCE_S
        # One batch may take longer than all of the others, and nothing is late while it does.
        there = self.running.deployment.log_ends()
        since_s = time.monotonic()
        while time.monotonic() - since_s < STEADY_S:
            behind = self._behind()
            if behind > limit_rows or not self.running.deployment.has_applied(there):
                since_s = time.monotonic()
            if time.monotonic() > deadline_s:
                raise PeregrineError(
                    f"hosts are {behind:,} rows behind after {PATIENCE_S:g} s",
                    f"lower rows_per_s, which is {self._feed.setting.rows_per_s}",
                )
            time.sleep(0.1)

    def check(self) -> None:
        if self._failed is not None:
            raise self._failed

    def send(self, sent: Sent) -> None:
        """Beside what the feed has, as soon as may be."""
        self._extra.append(sent)

    def stop(self) -> None:
        self._sending.clear()
        self._threads[0].join()

    def close(self) -> None:
        self._sending.clear()
        self._reading.clear()
        for thread in self._threads:
            thread.join()

    def _behind(self) -> int:
        self.check()
        statuses = [client.status() for client in self.running.deployment.clients.values()]
        waiting = sum(sender.device.backlog_rows for sender in self._senders.values())
        return waiting + sum(end - each.commits.get(place, 0) for each in statuses for place, end in each.ends.items())

    def _send(self) -> None:
        try:
            began_s = time.monotonic()
            for due_us, sent in self._feed.records(int(now_ms())):
                while time.monotonic() - began_s < due_us / 1e6:
                    if not self._sending.is_set():
                        return
                    time.sleep(SEND_EVERY_S)
                if not self._sending.is_set():
                    return
                while self._extra:
                    self._give(self._extra.popleft())
                if sent[0] not in self.silent:
                    self._give(sent)
        except BaseException as error:
            self._failed = error

    def _give(self, sent: Sent) -> None:
        device, source, record = sent
        self._senders[device].send(source, record)
        self.sent.append(sent)

    def _read(self, watch: Watch) -> None:
        deployment = self.running.deployment
        client = deployment.clients[deployment.topology.root]
        position = 0
        while self._reading.is_set():
            try:
                table, after = client.read_results(position, wait_s=READ_WAIT_S)
            except PeregrineError:
                time.sleep(SEND_EVERY_S)  # the router is away
                continue
            if after > position:
                watch.on_results(table)
                position = after
