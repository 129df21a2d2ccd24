"""Chunks from other sites: brings what the router waits for, and hands on what others ask for.

One thread brings what `Router.fetches` names, whether asked for just now or before a restart. It asks the neighbour on
the way to the site that has the chunks; a router that does not have them itself asks the next one, so chunks go hop by
hop, one at a time, and never through a journal or a log. How a link feels is emulated here as well.
"""

import logging
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from peregrine.core.messages import ChunksHere, Fetch
from peregrine.errors import PeregrineError, ProtocolError, Unreachable
from peregrine.net.chunk_files import ChunkFiles
from peregrine.net.client import RouterClient
from peregrine.net.protocol import Neighbour
from peregrine.types import SiteId

ASK_CHUNKS = 1024  # in one call: each costs a round trip over all hops, and what has come stays when it breaks
CALL_S = 300.0
IDLE_S = 1.0
BACK_OFF_S = (0.2, 10.0)
log = logging.getLogger(__name__)
_origin = attrgetter("origin")


@dataclass(frozen=True)
class Hop:
    """The neighbour on the way to a site."""

    site: SiteId
    to: Neighbour


class ChunkSource:
    """What a site can give: its own chunks, and those of others that it asks for them."""

    def __init__(
        self, site: SiteId, chunks: ChunkFiles, hop: Callable[[SiteId, SiteId | None], Hop], token: str
    ) -> None:
        self.chunks = chunks
        self._site = site
        self._hop = hop
        self._token = token
        self._clients: dict[str, RouterClient] = {}
        self._lock = threading.Lock()

    def read(self, origin: SiteId, names: Sequence[bytes], via: SiteId | None = None) -> Iterator[bytes]:
        """The chunks of a site in this order, one at a time. `via` is the router that asks for them, if it is one."""
        if origin == self._site:
            for name in names:
                yield self.chunks.get(name)
            return
        hop = self._hop(origin, via)
        if not hop.to.address:
            raise Unreachable(f"{hop.site} has no address", "tell this router its neighbours")
        pace = _Pace(hop.to)
        for chunk in self._client(hop).chunks(origin, names, self._site):
            pace.arrived(len(chunk))
            yield chunk

    def close(self) -> None:
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()

    def _client(self, hop: Hop) -> RouterClient:
        with self._lock:
            if hop.to.address not in self._clients:
                self._clients[hop.to.address] = RouterClient(hop.to.address, self._token, CALL_S, hop.site)
            return self._clients[hop.to.address]


@dataclass
class _Pace:
    """Waits as long as the emulated link would take: a round trip, then its bandwidth."""

    to: Neighbour
    due_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.due_s = time.monotonic() + 2 * self.to.latency_ms / 1000

    def arrived(self, size: int) -> None:
        if self.to.bandwidth_mbps:
            self.due_s += size / (self.to.bandwidth_mbps * 125_000)
        time.sleep(max(self.due_s - time.monotonic(), 0.0))


class ChunkFetcher:
    def __init__(
        self, source: ChunkSource, wanted: Callable[[], list[Fetch]], offer: Callable[[ChunksHere], object]
    ) -> None:
        """`wanted` is what the router waits for, `offer` tells it that something has come."""
        self._source = source
        self._wanted = wanted
        self._offer = offer
        self._moved: dict[int, int] = {}  # fetch -> bytes that have come, also in tries that broke
        self._stirred = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="chunks", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self.wake()  # a router that was restarted may have been waiting

    def wake(self) -> None:
        self._stirred.set()

    def stop(self) -> None:
        self._stopping = True
        self.wake()
        if self._thread.is_alive():
            self._thread.join(IDLE_S + 1)

    def _run(self) -> None:
        back_off_s = BACK_OFF_S[0]
        while not self._stopping:
            self._stirred.wait()
            self._stirred.clear()
            try:
                wanted = sorted(self._wanted(), key=_origin)  # those of one site stay in their order
                brought = [self._bring(origin, list(mine)) for origin, mine in groupby(wanted, _origin)]
            except PeregrineError as error:  # the router is stopping, or its disk is full
                log.info("chunks: %s", error.what)
                brought = [False]
            if all(brought):
                back_off_s = BACK_OFF_S[0]
            elif not self._stopping:
                self._stirred.wait(back_off_s)
                self._stirred.set()
                back_off_s = min(2 * back_off_s, BACK_OFF_S[1])

    def _bring(self, origin: SiteId, fetches: Sequence[Fetch]) -> bool:
        """All that one site has, in as few calls as possible: each costs a round trip. False if it has to be tried
        again. What has come stays, so the next try asks for less.
        """
        chunks = self._source.chunks
        lacking: dict[bytes, int] = {}  # -> the first fetch that wants it
        ends: list[int] = []  # for each fetch, how many of these have to be here
        for fetch in fetches:
            lacking |= {name: fetch.number for name in fetch.names if name not in lacking and not chunks.claim(name)}
            ends.append(len(lacking))
        brought = 0
        try:
            told = self._tell(fetches[: bisect_right(ends, 0)])
            for name, chunk in self._arriving(origin, list(lacking)):
                if self._stopping:
                    return True
                if chunks.put(chunk) != name:
                    raise ProtocolError(f"{origin} sent another chunk than asked for", "see its disk")
                self._moved[lacking[name]] = self._moved.get(lacking[name], 0) + len(chunk)
                brought += 1
                told += self._tell(fetches[told : bisect_right(ends, brought)])
            return True
        except (PeregrineError, ValueError) as error:  # ValueError: the answer ended too early
            log.warning("origin=%s lacking=%d trouble=%r", origin, len(lacking) - brought, str(error))
            return False

    def _arriving(self, origin: SiteId, names: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        for first in range(0, len(names), ASK_CHUNKS):
            asked = names[first : first + ASK_CHUNKS]
            yield from zip(asked, self._source.read(origin, asked), strict=True)

    def _tell(self, complete: Sequence[Fetch]) -> int:
        """Returns how many they were."""
        if complete:
            self._source.chunks.sync()
        for fetch in complete:
            moved = self._moved.pop(fetch.number, 0)
            log.info("fetch=%d origin=%s chunks=%d bytes=%d", fetch.number, fetch.origin, len(fetch.names), moved)
            self._offer(ChunksHere(fetch.number, moved))
        return len(complete)
