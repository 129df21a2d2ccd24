"""The sending end of a link between two routers: FIFO, resumable, store and forward.

What is for the neighbour lies in a log, in order. Whenever a link begins to work, after a break or a restart of either
side, the neighbour is asked what it has, and sending begins behind that; so nothing of this need survive a restart but
the log. The receiving end is one number in the router (`Router.acked_link`): it takes the next in sequence and ignores
all else. When two routers part, the sender hands back what the neighbour may lack (`core/rehoming.py`) and sends
nothing more.

How long anything takes, who carries it and what becomes of errors is others' business (net/link.py, sim/network.py).
"""

from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from peregrine.errors import ProtocolError
from peregrine.types import SiteId

FRAME_BYTES = 256 << 10
R = TypeVar("R")


class OutLog(Protocol[R]):
    """What was ever sent in a session, but for what has been cut off."""

    @property
    def first(self) -> int:
        """The lowest number that can still be read."""
        ...

    @property
    def end(self) -> int:
        """The number that the next item gets."""
        ...

    def read(self, position: int, max_bytes: int) -> list[tuple[int, R]]:
        """From this number on, with their numbers: at least one if there is any, then no more than the limit."""
        ...


class Frame(NamedTuple, Generic[R]):
    first_seq: int
    items: list[R]
    size: int

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.items) - 1


class LinkSender(Generic[R]):
    """Of one session."""

    def __init__(self, site: SiteId, neighbour: SiteId, out: OutLog[R], size_of: Callable[[R], int]) -> None:
        self.acked_seq = -1  # as far as it is known here: after a restart nothing is
        self.read_seq = -1  # the last that is on its way
        self.knows = False  # what the neighbour has, since the link last began to work
        self.ended = False
        self._site = site
        self._neighbour = neighbour
        self._out = out
        self._size_of = size_of
        self._window_bytes = 0
        self._unacked: deque[tuple[int, int]] = deque()  # the last number and the bytes of each frame on its way
        self._unacked_bytes = 0

    def begin(self, has_seq: int, window_bytes: int) -> None:
        """The neighbour was asked, and has all up to here. About so much may be on its way at a time."""
        if has_seq >= self._out.end:  # it would take what is new for repeats
            raise ProtocolError(
                f"{self._neighbour} has item {has_seq}, and {self._site} has only sent up to {self._out.end - 1}: "
                f"{self._site} has lost its directory",
                f"give {self._site} its directory back, or start all sites from empty ones",
            )
        self.acked_seq = self.read_seq = has_seq
        self.knows = True
        self._window_bytes = window_bytes
        self._unacked.clear()
        self._unacked_bytes = 0

    def next_frame(self) -> Frame[R] | None:
        """What may be sent now, if anything."""
        seq = self.read_seq + 1
        if not self.knows or self.ended or self._unacked_bytes >= self._window_bytes or self._out.end <= seq:
            return None
        records = self._out.read(seq, FRAME_BYTES)
        if not records or records[0][0] != seq:
            raise _lacks(self._site, self._neighbour, seq)
        items = [item for _, item in records]
        frame = Frame(seq, items, sum(map(self._size_of, items)))
        self.read_seq = frame.last_seq
        self._unacked.append((frame.last_seq, frame.size))
        self._unacked_bytes += frame.size
        return frame

    def answered(self, frame: Frame[R], taken_seq: int) -> None:
        """The neighbour has all up to here, says its answer to a frame. If that is not all of it, the link is to break
        and to begin again.
        """
        if taken_seq < frame.last_seq:
            raise ProtocolError(
                f"{self._neighbour} took {taken_seq} of {frame.last_seq}", "it is sent again from there"
            )

    def acked(self, seq: int) -> None:
        """The answer has arrived here."""
        self.acked_seq = max(seq, self.acked_seq)
        while self._unacked and self._unacked[0][0] <= seq:
            self._unacked_bytes -= self._unacked.popleft()[1]

    def broke(self) -> None:
        """What was on its way may be lost, or taken without an answer: the neighbour has to be asked again."""
        self.knows = False

    @property
    def waiting_items(self) -> int:
        return 0 if self.ended else self._out.end - 1 - self.acked_seq


def left_over(
    site: SiteId, neighbour: SiteId, out: OutLog[R], acked_seq: int, after: int | None
) -> tuple[int, list[R]]:
    """What is handed back at the end of a session, and its first number: what is behind `after`, if the neighbour has
    said how far it has come. Else what is not acknowledged, as far as it is known here; what of that is handed back
    needlessly is recognised as a repeat.
    """
    first_seq = max(acked_seq + 1, out.first) if after is None else after + 1
    if first_seq < out.first:
        raise _lacks(site, neighbour, first_seq)
    items: list[R] = []
    while records := out.read(first_seq + len(items), FRAME_BYTES):
        items += [item for _, item in records]
    return first_seq, items


def needed_from(acked_seq: int) -> int:
    """Where the log of a link may be cut: nobody asks again for what lies before."""
    return acked_seq + 1


def _lacks(site: SiteId, neighbour: SiteId, seq: int) -> ProtocolError:
    return ProtocolError(
        f"{neighbour} lacks item {seq}, which {site} has no more: it has lost its directory",
        f"give {neighbour} its directory back, or start all sites from empty ones",
    )
