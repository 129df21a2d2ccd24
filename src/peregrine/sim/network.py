"""A simulated link between two routers: latency, jitter, bandwidth; it can break and heal.

It carries what the sender of `core/link.py` wants sent, loses what is on its way when it breaks or the far router is
down, and breaks when it hears nothing for a while. Exactly-once, in-order delivery is the protocol's work.
"""

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from peregrine.core import wire
from peregrine.core.link import Frame, LinkSender, needed_from
from peregrine.core.messages import FromLink, Single
from peregrine.core.pressure import Telling
from peregrine.core.rows import Item
from peregrine.core.topology import Link
from peregrine.errors import PeregrineError, ProtocolError, Unreachable
from peregrine.sim.out_log import MemoryOut, size_of
from peregrine.sim.world import World
from peregrine.types import SiteId

SILENCE_MS = 120.0
BACK_OFF_MS = 50.0
WINDOW_BYTES = 64 << 10
PRESSURE_EVERY_S = 0.05  # everything is quicker here


class FarEnd(Protocol):
    site: SiteId
    up: bool

    def offer(
        self,
        event: Single,
        durable: Callable[[], None] | None = None,
        refused: Callable[[PeregrineError], None] | None = None,
    ) -> bool: ...
    def acked_link(self, neighbour: SiteId, session: int | None = None) -> int: ...
    def has_seq(self, neighbour: SiteId, session: int) -> int: ...
    def hear_pressure(self, pressed: bool) -> None: ...


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
        out: MemoryOut | None = None,
    ) -> None:
        """`bad_frames`: the share of frames in which a byte changes on the way. `wire`: encode and decode what is
        sent; if not, nothing goes wrong either, and no log need be kept. `out`: the log of the session, which is the
        router's; without one that router has none.
        """
        self.session = session
        self._bad_frames = bad_frames
        self._wire = wire
        self.out = MemoryOut() if out is None else out
        self.sender = self._new_sender(near.site, far.site)
        self.up = True
        self.bytes_sent = 0
        self._world = world
        self._near = near
        self._far = far
        self.latency_ms = link.latency_ms
        self.bandwidth_mbps = link.bandwidth_mbps
        self._link = link
        self._epoch = 0
        self._asking = False
        self._telling = Telling(PRESSURE_EVERY_S)
        self._free_at_ms = 0.0
        self._arrives_at_ms = 0.0
        self._watching = False
        self._progress = -1, -1

    def _new_sender(self, site: SiteId, neighbour: SiteId) -> LinkSender[Item]:
        return LinkSender(site, neighbour, self.out, size_of)

    def put(self, seq: int, item: Item) -> None:
        self.out.append(seq, item)
        self.pump()

    def pump(self) -> None:
        if not self.up or not self._near.up or self.sender.ended:
            return
        if not self.sender.knows:
            self._ask()
            return
        while (frame := self.sender.next_frame()) is not None:
            self._send(frame)

    def begin(self) -> None:
        """Before the run: it has asked long ago."""
        self._told(self._far.has_seq(self._near.site, self.session), self._epoch)

    def _ask(self) -> None:
        """What do you have?"""
        if self._asking:
            return
        self._asking = True
        epoch, far, near = self._epoch, self._far, self._near

        def arrive() -> None:
            if not self._arrives(epoch):
                return  # asked again when nothing has been heard for a while
            try:
                has_seq = far.has_seq(near.site, self.session)
            except PeregrineError:
                self._world.after(self.latency_ms, lambda: self._broke(epoch))
            else:
                self._world.after(self.latency_ms, lambda: self._told(has_seq, epoch))

        self._world.after(self.latency_ms, arrive)
        self._watch()

    def _told(self, has_seq: int, epoch: int) -> None:
        if self._hears(epoch):
            self.sender.begin(has_seq, WINDOW_BYTES)
            self._asking = False
            self._telling = Telling(PRESSURE_EVERY_S)
            self.pump()

    def _send(self, frame: Frame[Item]) -> None:
        world, epoch = self._world, self._epoch
        self.bytes_sent += frame.size
        started = max(world.now_ms, self._free_at_ms)
        self._free_at_ms = started + frame.size * 8 / (self._link.bandwidth_mbps * 1000)
        arrival = self._free_at_ms + self._link.latency_ms * world.rng.uniform(1.0, 1.3)
        self._arrives_at_ms = arrival = max(arrival, self._arrives_at_ms)
        world.after(arrival - world.now_ms, lambda: self._arrive(frame, epoch))
        self._watch()

    def _arrives(self, epoch: int) -> bool:
        return epoch == self._epoch and not (self._link.loss and self._world.rng.random() < self._link.loss)

    def _hears(self, epoch: int) -> bool:
        return epoch == self._epoch and self._near.up

    def _arrive(self, frame: Frame[Item], epoch: int) -> None:
        if not self._arrives(epoch):
            return
        back_ms = self._link.latency_ms
        far, near = self._far, self._near

        def durable() -> None:
            taken_seq = far.acked_link(near.site, self.session)
            self._world.after(back_ms, lambda: self._answered(frame, taken_seq, epoch))

        def refused(error: PeregrineError) -> None:
            self._world.after(back_ms, lambda: self._broke(epoch))

        try:
            items = self._over_the_wire(frame) if self._wire else tuple(frame.items)
        except PeregrineError as error:
            refused(error)
        else:
            if not far.offer(FromLink(near.site, frame.first_seq, items, self.session), durable, refused):
                refused(Unreachable(f"router {far.site} is down", "wait"))

    def _over_the_wire(self, frame: Frame[Item]) -> tuple[Item, ...]:
        messages = [wire.encode(item) for item in frame.items]
        rng = self._world.rng
        if self._bad_frames and rng.random() < self._bad_frames:
            i = rng.randrange(len(messages))
            at = rng.randrange(len(messages[i]))
            messages[i] = messages[i][:at] + bytes([messages[i][at] ^ 0x40]) + messages[i][at + 1 :]
        return tuple(wire.decode_item(message) for message in messages)

    def _answered(self, frame: Frame[Item], taken_seq: int, epoch: int) -> None:
        if not self._hears(epoch):
            return
        try:
            self.sender.answered(frame, taken_seq)
        except ProtocolError:
            self._broke(epoch)
            return
        self.sender.acked(taken_seq)
        if not self._wire:
            self.out.truncate(needed_from(self.sender.acked_seq))
        self.pump()

    def tell_pressure(self, pressed: Callable[[], bool]) -> None:
        """Called again and again on links downwards."""
        if not self.sender.knows or self.sender.ended:
            return
        told = self._telling.tell(pressed, self._world.now_ms / 1000)
        if told is None:
            return
        epoch = self._epoch

        def arrive() -> None:
            if epoch == self._epoch:
                try:
                    self._far.hear_pressure(told)
                except Unreachable:
                    self._broke(epoch)

        self._world.after(self.latency_ms, arrive)

    def _watch(self) -> None:
        """Begin again when nothing has moved for a while, but for what is still on its way over a narrow link."""
        if self._watching:
            return
        self._watching = True
        self._progress = -1, -1

        def look() -> bool:
            self._watching = self._asking or self.sender.waiting_items > 0
            if not self._watching:
                return False
            progress = self._epoch, self.sender.acked_seq
            if progress == self._progress and self._world.now_ms > self._arrives_at_ms + self.latency_ms:
                self._broke(self._epoch)
            self._progress = progress
            return True

        self._world.every(SILENCE_MS + 3 * self._link.latency_ms, look)

    def _broke(self, epoch: int) -> None:
        """It begins again after a while."""
        if epoch == self._epoch:
            self._begin_anew()
            epoch = self._epoch
            self._world.after(BACK_OFF_MS, lambda: self.pump() if epoch == self._epoch else None)

    def _begin_anew(self) -> None:
        self._epoch += 1
        self._asking = False
        self.sender.broke()

    def break_off(self) -> None:
        self.up = False
        self._begin_anew()

    def heal(self) -> None:
        self.up = True
        self.pump()

    def restart(self, out: MemoryOut | None) -> None:
        """The near router is back: of what it knew about the link, the log is there, if the session goes on."""
        self._begin_anew()
        self.out = MemoryOut() if out is None else out
        self.sender = self._new_sender(self._near.site, self._far.site)
        self.sender.ended = out is None
        self.pump()

    def end(self) -> None:
        self.sender.ended = True

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

    def open(self, near: SiteId, far: SiteId, session: int, out: MemoryOut | None) -> SimLink:
        _, detour = self._detours.get(frozenset((near, far)), (None, None))
        link = self._links.get(frozenset((near, far)), detour)
        opened = SimLink(
            self._world,
            self.routers[near],
            self.routers[far],
            link or Link(10.0),
            bad_frames=self._bad_frames,
            session=session,
            out=out,
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
