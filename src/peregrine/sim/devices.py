"""Simulated devices and the simulated manager: who talks to routers from outside.

Both restart from what they keep: a snapshot, if there is one, and the records of their journal behind it. A device's
journal is synced before anything is sent, and a crash may take what was written since. What the manager hears while it
is down is lost.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from peregrine.core import snapshot
from peregrine.core.device_record import Acked, Beat, Moved, Read, Record, encode, recover, step
from peregrine.core.manager import Manager, ManagerEffect, ManagerEvent
from peregrine.core.messages import Attach, FromSource, Single
from peregrine.core.rows import Clock
from peregrine.core.source import Reading, Source
from peregrine.errors import Busy, PeregrineError
from peregrine.plan import manager_books
from peregrine.plan.manager_books import Books, Make, Recorded
from peregrine.sim.machines import RETRY_MS, Callback, SimRouter
from peregrine.sim.store import Codec
from peregrine.sim.world import World
from peregrine.types import SiteId

SNAPSHOTS = 0.05  # how often one follows an acknowledgement, or an event of the manager
BACK_OFF_MS = 50.0  # of a device that was told that a router takes no rows now


class SimSource:
    """With whoever gives it readings, and gives again what it lacks when it is back (net/device.py, `Device.taken`)."""

    def __init__(
        self,
        world: World,
        make: Callable[[], Source],
        routers: Mapping[SiteId, SimRouter],
        latency_ms: float = 2.0,
        chance: random.Random | None = None,
    ) -> None:
        """`chance`: of its snapshots and of what a crash takes from its journal."""
        self.machine = make()
        self.up = True
        self._make = make
        self._world = world
        self._routers = routers
        self._latency_ms = latency_ms
        self.chance = chance
        self._given: list[Read | Beat] = []
        self._site = self.machine.site  # where it is driven
        self._attached = False
        self._tries = 0
        self.put_off = 0  # batches, by routers that were pressed
        self._snapshot: bytes | None = None
        self._journal: list[bytes] = []
        self._synced = 0

    def pump(self) -> None:
        if not self.up:
            return
        world = self._world
        self._synced = len(self._journal)  # before anything is sent
        if not self._attached:
            self._attached = True
            site = self.machine.site
            self._send(site, Attach(self.machine.id, self.machine.moves), lambda: None, lambda: self._reattach(site))
        batch = self.machine.batch()
        if batch is None:
            return
        self._tries += 1
        site, tries = self.machine.site, self._tries
        world.after(self._latency_ms * world.rng.uniform(1, 3), lambda: self._arrive(site, batch, tries))
        world.after(RETRY_MS, lambda: self._timeout(tries))

    def _arrive(self, site: SiteId, batch: FromSource, tries: int) -> None:
        router = self._routers[site]

        def durable() -> None:
            seq = router.machine.acked_source(self.machine.id)
            self._world.after(self._latency_ms, lambda: self._acked(site, seq))

        router.offer(batch, durable, lambda error: self._refused(error, tries))

    def _refused(self, error: PeregrineError, tries: int) -> None:
        if not isinstance(error, Busy):
            raise error
        self.put_off += 1
        self._world.after(self._latency_ms + BACK_OFF_MS, lambda: self._timeout(tries))

    def _acked(self, site: SiteId, seq: int) -> None:
        if self.up and site == self.machine.site:
            self._take(Acked(seq))
            if self.chance is not None and self.chance.random() < SNAPSHOTS:
                self._snapshot = snapshot.encode(self.machine)
                self._journal.clear()
            self.pump()

    def _timeout(self, tries: int) -> None:
        if self.up and tries == self._tries:
            self.machine.lost()
            self.pump()

    def _send(self, site: SiteId, event: Single, durable: Callback, failed: Callback) -> None:
        done = [False]

        def arrived() -> None:
            done[0] = True
            durable()

        self._world.after(self._latency_ms, lambda: self._routers[site].offer(event, arrived))
        self._world.after(RETRY_MS, lambda: None if done[0] else failed())

    def _reattach(self, site: SiteId) -> None:
        if site == self.machine.site:
            self._attached = False
            self.pump()

    def give(self, what: Reading | Clock) -> None:
        record = Read(what) if isinstance(what, Reading) else Beat(what.op, what.keys.groups, what.time_ms)
        self._given.append(record)
        if self.up:
            self._take(record)
            self.pump()

    def move(self, site: SiteId) -> None:
        self._site = site
        if self.up and site != self.machine.site:
            self._take(Moved(site))
            self._attached = False
            self._tries += 1
            self.pump()

    def _take(self, record: Record) -> None:
        self._journal.append(encode(record))
        step(self.machine, record)

    def crash(self) -> None:
        self.up = False
        self._tries += 1
        if self.chance is not None:
            del self._journal[self.chance.randint(self._synced, len(self._journal)) :]

    def restart(self) -> None:
        self.up = True
        kept = snapshot.decode(self._snapshot or snapshot.encode(self._make()))
        self.machine = recover(kept, self._journal)
        self._attached = False
        for record in self._given[self.machine.next_seq :]:
            self._take(record)
        self.move(self._site)
        self.pump()

    @property
    def idle(self) -> bool:
        return self.up and self.machine.backlog_rows == 0 and self.machine.site == self._site


class SimManager:
    codec: Codec = snapshot

    def __init__(
        self,
        world: World,
        make: Make,
        perform: Callable[[Any], None],
        founding: Iterable[Recorded],
        chance: random.Random | None = None,
    ) -> None:
        """`founding`: what it is told before anything happens. `chance`: of its snapshots."""
        self.books = Books()
        self.up = True
        self._make = make
        self._world = world
        self._perform = perform
        self.chance = chance
        self._snapshot: bytes | None = None
        self._journal: list[bytes] = []
        for record in founding:
            self._take(record)

    @property
    def machine(self) -> Manager:
        return self.books.placed

    def offer(self, event: ManagerEvent) -> bool:
        """Errors of a plan reach the caller."""
        if not self.up:
            return False
        if self.books.is_news(event):
            for effect in self._take(event):
                self._perform(effect)
            if self.chance is not None and self.chance.random() < SNAPSHOTS:
                self._snapshot = self.codec.encode(self.books)
                self._journal.clear()
        return True

    def _take(self, record: Recorded) -> list[ManagerEffect]:
        self._journal.append(manager_books.encode(record))
        return self.books.apply(record, self._make)

    def crash(self) -> None:
        self.up = False

    def restart(self) -> None:
        self.up = True
        kept = self.codec.decode(self._snapshot) if self._snapshot is not None else Books()
        self.books = manager_books.recover(kept, self._journal, self._make)
        if self._snapshot is None:  # no restart goes by without the form that it has in a snapshot
            self.books = self.codec.decode(self.codec.encode(self.books))
