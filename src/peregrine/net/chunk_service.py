"""All that a router process does about chunks: gives them, fetches them, removes what nobody needs."""

from collections.abc import Iterator

from peregrine.core.chunks import NAME_BYTES
from peregrine.core.messages import Fetch
from peregrine.errors import ProtocolError, UnknownName
from peregrine.log.record_log import Fsync
from peregrine.net.chunk_collector import Collector
from peregrine.net.chunk_fetcher import ChunkFetcher, ChunkSource, Hop
from peregrine.net.chunk_files import ChunkFiles
from peregrine.net.links import Links
from peregrine.net.protocol import CHUNKS
from peregrine.net.settings import RouterSettings
from peregrine.net.stepper import Stepper
from peregrine.types import SiteId


class ChunkService:
    def __init__(self, settings: RouterSettings, stepper: Stepper, links: Links, token: str) -> None:
        self._stepper = stepper
        self._links = links
        files = ChunkFiles(stepper.store.directory / CHUNKS, settings.fsync is not Fsync.OFF)
        self._source = ChunkSource(settings.site, files, self._hop, token)
        self._fetcher = ChunkFetcher(self._source, self._fetches, stepper.offer)
        self._collector = Collector(files, self._pinned, settings.chunk_grace_s, settings.chunk_collect_s)
        stepper.on_fetch = self._fetcher.wake

    def start(self) -> None:
        self._fetcher.start()
        self._collector.start()

    def stop(self) -> None:
        self._fetcher.stop()
        self._collector.stop()
        self._source.close()

    def give(self, origin: SiteId, names: list[bytes], via: SiteId | None) -> Iterator[bytes]:
        """The chunks of a site in this order, read here or asked for on the way there."""
        if any(len(name) != NAME_BYTES for name in names):
            raise ProtocolError("something was asked for that names no chunk", "run the same version on both sides")
        return self._source.read(origin, names, via)

    def _hop(self, origin: SiteId, via: SiteId | None) -> Hop:
        """The way that an item for that site would take now."""
        machine = self._stepper.machine
        neighbour = self._stepper.ask(lambda: machine.rehomings.child_towards(origin, via) or machine.parent)
        if neighbour is None or neighbour == via:
            raise UnknownName("site", origin, [machine.site, *machine.ways.below])
        return Hop(neighbour, self._links.to(neighbour))

    def _fetches(self) -> list[Fetch]:
        found: list[Fetch] = self._stepper.ask(self._stepper.machine.fetches)
        return found

    def _pinned(self) -> set[bytes]:
        found: set[bytes] = self._stepper.ask(self._stepper.machine.pinned)
        return found
