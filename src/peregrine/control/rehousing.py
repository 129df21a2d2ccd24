"""What a running deployment does for its topology changes: routers for sites that join, introductions, farewells.

    deployment.change([SiteMoved(train, edge1, edge2, link, version=1)])
    with deployment.monitor():      # what it finds lost or back is told as well
        ...

The manager decides; here its effects are performed on processes. A site that joins gets a router and a host.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from peregrine.control import questions
from peregrine.control.monitor import Monitor
from peregrine.control.routers import SupervisedRouter, write_addresses
from peregrine.core.redeploying import Introduction
from peregrine.core.rehoming import Rehoming
from peregrine.core.topology import Link, Topology
from peregrine.errors import ConfigurationError, PeregrineError, Unreachable
from peregrine.net.addresses import HERE
from peregrine.net.protocol import Detour, Neighbour
from peregrine.plan.redeploy.detector import Patience
from peregrine.plan.redeploy.events import SiteSet, TopologyEvent
from peregrine.types import SiteId

if TYPE_CHECKING:
    from peregrine.control.deployment import Deployment

FAREWELL_S = 30.0  # how long a site that has left may take to tell what it still has to
LOOK_S = 0.05
log = logging.getLogger(__name__)


class Rehousing:
    def __init__(self, deployment: "Deployment", start: Callable[[SiteId], SupervisedRouter]) -> None:
        """`start` starts the router of a site that joins."""
        self._deployment = deployment
        self._start = start
        self._followers: list[Callable[[Topology], None]] = []
        self.before_farewell: Callable[[SiteId], None] = lambda site: None  # the router of a site is about to end
        self._lock = threading.Lock()

    def check(self, event: TopologyEvent) -> None:
        if not isinstance(event, SiteSet) or event.station.slots == 0 or self._deployment.serve is not None:
            return
        if event.station.site.id not in self._deployment.topology:
            raise ConfigurationError(
                f"site {event.station.site.id!r} joins and may run operators, but there is no host for it",
                "give it 0 slots",
            )

    def monitor(self, token: str, patience: Patience | None) -> Monitor:
        deployment = self._deployment
        made = Monitor(deployment.topology, deployment.addresses, token, deployment.tell, patience)
        self._followers.append(made.follow)
        return made

    def introduce(self, rehoming: Rehoming) -> None:
        """Before a site is told to change its parent: both have a router and know where the other listens."""
        routers, site = self._deployment.supervised_routers, rehoming.site
        with self._lock:
            if site not in routers and rehoming.source is None:
                routers[site] = self._start(site)
                write_addresses(self._deployment.directory, self._deployment.addresses)
                if self._deployment.serve is not None:
                    self._deployment.serve(routers)
        for each in self._deployment.driver.introductions(rehoming):
            for near, far in ((each.upper, each.lower), (each.lower, each.upper)):
                if near not in routers or far not in routers:
                    raise Unreachable(f"{rehoming}, and one of them has no router", "wait until both are there")
                routers[near].meet(far, Neighbour.over(each.link, self._address(far), self._detour(far, each)))

    def _detour(self, far: SiteId, between: Introduction) -> Detour | None:
        if between.by is None or between.by[0] not in self._deployment.supervised_routers:
            return None
        by, link = between.by
        return Detour.over(link, by, self._address(by), self._address(far))

    def _address(self, site: SiteId) -> str:
        return f"{HERE}:{self._deployment.supervised_routers[site].process.port}"

    def redeployed(self) -> None:
        """There is another tree now, or a link is otherwise."""
        for follow in self._followers:
            follow(self._deployment.topology)
        for site, parent, link in self._links_told_otherwise():
            args = (site, parent, link)
            threading.Thread(target=self._tell_link, args=args, name=f"link-{site}", daemon=True).start()
        gone = self._deployment.supervised_routers.keys() - set(self._deployment.driver.ask(questions.sites))
        for site in gone:
            threading.Thread(target=self._retire, args=(site,), name=f"farewell-{site}", daemon=True).start()

    def _links_told_otherwise(self) -> list[tuple[SiteId, SiteId, Link]]:
        """Links that stay where they are, and feel as they did: introductions are of those that are new."""
        topology, routers = self._deployment.topology, self._deployment.supervised_routers
        found = []
        for site in topology.sites[1:]:
            parent, link = topology.parent(site), topology.link(site)
            told = routers[site].neighbours.get(parent) if parent is not None and site in routers else None
            if parent in routers and told is not None and not told.feels_like(link):
                found.append((site, parent, link))
        return found

    def _tell_link(self, site: SiteId, parent: SiteId, link: Link) -> None:
        routers = self._deployment.supervised_routers
        for near, far in ((site, parent), (parent, site)):
            try:
                told = routers[near].neighbours[far]
                routers[near].meet(far, Neighbour.over(link, told.address, told.by))
            except (PeregrineError, KeyError) as error:  # it is told when it starts again; or it has left
                log.warning("site=%s neighbour=%s has not heard what their link is like now: %s", near, far, error)

    def _retire(self, site: SiteId) -> None:
        """Its router ends when it has told its last neighbour all that it had to."""
        deployment = self._deployment
        deadline_s = time.monotonic() + FAREWELL_S
        while not self._has_told_all(site):
            if time.monotonic() > deadline_s:
                log.warning("site=%s has left, and what it has to tell does not arrive: its router stays", site)
                return
            time.sleep(LOOK_S)
        with self._lock:
            router = deployment.supervised_routers.get(site)
            if router is None or site in deployment.driver.ask(questions.sites):
                return  # somebody else was faster, or it is back
            if deployment.serve is not None:
                deployment.serve(deployment.supervised_routers.keys() - {site})
            if site in deployment.hosts:
                deployment.hosts.pop(site).stop()
            self.before_farewell(site)
            del deployment.supervised_routers[site]
            deployment.retired.append(router.process.settings)
            deployment.addresses.pop(site, None)
            client = deployment.clients.pop(site)
            write_addresses(deployment.directory, deployment.addresses)
            router.stop()  # when nobody finds it any more
            client.close()

    def _has_told_all(self, site: SiteId) -> bool:
        client = self._deployment.clients.get(site)
        try:
            if client is None:
                return True
            status = client.status()
            applied = status.ends == status.commits or not self._deployment.has_host(site)
            return applied and not any(status.waiting.values())
        except PeregrineError:
            return False
