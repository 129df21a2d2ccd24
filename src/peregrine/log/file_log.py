"""The log of a host on a disk: entries as bytes in a record log, a position for each row.

It keeps the contract of `core.log.Log`. What an entry looks like as bytes only `core.wire` knows, what a file looks
like only the record log.
"""

from types import TracebackType
from typing import Self

from peregrine.core.rows import Entry, length
from peregrine.core.wire import decode_entry, encode
from peregrine.log.record_log import RecordLog


class FileLog:
    def __init__(self, records: RecordLog) -> None:
        self.records = records

    @property
    def first(self) -> int:
        """The lowest offset that can still be read."""
        return self.records.first

    @property
    def end(self) -> int:
        return self.records.end

    def append(self, offset: int, entry: Entry) -> None:
        if offset < self.records.end:
            return  # a repeat; the record log would notice it too, after the work of encoding
        self.records.append(offset, encode(entry), length(entry))

    def read(self, offset: int, max_rows: int) -> list[tuple[int, Entry]]:
        found: list[tuple[int, Entry]] = []
        room = max_rows
        while records := self.records.read(offset, max_length=max(room, 1)):
            for at, record in records:
                entry = decode_entry(record)
                if found and length(entry) > room:
                    return found
                found.append((at, entry))
                room -= length(entry)
                offset = at + length(entry)
            if room <= 0:
                break
        return found

    def truncate(self, before: int) -> None:
        """Whole segments go, so entries before `before` may stay; `first` tells."""
        self.records.truncate(before)

    def sync(self) -> None:
        self.records.sync()

    def close(self) -> None:
        self.records.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
