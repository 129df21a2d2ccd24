"""Simulated devices and the simulated manager: who talks to routers from outside.

A device has its unacknowledged rows on its disk; acknowledgements reach the disk late. The manager journals what
reaches it and then steps; what it hears while it is down is lost.
"""

from collections.abc import Callable, Mapping
from typing import Any

from peregrine.core.manager import Manager, ManagerEvent
from peregrine.core.messages import Attach, FromSource, Single
from peregrine.core.source import Kept, Source
from peregrine.sim.machines import RETRY_MS, Callback, SimRouter
from peregrine.sim.world import World
from peregrine.types import SiteId


class SimSource:
    def __init__(
        self, world: World, source: Source, routers: Mapping[SiteId, SimRouter], latency_ms: float = 2.0
    ) -> None:
        self.machine = source
        self.up = True
        self._world = world
        self._routers = routers
        self._latency_ms = latency_ms
        self._attached = False
        self._tries = 0
        self._disk: list[Kept] = []  # acknowledgements reach the disk late: after a crash some rows are sent again

    def pump(self) -> None:
        if not self.up:
            return
        world = self._world
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
        if not router.up or not router.machine.accepts_rows():
            return  # the source hears nothing and tries again

        def durable() -> None:
            seq = router.machine.acked_source(self.machine.id)
            self._world.after(self._latency_ms, lambda: self._acked(site, seq))

        router.offer(batch, durable)

    def _acked(self, site: SiteId, seq: int) -> None:
        if self.up and site == self.machine.site:
            if self._world.rng.random() < 0.5:
                self._disk = [kept for kept in self._disk if kept[0] > seq]
            self.machine.acked(seq)
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

    def produced(self) -> None:
        self._disk.append(self.machine.kept[-1])
        self.pump()

    def move(self, site: SiteId) -> None:
        if site != self.machine.site:
            self.machine.move(site)
            self._attached = False
            self._tries += 1
            self.pump()

    def crash(self) -> None:
        self.up = False
        self._tries += 1

    def restart(self) -> None:
        self.up = True
        self.machine.recover(self._disk)
        self._attached = False
        self.pump()

    @property
    def idle(self) -> bool:
        return self.up and self.machine.backlog_rows == 0


class SimManager:
    def __init__(self, world: World, make: Callable[[], Manager], perform: Callable[[Any], None]) -> None:
        self.make = make
        self.machine = make()
        self.up = True
        self.journal: list[ManagerEvent] = []
        self._world = world
        self._perform = perform

    def offer(self, event: ManagerEvent) -> bool:
        """Errors of a plan reach the caller and leave no trace in the journal."""
        if not self.up:
            return False
        effects = self.machine.step(event)
        self.journal.append(event)
        for effect in effects:
            self._perform(effect)
        return True

    def crash(self) -> None:
        self.up = False

    def restart(self) -> None:
        self.up = True
        self.machine = self.make()
        for event in self.journal:
            self.machine.step(event)
