"""What a machine has seen and done about each migration and each site, in order, to be told when an assertion fails.

Rows leave no trail: they only say which migration they are about, should the machine fail over them. A trail has
nothing but builtin values in it, decides nothing, and survives a restart with the machine.
"""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from peregrine.core.migrate import Migration
from peregrine.core.rehoming import Word
from peregrine.core.rows import ChunksTaken, Clock, Item, Marker, Rows, StateRows
from peregrine.errors import ProtocolError

SUBJECTS = 64  # of which something is remembered: migrations (of a manager: plans) and sites
EVENTS = 64  # that are remembered of each

P = ParamSpec("P")
R = TypeVar("R")


class Trail:
    def __init__(self, whose: str) -> None:
        self.whose = whose
        self.about: str | None = None  # what the machine is busy with
        self._events: dict[str, list[tuple[str | int, ...]]] = {}  # the subject noted longest ago first

    def note(self, subject: str, *event: str | int) -> None:
        """What comes again and again leaves one trace: the manager asks, and routers answer, until all is over."""
        self.about = subject
        events = self._events.pop(subject, None) or []
        self._events[subject] = events
        if not events or events[-1] != event:
            events.append(event)
        if len(events) > EVENTS:
            del events[0]
        if len(self._events) > SUBJECTS:
            del self._events[next(iter(self._events))]

    def meet(self, item: Item) -> None:
        """An item that a router is about to treat."""
        match item:
            case Rows() | Clock():
                self.about = item.stamp or item.gate or item.detour
            case Marker(event, role, m):
                by = ("from", item.told_by.value) if item.told_by is not None else ()
                self.note(m.id, "marker", event.value, *by, "to", role.value, "at", item.dest)
            case StateRows(migration=Migration(id=id)):
                self.note(id, "static state" if item.static else "state", "from", item.whose, "to", item.target)
            case StateRows():
                self.about = None
            case ChunksTaken():
                self.about = None
            case Word(said, rehoming):
                self.note(rehoming.site, said.value, "for", item.dest, "in rehoming", rehoming.number)
            case message:
                rehoming = message.rehoming
                self.note(rehoming.site, type(message).__name__, "for", message.dest, "in rehoming", rehoming.number)

    def of(self, subject: str) -> list[str]:
        """The oldest first."""
        return [" ".join(map(str, event)) for event in self._events.get(subject, ())]

    def explain(self, error: BaseException) -> None:
        if self.about is not None:
            lines = "".join(f"\n  {line}" for line in self.of(self.about)) or "\n  nothing"
            error.add_note(f"what {self.whose} has seen and done about {self.about}, the oldest first:{lines}")


class Trailing(Protocol):
    @property
    def trail(self) -> Trail: ...


M = TypeVar("M", bound=Trailing)


def explained(method: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
    """Of a machine: an error that is its own, or that breaks the protocol, tells what it was about."""

    @wraps(method)
    def telling(machine: M, /, *args: P.args, **kwargs: P.kwargs) -> R:
        machine.trail.about = None
        try:
            return method(machine, *args, **kwargs)
        except (AssertionError, ProtocolError) as error:
            machine.trail.explain(error)
            raise

    return telling
