"""Chunks from other sites: brings what the router waits for, and hands on what others ask for.

One thread brings what `Router.fetches` names, whether asked for just now or before a restart. It asks the neighbour on
the way to the site that has the chunks; a router that does not have them itself asks the next one, so chunks go hop by
hop, one at a time, and never through a journal or a log. How a link feels is emulated here as well.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from peregrine.core.messages import ChunksHere, Fetch
from peregrine.errors import PeregrineError, ProtocolError, Unreachable
from peregrine.net.chunk_files import ChunkFiles
from peregrine.net.client import RouterClient
from peregrine.net.protocol import Neighbour
from peregrine.types import SiteId

ASK_CHUNKS = 8  # in one call: what is lost when it breaks
CALL_S = 300.0
IDLE_S = 1.0
BACK_OFF_S = (0.2, 10.0)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hop:
    """The neighbour on the way to a site."""

    site: SiteId
    to: Neighbour


class ChunkSource:
    """What a site can give: its own chunks, and those of others that it asks for them."""

    def __init__(self, site: SiteId, chunks: ChunkFiles, hop: Callable[[SiteId], Hop], token: str) -> None:
        self.chunks = chunks
        self._site = site
        self._hop = hop
        self._token = token
        self._clients: dict[str, RouterClient] = {}
        self._lock = threading.Lock()

    def read(self, origin: SiteId, names: Sequence[bytes]) -> Iterator[bytes]:
        """The chunks of a site in this order, one at a time."""
        if origin == self._site:
            for name in names:
                yield self.chunks.get(name)
            return
        hop = self._hop(origin)
        if not hop.to.address:
            raise Unreachable(f"{hop.site} has no address", "tell this router its neighbours")
        pace = _Pace(hop.to)
        for chunk in self._client(hop).chunks(origin, names):
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
                brought = [self._bring(fetch) for fetch in self._wanted()]
            except PeregrineError as error:  # the router is stopping, or its disk is full
                log.info("chunks: %s", error.what)
                brought = [False]
            if all(brought):
                back_off_s = BACK_OFF_S[0]
            elif not self._stopping:
                self._stirred.wait(back_off_s)
                self._stirred.set()
                back_off_s = min(2 * back_off_s, BACK_OFF_S[1])

    def _bring(self, fetch: Fetch) -> bool:
        """False if it has to be tried again. What has come stays, so the next try asks for less."""
        chunks = self._source.chunks
        lacking = [name for name in fetch.names if not chunks.claim(name)]
        started_s = time.monotonic()
        try:
            for i in range(0, len(lacking), ASK_CHUNKS):
                asked = lacking[i : i + ASK_CHUNKS]
                for name, chunk in zip(asked, self._source.read(fetch.origin, asked), strict=True):
                    if self._stopping:
                        return True
                    if chunks.put(chunk) != name:
                        raise ProtocolError(f"{fetch.origin} sent another chunk than asked for", "see its disk")
                    self._moved[fetch.number] = self._moved.get(fetch.number, 0) + len(chunk)
            chunks.sync()
        except (PeregrineError, ValueError) as error:  # ValueError: the answer ended too early
            log.warning(
                "fetch=%d origin=%s lacking=%d trouble=%r", fetch.number, fetch.origin, len(lacking), str(error)
            )
            return False
        moved = self._moved.pop(fetch.number, 0)
        took_ms = (time.monotonic() - started_s) * 1000
        log.info(
            "fetch=%d origin=%s chunks=%d bytes=%d ms=%.0f", fetch.number, fetch.origin, len(lacking), moved, took_ms
        )
        self._offer(ChunksHere(fetch.number, moved))
        return True
