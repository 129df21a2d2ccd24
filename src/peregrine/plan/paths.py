"""What a mechanism makes a migration wait for, read off its table (core/mechanisms).

The table is played through once, without rows: each primitive that sends something takes the way between two routers,
each that asks a host takes one of its turns (a micro-batch), and state is carried as often as it is sent. The longest
chain of these is the duration, so a new mechanism has a prediction as soon as it has a table.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from peregrine.core.mechanisms.program import (
    Collect,
    Done,
    Drop,
    Halt,
    Hold,
    Mark,
    Mechanism,
    Mute,
    On,
    Release,
    Restore,
    Resume,
    Ripen,
    Snapshot,
    Step,
    Sweep,
    Tell,
)
from peregrine.core.migrate import Role
from peregrine.core.reconfigure import Move
from peregrine.core.topology import Topology
from peregrine.types import SiteId, site_of


@dataclass(frozen=True, slots=True)
class Span:
    """What has to happen one after the other between two moments."""

    link_ms: float = 0.0
    turns: float = 0.0  # of hosts
    whole: float = 0.0  # times that all state of the keys is carried
    changed: float = 0.0  # times that what the target lacks is carried
    windows: float = 0.0  # times that open windows must close first

    def __add__(self, other: "Span") -> "Span":
        return Span(*(a + b for a, b in zip(self.parts(), other.parts(), strict=True)))

    def __sub__(self, other: "Span") -> "Span":
        return Span(*(a - b for a, b in zip(self.parts(), other.parts(), strict=True)))

    def parts(self) -> tuple[float, float, float, float, float]:
        return self.link_ms, self.turns, self.whole, self.changed, self.windows


NOTHING = Span()
TURN = Span(turns=1)
Latency = Callable[[Role, Role], float]


@dataclass(frozen=True, slots=True)
class Path:
    """Of one chunk of keys. `each_group`: it is gone through for one group after the other."""

    duration: Span
    pause: Span  # rows of a key wait, or its outputs do
    each_group: bool = False


@dataclass(slots=True)
class _Playing:
    mechanism: Mechanism
    latency: Latency
    reached: dict[tuple[Role, On], Span] = field(default_factory=dict)
    waits: dict[type[Step], Span] = field(default_factory=dict)  # when what makes rows wait, or ends it, was done
    swept: bool = False
    then: On = On.CAUGHT_UP  # what restored state leads to

    def reach(self, role: Role, event: On, when: Span) -> None:
        """Tables have no circles: an event reaches a role once. Only state may come again, later."""
        if (role, event) in self.reached and event not in (On.STATE, On.COMPLETE):
            return
        self.reached[role, event] = when
        for step in self.mechanism.steps(role, event):
            self._perform(role, step, when)

    def _perform(self, role: Role, step: Step, when: Span) -> None:
        match step:
            case Mark(event, roles):
                for to in sorted(roles, key=lambda each: each is Role.SOURCE):  # what it sends comes behind the marker
                    self._send(role, to, event, when)
            case Tell(to, event):
                self._send(role, to, event, when)
            case Sweep():
                self.swept = True
                self._send(role, Role.SOURCE, On.FETCH, when)
            case Snapshot():
                carried = Span(changed=1) if step.delta and not step.static else Span(whole=1)
                carried = NOTHING if step.beside_windows else carried
                there = when + TURN + carried + self._way(role, step.to)
                if step.static:
                    self.reach(step.to, On.STATIC, there)
                else:
                    self._state_comes(step.to, there)
            case Collect():
                self._state_comes(Role.TARGET, when + Span(whole=1) + self._way(role, Role.TARGET))
            case Restore():
                self.reach(role, self.then, when + TURN)
            case Drop(ack_to):
                self._send(role, ack_to, On.ACK, when + TURN)
            case Ripen():
                self.reach(role, On.RIPE, when + TURN + Span(windows=1))
            case Hold() | Mute() | Release() | Halt() | Resume() | Done():
                if role is Role.TARGET:  # where rows of the keys go
                    self.waits[type(step)] = when
                if isinstance(step, Hold):
                    self.then = step.then
            case _:
                pass  # takes no time

    def _send(self, role: Role, to: Role, event: On, when: Span) -> None:
        self.reach(to, event, when + self._way(role, to))

    def _state_comes(self, role: Role, when: Span) -> None:
        self.reach(role, On.STATE, when)
        self.reach(role, On.COMPLETE, when)

    def _way(self, role: Role, to: Role) -> Span:
        return Span(link_ms=self.latency(role, to))

    def pause(self) -> Span:
        if Halt in self.waits:
            return self.waits[Resume] - self.waits[Halt]
        if Hold in self.waits and Mute not in self.waits:
            return self.waits[Release] - self.waits[Hold]
        if (Role.GATE, On.ACK) not in self.reached:
            return NOTHING
        # What the new place emits comes to the gate after a turn of its own, and waits for the old place's last word.
        emitted = self.reached[Role.TARGET, On.TERMINATE] + TURN + self._way(Role.TARGET, Role.GATE)
        waits = self.reached[Role.GATE, On.ACK] - emitted
        return Span(link_ms=max(waits.link_ms, 0.0), turns=max(waits.turns, 0.0))


def path_of(mechanism: Mechanism, latency: Latency) -> Path:
    playing = _Playing(mechanism, latency)
    playing.reach(Role.ANCHOR, On.BEGIN, NOTHING)
    assert Done in playing.waits, f"the table of {mechanism.name} does not lead to its end"
    return Path(playing.waits[Done], playing.pause(), playing.swept)


def rows_wait(mechanism: Mechanism) -> bool:
    """For the state of their key to travel."""
    pause = path_of(mechanism, lambda role, to: 0.0).pause
    return bool(pause.whole or pause.changed)


@dataclass(frozen=True, slots=True)
class Way:
    """Where the roles of a move are, and what lies between them."""

    topology: Topology
    move: Move

    def latency_ms(self, role: Role, to: Role) -> float:
        return self.topology.latency_ms(self.site(role), self.site(to))

    @property
    def mbps(self) -> float:
        """Of the narrowest link between the two places."""
        sites = self.topology.path(self.site(Role.SOURCE), self.site(Role.TARGET))
        top = self.site(Role.GATE)
        return min((self.topology.link(site).bandwidth_mbps for site in sites if site != top), default=float("inf"))

    def site(self, role: Role) -> SiteId:
        """As core/coordinator.py chooses them."""
        source, target = site_of(self.move.source), site_of(self.move.target)
        match role:
            case Role.SOURCE:
                return source
            case Role.TARGET:
                return target
            case Role.ANCHOR:
                above = self.topology.is_at_or_above(target, source)
                return self.move.anchor or (source if above else target)
            case Role.GATE:
                return self.topology.lca(source, target)
            case Role.STORE:
                return self.topology.root
