"""The contract of a host's log, and the log in memory.

A log is an ordered sequence of entries; an entry takes as many offsets as it has rows. Appends carry their offset, so a
repeated append (a router that came back and stepped through its journal again) is recognised and does nothing.
"""

from bisect import bisect_right
from typing import Protocol

from peregrine.core.rows import Entry, length
from peregrine.errors import ProtocolError


class Log(Protocol):
    @property
    def first(self) -> int:
        """The lowest offset that can still be read."""
        ...

    @property
    def end(self) -> int:
        """The offset that the next entry gets."""
        ...

    def append(self, offset: int, entry: Entry) -> None: ...

    def read(self, offset: int, max_rows: int) -> list[tuple[int, Entry]]:
        """Whole entries from `offset` on, at least one if there is any, at most about `max_rows` rows."""
        ...

    def truncate(self, before: int) -> None:
        """Nobody will read what lies before this offset again."""
        ...


class MemoryLog:
    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._entries: list[Entry] = []
        self.end = 0

    @property
    def first(self) -> int:
        return self._offsets[0] if self._offsets else self.end

    def append(self, offset: int, entry: Entry) -> None:
        if offset < self.end:
            return
        if offset > self.end:
            raise ProtocolError(
                f"append at offset {offset} of a log that ends at {self.end}", "replay the journal from the start"
            )
        self._offsets.append(offset)
        self._entries.append(entry)
        self.end = offset + length(entry)

    def read(self, offset: int, max_rows: int) -> list[tuple[int, Entry]]:
        first = max(bisect_right(self._offsets, offset) - 1, 0)
        found: list[tuple[int, Entry]] = []
        rows = 0
        for at, entry in zip(self._offsets[first:], self._entries[first:], strict=True):
            if at < offset:
                continue
            if found and rows + length(entry) > max_rows:
                break
            found.append((at, entry))
            rows += length(entry)
        return found

    def truncate(self, before: int) -> None:
        keep = bisect_right(self._offsets, before) - 1
        if keep > 0:
            del self._offsets[:keep], self._entries[:keep]

    def lose(self, end: int) -> None:
        """What lies from `end` on was not safe yet, and is gone; an entry goes as a whole."""
        while self._offsets and self.end > end:
            self.end = self._offsets.pop()
            self._entries.pop()
