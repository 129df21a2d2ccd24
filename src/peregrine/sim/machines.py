"""Simulated processes around the pure machines: what was durable survives a crash, the rest is gone.

A router journals what reaches it and then steps; a host commits its states and its offset together after its router has
accepted the outputs.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from peregrine.core import admission, journal
from peregrine.core.chunks import MemoryChunks
from peregrine.core.gather import bundles
from peregrine.core.host import Output, by_group, work_off
from peregrine.core.large import Sizes, Spill
from peregrine.core.log import MemoryLog
from peregrine.core.messages import (
    Append,
    Committed,
    Deliver,
    Effect,
    Event,
    Fetch,
    HandBack,
    Send,
    Single,
    Together,
)
from peregrine.core.operator import Operator
from peregrine.core.outgoing import outgoing
from peregrine.core.pressure import Hearing, is_told
from peregrine.core.router import Router
from peregrine.core.router_logs import Session, recover
from peregrine.core.rows import length
from peregrine.errors import PeregrineError, Unreachable
from peregrine.sim.fetching import SimFetch
from peregrine.sim.network import SimLink
from peregrine.sim.out_log import MemoryOut
from peregrine.sim.store import SimStore
from peregrine.sim.world import World
from peregrine.types import OpId, PlaceId, SiteId

Callback = Callable[[], None]
Refused = Callable[[PeregrineError], None]
RETRY_MS = 150.0
PRESSURE_HOLDS_S = 0.3  # everything is quicker here


class Observer(Protocol):
    """Sees every effect of a router once, in the order in which they are performed."""

    def on_effect(self, site: SiteId, effect: Effect) -> None: ...


class SimRouter:
    def __init__(
        self, world: World, make: Callable[[], Router], observer: Observer, chance: random.Random | None = None
    ) -> None:
        """`chance`: of its snapshots and of what its logs lose."""
        self.make = make
        self.machine = make()
        self.site = self.machine.site
        self.up = True
        self.links: dict[SiteId, SimLink] = {}  # to each neighbour, in its newest session
        self.sessions: dict[Session, SimLink] = {}  # all that there ever were
        self.connect: Callable[[SiteId, SiteId, int, MemoryOut | None], SimLink] | None = None
        self.hosts: dict[PlaceId, SimHost] = {}
        self.sites: Mapping[SiteId, SimRouter] = {}  # all of them: whom chunks are fetched from
        self.chunks = MemoryChunks()
        ways = self.machine.ways
        neighbours = [site for site, by in ways.below.items() if site == by]
        neighbours += [] if ways.parent is None else [ways.parent]
        self.store = SimStore(self.site, neighbours, self.hosts, chance)
        self._world = world
        self._observer = observer
        self._pressure = Hearing(self.machine, PRESSURE_HOLDS_S)
        self._inbox: list[tuple[Single, Callback | None, Refused | None]] = []
        self._syncing = False
        self._epoch = 0
        self._performed = 0  # events of the journal whose effects were performed
        self.doomed: Callback | None = None  # dies as soon as there is something to lose

    @property
    def journal(self) -> list[bytes]:
        """From the beginning."""
        return self.store.journal

    @property
    def results(self) -> list[Deliver]:
        return [delivered for _, delivered in self.store.results.read(0)]

    def offer(self, event: Single, durable: Callback | None = None, refused: Refused | None = None) -> bool:
        """Hand over an event; `durable` is called once it is in the journal. False: nobody is listening.

        Who never offers what is refused says nothing about it: it is a finding.
        """
        if not self.up:
            return False
        self._inbox.append((event, durable, refused))
        if self.doomed is not None:
            self._world.after(0.0, self.doomed)
            self.doomed = None
        if not self._syncing:
            self._syncing = True
            epoch = self._epoch
            self._world.after(self._world.rng.uniform(0.05, 1.5), lambda: self._sync(epoch))
        return True

    def acked_link(self, neighbour: SiteId, session: int | None = None) -> int:
        return self.machine.acked_link(neighbour, session)

    def _sync(self, epoch: int) -> None:
        if epoch != self._epoch:
            return
        self._syncing = False
        admitted = self._admitted()
        events = _bundled(event for event, _ in admitted)
        self.store.write(map(journal.encode, events))
        for event in events:
            for effect in self._step(self.machine, event):
                self._follow(effect)
        for _, durable in admitted:
            if durable is not None:
                durable()
        if self.store.is_time():
            self.store.snapshot(self.machine, self._acked())

    def _admitted(self) -> list[tuple[Single, Callback | None]]:
        """Of what waits; the others are told."""
        inbox, self._inbox = self._inbox, []
        admitted = []
        for event, durable, refused in inbox:
            try:
                admission.admit(self.machine, event)
            except PeregrineError as error:
                if refused is None:
                    raise
                refused(error)
            else:
                admitted.append((event, durable))
        return admitted

    # --- what neighbours ask and tell ---

    def has_seq(self, neighbour: SiteId, session: int) -> int:
        self._check_up()
        return admission.has_seq(self.machine, neighbour, session)

    def _check_up(self) -> None:
        if not self.up:
            raise Unreachable(f"router {self.site} is down", "wait")

    def hear_pressure(self, pressed: bool) -> None:
        self._check_up()
        self._pressure.hear(pressed, self._world.now_ms / 1000)

    def tell_pressure(self) -> None:
        """To the children, and what was heard of the parent may be over."""
        if self.up:
            self._pressure.review(self._world.now_ms / 1000)
            for link in [link for neighbour, link in self.links.items() if is_told(self.machine.ways, neighbour)]:
                link.tell_pressure(lambda: not self.machine.accepts_rows())

    # --- steps ---

    def _step(self, machine: Router, event: Event) -> list[Effect]:
        """Step through what has been journaled, and perform what follows from it."""
        effects = machine.step(event)
        machine.check()
        self._performed += 1
        for effect in effects:
            self._perform(effect)
            self._observer.on_effect(self.site, effect)
        return effects

    def _perform(self, effect: Effect) -> None:
        self.store.perform(effect)
        match effect:
            case Append(place):
                self.hosts[place].wake()
            case Send(neighbour, session=session):
                self.link(neighbour, session).pump()
            case HandBack():
                self._end_links()

    def _follow(self, effect: Effect) -> None:
        """What ends with this life, and is begun again in the next."""
        match effect:
            case HandBack():
                machine = self.machine
                self._world.after(0.0, lambda: self._hand_back(effect, machine))
            case Fetch():
                self._world.after(0.0, SimFetch(self._world, self, self.sites, effect).go_on)

    def _end_links(self) -> None:
        for session in self.store.ended:
            if session in self.sessions:
                self.sessions[session].end()

    def _acked(self) -> dict[Session, int]:
        return {session: link.sender.acked_seq for session, link in self.sessions.items()}

    def link(self, neighbour: SiteId, session: int) -> SimLink:
        """A link is opened when the first item goes over it."""
        link = self.sessions.get((neighbour, session))
        if link is None:
            assert self.connect is not None
            out = self.store.out((neighbour, session))
            link = self.sessions[neighbour, session] = self.connect(self.site, neighbour, session, out)
            if neighbour not in self.links or self.links[neighbour].session < session:
                self.links[neighbour] = link
            self._end_links()
        return link

    def _hand_back(self, wanted: HandBack, machine: Router) -> None:
        if self.up and self.machine is machine and wanted in machine.hand_backs():
            acked_seq = self._acked().get((wanted.neighbour, wanted.session), -1)
            self.offer(self.store.handed_back(wanted, acked_seq))

    def crash(self) -> None:
        """Dies before, while or after it writes its journal, or in the middle of performing effects.

        What was journaled is performed after the restart; the rest of the inbox is lost.
        """
        rng = self._world.rng
        if self._inbox and rng.random() < 0.5 and (admitted := self._admitted()):
            events = _bundled(event for event, _ in admitted)
            self.store.write(map(journal.encode, events[: rng.randint(1, len(events))]))
            effects = self.machine.step(events[0])
            for effect in effects[: rng.randint(0, len(effects))]:
                self._perform(effect)
        else:
            self.store.die_at_snapshot(self.machine, self._acked())
        self.up = False
        self._epoch += 1
        self._syncing = False
        self._inbox.clear()

    def restart(self) -> None:
        """As net/stepper.py: a snapshot, if there is one yet, and the journal behind it."""
        self.up = True
        self.store.lose()
        self.machine = recover(self.store, self.make, self._replay)
        if not self.store.has_snapshot:  # no restart goes by without the form in which a snapshot has a machine
            codec = self.store.codec
            self.machine = codec.decode(codec.encode(self.machine))
        self._pressure = Hearing(self.machine, PRESSURE_HOLDS_S)
        for session, link in self.sessions.items():
            link.restart(self.store.out(session))
        wanted: list[Effect] = [*self.machine.hand_backs(), *self.machine.fetches()]
        for effect in wanted:
            self._follow(effect)
        for host in self.hosts.values():
            host.wake()

    def _replay(self, machine: Router, at: int, raw: bytes) -> None:
        event = journal.decode(raw)
        if at >= self._performed:
            self._step(machine, event)
        else:
            for effect in machine.step(event):
                self._perform(effect)

    @property
    def idle(self) -> bool:
        if self.machine.fetches() or self.machine.hand_backs():
            return False
        return self.up and not self._inbox and all(link.sender.waiting_items == 0 for link in self.links.values())


def _bundled(events: Iterable[Single]) -> list[Event]:
    """As a router process does it (net/stepper.py)."""
    return [run[0] if len(run) == 1 else Together(tuple(run)) for run in bundles(events, lambda event: event)]


class SimHost:
    def __init__(
        self,
        world: World,
        place: PlaceId,
        router: SimRouter,
        operators: Mapping[OpId, Operator],
        groups: Mapping[OpId, int],
        chunk_bytes: int,
        sizes: Sizes,
    ) -> None:
        self.place = place
        self.log = MemoryLog()
        self.committed = 0
        self.states: dict[tuple[OpId, int], bytes] = {}
        self.up = True
        self.slowness = 1.0
        self.world = world
        self.router = router
        self.operators = operators
        self.groups = groups
        self.chunk_bytes = chunk_bytes
        self.sizes = sizes
        self.references: dict[tuple[OpId, int], set[bytes]] = {}  # chunks that states need, as written down
        self._busy = False
        self._epoch = 0
        self._told = 0  # the last commit that the router has durably heard of
        self.doomed: Callback | None = None  # dies between handing over and committing

    @property
    def chunks(self) -> MemoryChunks:
        return self.router.chunks

    def wake(self) -> None:
        if self.up and not self._busy and self.log.end > self.committed:
            self._busy = True
            epoch = self._epoch
            self.world.after(self.world.rng.uniform(1.0, 25.0) * self.slowness, lambda: self._batch(epoch))

    def _batch(self, epoch: int) -> None:
        """A micro-batch of random length: apply, hand the outputs over, then commit state and offset together."""
        if epoch != self._epoch:
            return
        rng = self.world.rng
        assert self.log.first <= self.committed, f"what {self.place} has to read is cut off"
        entries = self.log.read(self.committed, rng.choice((1, 8, 64, 1000)))
        last, entry = entries[-1]
        end = last + length(entry)
        parts = list(by_group(entries, self.groups).items())
        rng.shuffle(parts)
        states: dict[tuple[OpId, int], bytes] = {}
        of_groups: dict[OpId, list[tuple[int, list[Output]]]] = {}
        for (op, group), part in parts:
            before = self.states.get((op, group), b"")
            spill = Spill(self.chunks, self.sizes)
            outputs, states[op, group] = work_off(self.operators[op], before, part, self.chunk_bytes, spill)
            self.write_down(op, group, spill)
            of_groups.setdefault(op, []).append((group, outputs))
        handovers = [event for op, mine in of_groups.items() for event in outgoing(self.place, op, mine)]
        waiting = set(range(len(handovers)))

        def accepted(i: int) -> None:
            waiting.discard(i)
            if self.doomed is not None and handovers:
                self.world.after(0.0, self.doomed)
                self.doomed = None
            if not waiting:
                self.world.after(rng.uniform(0.5, 5.0) * self.slowness, lambda: self._commit(epoch, states, end))

        def hand_over() -> bool:
            if epoch != self._epoch or not waiting:
                return False
            for i in sorted(waiting):
                self.router.offer(handovers[i], lambda i=i: accepted(i) if i in waiting else None)  # type: ignore[misc]
            return True

        if not handovers:
            accepted(0)
        elif hand_over():
            self.world.every(RETRY_MS, hand_over)

    def write_down(self, op: OpId, group: int, spill: Spill) -> None:
        """Durable at once: before anything of the batch leaves this host."""
        self.references[op, group] = spill.needed

    def _commit(self, epoch: int, states: dict[tuple[OpId, int], bytes], end: int) -> None:
        if epoch != self._epoch or self.committed >= end:
            return
        self.states.update(states)
        self.committed = end
        self._busy = False
        self.tell_commit()
        self.wake()

    def tell_commit(self) -> None:
        offset = self.committed

        def told() -> None:
            self._told = max(self._told, offset)

        if self._told < offset:
            self.router.offer(Committed(self.place, offset), told)

    def crash(self) -> None:
        self.up = False
        self._busy = False
        self._epoch += 1

    def restart(self) -> None:
        self.up = True
        self.wake()

    @property
    def idle(self) -> bool:
        return self.up and self.committed == self.log.end and self._told == self.committed
