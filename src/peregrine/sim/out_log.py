"""What a simulated router has sent to a neighbour in a session, in memory: a log that links read (core/link.py)."""

import pyarrow as pa

from peregrine.core.rows import Item, Rows, StateRows

_TEXT_COLUMNS = 3  # of a row: key, source, payload


class MemoryOut:
    """The log of a session."""

    def __init__(self) -> None:
        self.first = 0
        self._items: list[Item] = []

    @property
    def end(self) -> int:
        return self.first + len(self._items)

    def append(self, seq: int, item: Item) -> None:
        assert seq == self.end, f"item {seq} of a log that ends at {self.end}"
        self._items.append(item)

    def read(self, position: int, max_bytes: int) -> list[tuple[int, Item]]:
        position = max(position, self.first)
        found: list[tuple[int, Item]] = []
        for at in range(position - self.first, len(self._items)):
            max_bytes -= size_of(self._items[at])
            if found and max_bytes < 0:
                break
            found.append((self.first + at, self._items[at]))
        return found

    def truncate(self, before: int) -> None:
        gone = max(min(before, self.end) - self.first, 0)
        del self._items[:gone]
        self.first += gone

    def lose(self, end: int) -> None:
        """A crash takes what was not synced."""
        del self._items[max(end - self.first, 0) :]


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
