"""The sending end of a link, on a disk: what the out-log holds goes to the neighbour in order, from what it lacks on.

What may be sent is decided by `core/link.py`; here are the calls, and who waits for them. How a link feels is emulated
by a delay line: frames are delivered when they would have arrived, all that are due in one call, and the next ones are
on their way meanwhile.
"""

import logging
import math
import random
import threading
import time
from collections.abc import Callable

from msgspec.structs import replace

from peregrine.core.link import LinkSender
from peregrine.core.pressure import Telling
from peregrine.errors import PeregrineError
from peregrine.log.record_log import RecordLog
from peregrine.net.call_time import CallTime
from peregrine.net.client import RouterClient
from peregrine.net.delay_line import DelayLine
from peregrine.net.protocol import Neighbour
from peregrine.types import SiteId

CALL_S = 10.0
BACK_OFF_S = (0.05, 2.0)
IDLE_S = 1.0
log = logging.getLogger(__name__)


class LinkThread:
    def __init__(
        self,
        site: SiteId,
        neighbour: SiteId,
        out: RecordLog,
        token: str,
        pressed: Callable[[], bool] | None,
        session: int = 0,
    ) -> None:
        """`pressed` is told to the neighbour again and again: for links downwards (back-pressure)."""
        self.neighbour = neighbour
        self.session = session
        self.trouble = "no address is known yet"  # empty: nothing keeps it from delivering straight
        self.sender = LinkSender(site, neighbour, out, len)
        self.lost_frames = 0  # by emulation, and sent again
        self._site = site
        self._token = token
        self._pressed = pressed
        self._to = Neighbour("")
        self._chance = random.Random(f"{site} to {neighbour}")  # the same losses in every run
        self._changed = False
        self._stopping = False
        self._stir = threading.Condition()
        self._stirred = False
        self._thread = threading.Thread(target=self._run, name=f"link-{neighbour}", daemon=True)

    # --- from any thread ---

    def start(self) -> None:
        self._thread.start()

    def connect(self, to: Neighbour) -> None:
        """From now on there. Without an address the link is cut: what is for the neighbour waits on the disk. One that
        is told what it knows goes on: a router is told all of its neighbours whenever one is new.
        """
        with self._stir:
            if to == self._to:
                return
            # One that delivers need not care how else it could.
            self._changed |= bool(self.trouble) or replace(to, by=None) != replace(self._to, by=None)
            self._to = to
        self.wake()

    def wake(self) -> None:
        with self._stir:
            self._stirred = True
            self._stir.notify_all()

    def end(self) -> None:
        """Nothing more is sent, but for what is on its way. Does not wait for that."""
        self._stopping = self.sender.ended = True
        self.wake()

    def stop(self) -> None:
        self.end()
        if self._thread.is_alive():
            self._thread.join(CALL_S + 1)

    @property
    def ended(self) -> bool:
        return self._stopping

    # --- the thread ---

    def _run(self) -> None:
        back_off_s = BACK_OFF_S[0]
        detours = False  # straight and by way of somebody else, in turn, where both are known
        while not self._stopping:
            with self._stir:
                to, self._changed = self._to, False
            if not to.address and to.by is None:
                self._say("no address is known")
                self._wait(IDLE_S)
                continue
            trouble = ""
            if to.by is not None and (detours or not to.address):
                client = RouterClient.by_way_of(to.by, self.neighbour, self._token, CALL_S)
                trouble = f"only by way of {to.by.site}"  # whoever looks after links must not think that it is well
                to = replace(to, latency_ms=to.by.latency_ms, bandwidth_mbps=to.by.bandwidth_mbps)
            else:
                client = RouterClient(to.address, self._token, CALL_S, self.neighbour)
            before = self.sender.acked_seq
            try:
                self._deliver(client, to, trouble)
                back_off_s = BACK_OFF_S[0]
            except PeregrineError as error:
                self.sender.broke()
                self._say(error.what)
                detours = not detours
                back_off_s = BACK_OFF_S[0] if self.sender.acked_seq > before else min(2 * back_off_s, BACK_OFF_S[1])
                self._pause(back_off_s)
            finally:
                client.close()

    def _deliver(self, client: RouterClient, to: Neighbour, trouble: str) -> None:
        """Until it is told to stop or to go elsewhere; raises when the link breaks."""
        line, sender = DelayLine(to, self._chance), self.sender
        self._pause(2 * line.latency_s)
        sender.begin(client.frame(self._site, 0, [], self.session), line.window_bytes)
        self._say(trouble)
        lost_before = self.lost_frames
        pressure = _Pressure(self._pressed, line.latency_s)
        calls = CallTime()
        while not (self._stopping or self._changed):
            now_s = time.monotonic()
            acked_seq = line.acked(now_s)
            if acked_seq is not None:
                sender.acked(acked_seq)
            while (frame := sender.next_frame()) is not None:
                line.put(frame, now_s)
            self.lost_frames = lost_before + line.lost_frames
            pressure.tell(client, now_s)
            arrived = line.arrived(now_s)
            if arrived is None:
                self._wait(min(line.next_s, pressure.next_s) - time.monotonic())
                continue
            with calls.measured():
                taken = client.frame(self._site, arrived.first_seq, arrived.items, self.session)
            line.calls_take(calls.mean_s)
            sender.answered(arrived, taken)
            line.answer(taken, time.monotonic())

    def _pause(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while not (self._stopping or self._changed) and (left_s := until_s - time.monotonic()) > 0:
            self._wait(left_s)

    def _wait(self, seconds: float) -> None:
        with self._stir:
            self._stir.wait_for(lambda: self._stirred, min(max(seconds, 0.0), IDLE_S))
            self._stirred = False

    def _say(self, trouble: str) -> None:
        if trouble != self.trouble:
            log.info("site=%s neighbour=%s trouble=%r", self._site, self.neighbour, trouble)
        self.trouble = trouble


class _Pressure:
    """Back-pressure, told over a link. On an emulated one it arrives as late as everything else."""

    def __init__(self, pressed: Callable[[], bool] | None, latency_s: float) -> None:
        self.next_s = 0.0 if pressed else math.inf
        self._pressed = pressed
        self._latency_s = latency_s
        self._telling = Telling()
        self._coming: bool | None = None  # on its way

    def tell(self, client: RouterClient, now_s: float) -> None:
        if self._pressed is None or now_s < self.next_s:
            return
        if self._coming is None:
            self._coming = self._telling.tell(self._pressed, now_s)
            if self._coming is None:
                self.next_s = self._telling.next_s
                return
            self.next_s = now_s + self._latency_s
            if self._latency_s:
                return
        client.tell_pressure(self._coming)
        self._coming = None
        self.next_s = max(self._telling.next_s, now_s)
