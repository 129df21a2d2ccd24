"""Asks all routers how they are, again and again, and tells which links are lost and which are back.

A router answers with what keeps each of its links from delivering, if anything does: it notices by itself that a child
is gone, within half a second. What follows from the answers, and from there being none, the detector of plan/redeploy
decides. What it finds goes to `tell`, one event at a time, in the order of their versions.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType

from peregrine.control.driver import carefully
from peregrine.core.topology import Topology
from peregrine.errors import PeregrineError
from peregrine.net.client import RouterClient
from peregrine.plan.redeploy.detector import Detector, Ends, Health, Patience
from peregrine.plan.redeploy.events import LinkRemoved, LinkSet
from peregrine.types import SiteId

ASKS_PER_SUSPICION = 5
LOOKS_PER_SUSPICION = 10
log = logging.getLogger(__name__)


class Monitor:
    """One thread for each site: one that hangs must not keep others from being asked."""

    def __init__(
        self,
        topology: Topology,
        addresses: Mapping[SiteId, str],
        token: str,
        tell: Callable[[LinkRemoved | LinkSet], None],
        patience: Patience | None = None,
    ) -> None:
        """`addresses` is looked up for each question, so that it may change."""
        patience = patience or Patience()
        self._suspect_s = patience.suspect_ms / 1000
        self._addresses = addresses
        self._token = token
        self._tell = carefully(tell)
        # A monitor that is started again tells newer things than the one before it.
        self._detector = Detector(patience, _now_ms(), first_version=time.time_ns() // 1_000_000)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._asking: dict[SiteId, threading.Thread] = {}
        self._sites: frozenset[SiteId] = frozenset()
        self._looking = threading.Thread(target=self._look, name="monitor", daemon=True)
        self.follow(topology)

    def follow(self, topology: Topology) -> None:
        """These are the links that are there by plan, from now on: no other one is missed."""
        wanted = {(site, above) for site in topology.sites if (above := topology.parent(site)) is not None}
        with self._lock:
            for a, b in self._detector.health:
                if not {(a, b), (b, a)} & wanted:
                    self._detector.unwatch(a, b)
            self._detector.watch_all(topology)
            self._sites = frozenset(topology.sites)
        if self._looking.is_alive():
            self._ask_all()

    @property
    def health(self) -> Mapping[Ends, Health]:
        with self._lock:
            return self._detector.health

    @property
    def lost_sites(self) -> frozenset[SiteId]:
        with self._lock:
            return self._detector.lost_sites

    def __enter__(self) -> "Monitor":
        self._looking.start()
        self._ask_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        with self._lock:
            threads = [self._looking, *self._asking.values()]
        for thread in threads:
            thread.join()

    def _ask_all(self) -> None:
        with self._lock:
            for site in self._sites - self._asking.keys():
                thread = threading.Thread(target=self._ask, args=(site,), name=f"monitor-{site}", daemon=True)
                self._asking[site] = thread
                thread.start()

    def _goes_on(self, site: SiteId) -> bool:
        with self._lock:
            if site in self._sites and not self._stop.is_set():
                return True
            self._asking.pop(site, None)
            return False

    def _ask(self, site: SiteId) -> None:
        client: RouterClient | None = None
        while self._goes_on(site):
            address = self._addresses.get(site, "")
            if client is None or client.address != address:
                if client is not None:
                    client.close()
                client = RouterClient(address, self._token, self._suspect_s, site)
            try:
                links = client.status().links
            except PeregrineError:
                pass  # silence is what the detector hears
            else:
                with self._lock:
                    self._detector.told(
                        site, [SiteId(near) for near, trouble in links.items() if not trouble], _now_ms()
                    )
            self._stop.wait(self._suspect_s / ASKS_PER_SUSPICION)
        if client is not None:
            client.close()

    def _look(self) -> None:
        while not self._stop.wait(self._suspect_s / LOOKS_PER_SUSPICION):
            with self._lock:
                before = self._detector.health
                events = self._detector.tick(_now_ms())
                after = self._detector.health
            for ends, health in after.items():
                if before.get(ends) is not health:
                    log.info("link=%s health=%s", "-".join(ends), health)
            for event in events:
                self._tell(event)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
