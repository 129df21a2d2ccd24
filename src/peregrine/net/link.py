"""The sending end of a link, on a disk: what the out-log holds goes to the neighbour in order, from what it lacks on.

Nothing is forgotten here: after a break, a restart of either side or a refusal, the neighbour is asked what it has, and
sending begins again behind that (core/link.py, with a log instead of a memory). How a link feels is emulated by a delay
line: frames are delivered when they would have arrived, all that are due in one call, and the next ones are on their
way meanwhile.
"""

import logging
import math
import random
import threading
import time
from collections.abc import Callable

from msgspec.structs import replace

from peregrine.errors import PeregrineError, ProtocolError
from peregrine.log.record_log import RecordLog
from peregrine.net.call_time import CallTime
from peregrine.net.client import RouterClient
from peregrine.net.delay_line import DelayLine, Frame
from peregrine.net.protocol import Neighbour
from peregrine.types import SiteId

FRAME_BYTES = 256 << 10
CALL_S = 10.0
BACK_OFF_S = (0.05, 2.0)
PRESSURE_EVERY_S = 0.5
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
        self.acked_seq = -1
        self.read_seq = -1  # the last that is on its way
        self.lost_frames = 0  # by emulation, and sent again
        self._site = site
        self._out = out
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
        self._stopping = True
        self.wake()

    def stop(self) -> None:
        self.end()
        if self._thread.is_alive():
            self._thread.join(CALL_S + 1)

    @property
    def ended(self) -> bool:
        return self._stopping

    @property
    def waiting_items(self) -> int:
        return self._out.end - 1 - self.acked_seq

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
            before = self.acked_seq
            try:
                self._deliver(client, to, trouble)
                back_off_s = BACK_OFF_S[0]
            except PeregrineError as error:
                self._say(error.what)
                detours = not detours
                back_off_s = BACK_OFF_S[0] if self.acked_seq > before else min(2 * back_off_s, BACK_OFF_S[1])
                self._pause(back_off_s)
            finally:
                client.close()

    def _deliver(self, client: RouterClient, to: Neighbour, trouble: str) -> None:
        """Until it is told to stop or to go elsewhere; raises when the link breaks."""
        line = DelayLine(to, self._chance)
        self._pause(2 * line.latency_s)
        has_seq = client.frame(self._site, 0, [], self.session)  # nothing: what do you have?
        if has_seq >= self._out.end:  # it would take what is new for repeats
            raise ProtocolError(
                f"{self.neighbour} has item {has_seq}, and {self._site} has only sent up to {self._out.end - 1}: "
                f"{self._site} has lost its directory",
                f"give {self._site} its directory back, or start all sites from empty ones",
            )
        self.acked_seq = has_seq
        self._say(trouble)
        self.read_seq = self.acked_seq
        lost_before = self.lost_frames
        pressure = _Pressure(self._pressed, line.latency_s)
        calls = CallTime()
        while not (self._stopping or self._changed):
            now_s = time.monotonic()
            acked_seq = line.acked(now_s)
            if acked_seq is not None:
                self.acked_seq = acked_seq
            while line.has_room and self._out.end > self.read_seq + 1:
                frame = self._read(self.read_seq + 1)
                line.put(frame, now_s)
                self.read_seq += len(frame.messages)
            self.lost_frames = lost_before + line.lost_frames
            pressure.tell(client, now_s)
            arrived = line.arrived(now_s)
            if arrived is None:
                self._wait(min(line.next_s, pressure.next_s) - time.monotonic())
                continue
            last = arrived.first_seq + len(arrived.messages) - 1
            with calls.measured():
                taken = client.frame(self._site, arrived.first_seq, arrived.messages, self.session)
            line.calls_take(calls.mean_s)
            if taken < last:
                raise ProtocolError(f"{self.neighbour} took {taken} of {last}", "it is sent again from there")
            line.answer(arrived, taken, time.monotonic())

    def _read(self, seq: int) -> Frame:
        records = self._out.read(seq, FRAME_BYTES)
        if not records or records[0][0] != seq:
            raise ProtocolError(
                f"{self.neighbour} lacks item {seq}, which {self._site} has no more: it has lost its directory",
                f"give {self.neighbour} its directory back, or start all sites from empty ones",
            )
        messages = [message for _, message in records]
        return Frame(seq, messages, sum(map(len, messages)))

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
    """Back-pressure, told again and again while there is any; that there is none, once. On an emulated link it arrives
    as late as everything else.
    """

    def __init__(self, pressed: Callable[[], bool] | None, latency_s: float) -> None:
        self.next_s = 0.0 if pressed else math.inf
        self._pressed = pressed
        self._latency_s = latency_s
        self._told: bool | None = None  # on its way
        self._known: bool | None = None  # what was told last

    def tell(self, client: RouterClient, now_s: float) -> None:
        if self._pressed is None or now_s < self.next_s:
            return
        if self._told is None:
            pressed = self._pressed()
            if not pressed and self._known is False:
                self.next_s = now_s + PRESSURE_EVERY_S
                return
            self._told = pressed
            self.next_s = now_s + self._latency_s
            if self._latency_s:
                return
        client.tell_pressure(self._told)
        self._known, self._told = self._told, None
        self.next_s = now_s + max(PRESSURE_EVERY_S - self._latency_s, 0.0)
