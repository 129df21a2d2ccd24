"""A guide that can be called: Arrow Flight in front of plan/guide.py, which decides; here it is only asked again.

Every call carries the token; the server listens on this machine only, with TLS if its settings name certificates.
Nothing is on a disk: routers renew, and devices say where they are, so a guide that was restarted soon knows it all.
Whoever follows waits in its call until there is something to tell; it is woken for the devices that have moved alone.
"""

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from peregrine.errors import ConfigurationError, ProtocolError, UnknownName
from peregrine.net import guide_protocol, protocol
from peregrine.net.addresses import HERE, check_free
from peregrine.net.door import Door
from peregrine.net.faults import told_to_the_client
from peregrine.net.guide_settings import GuideSettings
from peregrine.net.settings import read_token
from peregrine.net.tls import server_options
from peregrine.plan.guide import Guide, Notice, Sighting, Use
from peregrine.plan.nearest import Whereabouts
from peregrine.types import SiteId, SourceId

TICKS_PER_LEASE = 10

log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Waiting:
    """A call that waits: `stirred` names the devices for which there may be something to tell."""

    uses: dict[SourceId, Use]
    stirred: set[SourceId]
    wake: threading.Event = field(default_factory=threading.Event)


class GuideServer(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(self, settings: GuideSettings) -> None:
        token = read_token(Path(settings.token_file))
        self._lease_s = settings.lease_s
        self._lock = threading.Lock()
        lease_ms = int(settings.lease_s * 1000)
        self._guide = Guide(settings.geometry, _now_ms(), settings.margin_m, lease_ms)
        self._waiting: set[_Waiting] = set()
        self._by_device: dict[SourceId, set[_Waiting]] = {}
        self._stopping = threading.Event()
        if settings.port:
            check_free(settings.port)
        location, tls = server_options(HERE, settings.port, settings.tls, settings.tls_verify_clients)
        try:
            super().__init__(location, middleware={"door": Door(token)}, **tls)
        except pa.ArrowException as error:
            raise ConfigurationError(
                f"the guide cannot listen at {location}: {error}",
                "choose another port; with TLS, see that tls_cert and tls_key belong together",
            ) from error
        self._ticks = threading.Thread(target=self._tick, name="guide-tick", daemon=True)
        self._ticks.start()

    def stop(self) -> None:
        self._stopping.set()
        with self._lock:
            for waiting in self._waiting:
                waiting.wake.set()
        self._ticks.join()
        self.shutdown()

    # --- calls ---

    def do_action(self, context: Any, action: flight.Action) -> Iterable[bytes]:
        body = action.body.to_pybytes() if action.body is not None else b""
        with told_to_the_client():
            try:
                return [self._act(action.type, body)]
            except msgspec.DecodeError as error:
                raise ProtocolError(
                    f"the body of {action.type} cannot be read: {error}", "run the same version on both sides"
                ) from error

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return [(name, "see peregrine.net.guide_protocol") for name in guide_protocol.ACTIONS]

    def _act(self, name: str, body: bytes) -> bytes:
        match name:
            case guide_protocol.REGISTER:
                return protocol.encode(self._register(guide_protocol.whereabouts.decode(body)))
            case guide_protocol.WITHDRAW:
                self._withdraw(msgspec.msgpack.decode(body, type=SiteId))
            case guide_protocol.SEE:
                with self._lock:
                    self._see(guide_protocol.sightings.decode(body))
            case guide_protocol.FOLLOW:
                return protocol.encode(self._follow(*guide_protocol.follow.decode(body)))
            case guide_protocol.NEAREST:
                with self._lock:
                    return protocol.encode(self._guide.nearest(guide_protocol.position.decode(body)))
            case guide_protocol.ROUTERS:
                with self._lock:
                    return protocol.encode(self._guide.routers)
            case _:
                raise UnknownName("action", name, list(guide_protocol.ACTIONS))
        return b""

    # --- what they do ---

    def _register(self, router: Whereabouts) -> float:
        """Returns the lease, in seconds: it has to be renewed before that."""
        with self._lock:
            if self._guide.register(router, _now_ms()):
                log.info("site=%s address=%s position=%s registered", router.site, router.address, router.position)
                self._stir_all()
        return self._lease_s

    def _withdraw(self, site: SiteId) -> None:
        with self._lock:
            if self._guide.withdraw(site, _now_ms()):
                log.info("site=%s withdrew", site)
                self._stir_all()

    def _follow(self, sightings: list[Sighting], uses: list[Use], wait_s: float) -> list[Notice]:
        until_s = time.monotonic() + min(wait_s, protocol.LONGEST_WAIT_S)
        by_device = {use.device: use for use in uses}
        waiting = _Waiting(by_device, set(by_device))
        with self._lock:
            self._see(sightings)
            self._begin(waiting)
        try:
            while True:
                with self._lock:
                    waiting.wake.clear()
                    stirred, waiting.stirred = waiting.stirred, set()
                    notices = self._guide.notices(waiting.uses[device] for device in stirred)
                left_s = until_s - time.monotonic()
                if notices or left_s <= 0 or self._stopping.is_set() or not waiting.wake.wait(left_s):
                    return notices
        finally:
            with self._lock:
                self._end(waiting)

    def _tick(self) -> None:
        while not self._stopping.wait(self._lease_s / TICKS_PER_LEASE):
            with self._lock:
                before = {router.site for router in self._guide.routers}
                if self._guide.tick(_now_ms()):
                    gone = before - {router.site for router in self._guide.routers}
                    log.info("routers=%d gone=%s", len(self._guide.routers), ",".join(sorted(gone)))
                    self._stir_all()

    # --- under the lock ---

    def _see(self, sightings: list[Sighting]) -> None:
        for device in self._guide.see(sightings, _now_ms()):
            for waiting in self._by_device.get(device, ()):
                waiting.stirred.add(device)
                waiting.wake.set()

    def _stir_all(self) -> None:
        for waiting in self._waiting:
            waiting.stirred.update(waiting.uses)
            waiting.wake.set()

    def _begin(self, waiting: _Waiting) -> None:
        self._waiting.add(waiting)
        for device in waiting.uses:
            self._by_device.setdefault(device, set()).add(waiting)

    def _end(self, waiting: _Waiting) -> None:
        self._waiting.discard(waiting)
        for device in waiting.uses:
            others = self._by_device[device]
            others.discard(waiting)
            if not others:
                del self._by_device[device]


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
