"""The sending end of a link between two routers: FIFO, resumable, store and forward.

What was not acknowledged is kept and sent again after a break, from the first that the other side lacks. The receiving
end is one number in the router (`Router.acked_link`): it takes the next in sequence and ignores all else. When two
routers part, the sender hands back what it still has (`core/rehoming.py`) and sends nothing more.
"""

from collections import deque
from dataclasses import dataclass

from peregrine.core.rows import Item


@dataclass(frozen=True, slots=True)
class Frame:
    first_seq: int
    items: tuple[Item, ...]


class LinkSender:
    def __init__(self, window_items: int = 256) -> None:
        self._window_items = window_items
        self._unacked: deque[Item] = deque()
        self.first_seq = 0  # of the first that is not acknowledged
        self._sent_seq = -1  # last that is on its way
        self.ended = False

    def put(self, seq: int, item: Item) -> None:
        """Repeated puts (a journal stepped through again) are recognised by their number."""
        if seq == self.first_seq + len(self._unacked):
            self._unacked.append(item)

    def next_frame(self) -> Frame | None:
        """What may be sent now, if anything."""
        if self.ended:
            return None
        start = self._sent_seq + 1
        room = self._window_items - (start - self.first_seq)
        items = [self._unacked[i] for i in range(start - self.first_seq, len(self._unacked))][: max(room, 0)]
        if not items:
            return None
        self._sent_seq = start + len(items) - 1
        return Frame(start, tuple(items))

    def acked(self, seq: int) -> None:
        while self.first_seq <= seq and self._unacked:
            self._unacked.popleft()
            self.first_seq += 1
        self._sent_seq = max(self._sent_seq, self.first_seq - 1)

    def broke(self) -> None:
        """What was on its way may be lost: begin again after what was acknowledged."""
        self._sent_seq = self.first_seq - 1

    def hand_back(self, after: int | None = None) -> Frame:
        """Ends the session: what was sent in it behind `after`, or behind what is acknowledged."""
        self.ended = True
        first = self.first_seq if after is None else after + 1
        assert first >= self.first_seq, "what the other side has acknowledged is in what it says that it has"
        return Frame(first, tuple(self._unacked)[first - self.first_seq :])

    @property
    def backlog_items(self) -> int:
        return 0 if self.ended else len(self._unacked)
