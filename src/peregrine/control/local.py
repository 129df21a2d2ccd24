"""A deployment on one machine: a router process for each site, one Spark session that hosts all of them, and a manager.

Sites are names, and the links between them are emulated: everything listens on loopback.

    with local(topology, specs, operators) as deployment:
        device = deployment.device("car1", "edge1", roaming=True)
        deployment.submit(plan)

Everything that was started ends with the `with` block, also after an error or Ctrl-C; routers and Spark end with this
process however it ends. With a `directory` that is kept, the same call goes on where the last one was, whatever killed
it: routers on their ports, hosts from their checkpoint, plans from the manager's journal. What dies meanwhile is
started again (supervisor.py), and `watch` is told.
"""

import tempfile
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from peregrine.config import check_runner
from peregrine.control.claim import claimed, note
from peregrine.control.deployment import Deployment
from peregrine.control.driver import Told
from peregrine.control.founding import found
from peregrine.control.hosts import ONE_SESSION, PER_SITE, check_kind, start_per_site
from peregrine.core.chain import chained, deployed
from peregrine.core.operator import Operator, OpSpec
from peregrine.core.placement import Initial
from peregrine.core.topology import Topology
from peregrine.errors import ConfigurationError, UnknownName
from peregrine.log.record_log import Fsync
from peregrine.net.scratch import Scratch
from peregrine.net.settings import make_token, read_token
from peregrine.net.tls import tls_settings
from peregrine.types import OpId, PlaceId, Runner, SiteId

Watch = Callable[[Told], None]
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
    apart: Container[PlaceId] = (),
    runner: Runner | Mapping[str, Runner] = "microbatch",
    trigger_ms: int = 0,
    **router_settings: Any,
) -> Iterator[Deployment]:
    """`initial` says where keys are when the deployment begins; one that goes on knows better where they are.

    `tls`: with a certificate that is made for this deployment; other files can be named in the routers' settings.
    `hosts`: "per-site" gives each site a Spark application of its own, on this machine as well; `master` is the Spark
    master of each, or of the one session, and its executors must be on this machine (hosts.py).
    `apart`: places that the caller serves (control/transforms.py).
    `runner`: "continuous" applies rows as they come, of all sites or of those that are named; else in batches.
    `trigger_ms`: how often a batch begins; 0: as soon as the last one has ended.
    """
    if trigger_ms < 0:
        raise ConfigurationError(f"trigger_ms = {trigger_ms}", "say how often a batch begins, or 0: as soon as it can")
    with ExitStack() as stack:
        kept = directory is not None
        if directory is None:
            scratch = Scratch("peregrine-run-", Path(tempfile.gettempdir()))
            stack.callback(scratch.remove)
            directory = scratch.path
        directory.mkdir(parents=True, exist_ok=True)
        stack.enter_context(claimed(directory, _own_spark()))
        check_kind(directory, hosts)
        token_file = directory / "token"
        operators, specs = chained(specs, operators), deployed(specs)
        deployment = Deployment(topology, specs, directory, _token(token_file), kept)
        if tls:
            router_settings |= tls_settings(directory / "tls")
        found(deployment, initial, fsync, dwell_ms, watch, stack, router_settings)
        registry = _publish(directory, operators)
        deployment.apart = apart
        deployment.trigger_ms = trigger_ms
        _choose_runners(deployment, runner)
        if hosts == PER_SITE:
            start_per_site(deployment, registry, token_file, master, stack)
        else:
            _start_hosts(deployment, registry, token_file, master, stack)
        stack.callback(deployment.close_devices)
        stack.enter_context(deployment.driver)
        stack.callback(deployment.supervisor.stop)  # first of all: what ends now is to stay so
        yield deployment


def _choose_runners(deployment: Deployment, runner: Runner | Mapping[str, Runner]) -> None:
    named = {} if isinstance(runner, str) else dict(runner)
    for site, of_site in named.items():
        if SiteId(site) not in deployment.topology:
            raise UnknownName("site", site, list(deployment.topology.sites))
        deployment.runners[SiteId(site)] = of_site
    if isinstance(runner, str):
        deployment.runner = runner
    for each in (deployment.runner, *deployment.runners.values()):
        check_runner(each)


def _own_spark() -> frozenset[int]:
    """Spark of this very process may have run this deployment before, and goes on."""
    from peregrine.spark.query import running_jvm

    pid = running_jvm()
    return frozenset() if pid is None else frozenset({pid})


def _token(file: Path) -> str:
    """The one that devices in other processes have, if there was one."""
    return read_token(file) if file.exists() and file.stat().st_size else make_token(file)


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
    from peregrine.spark.served import publish
    from peregrine.spark.session import open_session

    def session() -> Any:
        deployment.spark = open_session(log_file=deployment.directory / "spark.log", master=master)
        note(deployment.directory, _own_spark())
        return deployment.spark

    served = deployment.directory / "served.json"

    def serve(sites: Collection[SiteId]) -> None:
        publish(served, deployment.served(sites))

    serve(deployment.supervised_routers)
    deployment.serve = serve
    config = HostConfig(served, token_file, registry, deployment.checkpoint, trigger_ms=deployment.trigger_ms)
    host = deployment.host = HostQuery(session, config)
    stack.callback(host.stop)
    deployment.supervisor.watch_over(host)
