"""A simulated link between two routers: latency, jitter, bandwidth; it can break and heal.

It delivers frames in order, loses what is on its way when it breaks or the far router is down, and repeats after a
while what was not acknowledged. Exactly-once, in-order delivery is the protocol's work, not the link's.
"""

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from peregrine.core import wire
from peregrine.core.link import Frame, LinkSender
from peregrine.core.messages import FromLink, Single
from peregrine.core.rows import Item, Rows, StateRows
from peregrine.core.topology import Link
from peregrine.errors import CorruptMarker
from peregrine.sim.world import World
from peregrine.types import SiteId

RESEND_MS = 120.0
_TEXT_COLUMNS = 3  # of a row: key, source, payload


class FarEnd(Protocol):
    site: SiteId
    up: bool

    def offer(self, event: Single, durable: Callable[[], None] | None = None) -> bool: ...
    def acked_link(self, neighbour: SiteId, session: int | None = None) -> int: ...


class SimLink:
    """One direction of a link."""

    def __init__(
        self,
        world: World,
        near: FarEnd,
        far: FarEnd,
        link: Link,
        bad_frames: float = 0.0,
        wire: bool = True,
        session: int = 0,
    ) -> None:
        """`bad_frames`: the share of frames in which a byte changes on the way. `wire`: encode and decode what is
        sent.
        """
        self.session = session
        self._bad_frames = bad_frames
        self._wire = wire
        self.sender = LinkSender()
        self.up = True
        self.bytes_sent = 0
        self._world = world
        self._near = near
        self._far = far
        self.latency_ms = link.latency_ms
        self.bandwidth_mbps = link.bandwidth_mbps
        self._link = link
        self._epoch = 0
        self._free_at_ms = 0.0
        self._arrives_at_ms = 0.0
        self._watching = False
        self._progress = -1

    def put(self, seq: int, item: Item) -> None:
        self.sender.put(seq, item)
        self.pump()

    def pump(self) -> None:
        if not self.up or not self._near.up:
            return
        frame = self.sender.next_frame()
        if frame is None:
            return
        world, epoch = self._world, self._epoch
        size = sum(size_of(item) for item in frame.items)
        self.bytes_sent += size
        started = max(world.now_ms, self._free_at_ms)
        self._free_at_ms = started + size * 8 / (self._link.bandwidth_mbps * 1000)
        arrival = self._free_at_ms + self._link.latency_ms * world.rng.uniform(1.0, 1.3)
        self._arrives_at_ms = arrival = max(arrival, self._arrives_at_ms)
        world.after(arrival - world.now_ms, lambda: self._arrive(frame, epoch))
        self._watch()

    def _arrive(self, frame: Frame, epoch: int) -> None:
        if epoch != self._epoch or (self._link.loss and self._world.rng.random() < self._link.loss):
            return  # sent again when nothing has been acknowledged for a while
        back_ms = self._link.latency_ms
        far, near = self._far, self._near

        def durable() -> None:
            self._world.after(back_ms, lambda: self._acked(far.acked_link(near.site, self.session), epoch))

        try:
            items = self._over_the_wire(frame) if self._wire else frame.items
        except CorruptMarker:
            return  # not acknowledged, so it is sent again
        far.offer(FromLink(near.site, frame.first_seq, items, self.session), durable)

    def _over_the_wire(self, frame: Frame) -> tuple[Item, ...]:
        messages = [wire.encode(item) for item in frame.items]
        rng = self._world.rng
        if self._bad_frames and rng.random() < self._bad_frames:
            i = rng.randrange(len(messages))
            at = rng.randrange(len(messages[i]))
            messages[i] = messages[i][:at] + bytes([messages[i][at] ^ 0x40]) + messages[i][at + 1 :]
        return tuple(wire.decode_item(message) for message in messages)

    def _acked(self, seq: int, epoch: int) -> None:
        if epoch == self._epoch:
            self.sender.acked(seq)
            self.pump()

    def _watch(self) -> None:
        """Repeat from the first unacknowledged when nothing has moved for a while."""
        if self._watching:
            return
        self._watching = True
        self._progress = -1

        def look() -> bool:
            self._watching = self.sender.backlog_items > 0
            if not self._watching:
                return False
            if self.sender.first_seq == self._progress:
                self.sender.broke()
                self.pump()
            self._progress = self.sender.first_seq
            return True

        self._world.every(RESEND_MS + 3 * self._link.latency_ms, look)

    def break_off(self) -> None:
        self.up = False
        self._epoch += 1
        self.sender.broke()

    def heal(self) -> None:
        self.up = True
        self.pump()

    def becomes(self, link: Link) -> None:
        """From now on faster or slower."""
        self.latency_ms, self.bandwidth_mbps, self._link = link.latency_ms, link.bandwidth_mbps, link


class Router(FarEnd, Protocol):
    sessions: dict[tuple[SiteId, int], SimLink]


R = TypeVar("R", bound=Router)


class Network(Generic[R]):
    """Which sites are linked now. Routers open sessions over what is there; a session ends with its routers, not with
    the link.
    """

    def __init__(self, world: World, bad_frames: float = 0.0) -> None:
        self.routers: dict[SiteId, R] = {}
        self._world = world
        self._bad_frames = bad_frames
        self._links: dict[frozenset[SiteId], Link] = {}
        self._detours: dict[frozenset[SiteId], tuple[frozenset[SiteId], Link]] = {}  # the link that each begins with

    def open(self, near: SiteId, far: SiteId, session: int) -> SimLink:
        _, detour = self._detours.get(frozenset((near, far)), (None, None))
        link = self._links.get(frozenset((near, far)), detour)
        opened = SimLink(
            self._world,
            self.routers[near],
            self.routers[far],
            link or Link(10.0),
            bad_frames=self._bad_frames,
            session=session,
        )
        opened.up = link is not None
        return opened

    def is_set(self, a: SiteId, b: SiteId) -> bool:
        return frozenset((a, b)) in self._links

    def set(self, a: SiteId, b: SiteId, link: Link) -> None:
        self._links[frozenset((a, b))] = link
        self._detours.pop(frozenset((a, b)), None)
        self._repair(a, b, link)

    def go_round(self, a: SiteId, b: SiteId, by: SiteId, link: Link) -> bool:
        """Two whose link is gone reach each other by way of somebody whom `a` is linked to, as long as it is.

        False: there is nothing to do, or no such link.
        """
        pair, first = frozenset((a, b)), frozenset((a, by))
        if pair in self._links or pair in self._detours or first not in self._links:
            return False
        self._detours[pair] = first, link
        self._repair(a, b, link)
        return True

    def remove(self, a: SiteId, b: SiteId) -> None:
        lost = frozenset((a, b))
        self._links.pop(lost, None)
        self.break_off(a, b)
        for pair in [pair for pair, (first, _) in self._detours.items() if lost in (pair, first)]:
            del self._detours[pair]
            self.break_off(*sorted(pair))

    def break_off(self, a: SiteId, b: SiteId) -> None:
        for each in self._between(a, b):
            each.break_off()

    def heal(self, a: SiteId, b: SiteId) -> None:
        if self.is_set(a, b):
            for each in self._between(a, b):
                each.heal()

    def _repair(self, a: SiteId, b: SiteId, link: Link) -> None:
        for each in self._between(a, b):
            each.becomes(link)
            each.heal()

    def _between(self, a: SiteId, b: SiteId) -> Iterator[SimLink]:
        for near, far in ((a, b), (b, a)):
            for (neighbour, _), link in self.routers[near].sessions.items():
                if neighbour == far:
                    yield link


def size_of(item: Item) -> int:
    """About how many bytes an item takes on the wire."""
    if isinstance(item, Rows):
        return _batch_bytes(item.batch) + 64
    if isinstance(item, StateRows):
        return 64 + sum(image.bytes_moved for image in item.images)
    return 128


def _batch_bytes(batch: pa.RecordBatch) -> int:
    """`nbytes`, which is slow. Unless a batch is a slice, its buffers tell: texts have one offset more than rows."""
    if batch.column(1).buffers()[1].size == 8 * batch.num_rows:
        return int(batch.get_total_buffer_size()) - 4 * _TEXT_COLUMNS
    return int(batch.nbytes)
