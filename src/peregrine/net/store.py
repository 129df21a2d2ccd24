"""What a router has on its disk: its journal, and the logs to which its effects are performed.

    journal/            events, one position each: the only thing that must be durable before effects are performed
    snapshot            the machine, so that the journal behind it can be cut
    hosts/<place>/      the log that each host of the site reads
    out/<neighbour>/    what goes to each neighbour, until it is acknowledged
    results/  dead/     what landed here, and what could not be routed

All but the journal follow from it: they are synced before a snapshot is taken, and a crash in between is made good by
performing effects again; their positions make that harmless.
"""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import msgspec

from peregrine.core import wire
from peregrine.core.messages import Append, DeadLetter, Deliver, Effect, Send
from peregrine.core.router import Router
from peregrine.errors import ConfigurationError
from peregrine.log.file_log import FileLog
from peregrine.log.record_log import Fsync, RecordLog
from peregrine.net import snapshots
from peregrine.net.settings import RouterSettings
from peregrine.types import PlaceId, SiteId

SEGMENT_BYTES = (64 << 10, 16 << 20)  # what is cut off goes in whole segments: a few of them to a snapshot


class Store:
    def __init__(self, settings: RouterSettings) -> None:
        config = settings.router_config()
        topology = config.topology
        parent = topology.parent(config.site)
        neighbours = [*topology.children(config.site), *([] if parent is None else [parent])]
        self.directory = Path(settings.directory)
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._durable = settings.fsync is not Fsync.OFF
        # The others are synced only now and then, whatever the policy: the journal is what must not be lost.
        least, most = SEGMENT_BYTES
        self._segment_bytes = min(max(int(settings.snapshot_mb * (1 << 20)) // 4, least), most)
        relaxed = Fsync.GROUPED if self._durable else Fsync.OFF
        self.journal = RecordLog(self.directory / "journal", self._segment_bytes, settings.fsync)
        _claim(self.directory, settings.fingerprint())
        self.hosts: dict[PlaceId, FileLog] = {}
        self.outs: dict[SiteId, RecordLog] = {}
        self._logs: dict[str, RecordLog] = {}
        for place in topology.places(config.site):
            self.hosts[place] = FileLog(self._open(f"hosts/{quote(place, safe='')}", relaxed))
        for neighbour in neighbours:
            self.outs[neighbour] = self._open(f"out/{quote(neighbour, safe='')}", relaxed)
        self.results = self._open("results", relaxed)
        self.dead = self._open("dead", relaxed)

    def _open(self, name: str, fsync: Fsync) -> RecordLog:
        log = self._logs[name] = RecordLog(self.directory / name, self._segment_bytes, fsync)
        return log

    def perform(self, effect: Effect) -> None:
        """Performing an effect again does nothing: its position is behind the end of its log."""
        match effect:
            case Append(place, offset, entry):
                self.hosts[place].append(offset, entry)
            case Send(neighbour, seq, item):
                out = self.outs[neighbour]
                if seq >= out.end:
                    out.append(seq, wire.encode(item))
            case Deliver(offset, rows):
                if offset >= self.results.end:
                    self.results.append(offset, wire.encode(rows), len(rows))
            case DeadLetter(offset, reason, item):
                if offset >= self.dead.end:
                    self.dead.append(offset, msgspec.msgpack.encode((reason, wire.encode(item))))
            case _:
                pass  # for observers and the manager

    def snapshot(self, machine: Router, position: int, acked: Mapping[SiteId, int]) -> None:
        """Write the machine, and cut off what nobody needs any more. Results stay."""
        for log in self._logs.values():
            log.sync()
        snapshots.save(self.directory, position, machine, self._durable)
        self.journal.truncate(position)
        for place, offset in machine.commits.items():
            if place in self.hosts:
                self.hosts[place].truncate(offset)
        for neighbour, seq in acked.items():
            self.outs[neighbour].truncate(seq + 1)

    def newest_snapshot(self) -> tuple[int, Router] | None:
        return snapshots.load(self.directory)

    @property
    def recovered(self) -> list[str]:
        """What was found damaged and cut off when the directory was opened."""
        logs = {"journal": self.journal, **self._logs}
        return [f"{name}: {log.recovered}" for name, log in logs.items() if log.recovered]

    def close(self) -> None:
        for log in (self.journal, *self._logs.values()):
            log.close()


def _claim(directory: Path, fingerprint: str) -> None:
    path = directory / "configuration"
    try:
        known = path.read_text()
    except FileNotFoundError:
        path.write_text(fingerprint)
        return
    if known and known != fingerprint:
        raise ConfigurationError(
            f"{directory} belongs to a router with another site, topology or other operators",
            "start it with the configuration that it had, or with an empty directory",
        )
    if not known:  # died between creating and writing it
        path.write_text(fingerprint)
