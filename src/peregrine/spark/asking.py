"""Where the logs of a host end. Routers are asked before every batch; those that had nothing tell when they have.

A host may serve many sites of which few have rows. To ask every router every time would take longer than to read what
there is. So a router that had nothing new is asked once more by a thread that waits at it, and is left alone until that
thread has its answer. What it answered is not used: it may be old by then, so the router is asked again.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache

from peregrine.types import PlaceId

CALLERS = 4  # threads that ask routers, or read their logs
WAIT_S = 0.1  # for rows, in one call: cheaper than to be asked again and again
QUIET_S = 4.0  # for rows of a router that had none
MOST_WAITING = 256  # threads; further routers are asked every time

Committed = Mapping[PlaceId, int]
Advanced = tuple[dict[PlaceId, int], list[PlaceId]]  # where logs end, and those that no process follows
Ask = Callable[[str, Committed, float], Advanced]  # the router at an address, for so many seconds


class Asking:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._waited_for: dict[str, Committed] = {}  # routers that have nothing behind this
        self._stirred = threading.Event()  # one of them has, or does not answer

    def advance(self, routers: Mapping[str, Committed], can_wait: bool) -> Advanced:
        """Tells each how far its places are committed. With `can_wait` it waits a little if there is nothing new."""
        if len(routers) == 1:
            ((address, committed),) = routers.items()
            return self._ask(address, committed, WAIT_S if can_wait else 0.0)
        self._stirred.clear()
        found = self._ask_those_who_may_have(routers, can_wait)
        if can_wait and not found[0] and self._stirred.wait(WAIT_S):
            found = self._ask_those_who_may_have(routers, can_wait)
        return found

    def _ask_those_who_may_have(self, routers: Mapping[str, Committed], can_wait: bool) -> Advanced:
        asked = {
            address: committed
            for address, committed in routers.items()
            if not can_wait or self._waited_for.get(address) != committed
        }
        ends: dict[PlaceId, int] = {}
        left: list[PlaceId] = []
        answers = callers().map(self._ask, asked.keys(), asked.values(), [0.0] * len(asked))
        for (address, committed), (some, nobodys) in zip(asked.items(), answers, strict=True):
            left += nobodys
            if some == committed and can_wait:
                self._wait_at(address, committed)
            else:
                ends |= some
        return ends, left

    def _wait_at(self, address: str, committed: Committed) -> None:
        if len(self._waited_for) < MOST_WAITING:
            self._waited_for[address] = committed
            threading.Thread(target=self._wait, args=(address, committed), name="waits", daemon=True).start()

    def _wait(self, address: str, committed: Committed) -> None:
        with suppress(Exception):  # whatever it is, who asks next finds out
            self._ask(address, committed, QUIET_S)
        if self._waited_for.get(address) == committed:
            del self._waited_for[address]
        self._stirred.set()


@lru_cache(maxsize=1)
def callers() -> ThreadPoolExecutor:
    """Of this process; a reader is sent to others."""
    return ThreadPoolExecutor(CALLERS, "router")
