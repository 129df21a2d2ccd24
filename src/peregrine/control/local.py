"""A deployment on one machine: a router process for each site, one Spark session that hosts all of them, and a manager.

    with local(topology, specs, operators) as deployment:
        device = deployment.device("car1", "edge1", roaming=True)
        deployment.submit(plan)

Everything that was started ends with the `with` block, also after an error or Ctrl-C; routers and Spark end with this
process however it ends. With a `directory` that is kept, the same call goes on where the last one was, whatever killed
it: routers on their ports, hosts from their checkpoint, plans from the manager's journal. What dies meanwhile is
started again (supervisor.py), and `watch` is told.
"""

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from peregrine.control.claim import claimed, note
from peregrine.control.deployment import Deployment
from peregrine.control.driver import ManagerDriver, News, carefully
from peregrine.control.durable_manager import DurableManager, Feeds
from peregrine.control.hosts import ONE_SESSION, PER_SITE, check_kind, start_per_site
from peregrine.control.routers import ROUTER_STEADY_S, SupervisedRouter, neighbours_of, write_addresses
from peregrine.control.supervisor import Supervisor
from peregrine.core.attachments import Attachments
from peregrine.core.chain import chained, deployed
from peregrine.core.coordinator import PlanEnded
from peregrine.core.manager import Manager
from peregrine.core.messages import SetOwner
from peregrine.core.operator import Operator, OpSpec
from peregrine.core.placement import Initial, Placement
from peregrine.core.topology import Topology
from peregrine.core.validity import AttachedProducers
from peregrine.log.record_log import Fsync
from peregrine.net.settings import RouterSettings, make_token, read_token
from peregrine.net.tls import tls_settings
from peregrine.types import OpId, PlaceId, site_of

Watch = Callable[[News | PlanEnded], None]
__all__ = ["local", "Deployment"]


@contextmanager
def local(
    topology: Topology,
    specs: Mapping[OpId, OpSpec],
    operators: Mapping[OpId, Operator],
    initial: Initial = (),
    directory: Path | None = None,
    dwell_ms: int = 5000,
    fsync: Fsync = Fsync.GROUPED,
    watch: Watch = lambda news: None,
    tls: bool = False,
    hosts: str = ONE_SESSION,
    master: str | None = None,
    apart: Collection[PlaceId] = (),
    **router_settings: Any,
) -> Iterator[Deployment]:
    """`initial` says where keys are when the deployment begins; one that goes on knows better where they are.

    `tls`: with a certificate that is made for this deployment; other files can be named in the routers' settings.
    `hosts`: "per-site" gives each site a Spark application of its own, at the given Spark `master` (hosts.py).
    `apart`: places that the caller serves (control/transforms.py).
    """
    with ExitStack() as stack:
        kept = directory is not None
        if directory is None:
            directory = Path(tempfile.mkdtemp(prefix="peregrine-"))
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
        directory.mkdir(parents=True, exist_ok=True)
        stack.enter_context(claimed(directory, _own_spark()))
        check_kind(directory, hosts)
        token_file = directory / "token"
        operators, specs = chained(specs, operators), deployed(specs)
        deployment = Deployment(topology, specs, directory, _token(token_file), kept)
        if tls:
            router_settings |= tls_settings(directory / "tls")
        for site in topology.sites:
            settings = RouterSettings.of(
                site, topology, specs.values(), directory / site, token_file, fsync=fsync, **router_settings
            )
            _start_router(deployment, settings, stack)
        deployment.supervisor = stack.enter_context(Supervisor(carefully(watch)))
        _join(deployment)
        durable = DurableManager(directory / "manager", _manager_of(topology, specs), fsync)
        stack.callback(durable.close)
        if not durable.placed:
            _place(deployment, initial)
            durable.place(tuple(initial))
        durable.dwell(dwell_ms)
        registry = _publish(directory, operators)
        deployment.apart = frozenset(apart)
        if hosts == PER_SITE:
            start_per_site(deployment, registry, token_file, master, stack)
        else:
            _start_hosts(deployment, registry, token_file, master, stack)
        stack.callback(deployment.close_devices)
        deployment.driver = stack.enter_context(ManagerDriver(durable, deployment.clients, watch))
        stack.callback(deployment.supervisor.stop)  # first of all: what ends now is to stay so
        yield deployment


def _own_spark() -> frozenset[int]:
    """Spark of this very process may have run this deployment before, and goes on."""
    from peregrine.spark.query import running_jvm

    pid = running_jvm()
    return frozenset() if pid is None else frozenset({pid})


def _token(file: Path) -> str:
    """The one that devices in other processes have, if there was one."""
    return read_token(file) if file.exists() and file.stat().st_size else make_token(file)


def _manager_of(topology: Topology, specs: Mapping[OpId, OpSpec]) -> Callable[[Initial, Feeds], Manager]:
    def make(initial: Initial, feeds: Feeds) -> Manager:
        attachments = Attachments()
        placement = Placement(topology, specs, initial)
        return Manager(placement, specs, attachments, AttachedProducers(feeds, attachments))

    return make


def _start_router(deployment: Deployment, settings: RouterSettings, stack: ExitStack) -> None:
    site = settings.site
    router = SupervisedRouter(settings, deployment.directory)
    stack.callback(router.stop)
    deployment.supervised_routers[site] = router
    deployment.addresses[site] = router.process.address
    deployment.clients[site] = router.process.client()
    stack.callback(deployment.clients[site].close)


def _join(deployment: Deployment) -> None:
    write_addresses(deployment.directory, deployment.addresses)
    for site, router in deployment.supervised_routers.items():
        router.join(neighbours_of(site, deployment.topology, deployment.supervised_routers))
        deployment.supervisor.watch_over(router, ROUTER_STEADY_S)


def _place(deployment: Deployment, initial: Initial) -> None:
    for op, keys, place in initial:
        for site, client in deployment.clients.items():
            if deployment.topology.is_at_or_above(site, site_of(place)):
                client.offer(SetOwner(op, keys, place))


def _publish(directory: Path, operators: Mapping[OpId, Operator]) -> Path:
    from peregrine.spark.registry import publish

    registry = directory / "operators"
    publish(registry, dict(operators))
    return registry


def _start_hosts(
    deployment: Deployment,
    registry: Path,
    token_file: Path,
    master: str | None,
    stack: ExitStack,
) -> None:
    from peregrine.spark.host import HostConfig
    from peregrine.spark.query import HostQuery
    from peregrine.spark.session import open_session
    from peregrine.spark.worker import PlaceAddress

    def session() -> Any:
        deployment.spark = open_session(log_file=deployment.directory / "spark.log", master=master)
        note(deployment.directory, _own_spark())
        return deployment.spark

    places = [
        PlaceAddress(place, deployment.addresses[site])
        for site in deployment.topology.sites
        for place in deployment.topology.places(site)
        if place not in deployment.apart
    ]
    chunks = {place: deployment.chunks(place) for place, _ in places}
    config = HostConfig(places, token_file, registry, deployment.checkpoint, chunks=chunks)
    host = deployment.host = HostQuery(session, config)
    stack.callback(host.stop)
    deployment.supervisor.watch_over(host)
