"""What a simulated router has on its disk: as net/store.py, in memory, by the same rules (core/router_logs.py).

The journal holds bytes, and so does the snapshot. When snapshots are taken is drawn by a chance of their own, so that
they change nothing else of a run. A crash may take from each log what it has got since the last snapshot.
"""

import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from peregrine.core import snapshot
from peregrine.core.link import left_over
from peregrine.core.log import MemoryLog
from peregrine.core.messages import Append, DeadLetter, Deliver, Effect, HandBack, HandedBack, Send
from peregrine.core.router import Router
from peregrine.core.router_logs import (
    DEAD,
    RESULTS,
    Cut,
    RouterLogs,
    Session,
    host_log,
    out_log,
)
from peregrine.errors import CorruptLog
from peregrine.sim.out_log import MemoryOut
from peregrine.types import PlaceId, SiteId

SNAPSHOTS = (0.0, 0.01, 0.05)  # how often one follows a group of events; each router has its habit
DIES_AT_IT = 0.2  # how often a router that dies does so while it takes a snapshot
LOSES = 0.5  # how often a crash takes something from the logs


class Codec(Protocol):
    """A machine as bytes, and back."""

    def encode(self, machine: object) -> bytes: ...
    def decode(self, body: bytes) -> Any: ...


class Records:
    """A log in memory, with a position or more for each record."""

    def __init__(self) -> None:
        self.end = 0
        self._records: list[tuple[int, Any]] = []

    @property
    def first(self) -> int:
        return self._records[0][0] if self._records else self.end

    def append(self, position: int, record: Any, length: int = 1) -> None:
        assert position == self.end, f"append at {position} of a log that ends at {self.end}"
        self._records.append((position, record))
        self.end += length

    def read(self, position: int) -> list[tuple[int, Any]]:
        return [record for record in self._records if record[0] >= position]

    def truncate(self, before: int) -> None:
        """The last record before goes only with one behind it: it may reach further."""
        while self._records and (self._records[1][0] if len(self._records) > 1 else self.end) <= before:
            del self._records[0]

    def lose(self, end: int) -> None:
        while self._records and self.end > end:
            self.end, _ = self._records.pop()


class HasLog(Protocol):
    log: MemoryLog


class SimStore:
    codec: Codec = snapshot

    def __init__(
        self,
        site: SiteId,
        neighbours: Iterable[SiteId],
        hosts: Mapping[PlaceId, HasLog],
        chance: random.Random | None,
    ) -> None:
        """`hosts` grows until the run begins. Without `chance` no snapshot is taken and nothing gets lost."""
        self.chance = chance
        self.cut_off: list[bytes] = []  # of the journal: for whoever audits it
        self._site = site
        self._neighbours = tuple(neighbours)
        self._hosts = hosts
        self._journal: list[bytes] = []
        self._snapshot: tuple[int, bytes, Mapping[str, int]] | None = None
        self._records = {RESULTS: Records(), DEAD: Records()}
        self._outs = {out_log((neighbour, 0)): MemoryOut() for neighbour in self._neighbours}
        self._habit = 0.0 if chance is None else chance.choice(SNAPSHOTS)
        self._rules = RouterLogs(self._neighbours, None)

    @property
    def journal_end(self) -> int:
        return len(self.cut_off) + len(self._journal)

    @property
    def journal(self) -> list[bytes]:
        """From the beginning."""
        return self.cut_off + self._journal

    @property
    def results(self) -> Records:
        return self._records[RESULTS]

    @property
    def ended(self) -> Mapping[Session, None]:
        return self._rules.ended

    def out(self, session: Session) -> MemoryOut | None:
        """What was sent in a session and is kept, as long as it goes on."""
        return None if session in self._rules.ended else self._outs.get(out_log(session))

    def write(self, events: Iterable[bytes]) -> None:
        self._journal.extend(events)

    def perform(self, effect: Effect) -> None:
        """Performing an effect again does nothing: its position is behind the end of its log."""
        filed = self._rules.perform(effect)
        if filed is None:
            return
        match effect:
            case Append(place, offset, entry):
                self._hosts[place].log.append(offset, entry)
            case Send(_, seq, item):
                out = self._outs.setdefault(filed.log, MemoryOut())
                if seq >= out.end:
                    out.append(seq, item)
            case Deliver() | DeadLetter():
                records = self._records[filed.log]
                if filed.position >= records.end:
                    records.append(filed.position, effect, filed.length)

    def handed_back(self, wanted: HandBack, acked_seq: int) -> HandedBack:
        neighbour, session = wanted.neighbour, wanted.session
        out = self._outs.get(out_log((neighbour, session)), MemoryOut())
        first_seq, items = left_over(self._site, neighbour, out, acked_seq, wanted.after)
        return HandedBack(neighbour, session, first_seq, tuple(items))

    # --- snapshots ---

    @property
    def has_snapshot(self) -> bool:
        return self._snapshot is not None

    def is_time(self) -> bool:
        return self.chance is not None and self.chance.random() < self._habit

    def snapshot(self, machine: Router, acked: Mapping[Session, int], steps: int = 4) -> None:
        """`steps`: how far it comes before the router dies."""
        logs = self._logs()
        cut = self._rules.cut(machine, {name: log.end for name, log in logs.items()}, acked)
        for step in (self._keep, self._cut_journal, self._remove_sessions, self._cut_logs)[:steps]:
            step(machine, cut)

    def _keep(self, machine: Router, cut: Cut) -> None:
        self._snapshot = self.journal_end, self.codec.encode((machine, cut.ends)), cut.ends

    def _cut_journal(self, machine: Router, cut: Cut) -> None:
        assert self._snapshot is not None
        before = self._snapshot[0] - len(self.cut_off)
        self.cut_off += self._journal[:before]
        del self._journal[:before]

    def _remove_sessions(self, machine: Router, cut: Cut) -> None:
        for session in cut.over:
            self._remove(session)

    def _cut_logs(self, machine: Router, cut: Cut) -> None:
        logs = self._logs()
        for name, before in cut.before.items():
            if name in logs:
                logs[name].truncate(before)

    def _remove(self, session: Session) -> None:
        self._outs.pop(out_log(session), None)
        self._rules.removed(session)

    def _logs(self) -> dict[str, MemoryLog | MemoryOut | Records]:
        hosts = {host_log(place): host.log for place, host in self._hosts.items()}
        return {**hosts, **self._outs, **self._records}

    # --- a crash, and what comes of it ---

    def die_at_snapshot(self, machine: Router, acked: Mapping[Session, int]) -> None:
        if self.chance is not None and self._habit and self.chance.random() < DIES_AT_IT:
            self.snapshot(machine, acked, self.chance.randint(1, 4))

    def lose(self) -> None:
        """What the logs had not synced; the journal is synced before anything else happens."""
        promised = {} if self._snapshot is None else self._snapshot[2]
        for name, log in self._logs().items():
            if self.chance is not None and self.chance.random() < LOSES:
                log.lose(self.chance.randint(promised.get(name, 0), log.end))

    def newest_snapshot(self) -> tuple[int, Router] | None:
        if self._snapshot is None:
            self._rules = RouterLogs(self._neighbours, None)
            return None
        position, body, _ = self._snapshot
        machine, ends = self.codec.decode(body)
        self._rules = RouterLogs(self._neighbours, (machine, ends))
        return position, machine

    def records(self, position: int) -> Iterator[tuple[int, bytes]]:
        first = len(self.cut_off)
        if not first <= position <= self.journal_end:
            raise CorruptLog(f"the journal begins at {first}, and the snapshot was taken at {position}", "report it")
        yield from enumerate(self._journal[position - first :], position)

    def check_recovered(self) -> None:
        for session in self._rules.left_over(self._logs()):
            self._remove(session)
        ahead = self._rules.ahead({name: log.end for name, log in self._logs().items()})
        if ahead:
            raise CorruptLog(f"logs are ahead of the journal, which leads to {ahead}", "report it")
