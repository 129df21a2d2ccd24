"""A guide for a deployment on one machine: it knows where the routers are, and devices follow it.

    with guiding(deployment, {"edge1": (0.0, 0.0), "edge2": (1000.0, 0.0)}) as follower:
        follower.follow(device)
        follower.seen(device, (990.0, 0.0))     # it goes to edge2

Routers that are told of a guide in their settings register themselves (net/registrar.py). Those of a deployment on one
machine end with this process, so it registers them, and sites may join and leave while the guide runs. A guide that
dies is started again at its address; it has forgotten everything, and is told again.
"""

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from math import inf
from pathlib import Path

from msgspec.structs import replace

from peregrine.control.deployment import Deployment
from peregrine.control.routers import ROUTER_STEADY_S
from peregrine.errors import PeregrineError
from peregrine.net.follower import Follower
from peregrine.net.guide_client import GuideClient
from peregrine.net.guide_settings import GuideSettings
from peregrine.net.launch import GuideProcess
from peregrine.net.registrar import RENEWALS_PER_LEASE
from peregrine.net.tls import where
from peregrine.plan.nearest import Geometry, Position, Whereabouts, check
from peregrine.types import SiteId

LEASE_S = 3.0
MARGIN_M = 50.0
log = logging.getLogger(__name__)


@contextmanager
def guiding(
    deployment: Deployment,
    positions: Mapping[str, Position],
    reach_m: float = inf,
    geometry: Geometry = Geometry.PLANE,
    margin_m: float = MARGIN_M,
) -> Iterator[Follower]:
    """`positions` may name sites that join later; a site without one is nowhere, and no device is sent there."""
    for position in positions.values():
        check(geometry, position)
    with ExitStack() as stack:
        root = deployment.routers[deployment.topology.root].settings
        settings = GuideSettings(
            root.token_file,
            geometry=geometry,
            margin_m=margin_m,
            lease_s=LEASE_S,
            tls_ca=root.tls_ca,
            tls_cert=root.tls_cert,
            tls_key=root.tls_key,
            tls_verify_clients=root.tls_verify_clients,
        )
        guide = SupervisedGuide(settings, deployment.directory)
        stack.callback(guide.stop)
        deployment.supervisor.watch_over(guide, ROUTER_STEADY_S)  # as with a router, what is wrong shows at once
        registry = Registry(deployment, stack.enter_context(guide.process.client()), positions, reach_m)
        stack.callback(registry.stop)
        yield stack.enter_context(Follower(guide.process.client(), deployment.addresses))


class SupervisedGuide:
    """The guide's process. Followers and routers keep its address: it comes back on the same port."""

    def __init__(self, settings: GuideSettings, directory: Path) -> None:
        self.name = "guide"
        self._directory = directory
        self._stopped = False
        self._lock = threading.Lock()  # its block may end while it is being started again
        self.process = self._start(settings)

    def failure(self) -> str | None:
        return None if self._stopped or self.process.alive else "the process has ended"

    def restart(self) -> None:
        with self._lock:
            if self._stopped:
                return
            self.process.kill()  # it is dead: this closes the pipes
            self.process = self._start(replace(self.process.settings, port=self.process.port))

    def stop(self) -> None:
        """For good: its end is no failure."""
        with self._lock:
            self._stopped = True
            self.process.stop()

    def _start(self, settings: GuideSettings) -> GuideProcess:
        return GuideProcess(settings, self._directory / "guide.json", self._directory / "guide.log")


class Registry:
    """Tells a guide of the routers that there are, again and again before their leases end."""

    def __init__(
        self, deployment: Deployment, guide: GuideClient, positions: Mapping[str, Position], reach_m: float
    ) -> None:
        self._deployment = deployment
        self._guide = guide
        self._positions = {SiteId(site): position for site, position in positions.items()}
        self._reach_m = reach_m
        self._registered: set[SiteId] = set()
        self._stopping = threading.Event()
        self._tell()  # who is given a follower is sent somewhere at once
        self._thread = threading.Thread(target=self._run, name="guide-registry", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(LEASE_S / RENEWALS_PER_LEASE):
            try:
                self._tell()
            except PeregrineError as error:  # devices stay where they are meanwhile
                log.info("guide trouble=%r", error.what)

    def _tell(self) -> None:
        here = {site for site in self._deployment.topology.sites if site in self._positions}
        for site in self._registered - here:
            self._guide.withdraw(site)
        for site in here:
            address = where(self._deployment.addresses[site])
            self._guide.register(Whereabouts(site, address, self._positions[site], self._reach_m))
        self._registered = here
