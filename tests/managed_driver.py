"""A manager's driver as a deployment has it, on a disk, over routers in memory that do at once what they are told."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from peregrine.control.driver import ManagerDriver
from peregrine.control.durable_manager import DurableManager, Initial
from peregrine.control.running import Running
from peregrine.core.attachments import Attachments
from peregrine.core.keyspace import KeySet
from peregrine.core.manager import Manager
from peregrine.core.messages import Begin, Command, Rehome, Rehomed, Report
from peregrine.core.operator import OpSpec
from peregrine.core.placement import Placement
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.topology import Link, Topology
from peregrine.core.validity import AttachedProducers, Feeds
from peregrine.log.record_log import Fsync
from peregrine.plan.redeploy.planning import planning_of
from peregrine.types import OpId, PlaceId, SiteId

GROUPS = 8
OP, OUT = OpId("app/count"), OpId("app/out")
SPECS = {OP: OpSpec(OP, GROUPS, roaming=True, feeds=(OUT,)), OUT: OpSpec(OUT, GROUPS, sink=True)}
CLOUD, EDGE1, EDGE2 = SiteId("cloud"), SiteId("edge1"), SiteId("edge2")
AT_CLOUD, AT_EDGE1, AT_EDGE2 = PlaceId("cloud"), PlaceId("edge1"), PlaceId("edge2")
KEYS = KeySet.of_keys(GROUPS, ["car0", "car1", "car2"])
LINK = Link(10.0, 100.0)
TOPOLOGY = Topology.tree(CLOUD, {EDGE1: (CLOUD, LINK), EDGE2: (CLOUD, LINK)})


class Router:
    def __init__(self, site: SiteId) -> None:
        self._site = site
        self.deaf = False  # is told again until it is not
        self._told: list[Report | Rehomed] = []
        self._came = threading.Condition()

    def offer(self, command: Command) -> None:
        with self._came:
            if self.deaf:
                return
            if isinstance(command, Begin):
                self._told.append(Report(self._site, command.migration.id, "done"))
            elif isinstance(command, Rehome):
                self._told.append(Rehomed(command.rehoming.site, command.rehoming.number))
            self._came.notify_all()

    def news(self, after: int = 0, wait_s: float = 0.05) -> tuple[int, list[Report | Rehomed]]:
        with self._came:
            self._came.wait_for(lambda: len(self._told) > after, wait_s)
            return len(self._told), self._told[after:]

    def status(self) -> Any:
        return SimpleNamespace(ends={})


class Managed:
    """What readers need of a deployment."""

    def __init__(self, driver: ManagerDriver, durable: DurableManager, clients: Mapping[SiteId, Router]):
        self.driver = driver
        self.clients = clients
        self.specs = SPECS
        self.apart: frozenset[PlaceId] = frozenset()
        self.machine = durable.machine  # for tests that look behind the driver
        self.running = Running(Named(), self, durable.machine.coordinator.placement)  # type: ignore[arg-type]

    @property
    def topology(self) -> Topology:
        return TOPOLOGY

    def progress(self) -> list[Any]:
        return []


class Named:
    """The names of one application."""

    apps = ("app",)
    transforms: Mapping[OpId, Any] = {}

    def operator(self, name: str) -> OpId:
        return OpId(name)

    def keys(self, op: OpId, keys: KeySet) -> KeySet:
        return keys

    def apps_of(self, op: OpId) -> tuple[str, ...]:
        return self.apps


def plan(name: str, *moves: tuple[KeySet, PlaceId, PlaceId]) -> Plan:
    """A stage for each move."""
    return Plan(name, tuple((Move(OP, *move),) for move in moves))


@contextmanager
def managed(directory: Path) -> Iterator[Managed]:
    """All keys are at the cloud."""

    def make(initial: Initial, feeds: Feeds) -> Manager:
        planning = planning_of(TOPOLOGY, SPECS, initial, feeds)
        attachments = Attachments()
        producers = AttachedProducers(feeds, attachments)
        return Manager(Placement(TOPOLOGY, SPECS, initial), SPECS, attachments, producers, planning=planning)

    clients = {site: Router(site) for site in TOPOLOGY.sites}
    durable = DurableManager(directory / "manager", make, Fsync.OFF)
    durable.place(())
    try:
        with ManagerDriver(durable, clients) as driver:  # type: ignore[arg-type]
            yield Managed(driver, durable, clients)
    finally:
        durable.close()
