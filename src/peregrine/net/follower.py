"""Devices that follow a guide: their positions go there, and each moves to the router that it is told to use.

    with Follower(GuideClient(guide, token), addresses) as follower:
        car = Device(SourceId("car"), addresses, follower.nearest(position), token, roaming=True)
        follower.follow(car)
        follower.seen(car, position)        # whenever the position is known anew

A move is `Device.move`, with all that it guarantees: what the old router has not acknowledged goes to the new one.
While the guide is away devices stay where they are and keep sending; the newest positions are told when it is back.
`addresses` is where the devices look up their routers, and is kept as the guide says.
"""

import logging
import threading
import time
from collections.abc import Callable, MutableMapping

from peregrine.errors import PeregrineError, Unreachable
from peregrine.net.device import Device
from peregrine.net.guide_client import GuideClient
from peregrine.net.tls import TlsFiles, where, with_tls
from peregrine.plan.guide import Notice, Sighting, Use
from peregrine.plan.nearest import Position
from peregrine.types import SiteId, SourceId

WAIT_S = 1.0  # in one call; a device that begins to follow is asked for after this time at the latest
BACK_OFF_S = (0.05, 2.0)
log = logging.getLogger(__name__)


class Follower:
    def __init__(
        self,
        guide: GuideClient,
        addresses: MutableMapping[SiteId, str],
        tls: TlsFiles | None = None,
        heard: Callable[[Notice], None] = lambda notice: None,
    ) -> None:
        """`tls` says whom to trust at routers: a guide only knows where they listen. `heard` is told of every move.

        The client is closed with the follower.
        """
        self.trouble = ""  # what keeps it from hearing the guide
        self._guide = guide
        self._addresses = addresses
        self._tls = tls
        self._heard = heard
        self._devices: dict[SourceId, Device] = {}
        self._sightings: dict[SourceId, Sighting] = {}
        self._untold: set[SourceId] = set()
        self._stopping = False
        self._stir = threading.Condition()
        self._threads = [
            threading.Thread(target=self._run, args=(turn,), name=f"follower-{turn.__name__}", daemon=True)
            for turn in (self._tell, self._listen)
        ]
        for thread in self._threads:
            thread.start()

    # --- what a user calls ---

    def nearest(self, position: Position) -> SiteId:
        """For a device that begins: the site to connect to, whose address is known from here on."""
        router = self._guide.nearest(position)
        if router is None:
            raise Unreachable(f"no router covers {position}", "begin where one does, or register routers at the guide")
        self._note(router.site, router.address)
        return router.site

    def follow(self, device: Device) -> None:
        with self._stir:
            self._devices[device.source] = device
            self._stir.notify_all()

    def forget(self, device: Device) -> None:
        """It stays where it is from now on."""
        with self._stir:
            self._devices.pop(device.source, None)
            self._sightings.pop(device.source, None)
            self._untold.discard(device.source)

    def seen(self, device: Device, position: Position) -> None:
        """Returns at once; if positions come faster than they can be told, only the newest is."""
        with self._stir:
            before = self._sightings.get(device.source)
            now_ms = time.time_ns() // 1_000_000
            time_ms = now_ms if before is None else max(now_ms, before.time_ms + 1)
            self._sightings[device.source] = Sighting(device.source, position, time_ms)
            self._untold.add(device.source)
            self._stir.notify_all()

    def close(self) -> None:
        with self._stir:
            self._stopping = True
            self._stir.notify_all()
        for thread in self._threads:
            thread.join()
        self._guide.close()

    def __enter__(self) -> "Follower":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- the threads: one tells, one listens ---

    def _run(self, turn: Callable[[], None]) -> None:
        back_off_s = BACK_OFF_S[0]
        while not self._stopping:
            try:
                turn()
                back_off_s = BACK_OFF_S[0]
            except PeregrineError as error:
                self._say(error.what)
                with self._stir:
                    self._stir.wait_for(lambda: self._stopping, back_off_s)
                back_off_s = min(2 * back_off_s, BACK_OFF_S[1])

    def _tell(self) -> None:
        with self._stir:
            self._stir.wait_for(lambda: self._stopping or self._untold)
            told = [self._sightings[source] for source in self._untold]
        if told:
            self._guide.see(told)
            with self._stir:
                self._untold -= {each.device for each in told if self._sightings.get(each.device) == each}

    def _listen(self) -> None:
        with self._stir:
            self._stir.wait_for(lambda: self._stopping or self._devices)
            devices, sightings = dict(self._devices), list(self._sightings.values())
        if self._stopping:
            return
        uses = [Use(source, device.site, self._address(device.site)) for source, device in devices.items()]
        notices = self._guide.follow(sightings, uses, WAIT_S)
        self._say("")
        used = {use.device: use.site for use in uses}
        for notice in notices:
            self._note(notice.site, notice.address)
            device = devices[notice.device]
            if notice.site != device.site == used[notice.device]:
                device.move(notice.site)
                log.info("source=%s from=%s to=%s", notice.device, used[notice.device], notice.site)
            try:
                self._heard(notice)
            except Exception:  # an observer that raises must not keep devices from following
                log.exception("heard raised on %r", notice)

    def _address(self, site: SiteId) -> str:
        return where(self._addresses.get(site, ""))

    def _note(self, site: SiteId, address: str) -> None:
        if self._address(site) != address:
            self._addresses[site] = address if self._tls is None else with_tls(address, self._tls)

    def _say(self, trouble: str) -> None:
        if trouble != self.trouble:
            log.info("guide=%s trouble=%r", where(self._guide.address), trouble)
        self.trouble = trouble
