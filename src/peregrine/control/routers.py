"""The router processes of a deployment: each on the directory and the port that it had before, and joined again."""

import fcntl
import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from peregrine.core.topology import Topology
from peregrine.net.addresses import HERE
from peregrine.net.launch import RouterProcess
from peregrine.net.protocol import Neighbour
from peregrine.net.settings import RouterSettings
from peregrine.types import SiteId

ADDRESSES = "addresses.json"
Neighbours = dict[SiteId, Neighbour]
ROUTER_STEADY_S = 2.0  # what keeps a router from running shows at once
OLD_ONE_S = 30.0  # the router of a caller that was killed writes what it has, and ends


class SupervisedRouter:
    """The router of one site. Devices, hosts and neighbours keep its address: it comes back on the same port."""

    def __init__(self, settings: RouterSettings, directory: Path) -> None:
        self.name = f"router {settings.site}"
        self.site = settings.site
        self._directory = directory
        self._stopped = False
        self._meeting = threading.Lock()
        _wait_until_free(Path(settings.directory))
        self.process = self._start(settings)

    @property
    def neighbours(self) -> Mapping[SiteId, Neighbour]:
        """As it has been told, or is told when it starts again."""
        return self.process.settings.neighbours

    def join(self, neighbours: Mapping[SiteId, Neighbour]) -> None:
        """Tell it where its neighbours are, also for the time after a restart."""
        self.process.settings = replace(self.process.settings, neighbours=dict(neighbours))
        with self.process.client() as client:
            client.tell_neighbours(neighbours)

    def meet(self, neighbour: SiteId, to: Neighbour) -> None:
        """It is to be a neighbour."""
        with self._meeting:  # several may come at the same time
            self.join({**self.neighbours, neighbour: to})

    def failure(self) -> str | None:
        return None if self._stopped or self.process.alive else "the process has ended"

    def restart(self) -> None:
        """Here the port is not a wish: who has the old address would not find it at another."""
        self.process.kill()  # it is dead: this closes the pipes
        self.process = self._start(replace(self.process.settings, port=self.process.port))

    def stop(self) -> None:
        """For good: its end is no failure."""
        self._stopped = True
        self.process.stop()

    def _start(self, settings: RouterSettings) -> RouterProcess:
        return RouterProcess(settings, self._directory / f"{self.site}.json", self._directory / f"{self.site}.log")


def neighbours_of(site: SiteId, topology: Topology, routers: Mapping[SiteId, SupervisedRouter]) -> Neighbours:
    found: Neighbours = {}
    parent = topology.parent(site)
    for near in (*topology.children(site), *([] if parent is None else [parent])):
        link = topology.link(site if near == parent else near)
        found[near] = Neighbour.over(link, f"{HERE}:{routers[near].process.port}")
    return found


def read_addresses(directory: Path) -> dict[SiteId, str]:
    """Where the routers of a deployment listen, for devices in other processes; empty if it never ran."""
    try:
        return {SiteId(site): str(address) for site, address in json.loads((directory / ADDRESSES).read_text()).items()}
    except FileNotFoundError:
        return {}


def write_addresses(directory: Path, addresses: Mapping[SiteId, str]) -> None:
    aside = directory / f"{ADDRESSES}.new"
    aside.write_text(json.dumps(addresses, indent=2))
    os.replace(aside, directory / ADDRESSES)


def _wait_until_free(directory: Path) -> None:
    """Until the router that had this directory before has let go of it. If it never does, the new one will say so."""
    deadline_s = time.monotonic() + OLD_ONE_S
    lock = directory / "journal" / "lock"
    while lock.exists() and time.monotonic() < deadline_s:
        with open(lock, "ab") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                time.sleep(0.05)
