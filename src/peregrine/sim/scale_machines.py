"""The machines of a run at scale: the pure core in a world in which nothing fails.

As `sim/machines.py`, less what only a crash or a broken link needs: no journal is kept and nobody sends again. What
reaches a router within one write of its journal is stepped through at once, and its links are filled once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from peregrine.core.host import apply, by_group
from peregrine.core.intake import RouterConfig
from peregrine.core.log import MemoryLog
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.messages import Append, Attach, Committed, Effect, Event, FromHost, FromSource, Send, Tick
from peregrine.core.operator import Marks, Operator, OpSpec, Out
from peregrine.core.router import Router
from peregrine.core.rows import Row, length
from peregrine.core.source import Reading, Source
from peregrine.core.topology import Topology
from peregrine.sim.network import SimLink
from peregrine.sim.scale_report import Audit
from peregrine.sim.world import World
from peregrine.types import OpId, SiteId, SourceId

TRACK, RESULTS = OpId("roam/track"), OpId("roam/results")
GROUPS = 4  # of TRACK: an edge has about a hundred keys, and a group is what its host commits
DEVICE_LATENCY_MS = 2.0
HOST_BATCH_ROWS = 1000
STILL_EVERY_MS = 1000  # one batch of a source that stays, with a part of its keys in turn
ROUND_BATCHES = 4  # so many batches, and each of its keys has had a row
MOBILE_EVERY_MS = 200  # one batch of a source that roams, with a row for each of its keys


@dataclass(frozen=True)
class Count:
    """How many rows a key has had. Every row gives a result under its own name, so that each can be missed."""

    to: OpId

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        count = (value or 0) + 1
        return count, [Out(self.to, key, row.source, row.seq, row.time_ms, b"%d" % count)]

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        return value, []

    def open_ends(self, value: Any) -> list[int]:
        return []


SPECS = {
    TRACK: OpSpec(TRACK, GROUPS, roaming=True, feeds=(RESULTS,)),
    RESULTS: OpSpec(RESULTS, 1, sink=True),
}
OPERATORS: dict[OpId, Operator] = {TRACK: Count(RESULTS)}
GROUPS_OF = {op: spec.groups for op, spec in SPECS.items()}


class SimSite:
    """A router and the host of its site, in a world in which neither ever fails."""

    def __init__(
        self, world: World, site: SiteId, topology: Topology, observe: Callable[[SiteId, Effect], None]
    ) -> None:
        self.site = site
        self.up = True
        self.machine = Router(RouterConfig(site, topology, SPECS, MECHANISMS))
        self.links: dict[SiteId, SimLink] = {}
        self.states: dict[tuple[OpId, int], bytes] = {}
        self._place = topology.main_place(site)
        self._log = MemoryLog()
        self._committed = 0
        self._busy = False
        self._world = world
        self._observe = observe
        self._inbox: list[tuple[Event, Callable[[], None] | None]] = []

    def acked_link(self, neighbour: SiteId, session: int | None = None) -> int:
        return self.machine.acked_link(neighbour, session)

    def has_seq(self, neighbour: SiteId, session: int) -> int:
        return self.machine.acked_link(neighbour, session)

    def hear_pressure(self, pressed: bool) -> None:
        raise AssertionError("nobody is pressed here")

    def offer(self, event: Event, durable: Callable[[], None] | None = None, refused: object = None) -> bool:
        """What comes within one write of the journal is stepped through together."""
        if not self._inbox:
            self._world.after(self._world.rng.uniform(0.05, 1.5), self._sync)
        self._inbox.append((event, durable))
        return True

    def tell(self, command: Event) -> None:
        self.offer(command)

    def tick(self, now: Tick) -> None:
        self._perform(self.machine.step(now))

    def _sync(self) -> None:
        inbox, self._inbox = self._inbox, []
        effects: list[Effect] = []
        for event, _ in inbox:
            effects += self.machine.step(event)
        self._perform(effects)
        for _, durable in inbox:
            if durable is not None:
                durable()

    def _perform(self, effects: list[Effect]) -> None:
        full: dict[SiteId, SimLink] = {}
        for effect in effects:
            if isinstance(effect, Send):
                link = full[effect.neighbour] = self.links[effect.neighbour]
                link.out.append(effect.seq, effect.item)
            elif isinstance(effect, Append):
                self._log.append(effect.offset, effect.entry)
            else:
                self._observe(self.site, effect)
        for link in full.values():
            link.pump()
        self._wake()

    def _wake(self) -> None:
        if not self._busy and self._log.end > self._committed:
            self._busy = True
            self._world.after(self._world.rng.uniform(1.0, 10.0), self._batch)

    def _batch(self) -> None:
        """A micro-batch: apply, hand the outputs over, and when the router has them commit states and offset."""
        entries = self._log.read(self._committed, HOST_BATCH_ROWS)
        end = entries[-1][0] + length(entries[-1][1])
        states: dict[tuple[OpId, int], bytes] = {}
        handovers: list[FromHost] = []
        for (op, group), part in by_group(entries, GROUPS_OF).items():
            emissions, states[op, group] = apply(OPERATORS[op], self.states.get((op, group), b""), part)
            if emissions:
                handovers.append(FromHost(self._place, op, group, tuple(emissions)))
        for handover in handovers[:-1]:
            self.offer(handover)
        commit = partial(self._world.after, self._world.rng.uniform(0.5, 3.0), partial(self._commit, states, end))
        if handovers:
            self.offer(handovers[-1], commit)
        else:
            commit()

    def _commit(self, states: dict[tuple[OpId, int], bytes], end: int) -> None:
        self.states.update(states)
        self._committed = end
        self._log.truncate(end)
        self._busy = False
        self.offer(Committed(self._place, end))
        self._wake()

    def unfinished(self) -> list[str]:
        found = self.machine.leftovers()
        if self._inbox or self._busy:
            found.append("has work")
        found += [f"items for {far}" for far, link in self.links.items() if link.sender.waiting_items]
        return found


@dataclass(frozen=True, slots=True)
class Device:
    """A source: where it is at first, its keys, and when it drives where."""

    id: SourceId
    site: SiteId
    keys: tuple[str, ...]
    mobile: bool = False
    moves: tuple[tuple[float, SiteId], ...] = ()


class SimDevice:
    """A device that is never lost, only now and then elsewhere."""

    def __init__(self, world: World, device: Device, sites: Mapping[SiteId, SimSite], audit: Audit) -> None:
        self.device = device
        self.machine = Source(device.id, device.site, roaming=device.mobile)
        self.every_ms = MOBILE_EVERY_MS if device.mobile else STILL_EVERY_MS
        self._world = world
        self._sites = sites
        self._audit = audit
        self._attached = False
        self._batches = 0

    def produce(self, now_ms: int) -> None:
        for key in self._turn():
            self.machine.produce(Reading(TRACK, key, now_ms, now_ms, b"%d" % self._batches))
            self._audit.produced(key, self.device.id, self.machine.kept[-1][0])
        self._batches += 1
        self._pump()

    def _turn(self) -> Sequence[str]:
        """The keys of the next batch: all of a source that roams, the next part of one that stays."""
        if self.device.mobile:
            return self.device.keys
        return self.device.keys[self._batches % ROUND_BATCHES :: ROUND_BATCHES]

    def move(self, site: SiteId) -> None:
        """What is on its way arrives at the old site all the same, and is sent to the new one too."""
        self.machine.move(site)
        self._attached = False
        self._pump()

    def _pump(self) -> None:
        site, world = self._sites[self.machine.site], self._world
        if not self._attached:
            self._attached = True
            world.after(DEVICE_LATENCY_MS, partial(site.tell, Attach(self.device.id, self.machine.moves)))
        batch = self.machine.batch()
        if batch is not None:
            world.after(DEVICE_LATENCY_MS * world.rng.uniform(1, 3), partial(self._arrive, site, batch))

    def _arrive(self, site: SimSite, batch: FromSource) -> None:
        assert site.machine.accepts_rows(), f"{site.site} is overloaded"
        site.offer(batch, lambda: self._world.after(DEVICE_LATENCY_MS, partial(self._acked, site)))

    def _acked(self, site: SimSite) -> None:
        if site.site == self.machine.site:
            self.machine.acked(site.machine.acked_source(self.device.id))
            self._pump()
