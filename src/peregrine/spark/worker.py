"""What the Python processes of Spark share: connections to routers, pages of state, a heap that is not searched after
every task.

Spark gives the batches of one query to any of its workers. So nothing here remembers a row: only what can be had again.
"""

import gc
import threading
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from peregrine.core.messages import Ahead, FromAnyHost
from peregrine.core.pages import PageCache
from peregrine.errors import PeregrineError, TransportError, Unauthorized
from peregrine.net.client import RouterClient
from peregrine.net.settings import read_token

T = TypeVar("T")
_PAUSE_S = (0.01, 0.05, 0.2, 1.0)
_FREEZE_AT_CALLS = (1, 20)
_PAGES_BYTES = 64 << 20
_calls = 0  # of this process


def freeze_heap() -> None:
    """PySpark collects garbage after every task: what is there to stay need not be searched each time.

    The first batch still loads modules and connects, so it is done once more a little later.
    """
    global _calls
    _calls += 1
    if _calls in _FREEZE_AT_CALLS:
        gc.collect()
        gc.freeze()


@lru_cache(maxsize=256)
def client(address: str, token_file: str) -> RouterClient:
    """The connection of this process to a router."""
    return RouterClient(address, read_token(Path(token_file)))


def pages() -> PageCache:
    """The pages of any group that this thread has used lately."""
    return _pages_of(threading.get_ident())


@lru_cache(maxsize=8)
def _pages_of(thread: int) -> PageCache:
    return PageCache(_PAGES_BYTES)


def offer_all(router: RouterClient, outputs: Sequence[FromAnyHost | Ahead]) -> None:
    """Returns when the router has all of them."""
    for answer in router.offer_all(outputs):
        if isinstance(answer, PeregrineError):
            raise answer


def patiently(call: Callable[[], T], patience_s: float) -> T:
    """The answer of a router. One that is away is waited for: it comes back, and drops what it has had before."""
    deadline = time.monotonic() + patience_s
    tries = 0
    while True:
        try:
            return call()
        except Unauthorized:
            raise
        except TransportError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S[min(tries, len(_PAUSE_S) - 1)])
            tries += 1
