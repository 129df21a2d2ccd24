"""The sending end of a link, on a disk: what the out-log holds goes to the neighbour in order, from what it lacks on.

Nothing is forgotten here: after a break, a restart of either side or a refusal, the neighbour is asked what it has, and
sending begins again behind that (core/link.py, with a log instead of a memory). Emulation of a slow link is a delay
line: each frame is delivered when it would have arrived, and the next ones are on their way meanwhile.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from peregrine.errors import PeregrineError, ProtocolError
from peregrine.log.record_log import RecordLog
from peregrine.net.client import RouterClient
from peregrine.net.protocol import Neighbour
from peregrine.types import SiteId

FRAME_BYTES = 256 << 10
WINDOW_BYTES = 8 << 20
CALL_S = 10.0
BACK_OFF_S = (0.05, 2.0)
PRESSURE_EVERY_S = 0.5
log = logging.getLogger(__name__)


class OnItsWay(NamedTuple):
    due_s: float
    first_seq: int
    messages: list[bytes]
    size: int


class LinkThread:
    def __init__(
        self, site: SiteId, neighbour: SiteId, out: RecordLog, token: str, pressed: Callable[[], bool] | None
    ) -> None:
        """`pressed` is told to the neighbour again and again: for links downwards (back-pressure)."""
        self.neighbour = neighbour
        self.trouble = "no address is known yet"  # empty: nothing keeps it from delivering
        self.acked_seq = -1
        self._site = site
        self._out = out
        self._token = token
        self._pressed = pressed
        self._to = Neighbour("")
        self._changed = False
        self._stopping = False
        self._stir = threading.Condition()
        self._stirred = False
        self._thread = threading.Thread(target=self._run, name=f"link-{neighbour}", daemon=True)

    # --- from any thread ---

    def start(self) -> None:
        self._thread.start()

    def connect(self, to: Neighbour) -> None:
        """From now on there. Without an address the link is cut: what is for the neighbour waits on the disk."""
        with self._stir:
            self._to, self._changed = to, True
        self.wake()

    def wake(self) -> None:
        with self._stir:
            self._stirred = True
            self._stir.notify_all()

    def stop(self) -> None:
        self._stopping = True
        self.wake()
        if self._thread.is_alive():
            self._thread.join(CALL_S + 1)

    @property
    def waiting_items(self) -> int:
        return self._out.end - 1 - self.acked_seq

    # --- the thread ---

    def _run(self) -> None:
        back_off_s = BACK_OFF_S[0]
        while not self._stopping:
            with self._stir:
                to, self._changed = self._to, False
            if not to.address:
                self._say("no address is known")
                self._wait(1.0)
                continue
            client = RouterClient(to.address, self._token, CALL_S)
            before = self.acked_seq
            try:
                self._deliver(client, to)
                back_off_s = BACK_OFF_S[0]
            except PeregrineError as error:
                self._say(error.what)
                back_off_s = BACK_OFF_S[0] if self.acked_seq > before else min(2 * back_off_s, BACK_OFF_S[1])
                until_s = time.monotonic() + back_off_s
                while not (self._stopping or self._changed) and (left_s := until_s - time.monotonic()) > 0:
                    self._wait(left_s)
            finally:
                client.close()

    def _deliver(self, client: RouterClient, to: Neighbour) -> None:
        """Until it is told to stop or to go elsewhere; raises when the link breaks."""
        self.acked_seq = client.frame(self._site, 0, [])  # nothing: what do you have?
        self._say("")
        next_seq = self.acked_seq + 1
        line: deque[OnItsWay] = deque()
        window = WINDOW_BYTES + int(to.latency_ms * (to.bandwidth_mbps or 0.0) * 125)
        free_at_s = tell_at_s = 0.0
        size = 0
        while not (self._stopping or self._changed):
            while size < window and self._out.end > next_seq:
                frame, free_at_s = self._read(next_seq, to, free_at_s)
                line.append(frame)
                size += frame.size
                next_seq += len(frame.messages)
            if self._pressed is not None and time.monotonic() >= tell_at_s:
                client.tell_pressure(self._pressed())
                tell_at_s = time.monotonic() + PRESSURE_EVERY_S
            left_s = (line[0].due_s if line else time.monotonic() + PRESSURE_EVERY_S) - time.monotonic()
            if left_s > 0:
                self._wait(left_s)
                continue
            frame = line.popleft()
            size -= frame.size
            last = frame.first_seq + len(frame.messages) - 1
            self.acked_seq = client.frame(self._site, frame.first_seq, frame.messages)
            if self.acked_seq < last:
                raise ProtocolError(f"{self.neighbour} took {self.acked_seq} of {last}", "it is sent again from there")

    def _read(self, seq: int, to: Neighbour, free_at_s: float) -> tuple[OnItsWay, float]:
        records = self._out.read(seq, FRAME_BYTES)
        if not records or records[0][0] != seq:
            raise ProtocolError(
                f"{self.neighbour} lacks item {seq}, which {self._site} has no more: it has lost its directory",
                f"give {self.neighbour} its directory back, or start all sites from empty ones",
            )
        messages = [message for _, message in records]
        size = sum(map(len, messages))
        free_at_s = max(free_at_s, time.monotonic())
        if to.bandwidth_mbps:
            free_at_s += size / (to.bandwidth_mbps * 125_000)
        return OnItsWay(free_at_s + to.latency_ms / 1000, seq, messages, size), free_at_s

    def _wait(self, seconds: float) -> None:
        with self._stir:
            self._stir.wait_for(lambda: self._stirred, seconds)
            self._stirred = False

    def _say(self, trouble: str) -> None:
        if trouble != self.trouble:
            log.info("site=%s neighbour=%s trouble=%r", self._site, self.neighbour, trouble)
        self.trouble = trouble
