"""A router passes on what is for another one: two neighbours whose link is gone for good talk by way of it.

That happens in the middle of a change only (docs/decisions/0022): a site has begun to change its parent, cannot reach
the new one any more, and can go nowhere else before that is over. What is passed on is frames of a link: they are
numbered, and known by the one who gets them, so the relay keeps nothing and looks into nothing.
"""

import threading
from collections.abc import Callable

from peregrine.errors import ProtocolError
from peregrine.net import protocol
from peregrine.net.connection import Connection
from peregrine.types import SiteId

PASSED_ON = (protocol.FRAME, protocol.PRESSURE)
CALL_S = 8.0  # whoever asks waits a little longer


class Relay:
    def __init__(self, token: str, reach: Callable[[str], str]) -> None:
        """`reach`: an address as this router uses it."""
        self._token = token
        self._reach = reach
        self._lock = threading.Lock()
        self._connections: dict[tuple[SiteId, str], Connection] = {}

    def pass_on(self, site: SiteId, address: str, name: str, body: bytes) -> bytes:
        if name not in PASSED_ON:
            raise ProtocolError(f"{name!r} is not passed on to {site}", f"ask {site} itself")
        with self._lock:
            found = self._connections.get((site, address))
            if found is None:
                found = Connection("router", self._reach(address), self._token, CALL_S, site)
                self._connections[site, address] = found
        return found.act(name, body)

    def stop(self) -> None:
        with self._lock:
            for each in self._connections.values():
                each.close()
            self._connections.clear()
