"""The links of a router: one for each session with a neighbour, opened when the first item goes over it.

Neighbours come and go while a router runs (core/rehomings.py). Where they listen it is told beforehand, by whoever
sends the command (`tell_neighbours`), and keeps; a link without an address waits for one. In a session that has ended
nothing more is sent: what was not acknowledged is handed back from its log (net/store.py).
"""

import threading
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from peregrine.core.pressure import is_told
from peregrine.core.router_logs import Session
from peregrine.net.addresses import Addresses
from peregrine.net.link import LinkThread
from peregrine.net.protocol import Neighbour
from peregrine.net.stepper import Stepper
from peregrine.types import SiteId


class Links:
    def __init__(self, stepper: Stepper, addresses: Addresses, token: str, reach: Callable[[str], str]) -> None:
        """`reach`: an address as this router uses it."""
        self._stepper = stepper
        self._addresses = addresses
        self._token = token
        self._reach = reach
        self._lock = threading.Lock()
        self._links: dict[Session, LinkThread] = {}
        stepper.on_sent = self._sent
        stepper.on_ended = self._end
        stepper.acked = lambda: {session: link.sender.acked_seq for session, link in self._all().items()}

    def start(self) -> None:
        self._stepper.ask(self._open_all)

    def connect(self, neighbours: Mapping[SiteId, Neighbour]) -> None:
        """From now on there, also if they are no neighbours yet."""
        self._addresses.remember(neighbours)
        with self._lock:
            for (neighbour, _), link in self._links.items():
                if neighbour in neighbours:
                    link.connect(self.to(neighbour))

    def to(self, neighbour: SiteId) -> Neighbour:
        known = self._addresses.neighbours.get(neighbour, Neighbour(""))
        by = None if known.by is None else replace(known.by, address=self._reach(known.by.address))
        return replace(known, address=self._reach(known.address), by=by)

    def stop(self) -> None:
        for link in self._all().values():
            link.stop()

    # --- on the thread that steps ---

    def troubles(self) -> dict[str, str]:
        """What keeps the links to those that are neighbours now from delivering; empty: nothing."""
        return {link.neighbour: link.trouble for link in self._open_links() if self._is_neighbour(link.neighbour)}

    def waiting(self) -> dict[str, int]:
        return {
            link.neighbour: link.sender.waiting_items
            for link in self._open_links()
            if link.sender.waiting_items or self._is_neighbour(link.neighbour)
        }

    def _open_all(self) -> None:
        for session in self._stepper.store.outs:
            if session not in self._stepper.store.ended:
                self._sent(session)

    def _sent(self, session: Session) -> None:
        """Something has to be sent in it."""
        link = self._links.get(session)
        if link is not None:
            link.wake()
            return
        neighbour, number = session
        link = LinkThread(
            self._stepper.config.site,
            neighbour,
            self._stepper.store.outs[session],
            self._token,
            self._pressed if is_told(self._stepper.machine.ways, neighbour) else None,
            number,
        )
        with self._lock:
            self._links[session] = link
            link.connect(self.to(neighbour))
        self._end()  # of those before
        link.start()

    def _end(self) -> None:
        for session, link in self._all().items():
            if session in self._stepper.store.ended:
                link.end()

    def _is_neighbour(self, site: SiteId) -> bool:
        ways = self._stepper.machine.ways
        return site == ways.parent or ways.below.get(site) == site

    # --- on any thread ---

    def _pressed(self) -> bool:
        return not self._stepper.ask(self._stepper.machine.accepts_rows)

    def _all(self) -> dict[Session, LinkThread]:
        with self._lock:
            return dict(self._links)

    def _open_links(self) -> list[LinkThread]:
        return [link for link in self._all().values() if not link.ended]
