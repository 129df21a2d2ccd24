"""What a router has beside its journal, and how it goes on after a crash: the rules, for a disk (net/store.py) and for
the simulator (sim/store.py) alike.

    hosts/<place>      the log that each host of the site reads
    out/<neighbour>    what goes to each neighbour, until it is acknowledged; `<neighbour>@<n>` in their n-th session
    results  dead      what landed here, and what could not be routed

All of them follow from the journal. A snapshot is the machine and where each log ended: each log holds at least that
much from then on, and what it has lost of the rest is made good by performing effects again. Their positions make that
harmless. A log that is ahead of its journal is refused, or new effects would pass for repeats.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol
from urllib.parse import quote, unquote

from peregrine.core.link import needed_from
from peregrine.core.messages import Append, DeadLetter, Deliver, Effect, HandBack, Send
from peregrine.core.router import Router
from peregrine.core.rows import length
from peregrine.types import PlaceId, SiteId

Session = tuple[SiteId, int]  # a neighbour, and which of the times that it is one (core/intake.py)
RESULTS, DEAD = "results", "dead"


@dataclass(frozen=True, slots=True)
class Filed:
    """Where an effect belongs. If the log goes further already, it is a repeat."""

    log: str
    position: int
    length: int


@dataclass(frozen=True, slots=True)
class Cut:
    """What a snapshot keeps of the logs, and what nobody needs once it is safe."""

    ends: Mapping[str, int]
    over: tuple[Session, ...]  # their logs go
    before: Mapping[str, int]  # in each log


class RouterLogs:
    def __init__(self, neighbours: Iterable[SiteId], snapshot: tuple[Router, Mapping[str, int]] | None) -> None:
        """`neighbours`: those that a deployment begins with."""
        self.promised = {} if snapshot is None else dict(snapshot[1])
        self.ended: dict[Session, None] = {}  # nothing more is sent or taken in these
        self._snapshot = snapshot is not None
        self._reached = dict(self.promised)  # where the effects that were performed end
        self._sessions: dict[Session, None] = dict.fromkeys((neighbour, 0) for neighbour in neighbours)
        if snapshot is not None:
            self._sessions = dict.fromkeys(session_of(name) for name in self.promised if name.startswith("out/"))
            for wanted in snapshot[0].hand_backs():
                self.ended[wanted.neighbour, wanted.session] = None

    @property
    def sessions(self) -> list[Session]:
        return list(self._sessions)

    def perform(self, effect: Effect) -> Filed | None:
        """Where it is to be written, if anywhere. A session begins with the first item that is sent in it: what the two
        said before is over, if it was not ended.
        """
        match effect:
            case Append(place, offset, entry):
                return self._filed(host_log(place), offset, length(entry))
            case Send(neighbour, seq, _, session):
                if (neighbour, session) not in self._sessions:
                    earlier = [each for each in self._sessions if each[0] == neighbour and each[1] < session]
                    self.ended.update(dict.fromkeys(earlier))
                    self._sessions[neighbour, session] = None
                return self._filed(out_log((neighbour, session)), seq, 1)
            case Deliver(offset, rows):
                return self._filed(RESULTS, offset, len(rows))
            case DeadLetter(offset):
                return self._filed(DEAD, offset, 1)
            case HandBack(neighbour, session):
                self.ended[neighbour, session] = None
        return None  # for observers and the manager

    def _filed(self, log: str, position: int, length: int) -> Filed:
        self._reached[log] = position + length
        return Filed(log, position, length)

    def left_over(self, logs: Iterable[str]) -> list[Session]:
        """Of those that are there after the journal was stepped through: these had ended at the snapshot, and the
        router died before their logs were removed.
        """
        outs = [session_of(name) for name in logs if name.startswith("out/")]
        return [session for session in outs if self._snapshot and session not in self._sessions]

    def ahead(self, ends: Mapping[str, int]) -> dict[str, int]:
        """The logs that know more than the journal, with where it leads."""
        reached = {name: self._reached.get(name, 0) for name in ends}
        return {name: reached[name] for name, end in ends.items() if end > reached[name]}

    def cut(self, machine: Router, ends: Mapping[str, int], acked: Mapping[Session, int]) -> Cut:
        """At a snapshot. `acked`: the last item that each neighbour has, as far as it is known."""
        wanted = {(each.neighbour, each.session) for each in machine.hand_backs()}
        over = tuple(each for each in self._sessions if each in self.ended and each not in wanted)
        names = {out_log(session) for session in over}
        before = {host_log(place): offset for place, offset in machine.commits.items()}
        before |= {out_log(session): needed_from(seq) for session, seq in acked.items() if session not in over}
        return Cut({name: end for name, end in ends.items() if name not in names}, over, before)

    def removed(self, session: Session) -> None:
        self._sessions.pop(session, None)
        self._reached.pop(out_log(session), None)


class Kept(Protocol):
    """What a crash leaves."""

    def newest_snapshot(self) -> tuple[int, Router] | None: ...
    def records(self, position: int) -> Iterator[tuple[int, bytes]]:
        """Of the journal, from there on."""
        ...

    def check_recovered(self) -> None: ...
    def perform(self, effect: Effect) -> object: ...


def recover(kept: Kept, fresh: Callable[[], Router], replay: Callable[[Router, int, bytes], object]) -> Router:
    """The newest snapshot, and the journal behind it once more. Performing effects again does nothing."""
    position, machine = kept.newest_snapshot() or (0, fresh())
    for at, raw in kept.records(position):
        replay(machine, at, raw)
    kept.check_recovered()
    for wanted in machine.hand_backs():
        kept.perform(wanted)
    return machine


@lru_cache(maxsize=4096)
def host_log(place: PlaceId) -> str:
    return f"hosts/{quote(place, safe='')}"


@lru_cache(maxsize=4096)
def out_log(session: Session) -> str:
    """A quoted name has no `@`."""
    neighbour, number = session
    return f"out/{quote(neighbour, safe='')}" + (f"@{number}" if number else "")


def session_of(name: str) -> Session:
    neighbour, _, number = name.removeprefix("out/").partition("@")
    return SiteId(unquote(neighbour)), int(number or 0)
