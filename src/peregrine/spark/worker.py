"""What the Python processes of Spark share: connections to routers, pages of state, a heap that is not searched after
every task.

Spark gives the batches of one query to any of its workers. So nothing here remembers a row: only what can be had again.
"""

import gc
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from peregrine.core.pages import PageCache
from peregrine.errors import TransportError, Unauthorized
from peregrine.net.client import RouterClient
from peregrine.net.settings import read_token
from peregrine.types import PlaceId

T = TypeVar("T")
_PAUSE_S = (0.01, 0.05, 0.2, 1.0)
_FREEZE_AT_CALLS = (1, 20)
_PAGES_BYTES = 64 << 20
_calls = 0  # of this process


class PlaceAddress(NamedTuple):
    """A place, and the address of the router of its site."""

    place: PlaceId
    address: str


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


@lru_cache(maxsize=1)
def pages() -> PageCache:
    """The pages of any group that this process has used lately."""
    return PageCache(_PAGES_BYTES)


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
