"""One file of a record log: where its records are, what is not written yet, and how a damaged one is told.

A record is a header and its bytes. The header has the position of the record, its length in positions, its size in
bytes and a checksum over these and the bytes; so a stretch of zeros is no record. The index (position and place of each
record) is in memory alone and is rebuilt from the headers. Locking is the business of the log that has the segment.
"""

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from zlib import crc32

import numpy as np

WHERE = Struct("<qii")  # position, length in positions, size in bytes
CHECK = Struct("<I")
HEADER = Struct("<qiiI")
SUFFIX = ".log"
_SEARCH_BYTES = 1 << 16
_FARTHEST = 1 << 48  # no record lies this many positions behind another: what says so is no header


class Span(NamedTuple):
    """Neighbouring records: the first position, the place in the file, and the part that is not in the file yet."""

    position: int
    begin: int
    stop: int
    unwritten: bytes


class Segment:
    def __init__(self, path: Path, base: int) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.path = path
        self.base = base  # the position of the first record, also the name of the file
        self.end = base
        self.size = 0  # in bytes, with what is not written yet
        self.written = 0
        self.tail = bytearray()  # what is not written yet
        self._positions = array("q")
        self._starts = array("q")

    @staticmethod
    def path_of(directory: Path, base: int) -> Path:
        return directory / f"{base:020d}{SUFFIX}"

    def __del__(self) -> None:
        # A reader may still hold a segment that was truncated; the file goes with the last of them.
        if hasattr(self, "fd"):
            os.close(self.fd)

    def add(self, position: int, length: int, record: bytes) -> int:
        """Takes a record into the tail; returns the size of the tail."""
        where = WHERE.pack(position, length, len(record))
        tail = self.tail
        tail += where
        tail += CHECK.pack(crc32(record, crc32(where)))
        tail += record
        self._positions.append(position)
        self._starts.append(self.size)
        self.size += HEADER.size + len(record)
        self.end = position + length
        return len(tail)

    def flush(self) -> None:
        done = 0
        with memoryview(self.tail) as view:
            while done < len(view):
                done += os.pwrite(self.fd, view[done:], self.written + done)
        self.written += done
        self.tail.clear()

    def cut(self, position: int) -> None:
        """Forgets the records from `position` on, and whatever a failed write has left behind them."""
        keep = bisect_left(self._positions, position)
        if keep < len(self._starts):
            self.size, self.end = self._starts[keep], self._positions[keep]
            del self._positions[keep:], self._starts[keep:]
        del self.tail[max(self.size - self.written, 0) :]
        self.written = min(self.written, self.size)
        os.ftruncate(self.fd, self.written)

    def span(self, position: int, max_bytes: int, max_length: int | None) -> Span | None:
        """The records from `position` on, at least one if there is any."""
        first = bisect_left(self._positions, position)
        if first == len(self._positions):
            return None
        behind = self._within(self._starts, self.size, first, max_bytes)
        if max_length is not None:
            behind = min(behind, self._within(self._positions, self.end, first, max_length))
        begin = self._starts[first]
        stop = self._starts[behind] if behind < len(self._starts) else self.size
        unwritten = bytes(self.tail[max(begin - self.written, 0) : max(stop - self.written, 0)])
        return Span(self._positions[first], begin, stop, unwritten)

    @staticmethod
    def _within(marks: "array[int]", end: int, first: int, most: int) -> int:
        """The index behind the last record that ends at most `most` behind the start of the first one."""
        limit = marks[first] + most
        if end <= limit:
            return len(marks)
        return max(bisect_right(marks, limit, first) - 1, first + 1)

    def load(self, span: Span) -> list[tuple[int, bytes]] | None:
        """The records of a span; None where the file has something else."""
        in_file = span.stop - span.begin - len(span.unwritten)
        try:
            data = os.pread(self.fd, in_file, span.begin) + span.unwritten
        except OSError:  # the disk cannot read it: as good as something else
            return None
        found = []
        behind = 0
        for position, _, begin, behind in walk(data, span.position):
            found.append((position, data[begin + HEADER.size : behind]))
        return found if behind == span.stop - span.begin else None

    def scan(self) -> memoryview:
        """Rebuilds the index from the file; returns what lies behind the last good record."""
        data = self.path.read_bytes()
        for position, length, begin, behind in walk(data, self.base):
            self._positions.append(position)
            self._starts.append(begin)
            self.size, self.end = behind, position + length
        self.written = self.size
        return memoryview(data)[self.size :]


def walk(data: bytes, position: int) -> Iterator[tuple[int, int, int, int]]:
    """(position, length, begin, end) of each record, up to the first that is not whole or not the expected one."""
    begin = 0
    with memoryview(data) as view:
        while begin + HEADER.size <= len(data):
            found, length, size, check = HEADER.unpack_from(data, begin)
            behind = begin + HEADER.size + size
            if (
                found != position
                or length < 1
                or size < 0
                or behind > len(data)
                or check != _check(view, begin, behind)
            ):
                return
            yield position, length, begin, behind
            position += length
            begin = behind


def _check(view: memoryview, begin: int, behind: int) -> int:
    return crc32(view[begin + HEADER.size : behind], crc32(view[begin : begin + WHERE.size]))


def find_record(data: memoryview, after: int) -> int | None:
    """The position of the first good record that starts at any byte of `data` and does not lie before `after`."""
    raw = np.frombuffer(data, np.uint8)
    last = len(raw) - HEADER.size
    for chunk in range(0, last + 1, _SEARCH_BYTES):
        windows = np.lib.stride_tricks.sliding_window_view(
            raw[chunk : chunk + _SEARCH_BYTES + HEADER.size - 1], HEADER.size
        )
        positions = np.ascontiguousarray(windows[:, :8]).view("<i8")[:, 0]
        lengths = np.ascontiguousarray(windows[:, 8:12]).view("<i4")[:, 0]
        sizes = np.ascontiguousarray(windows[:, 12:16]).view("<i4")[:, 0]
        room = last - chunk - np.arange(len(windows))
        likely = (positions >= after) & (positions < after + _FARTHEST) & (lengths > 0) & (sizes >= 0) & (sizes <= room)
        for at in np.flatnonzero(likely).tolist():
            position, _, size, check = HEADER.unpack_from(data, chunk + at)
            if check == _check(data, chunk + at, chunk + at + HEADER.size + size):
                return int(position)
    return None
