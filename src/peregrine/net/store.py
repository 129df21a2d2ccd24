"""What a router has on its disk: its journal, and the logs to which its effects are performed.

    journal/            events, one position each: the only thing that must be durable before effects are performed
    snapshot            the machine and where each log ended, so that the journal behind it can be cut
    hosts/<place>/      the log that each host of the site reads
    out/<neighbour>/    what goes to each neighbour, until it is acknowledged
    results/  dead/     what landed here, and what could not be routed

All but the journal follow from it: they are synced before a snapshot is taken, and what a crash or a power loss took
from them since is made good by performing effects again; their positions make that harmless. A log that has lost more
than that, or that knows more than the journal, is refused: going on would lose rows in silence.
"""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import msgspec

from peregrine.core import wire
from peregrine.core.messages import Append, DeadLetter, Deliver, Effect, Send
from peregrine.core.router import Router
from peregrine.core.rows import length
from peregrine.errors import ConfigurationError, CorruptLog
from peregrine.log.file_log import FileLog
from peregrine.log.record_log import Fsync, RecordLog
from peregrine.net import snapshots
from peregrine.net.settings import RouterSettings
from peregrine.types import SiteId

KEPT = "journal-kept"
SEGMENT_BYTES = (64 << 10, 16 << 20)  # what is cut off goes in whole segments: a few of them to a snapshot
RESTORE = "restore the directory from a copy; if there is none, start all sites from empty directories"


class Store:
    def __init__(self, settings: RouterSettings) -> None:
        config = settings.router_config()
        topology = config.topology
        parent = topology.parent(config.site)
        neighbours = [*topology.children(config.site), *([] if parent is None else [parent])]
        self.directory = Path(settings.directory)
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._keep_journal = settings.keep_journal
        self._durable = settings.fsync is not Fsync.OFF
        self._keep_rows = settings.results_keep_rows
        self._keep_bytes = _bytes(settings.results_keep_mb)
        self._segment_bytes = _segment_bytes(_bytes(settings.snapshot_mb))
        self.journal = RecordLog(self.directory / "journal", self._segment_bytes, settings.fsync)
        self._logs: dict[str, RecordLog] = {}
        try:
            _claim(self.directory, settings.fingerprint())
            self._found = self._find_snapshot(Router(config))
            self._reached: dict[RecordLog, int] = {}  # where the effects that were performed end
            self.hosts = {place: FileLog(self._open("hosts", place)) for place in topology.places(config.site)}
            self.outs = {neighbour: self._open("out", neighbour) for neighbour in neighbours}
            self.results = self._open("results", keep_bytes=self._keep_bytes)
            self.dead = self._open("dead", keep_bytes=self._keep_bytes)
            if self._durable:
                for name in ("hosts", "out", "."):
                    if (self.directory / name).is_dir():
                        snapshots.sync_directory(self.directory / name)
        except BaseException:
            self.close()
            raise

    def _find_snapshot(self, fresh: Router) -> tuple[int, Router | None, dict[str, int]]:
        """Position, machine, and where each log ended then."""
        found = snapshots.load(self.directory)
        if found is not None:
            machine = found[1][0] if isinstance(found[1], tuple) and len(found[1]) == 2 else None
            snapshots.check_shape(self.directory, machine, fresh)
        position, (machine, ends) = (0, (None, {})) if found is None else found
        if not self.journal.first <= position <= self.journal.end:
            raise CorruptLog(
                f"{self.journal.directory} has events {self.journal.first} to {self.journal.end}, "
                f"and the snapshot in {self.directory} was taken at {position}",
                RESTORE,
            )
        return position, machine, ends

    def _open(self, kind: str, of: str = "", keep_bytes: int | None = None) -> RecordLog:
        name = f"{kind}/{quote(of, safe='')}" if of else kind
        # Synced only now and then, whatever the policy: the journal is what must not be lost.
        fsync = Fsync.GROUPED if self._durable else Fsync.OFF
        promised = self._found[2].get(name, 0)
        size = self._segment_bytes if keep_bytes is None else min(self._segment_bytes, _segment_bytes(keep_bytes))
        log = self._logs[name] = RecordLog(self.directory / name, size, fsync, promised)
        if log.end < promised:
            raise CorruptLog(
                f"{log.directory} ends at {log.end}, and at the last snapshot it ended at {promised}: "
                "something that had been safe is gone",
                RESTORE,
            )
        self._reached[log] = promised
        return log

    def newest_snapshot(self) -> tuple[int, Router] | None:
        """As it was when the directory was opened. It belongs to whoever asks, so it is given once."""
        position, machine, ends = self._found
        self._found = (position, None, ends)
        return None if machine is None else (position, machine)

    def perform(self, effect: Effect) -> None:
        """Performing an effect again does nothing: its position is behind the end of its log."""
        match effect:
            case Append(place, offset, entry):
                host = self.hosts[place]
                host.append(offset, entry)
                self._reached[host.records] = offset + length(entry)
            case Send(neighbour, seq, item):
                out = self.outs[neighbour]
                if seq >= out.end:
                    out.append(seq, wire.encode(item))
                self._reached[out] = seq + 1
            case Deliver(offset, rows):
                if offset >= self.results.end:
                    self.results.append(offset, wire.encode(rows), len(rows))
                self._reached[self.results] = offset + len(rows)
            case DeadLetter(offset, reason, item):
                if offset >= self.dead.end:
                    self.dead.append(offset, msgspec.msgpack.encode((reason, wire.encode(item))))
                self._reached[self.dead] = offset + 1
            case _:
                pass  # for observers and the manager

    def check_recovered(self) -> None:
        """After the journal was stepped through: no log may be ahead of it, or new effects would pass for repeats."""
        for log, end in self._reached.items():
            if log.end > end:
                raise CorruptLog(
                    f"{log.directory} ends at {log.end}, and the journal leads to {end}: the journal has lost events",
                    RESTORE,
                )

    def snapshot(self, machine: Router, position: int, acked: Mapping[SiteId, int]) -> None:
        """Write the machine, and cut off what nobody needs any more."""
        for log in self._logs.values():
            log.sync()
        ends = {name: log.end for name, log in self._logs.items()}
        snapshots.save(self.directory, position, (machine, ends), self._durable)
        self.journal.truncate(position, self.directory / KEPT if self._keep_journal else None)
        for place, offset in machine.commits.items():
            if place in self.hosts:
                self.hosts[place].truncate(offset)
        for neighbour, seq in acked.items():
            self.outs[neighbour].truncate(seq + 1)
        for log in (self.results, self.dead):
            if self._keep_rows is not None:
                log.truncate(log.end - self._keep_rows)
            if self._keep_bytes is not None:
                log.truncate(log.first_within(self._keep_bytes))

    @property
    def recovered(self) -> list[str]:
        """What was found damaged and cut off when the directory was opened."""
        logs = {"journal": self.journal, **self._logs}
        return [f"{name}: {log.recovered}" for name, log in logs.items() if log.recovered]

    def close(self) -> None:
        for log in (self.journal, *self._logs.values()):
            log.close()


def _bytes(mb: float | None) -> int | None:
    return None if mb is None else int(mb * (1 << 20))


def _segment_bytes(kept_bytes: int | None) -> int:
    least, most = SEGMENT_BYTES
    return most if kept_bytes is None else min(max(kept_bytes // 4, least), most)


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
