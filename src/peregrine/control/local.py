"""A deployment on one machine: a router process for each site, one Spark session that hosts all of them, and a manager.

    with local(topology, specs, operators) as deployment:
        device = deployment.device("car1", "edge1", roaming=True)
        deployment.submit(plan)

Everything that was started ends with the `with` block, also after an error or Ctrl-C; routers end with this process
however it ends.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from peregrine.control.driver import ManagerDriver, News
from peregrine.core.attachments import Attachments
from peregrine.core.coordinator import PlanEnded
from peregrine.core.keyspace import KeySet
from peregrine.core.manager import Manager
from peregrine.core.messages import SetOwner
from peregrine.core.operator import Operator, OpSpec
from peregrine.core.placement import Placement
from peregrine.core.reconfigure import Plan
from peregrine.core.topology import Topology
from peregrine.core.validity import attached_producers
from peregrine.errors import UnknownName
from peregrine.log.record_log import Fsync
from peregrine.net.client import RouterClient
from peregrine.net.device import Device
from peregrine.net.launch import RouterProcess
from peregrine.net.protocol import Neighbour
from peregrine.net.settings import RouterSettings, make_token
from peregrine.proof import Lines
from peregrine.types import OpId, PlaceId, SiteId, SourceId, site_of

Initial = Sequence[tuple[OpId, KeySet, PlaceId]]


class Deployment:
    """What runs. Made by `local`."""

    def __init__(self, topology: Topology, specs: Mapping[OpId, OpSpec], directory: Path, token: str) -> None:
        self.topology = topology
        self.specs = specs
        self.directory = directory
        self.routers: dict[SiteId, RouterProcess] = {}
        self.clients: dict[SiteId, RouterClient] = {}
        self.addresses: dict[SiteId, str] = {}
        self.devices: dict[SourceId, Device] = {}
        self.driver: ManagerDriver
        self.spark: Any  # a SparkSession, and the query of the host: only spark/ knows their types
        self.query: Any
        self._token = token
        self.feeds: dict[SourceId, tuple[tuple[OpId, KeySet], ...]] = {}

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    def device(self, name: str, site: str, roaming: bool = False, feeds: tuple[OpId, KeySet] | None = None) -> Device:
        """A device at a site. `feeds` says for which operator and keys it produces: plans are checked against it."""
        if SiteId(site) not in self.topology:
            raise UnknownName("site", site, list(self.topology.sites))
        source = SourceId(name)
        if feeds is not None:
            self.feeds[source] = (feeds,)
        self.devices[source] = Device(source, self.addresses, SiteId(site), self._token, roaming=roaming)
        return self.devices[source]

    def submit(self, plan: Plan) -> None:
        self.driver.submit(plan)

    def wait(self, plan_id: str, timeout_s: float = 60.0) -> PlanEnded:
        return self.driver.wait(plan_id, timeout_s)

    def results(self, after: int = 0) -> tuple[pa.Table, int]:
        """Results from a position on, and the position to read on from."""
        return self.clients[self.topology.root].read_results(after)

    def result_lines(self) -> Lines:
        lines: Lines = {}
        position = 0
        while True:
            table, after = self.results(position)
            if after == position:
                return lines
            position = after
            columns = [table.column(name).to_pylist() for name in ("op", "key", "source", "seq", "payload")]
            for op, key, source, seq, payload in zip(*columns, strict=True):
                lines.setdefault((op, key, source), []).append((seq, payload))

    def states(self) -> list[tuple[OpId, bytes]]:
        """The committed state of every group at every place."""
        from peregrine.spark.host import states

        return [(op, blob) for (_, op, _), blob in sorted(states(self.spark, self.checkpoint).items())]


@contextmanager
def local(
    topology: Topology,
    specs: Mapping[OpId, OpSpec],
    operators: Mapping[OpId, Operator],
    initial: Initial = (),
    directory: Path | None = None,
    dwell_ms: int = 5000,
    fsync: Fsync = Fsync.GROUPED,
    watch: Callable[[News | PlanEnded], None] = lambda news: None,
    **router_settings: Any,
) -> Iterator[Deployment]:
    with ExitStack() as stack:
        if directory is None:
            directory = Path(tempfile.mkdtemp(prefix="peregrine-"))
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
        directory.mkdir(parents=True, exist_ok=True)
        token_file = directory / "token"
        deployment = Deployment(topology, specs, directory, make_token(token_file))
        for site in topology.sites:
            settings = RouterSettings.of(
                site, topology, specs.values(), directory / site, token_file, fsync=fsync, **router_settings
            )
            router = RouterProcess(settings, directory / f"{site}.json", directory / f"{site}.log")
            stack.callback(router.stop)
            deployment.routers[site] = router
            deployment.addresses[site] = router.address
            deployment.clients[site] = router.client()
            stack.callback(deployment.clients[site].close)
        _join(deployment)
        _place(deployment, initial)
        stack.callback(_close_devices, deployment)
        _start_hosts(deployment, operators, token_file, stack)
        attachments = Attachments()
        placement = Placement(topology, specs, initial)
        producers = attached_producers(deployment.feeds, attachments)
        manager = Manager(placement, specs, attachments, producers, dwell_ms=dwell_ms)
        deployment.driver = stack.enter_context(ManagerDriver(manager, deployment.clients, watch))
        yield deployment


def _join(deployment: Deployment) -> None:
    topology = deployment.topology
    for child in topology.sites:
        parent = topology.parent(child)
        if parent is not None:
            link = topology.link(child)
            for near, far in ((child, parent), (parent, child)):
                neighbour = Neighbour(deployment.addresses[far], link.latency_ms, link.bandwidth_mbps)
                deployment.clients[near].tell_neighbours({far: neighbour})


def _place(deployment: Deployment, initial: Initial) -> None:
    for op, keys, place in initial:
        for site, client in deployment.clients.items():
            if deployment.topology.is_at_or_above(site, site_of(place)):
                client.offer(SetOwner(op, keys, place))


def _start_hosts(
    deployment: Deployment, operators: Mapping[OpId, Operator], token_file: Path, stack: ExitStack
) -> None:
    from peregrine.spark.host import HostConfig, start
    from peregrine.spark.registry import publish
    from peregrine.spark.session import open_session
    from peregrine.spark.worker import PlaceAddress

    registry = deployment.directory / "operators"
    publish(registry, dict(operators))
    deployment.spark = open_session()
    places = [
        PlaceAddress(place, deployment.addresses[site])
        for site in deployment.topology.sites
        for place in deployment.topology.places(site)
    ]
    deployment.query = start(deployment.spark, HostConfig(places, token_file, registry, deployment.checkpoint))
    stack.callback(deployment.query.stop)


def _close_devices(deployment: Deployment) -> None:
    for device in deployment.devices.values():
        device.close()
