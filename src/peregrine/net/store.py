"""What a router has on its disk: its journal, and the logs to which its effects are performed.

    format              which version of all this it is
    journal/            events, one position each: the only thing that must be durable before effects are performed
    snapshot            the machine and where each log ended, so that the journal behind it can be cut
    hosts/  out/  results/  dead/   the logs of effects: what is in them, and what a restart makes of them, is told in
                        core/router_logs.py

The logs of effects are synced before a snapshot is taken. What a crash or a power loss took from them since is made
good by performing effects again. A log that has lost more than that, or that knows more than the journal, is refused:
going on would lose rows in silence.
"""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from peregrine.core import wire
from peregrine.core.admission import neighbours_of
from peregrine.core.link import left_over
from peregrine.core.messages import Append, DeadLetter, Deliver, Effect, HandBack, HandedBack, Send
from peregrine.core.router import Router
from peregrine.core.router_logs import (
    DEAD,
    RESULTS,
    RouterLogs,
    Session,
    host_log,
    out_log,
    session_of,
)
from peregrine.errors import ConfigurationError, CorruptLog
from peregrine.log.file_log import FileLog
from peregrine.log.record_log import Fsync, RecordLog
from peregrine.net import snapshots
from peregrine.net.directory_format import check_format
from peregrine.net.settings import RouterSettings

KEPT = "journal-kept"
SEGMENT_BYTES = (64 << 10, 16 << 20)  # what is cut off goes in whole segments: a few of them to a snapshot
RESTORE = "restore the directory from a copy; if there is none, start all sites from empty directories"


class Store:
    def __init__(self, settings: RouterSettings) -> None:
        config = settings.router_config()
        self._site = config.site
        self.directory = Path(settings.directory)
        self._durable = settings.fsync is not Fsync.OFF
        check_format(self.directory, "router", durable=self._durable)
        self._keep_journal = settings.keep_journal
        self._keep_rows = settings.results_keep_rows
        self._keep_bytes = _bytes(settings.results_keep_mb)
        self._segment_bytes = _segment_bytes(_bytes(settings.snapshot_mb))
        self.journal = RecordLog(self.directory / "journal", self._segment_bytes, settings.fsync)
        self._logs: dict[str, RecordLog] = {}
        try:
            _claim(self.directory, settings.fingerprint())
            self._position, self._newest, ends = self._find_snapshot(Router(config))
            found = None if self._newest is None else (self._newest, ends)
            self._rules = RouterLogs(neighbours_of(config), found)
            self.hosts = {place: FileLog(self._open(host_log(place))) for place in settings.places()}
            self.outs = {each: self._open(out_log(each)) for each in self._sessions()}
            self.results = self._open(RESULTS, keep_bytes=self._keep_bytes)
            self.dead = self._open(DEAD, keep_bytes=self._keep_bytes)
            if self._durable:
                for name in ("hosts", "out", "."):
                    if (self.directory / name).is_dir():
                        snapshots.sync_directory(self.directory / name)
        except BaseException:
            self.close()
            raise

    def _sessions(self) -> list[Session]:
        """Those of the snapshot, and what was begun since: the journal leads there once more."""
        begun = [session_of(f"out/{path.name}") for path in sorted((self.directory / "out").glob("*"))]
        return list(dict.fromkeys((*self._rules.sessions, *begun)))

    @property
    def ended(self) -> Mapping[Session, None]:
        """Nothing more is sent or taken in these."""
        return self._rules.ended

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

    def _open(self, name: str, keep_bytes: int | None = None) -> RecordLog:
        # Synced only now and then, whatever the policy: the journal is what must not be lost.
        fsync = Fsync.GROUPED if self._durable else Fsync.OFF
        promised = self._rules.promised.get(name, 0)
        size = self._segment_bytes if keep_bytes is None else min(self._segment_bytes, _segment_bytes(keep_bytes))
        log = self._logs[name] = RecordLog(self.directory / name, size, fsync, promised)
        if log.end < promised:
            raise CorruptLog(
                f"{log.directory} ends at {log.end}, and at the last snapshot it ended at {promised}: "
                "something that had been safe is gone",
                RESTORE,
            )
        return log

    def newest_snapshot(self) -> tuple[int, Router] | None:
        """As it was when the directory was opened. It belongs to whoever asks, so it is given once."""
        machine, self._newest = self._newest, None
        return None if machine is None else (self._position, machine)

    def records(self, position: int) -> Iterator[tuple[int, bytes]]:
        """Of the journal, from there on."""
        while records := self.journal.read(position):
            yield from records
            position = records[-1][0] + 1

    def perform(self, effect: Effect) -> None:
        """Performing an effect again does nothing: its position is behind the end of its log."""
        filed = self._rules.perform(effect)
        if filed is not None:
            log = self._logs.get(filed.log)
            if log is None:
                assert isinstance(effect, Send), f"{filed.log} is there from the beginning"
                log = self._begin((effect.neighbour, effect.session))
            if filed.position >= log.end:
                log.append(filed.position, _encoded(effect), filed.length)

    def _begin(self, session: Session) -> RecordLog:
        log = self.outs[session] = self._open(out_log(session))
        if self._durable:
            snapshots.sync_directory(self.directory / "out")
            snapshots.sync_directory(self.directory)
        return log

    def handed_back(self, wanted: HandBack, acked_seq: int) -> HandedBack:
        neighbour, session, after = wanted.neighbour, wanted.session, wanted.after
        out = self.outs.get((neighbour, session))
        if out is None:  # nothing was ever sent
            return HandedBack(neighbour, session, (acked_seq if after is None else after) + 1, ())
        first, messages = left_over(self._site, neighbour, out, acked_seq, after)
        return HandedBack(neighbour, session, first, tuple(map(wire.decode_item, messages)))

    def check_recovered(self) -> None:
        """After the journal was stepped through: no log may be ahead of it, or new effects would pass for repeats."""
        for session in self._rules.left_over(self._logs):
            self._remove(session)
        for name, end in self._rules.ahead({name: log.end for name, log in self._logs.items()}).items():
            log = self._logs[name]
            raise CorruptLog(
                f"{log.directory} ends at {log.end}, and the journal leads to {end}: the journal has lost events",
                RESTORE,
            )

    def _remove(self, session: Session) -> None:
        log = self.outs.pop(session)
        del self._logs[out_log(session)]
        self._rules.removed(session)
        log.close()
        shutil.rmtree(log.directory)

    def snapshot(self, machine: Router, position: int, acked: Mapping[Session, int]) -> None:
        """Write the machine, and cut off what nobody needs any more."""
        for log in self._logs.values():
            log.sync()
        cut = self._rules.cut(machine, {name: log.end for name, log in self._logs.items()}, acked)
        snapshots.save(self.directory, position, (machine, cut.ends), self._durable)
        self.journal.truncate(position, self.directory / KEPT if self._keep_journal else None)
        for session in cut.over:
            self._remove(session)
        for name, before in cut.before.items():
            if name in self._logs:
                self._logs[name].truncate(before)
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


def _encoded(effect: Effect) -> bytes:
    match effect:
        case Append(entry=item) | Send(item=item) | Deliver(rows=item):
            return wire.encode(item)
        case DeadLetter(_, reason, item):
            return msgspec.msgpack.encode((reason, wire.encode(item)))
    raise AssertionError(f"no log holds {effect}")


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
