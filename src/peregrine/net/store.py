"""What a router has on its disk: its journal, and the logs to which its effects are performed.

    journal/            events, one position each: the only thing that must be durable before effects are performed
    snapshot            the machine and where each log ended, so that the journal behind it can be cut
    hosts/<place>/      the log that each host of the site reads
    out/<neighbour>/    what goes to each neighbour, until it is acknowledged; `<neighbour>@<n>` in their n-th session
    results/  dead/     what landed here, and what could not be routed

All but the journal follow from it: they are synced before a snapshot is taken, and what a crash or a power loss took
from them since is made good by performing effects again; their positions make that harmless. A log that has lost more
than that, or that knows more than the journal, is refused: going on would lose rows in silence.
"""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from peregrine.core import wire
from peregrine.core.messages import Append, DeadLetter, Deliver, Effect, HandBack, HandedBack, Send
from peregrine.core.router import Router
from peregrine.core.rows import Item, length
from peregrine.errors import ConfigurationError, CorruptLog
from peregrine.log.file_log import FileLog
from peregrine.log.record_log import Fsync, RecordLog
from peregrine.net import snapshots
from peregrine.net.admission import neighbours_of
from peregrine.net.settings import RouterSettings
from peregrine.types import SiteId

Session = tuple[SiteId, int]  # a neighbour, and which of the times that it is one (core/intake.py)

KEPT = "journal-kept"
SEGMENT_BYTES = (64 << 10, 16 << 20)  # what is cut off goes in whole segments: a few of them to a snapshot
RESTORE = "restore the directory from a copy; if there is none, start all sites from empty directories"


class Store:
    def __init__(self, settings: RouterSettings) -> None:
        config = settings.router_config()
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
            self.hosts = {place: FileLog(self._open(f"hosts/{quote(place, safe='')}")) for place in settings.places()}
            self.ended: dict[Session, None] = {}  # nothing more is sent or taken in these
            self.outs = {each: self._open(_name(each)) for each in self._sessions(neighbours_of(config))}
            self.results = self._open("results", keep_bytes=self._keep_bytes)
            self.dead = self._open("dead", keep_bytes=self._keep_bytes)
            if self._durable:
                for name in ("hosts", "out", "."):
                    if (self.directory / name).is_dir():
                        snapshots.sync_directory(self.directory / name)
        except BaseException:
            self.close()
            raise

    def _sessions(self, neighbours: list[SiteId]) -> list[Session]:
        """Before the first snapshot, those that a deployment begins with; else those that were open then. And what was
        begun since: the journal leads there once more.
        """
        known = [_session(name) for name in self._found[2] if name.startswith("out/")]
        begun = [_session(f"out/{path.name}") for path in sorted((self.directory / "out").glob("*@*"))]
        first = [(neighbour, 0) for neighbour in neighbours] if self._found[1] is None else []
        return list(dict.fromkeys((*first, *known, *begun)))

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
            case Send(neighbour, seq, item, session):
                out = self.outs.get((neighbour, session)) or self._begin((neighbour, session))
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
            case HandBack(neighbour, session):
                self.ended[neighbour, session] = None
            case _:
                pass  # for observers and the manager

    def _begin(self, session: Session) -> RecordLog:
        """The two are neighbours anew: what they said before is over, if it was not ended."""
        for each in self.outs:
            if each[0] == session[0] and each[1] < session[1]:
                self.ended[each] = None
        log = self.outs[session] = self._open(_name(session))
        if self._durable:
            snapshots.sync_directory(self.directory / "out")
            snapshots.sync_directory(self.directory)
        return log

    def handed_back(self, wanted: HandBack, acked_seq: int) -> HandedBack:
        """`acked_seq`: as far as it is known here. What is handed back needlessly is recognised as a repeat."""
        out = self.outs.get((wanted.neighbour, wanted.session))
        first = acked_seq + 1 if wanted.after is None else wanted.after + 1
        if out is None:  # nothing was ever sent
            return HandedBack(wanted.neighbour, wanted.session, first, ())
        first = max(first, out.first)
        return HandedBack(wanted.neighbour, wanted.session, first, tuple(_items(out, first)))

    def check_recovered(self) -> None:
        """After the journal was stepped through: no log may be ahead of it, or new effects would pass for repeats."""
        for session in [each for each in self.outs if self._is_left_over(each)]:
            self._remove(session)
        for log, end in self._reached.items():
            if log.end > end:
                raise CorruptLog(
                    f"{log.directory} ends at {log.end}, and the journal leads to {end}: the journal has lost events",
                    RESTORE,
                )

    def _is_left_over(self, session: Session) -> bool:
        """It had ended at the last snapshot, and the router died before its log was removed."""
        since_snapshot = self._found[0] > 0 and _name(session) not in self._found[2]
        return since_snapshot and self._reached[self.outs[session]] == 0

    def _remove(self, session: Session) -> None:
        log = self.outs.pop(session)
        del self._logs[_name(session)], self._reached[log]
        log.close()
        shutil.rmtree(log.directory)

    def snapshot(self, machine: Router, position: int, acked: Mapping[Session, int]) -> None:
        """Write the machine, and cut off what nobody needs any more."""
        for log in self._logs.values():
            log.sync()
        wanted = {(each.neighbour, each.session) for each in machine.hand_backs()}
        over = [each for each in self.outs if each in self.ended and each not in wanted]
        names = {_name(session) for session in over}
        ends = {name: log.end for name, log in self._logs.items() if name not in names}
        snapshots.save(self.directory, position, (machine, ends), self._durable)
        self.journal.truncate(position, self.directory / KEPT if self._keep_journal else None)
        for place, offset in machine.commits.items():
            if place in self.hosts:
                self.hosts[place].truncate(offset)
        for session in over:
            self._remove(session)
        for session, seq in acked.items():
            if session in self.outs:
                self.outs[session].truncate(seq + 1)
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


def _name(session: Session) -> str:
    """Of its log. A quoted name has no `@`."""
    neighbour, number = session
    return f"out/{quote(neighbour, safe='')}" + (f"@{number}" if number else "")


def _session(name: str) -> Session:
    neighbour, _, number = name.removeprefix("out/").partition("@")
    return SiteId(unquote(neighbour)), int(number or 0)


def _items(out: RecordLog, position: int) -> Iterator[Item]:
    while records := out.read(position):
        for at, message in records:
            yield wire.decode_item(message)
            position = at + 1


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
