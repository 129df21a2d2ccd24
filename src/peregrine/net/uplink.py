"""What the devices of one process share on their way to a router: one connection, and one call for all that waits.

A gateway in front of a hundred sensors pays for a call every few milliseconds, not for a hundred of them.
"""

import threading
from concurrent.futures import Future
from queue import SimpleQueue
from typing import NamedTuple

from peregrine.core.messages import Single
from peregrine.errors import PeregrineError, Unreachable
from peregrine.net.client import RouterClient
from peregrine.types import SiteId

CALL_S = 10.0
MOST_EVENTS = 500


class Waiting(NamedTuple):
    event: Single
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

    def offer(self, client: RouterClient, event: Single) -> int | None:
        """As `RouterClient.offer`, together with what others offer to the same router at this time."""
        with self._lock:
            if self._closed:
                raise Unreachable("the uplinks of this process are closed", "make new ones")
            uplink = self._uplinks.get(client)
            if uplink is None:
                uplink = self._uplinks[client] = Uplink(client, self._linger_s)
            answer = uplink.put(event)
        return answer.result()

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
        self._queue: SimpleQueue[Waiting | None] = SimpleQueue()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"uplink-{client.address}", daemon=True)
        self._thread.start()

    def put(self, event: Single) -> "Future[int | None]":
        waiting = Waiting(event, Future())
        self._queue.put(waiting)
        return waiting.answer

    def close(self) -> None:
        self._stop.set()
        self._queue.put(None)
        self._thread.join(CALL_S + 1)

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            self._stop.wait(self._linger_s)
            taken = [first]
            while len(taken) < MOST_EVENTS and not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    self._queue.put(None)
                    break
                taken.append(more)
            self._send(taken)

    def _send(self, taken: list[Waiting]) -> None:
        try:
            answers = self._client.offer_all([waiting.event for waiting in taken])
        except PeregrineError as error:
            answers = [error] * len(taken)
        for waiting, answer in zip(taken, answers, strict=True):
            if isinstance(answer, PeregrineError):
                waiting.answer.set_exception(answer)
            else:
                waiting.answer.set_result(answer)
