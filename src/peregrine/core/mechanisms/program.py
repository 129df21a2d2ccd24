"""The words in which a mechanism is written.

A mechanism is a table: when *this event* reaches a router in *this role*, it performs *these primitives* in this order.
Stream management (copy, switch, defer, hold, mute, gate, halt) is done by routers; state management (snapshot, restore,
drop) is asked of hosts by control rows at an exact position of their log. Nothing here does anything:
`core/primitives.py` performs the primitives, and the documents are generated from the same tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from peregrine.core.migrate import Role


class On(StrEnum):
    """What can reach a role. The first group travels in markers; the second is noticed by the router itself."""

    BEGIN = "begin"  # anchor: the manager asks for the migration
    PREPARE = "prepare"  # marker P: ship state ahead of time
    RECONFIG = "reconfig"  # marker R (Falcon III-E phase 2)
    READY = "ready"  # anchor: the target could take over
    TERMINATE = "terminate"  # marker T (Falcon III-E phase 4)
    FETCH = "fetch"  # source: the target wants these keys now (Meces)
    FINISH = "finish"  # source: the target has everything
    ACK = "ack"  # gate, target: the source has processed T (Falcon III-E phase 6)
    RIPE = "ripe"  # source: every window that was open at R is closed
    HANDOVER = "handover"  # marker H: the windows of source and target are the same, what is beside them not yet
    ABORT = "abort"  # marker X, and the three below: only the engine uses them
    FLUSH = "flush"
    FLUSHED = "flushed"
    UNDONE = "undone"

    STATE = "state"  # target or store: the state of some keys arrived
    STATIC = "static"  # target: state that was shipped ahead arrived whole
    COMPLETE = "complete"  # target or store: the state of all of K arrived
    CAUGHT_UP = "caught-up"  # target: and its host has worked off what was held
    EQUAL = "equal"  # target: caught up with what came at H


class Step:
    """One primitive of a program."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Copy(Step):
    """Anchor: rows of K go to S and to D, in one order (dual routing)."""


@dataclass(frozen=True, slots=True)
class Switch(Step):
    """Anchor: rows of K go to D alone from here on. After it there is no way back."""


@dataclass(frozen=True, slots=True)
class Mark(Step):
    """Anchor: a marker down the path of each role, behind the rows that went before."""

    event: On
    roles: tuple[Role, ...] = (Role.SOURCE, Role.TARGET)


@dataclass(frozen=True, slots=True)
class Tell(Step):
    """Send an event to the router of a role, in band."""

    role: Role
    event: On


@dataclass(frozen=True, slots=True)
class Defer(Step):
    """Source: rows of K that did not come through the anchor go there first, so that there is one order."""


@dataclass(frozen=True, slots=True)
class Snapshot(Step):
    """Source: the host emits the state of K at this position of its log, addressed to `to`."""

    drop: bool = False  # and forgets it
    delta: bool = False  # only what the target does not have yet
    static: bool = False  # the target keeps it as a replica instead of restoring it
    shed: bool = False  # keys below the declared utility lose their value
    beside_windows: bool = False  # only what is beside the windows: counters, how far time has come
    to: Role = Role.TARGET


@dataclass(frozen=True, slots=True)
class Ripen(Step):
    """Source: ask the host, until it says so, whether all windows that are open now have closed."""


@dataclass(frozen=True, slots=True)
class Drop(Step):
    """Source: the host forgets K at this position of its log and acknowledges in band, behind its last outputs."""

    ack_to: Role = Role.GATE


@dataclass(frozen=True, slots=True)
class Own(Step):
    """Target: rows of K that arrive by the ordinary rules belong to this migration now."""


@dataclass(frozen=True, slots=True)
class Hold(Step):
    """Target: rows of keys whose state is missing wait; with `fetch`, the first of them asks for its key's state."""

    fetch: bool = False
    then: On = On.CAUGHT_UP  # happens when the state has come and the target's host has worked off what waited


@dataclass(frozen=True, slots=True)
class Sweep(Step):
    """Target: fetch what nobody asked for, one group after the other."""


@dataclass(frozen=True, slots=True)
class Restore(Step):
    """Target: the state that arrived enters the host's log."""

    beside_windows: bool = False  # the target keeps its own windows


@dataclass(frozen=True, slots=True)
class Release(Step):
    """Target: held rows whose state has been restored follow it."""


@dataclass(frozen=True, slots=True)
class Mute(Step):
    """Target: rows of K are applied but emit nothing (Falcon's emission filter)."""


@dataclass(frozen=True, slots=True)
class Unmute(Step):
    """Target: rows of K emit from here on."""


@dataclass(frozen=True, slots=True)
class Gate(Step):
    """Target: what rows of K emit from here on must pass the gate."""


@dataclass(frozen=True, slots=True)
class Close(Step):
    """Gate: what must pass the gate waits here."""


@dataclass(frozen=True, slots=True)
class Open(Step):
    """Gate: what waited goes first, and what comes later just passes."""


@dataclass(frozen=True, slots=True)
class Halt(Step):
    """Source or target: nothing enters the place's log, whatever its key."""


@dataclass(frozen=True, slots=True)
class Resume(Step):
    """Source or target: what waited at the halted place follows in order."""


@dataclass(frozen=True, slots=True)
class Collect(Step):
    """Store: all donated state goes on to the target."""


@dataclass(frozen=True, slots=True)
class Done(Step):
    """Target: the migration is over; K lives here."""


class Track(StrEnum):
    """Are rows processed at one host or, for a while, at both (survey III-A)?"""

    SINGLE = "single-track"
    PARALLEL = "parallel-track"


class Movement(StrEnum):
    """How the state comes to the new host (survey III-A, figures 4 and 5)."""

    NONE = "no state moved"
    ALL_AT_ONCE = "all at once"
    PARTIAL = "partial"


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A program and its place in the survey's taxonomy."""

    name: str
    survey: str  # the survey's name, and a system that does so or in what it differs from one
    track: Track
    movement: Movement
    direct: bool  # state goes from host to host, or by way of a store
    checkpoint_assisted: bool
    summary: str
    program: Mapping[tuple[Role, On], tuple[Step, ...]] = field(repr=False)
    needs: frozenset[str] = frozenset()  # of an operator: "stateless", "windowed", "static sources"
    ordered: bool = True  # outputs per key keep their order
    lossless: bool = True
    alone: bool = False  # no other migration may touch its places meanwhile
    chunked: bool = False  # meant to run chunk after chunk of K

    def steps(self, role: Role, event: On) -> tuple[Step, ...]:
        return self.program.get((role, event), ())

    @property
    def last_at_source(self) -> On:
        """The event after which the old place has nothing more to do."""
        for event in (On.TERMINATE, On.FINISH):
            if (Role.SOURCE, event) in self.program:
                return event
        return On.RECONFIG

    @property
    def abortable(self) -> bool:
        """There is a time between begin and switch in which S has not noticed anything."""
        return not any(isinstance(step, Switch) for step in self.steps(Role.ANCHOR, On.BEGIN))
