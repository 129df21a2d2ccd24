"""A device that sends records of an application's sources, and says how far its event time has come.

Windows wait for every device of a source, also for one that has nothing to send to their key: so each device tells all
operators that care, several times a second, up to which time it has sent. A device has one time: records of all of its
sources are sent in the order of their event times (but for the delay that a source allows). `finish` says that nothing
comes any more.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any

from peregrine.app.compile import Ingress
from peregrine.app.logic import END_OF_TIME_MS
from peregrine.errors import ConfigurationError, UnknownName
from peregrine.net.device import Device
from peregrine.types import OpId, SiteId, SourceId

BEAT_S = 0.2


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


Sources = Mapping[str, tuple[Ingress, ...]]  # one name may stand for sources of several applications


class Sender:
    def __init__(self, name: str, device: Device, sources: Sources) -> None:
        self.name = name
        self.device = device
        self._sources = sources
        self._clocked: dict[OpId, int] = {}  # who is told how far time has come, with its number of groups
        for ingress in (each for known in sources.values() for each in known):
            if ingress.senders is not None and SourceId(name) in ingress.senders:
                self._clocked |= _clocked(ingress)
        # Without event times, time passes also while nothing is sent.
        self._by_wall_clock = all(each.event_time is None for known in sources.values() for each in known)
        self._reached_ms: int | None = None  # the highest event time that was sent
        self._told: dict[OpId, int] = {}
        self._finished = False
        self._lock = threading.Lock()

    def send(self, source: str, record: Any = None, /, **columns: Any) -> None:
        """A record, as a dict, a Row or by its columns. Blocks while too many wait to be taken (back-pressure).

        `source` is a name, or `app/name`. Applications that have a source of the same name all get the record.
        """
        now_ms = wall_ms()
        for ingress in self._ingresses(source):
            readings = ingress.readings(columns if record is None else record, self.name, now_ms)
            with self._lock:
                if self._finished:
                    raise ConfigurationError(f"{self.name} has said that it is finished", "send before finish()")
                for reading in readings:
                    self.device.send(reading.op, reading.key, reading.payload, reading.time_ms)
                    self._reached_ms = max(reading.time_ms, self._reached_ms or reading.time_ms)
                self._clocked |= _clocked(ingress)

    def _ingresses(self, source: str) -> tuple[Ingress, ...]:
        if source not in self._sources:
            raise UnknownName("source", source, list(self._sources))
        found = self._sources[source]
        mine = tuple(each for each in found if each.senders is None or SourceId(self.name) in each.senders)
        if not mine:
            named = ", ".join(sorted({name for each in found for name in each.senders or ()}))
            raise ConfigurationError(f"{self.name!r} is not one of the senders of {source!r}", f"it has {named}")
        return mine

    def heartbeat(self, time_ms: int) -> None:
        """Nothing before this time comes any more: for devices that have nothing to send."""
        with self._lock:
            self._tell(time_ms)

    def finish(self) -> None:
        """Nothing comes any more: windows need not wait for this device."""
        with self._lock:
            self._finished = True
            self._tell(END_OF_TIME_MS)

    def move(self, site: str) -> None:
        """The device is at another site now."""
        self.device.move(SiteId(site))

    def flush(self, patience_s: float = 60.0) -> None:
        """Returns when all that was sent is safe at a router."""
        self.device.flush(patience_s)

    def beat(self) -> None:
        """What a background thread calls several times a second."""
        with self._lock:
            reached_ms = wall_ms() if self._by_wall_clock else self._reached_ms
            if reached_ms is not None and not self._finished:
                self._tell(reached_ms)

    def _tell(self, time_ms: int) -> None:
        for op, groups in self._clocked.items():
            if time_ms > self._told.get(op, time_ms - 1):
                self._told[op] = time_ms
                self.device.heartbeat(op, groups, time_ms)


def _clocked(ingress: Ingress) -> dict[OpId, int]:
    """A car of which nobody knows whether it comes must not hold up the windows of others: unless windows wait for
    named devices, those that roam advance time by their rows alone.
    """
    return {} if ingress.roaming and ingress.senders is None else dict(ingress.clocked)


class Beats:
    """One thread that beats for all senders of a process."""

    def __init__(self) -> None:
        self._senders: list[Sender] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beats", daemon=True)
        self._thread.start()

    def add(self, sender: Sender) -> None:
        self._senders.append(sender)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(BEAT_S):
            for sender in tuple(self._senders):
                if not self._stop.is_set():
                    sender.beat()
