"""A guide process, real routers along a road that register at it, and a manager that lets keys follow devices."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from real_sites import Cluster

from peregrine.control.driver import ManagerDriver
from peregrine.control.durable_manager import DurableManager, Initial
from peregrine.core.attachments import Attachments
from peregrine.core.manager import Manager
from peregrine.core.placement import Placement
from peregrine.core.validity import AttachedProducers, Feeds
from peregrine.log.record_log import Fsync
from peregrine.net.guide_client import GuideClient
from peregrine.net.guide_settings import GuideSettings
from peregrine.net.launch import GuideProcess
from peregrine.net.settings import make_token
from peregrine.plan.nearest import Geometry, Position
from peregrine.types import SiteId

CLOUD = SiteId("cloud")
EDGES = tuple(SiteId(f"edge{i}") for i in range(1, 5))
SPACING_M = 100.0
MARGIN_M = 10.0


def at(edge: SiteId) -> Position:
    return SPACING_M * EDGES.index(edge), 0.0


class Road:
    """The guide listens before there are routers: they are told where. With a lease of a minute nothing ends in a test
    that does not want it to.
    """

    def __init__(self, directory: Path, start: Callable[..., Cluster], lease_s: float = 60.0) -> None:
        self._directory = directory
        self._start = start
        self.token_file = directory / "road-token"
        self.token = make_token(self.token_file)
        self._settings = GuideSettings(str(self.token_file), 0, Geometry.PLANE, MARGIN_M, lease_s)
        self.guide = self._guide()
        self._settings = replace(self._settings, port=self.guide.port)

    def _guide(self) -> GuideProcess:
        return GuideProcess(self._settings, self._directory / "guide.json", self._directory / "guide.log")

    def client(self) -> GuideClient:
        return self.guide.client()

    def routers(self, edges: tuple[SiteId, ...] = EDGES, **more: Any) -> Cluster:
        def each(site: SiteId) -> dict[str, Any]:
            return {} if site == CLOUD else {"guide": self.guide.address, "position": at(site), "reach_m": 80.0}

        return self._start(CLOUD, *edges, each=each, token_file=self.token_file, **more)

    def restart(self) -> None:
        """At the same port, with nothing in its memory."""
        self.guide = self._guide()

    def registered(self) -> list[SiteId]:
        with self.client() as client:
            return sorted(router.site for router in client.routers())

    def close(self) -> None:
        if self.guide.alive:
            self.guide.kill()


@contextmanager
def managed(cluster: Cluster, feeds: Feeds, dwell_ms: int = 50) -> Iterator[ManagerDriver]:
    """The manager of a deployment, on the routers that there are."""

    def make(initial: Initial, fed: Feeds) -> Manager:
        attachments = Attachments()
        specs = {spec.op: spec for spec in cluster.routers[CLOUD].settings.operators}
        placement = Placement(cluster.topology, specs, initial)
        return Manager(placement, specs, attachments, AttachedProducers(fed, attachments), dwell_ms=dwell_ms)

    durable = DurableManager(cluster.directory / "manager", make, Fsync.OFF)
    durable.place(())
    for source, fed in feeds.items():
        durable.feed(source, fed)
    with ManagerDriver(durable, cluster.clients) as driver:
        yield driver
    durable.close()
