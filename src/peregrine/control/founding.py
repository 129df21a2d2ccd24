"""The routers and the manager of a deployment, as it begins or goes on; its hosts are somebody else's (local.py)."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from peregrine.control import questions
from peregrine.control.deployment import Deployment
from peregrine.control.driver import ManagerDriver, Told, carefully
from peregrine.control.durable_manager import DurableManager
from peregrine.control.rehousing import Rehousing
from peregrine.control.routers import ROUTER_STEADY_S, SupervisedRouter, neighbours_of, write_addresses
from peregrine.control.supervisor import Supervisor
from peregrine.core.attachments import Attachments
from peregrine.core.manager import Manager
from peregrine.core.messages import SetOwner
from peregrine.core.operator import OpSpec
from peregrine.core.placement import Initial, Placement
from peregrine.core.redeploying import Redeployed
from peregrine.core.topology import Topology
from peregrine.core.validity import AttachedProducers, Feeds
from peregrine.log.record_log import Fsync
from peregrine.net.settings import RouterSettings
from peregrine.plan.redeploy.planning import planning_of
from peregrine.types import OpId, SiteId, site_of

STARTING = 4  # routers at a time: each takes most of a second of a core, and waits in between


def found(
    deployment: Deployment,
    initial: Initial,
    fsync: Fsync,
    dwell_ms: int,
    watch: Callable[[Told], None],
    stack: ExitStack,
    router_settings: Mapping[str, Any],
) -> None:
    """Routers run when it returns; the manager begins when the deployment's driver is entered."""
    topology, specs, directory = deployment.began_with, deployment.specs, deployment.directory
    durable = DurableManager(directory / "manager", _manager_of(topology, specs), fsync)
    stack.callback(durable.close)

    def launch(site: SiteId) -> SupervisedRouter:
        # All begin in the tree of the beginning, also those that join later: their journals lead on from there.
        home, token_file = directory / site, directory / "token"
        more = dict(router_settings)
        if site not in topology and (hosts := deployment.driver.ask(questions.hosts, site)):
            more["hosts"] = {site: hosts}
        settings = RouterSettings.of(site, topology, specs.values(), home, token_file, fsync=fsync, **more)
        router = SupervisedRouter(settings, directory)
        stack.callback(router.stop)
        return router

    def start(site: SiteId) -> SupervisedRouter:
        return _take_in(deployment, launch(site), stack)

    _manage(deployment, durable, watch, start)
    sites = deployment.driver.ask(questions.sites) if durable.placed else topology.sites
    with ThreadPoolExecutor(STARTING) as pool:
        for router in list(pool.map(launch, sites)):
            _take_in(deployment, router, stack)
    deployment.supervisor = stack.enter_context(Supervisor(carefully(watch)))
    if durable.placed:
        deployment.current = lambda: deployment.driver.ask(questions.topology)
    _join(deployment)
    if not durable.placed:
        _place(deployment, initial)
        durable.place(tuple(initial))
        deployment.current = lambda: deployment.driver.ask(questions.topology)
    durable.dwell(dwell_ms)


def _manager_of(topology: Topology, specs: Mapping[OpId, OpSpec]) -> Callable[[Initial, Feeds], Manager]:
    def make(initial: Initial, feeds: Feeds) -> Manager:
        attachments = Attachments()
        placement = Placement(topology, specs, initial)
        planning = planning_of(topology, specs, initial, feeds)
        return Manager(placement, specs, attachments, AttachedProducers(feeds, attachments), planning=planning)

    return make


def _take_in(deployment: Deployment, router: SupervisedRouter, stack: ExitStack) -> SupervisedRouter:
    site = router.site
    deployment.supervised_routers[site] = router
    deployment.addresses[site] = router.process.address
    deployment.clients[site] = router.process.client()
    stack.callback(deployment.clients[site].close)
    return router


def _join(deployment: Deployment) -> None:
    write_addresses(deployment.directory, deployment.addresses)
    for site, router in deployment.supervised_routers.items():
        if site in deployment.topology:  # else it is just joining, and is told when it is introduced
            router.join(neighbours_of(site, deployment.topology, deployment.supervised_routers))
        deployment.supervisor.watch_over(router, ROUTER_STEADY_S)


def _place(deployment: Deployment, initial: Initial) -> None:
    for op, keys, place in initial:
        for site, client in deployment.clients.items():
            if deployment.topology.is_at_or_above(site, site_of(place)):
                client.offer(SetOwner(op, keys, place))


def _manage(
    deployment: Deployment,
    durable: DurableManager,
    watch: Callable[[Told], None],
    start: Callable[[SiteId], SupervisedRouter],
) -> None:
    def start_late(site: SiteId) -> SupervisedRouter:
        router = start(site)
        deployment.supervisor.watch_over(router, ROUTER_STEADY_S)
        return router

    def heard(told: Told) -> None:
        if isinstance(told, Redeployed):
            deployment.rehousing.redeployed()
        watch(told)

    deployment.rehousing = Rehousing(deployment, start_late)
    deployment.driver = ManagerDriver(durable, deployment.clients, heard, deployment.rehousing.introduce)
