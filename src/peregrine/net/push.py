"""The logs of a router's hosts, pushed to who follows them: entries as they are in the log, as soon as they are there.

One follower a place: who begins to follow has the lease, and the one before is told that it has lost it. A host that
was thought dead, and works on, would do no harm (what it hands over are repeats), but it would work for nothing.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping

from peregrine.errors import ProtocolError, UnknownName
from peregrine.log.file_log import FileLog
from peregrine.net import protocol
from peregrine.net.stepper import Stepper
from peregrine.types import OpId, PlaceId

PUSH_BYTES = 1 << 20
ALIVE_S = 1.0  # how often something is sent when there is nothing to send: a follower that has gone is found by it


class Push:
    def __init__(self, stepper: Stepper, hosts: Mapping[PlaceId, FileLog], groups: Mapping[OpId, int]) -> None:
        self._stepper = stepper
        self._hosts = hosts
        self._groups = dict(groups)
        self._lock = threading.Lock()
        self._leases: dict[PlaceId, int] = {}
        self._followed: Counter[PlaceId] = Counter()

    def follow(self, place: PlaceId, offset: int) -> Iterator[bytes]:
        """First how many groups each operator has, then [[offset, entry], ...] again and again, with nothing in between
        as a sign of life; at last LOST, if somebody else has begun to follow.
        """
        host = self._hosts.get(place)
        if host is None:
            raise UnknownName("place of this router", place, list(self._hosts))
        lease = self._take(place)
        return self._entries(place, host, offset, lease)

    def release(self, place: PlaceId) -> None:
        """Nobody is to follow this place."""
        self._take(place)

    def is_followed(self, place: PlaceId) -> bool:
        """As far as it is known: one that has gone is found when something is sent to it, after a second at most."""
        return self._followed[place] > 0

    def _take(self, place: PlaceId) -> int:
        with self._lock:
            self._leases[place] = self._leases.get(place, 0) + 1
            return self._leases[place]

    def _entries(self, place: PlaceId, host: FileLog, offset: int, lease: int) -> Iterator[bytes]:
        try:
            with self._lock:
                self._followed[place] += 1
            yield from self._while_it_has_the_lease(place, host, offset, lease)
        finally:
            with self._lock:
                self._followed[place] -= 1

    def _while_it_has_the_lease(self, place: PlaceId, host: FileLog, offset: int, lease: int) -> Iterator[bytes]:
        yield protocol.encode(self._groups)
        while not self._is_over(place, lease):
            end = host.end
            found = host.records.read(offset, PUSH_BYTES)
            if offset < host.first:
                raise ProtocolError(
                    f"offset {offset} of {place} is followed, and its log begins at {host.first}",
                    "start the host from a newer checkpoint, or restore the router's directory",
                )
            if found:
                yield protocol.encode(found)
                offset = found[-1][0] + 1  # within its last entry: what is read next comes behind that
                continue
            self._stepper.wait_until(lambda: self._is_over(place, lease) or host.end > end, ALIVE_S)  # noqa: B023
            if host.end == end:
                yield b""
        if not self._stepper.closed:
            yield protocol.LOST

    def _is_over(self, place: PlaceId, lease: int) -> bool:
        return self._leases[place] != lease or self._stepper.closed
