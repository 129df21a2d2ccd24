"""What the devices of one process share on their way to a router: one connection, and one call for all that waits.

A gateway in front of a hundred sensors pays for a call every few milliseconds, not for a hundred of them. Where calls
take long, somebody is busy: then there are fewer of them, each with more.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import NamedTuple

from peregrine.core.messages import Single
from peregrine.errors import PeregrineError, Unreachable
from peregrine.net.call_time import CallTime
from peregrine.net.client import RouterClient
from peregrine.types import SiteId

CALL_S = 10.0
MOST_EVENTS = 500
CALLS_TO_LINGER = 4  # so many times as long as a call takes, at least,
MOST_LINGER_S = 0.05  # but no longer than that
GATHER_S = 0.002  # also after a pause: what is sent at one time goes in one call

Make = Callable[[], Single | None]  # called when it is sent, so that what came last goes with it


class Waiting(NamedTuple):
    make: Make
    answer: "Future[int | None]"


class Uplinks:
    """One uplink for each router that is offered something."""

    def __init__(self, linger_ms: float = 10.0) -> None:
        self._linger_s = linger_ms / 1000
        self._lock = threading.Lock()
        self._clients: dict[tuple[str, SiteId], RouterClient] = {}
        self._uplinks: dict[RouterClient, Uplink] = {}
        self._closed = False

    def client(self, address: str, token: str, site: SiteId) -> RouterClient:
        with self._lock:
            if (address, site) not in self._clients:
                self._clients[address, site] = RouterClient(address, token, CALL_S, site)
            return self._clients[address, site]

    def offer(self, client: RouterClient, make: Make) -> int | None:
        """As `RouterClient.offer`, together with what others offer to the same router at this time. None, if there was
        nothing to offer by then.
        """
        return self.hand(client, make).result()

    def hand(self, client: RouterClient, make: Make) -> "Future[int | None]":
        """As `offer`, without waiting for it."""
        with self._lock:
            if self._closed:
                raise Unreachable("the uplinks of this process are closed", "make new ones")
            uplink = self._uplinks.get(client)
            if uplink is None:
                uplink = self._uplinks[client] = Uplink(client, self._linger_s)
            return uplink.put(make)

    def close(self) -> None:
        """What was offered is still sent, and answered."""
        with self._lock:
            self._closed = True
        for uplink in self._uplinks.values():
            uplink.close()
        for client in self._clients.values():
            client.close()


class Uplink:
    def __init__(self, client: RouterClient, linger_s: float) -> None:
        self._client = client
        self._linger_s = linger_s
        self._calls = CallTime()
        self._sent_s = 0.0  # when the last call began
        self._queue: SimpleQueue[Waiting | None] = SimpleQueue()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"uplink-{client.address}", daemon=True)
        self._thread.start()

    def put(self, make: Make) -> "Future[int | None]":
        waiting = Waiting(make, Future())
        self._queue.put(waiting)
        return waiting.answer

    def close(self) -> None:
        self._stop.set()
        self._queue.put(None)
        self._thread.join(CALL_S + 1)

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            pace_s = max(self._linger_s, min(CALLS_TO_LINGER * self._calls.mean_s, MOST_LINGER_S))
            self._stop.wait(max(self._sent_s + pace_s - time.monotonic(), GATHER_S))
            self._sent_s = time.monotonic()
            taken = [first]
            while len(taken) < MOST_EVENTS and not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    self._queue.put(None)
                    break
                taken.append(more)
            self._send(taken)

    def _send(self, taken: list[Waiting]) -> None:
        made = [(waiting.answer, waiting.make()) for waiting in taken]
        events = [event for _, event in made if event is not None]
        try:
            with self._calls.measured():
                answers = iter(self._client.offer_all(events) if events else [])
        except PeregrineError as error:
            answers = iter([error] * len(events))
        for told, event in made:
            answer = None if event is None else next(answers)
            if isinstance(answer, PeregrineError):
                told.set_exception(answer)
            else:
                told.set_result(answer)
