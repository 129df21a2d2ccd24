"""Records in order on a disk: appended at the end, read from anywhere, dropped from the front in whole segments.

The rule: after `sync` returns, the records are there whatever dies (`Fsync.OFF`: unless the machine does). Until then
nobody may be promised anything: a crash or a full disk takes back what was appended since the last `sync`. An append
carries its position, so a repeat is recognised. One thread appends and syncs; any thread may read and truncate
meanwhile. What a record means is not known here.
"""

import fcntl
import os
from bisect import bisect_right
from enum import StrEnum
from errno import EDQUOT, ENOSPC
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

from peregrine.errors import CorruptLog, DiskFull, ProtocolError, StorageError
from peregrine.log.segment import SUFFIX, Segment, Span, find_record

_FLUSH_BYTES = 1 << 18


class Fsync(StrEnum):
    ALWAYS = "always"
    """Every append is on the disk when it returns."""
    GROUPED = "grouped"
    """What was appended is on the disk when `sync` returns: one wait for many records."""
    OFF = "off"
    """`sync` hands records to the operating system: they survive the process, not the machine."""


class RecordLog:
    def __init__(
        self,
        directory: Path,
        segment_bytes: int = 64 << 20,
        fsync: Fsync = Fsync.GROUPED,
        promised_end: int | None = None,
    ) -> None:
        """`promised_end`: records from this position on can be made again. Damage there is cut off, whatever lies
        behind it; without it only a torn tail is.
        """
        self.directory = directory
        self._promised_end = promised_end
        self.recovered: str | None = None
        """What opening had to cut off, if anything."""
        self._segment_bytes = segment_bytes
        self._fsync = fsync
        self._lock = Lock()
        self._refusal: StorageError | None = None  # why nothing can be appended any more
        self._bounds_at_close: tuple[int, int] | None = None
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._claim = _claimed(directory)
            try:
                self._segments = self._recover()
                self._make_durable(*self._segments)
            except BaseException:
                os.close(self._claim)
                raise
        except OSError as error:
            raise _mapped(error, directory) from error
        self._synced = self._segments[-1].end  # a full disk takes the log back to here

    @property
    def first(self) -> int:
        """The lowest position that can still be read."""
        with self._lock:
            return self._bounds_at_close[0] if self._bounds_at_close else self._segments[0].base

    @property
    def end(self) -> int:
        """The position that the next record gets."""
        with self._lock:
            return self._bounds_at_close[1] if self._bounds_at_close else self._segments[-1].end

    @property
    def size_bytes(self) -> int:
        with self._lock:
            return sum(segment.size for segment in self._segments)

    def first_within(self, max_bytes: int) -> int:
        """The position from which on there are at most so many bytes, in whole segments; the last one always counts."""
        with self._lock:
            size, first = 0, self._segments[-1].base
            for segment in reversed(self._segments):
                size += segment.size
                if size > max_bytes:
                    break
                first = segment.base
            return first

    def append(self, position: int, record: bytes, length: int = 1) -> None:
        assert length > 0, "a record takes at least one position"
        with self._lock:
            if self._refusal:
                raise self._refusal
            segment = self._segments[-1]
            if position < segment.end:
                return
            if position > segment.end:
                raise ProtocolError(
                    f"append at offset {position} of the log {self.directory} that ends at {segment.end}",
                    "replay the journal from the start",
                )
            try:
                if segment.size >= self._segment_bytes:
                    segment = self._roll()
                if segment.add(position, length, record) >= _FLUSH_BYTES:
                    segment.flush()
            except OSError as error:
                raise self._failed(error) from error
        if self._fsync is Fsync.ALWAYS:
            self.sync()

    def sync(self) -> None:
        with self._lock:
            if self._refusal:
                raise self._refusal
            end = self._segments[-1].end
            unsynced = [segment for segment in self._segments if segment.end > self._synced]
            try:
                self._segments[-1].flush()
            except OSError as error:
                raise self._failed(error) from error
        try:
            self._make_durable(*unsynced)  # without the lock: readers do not wait for the disk
        except OSError as error:
            with self._lock:
                raise self._failed(error) from error
        with self._lock:
            self._synced = max(self._synced, end)

    def read(self, position: int, max_bytes: int = 1 << 20, max_length: int | None = None) -> list[tuple[int, bytes]]:
        """Records from `position` on: at least one if there is any, then no more than both limits allow.

        They come from one segment, so there may be more behind them although no limit was reached.
        """
        with self._lock:
            segment, span = self._find(position, max_bytes, max_length)
        found = segment.load(span) if span else []
        if found is None:
            with self._lock:  # a full disk may have taken the records back in between; now nobody can
                segment, span = self._find(position, max_bytes, max_length)
                found = segment.load(span) if span else []
        if found is None:
            raise CorruptLog(
                f"{segment.path} has changed since it was opened: records from position {position} on do not fit",
                "check the disk; restore the directory from a copy, or delete it and have it built again",
            )
        return found

    def _find(self, position: int, max_bytes: int, max_length: int | None) -> tuple[Segment, Span | None]:
        if not self._segments:
            raise self._refusal or AssertionError("an open log has a segment")
        number = max(bisect_right(self._segments, position, key=lambda segment: segment.base) - 1, 0)
        span = self._segments[number].span(position, max_bytes, max_length)
        if span is None and number + 1 < len(self._segments):  # `position` is within the last record of its segment
            number += 1
            span = self._segments[number].span(position, max_bytes, max_length)
        return self._segments[number], span

    def truncate(self, before: int, keep: Path | None = None) -> None:
        """Drops the segments that lie before, or moves them to `keep`; the one that is appended to always stays."""
        with self._lock:
            while len(self._segments) > 1 and self._segments[1].base <= before:
                path = self._segments[0].path
                try:
                    if keep is None:
                        path.unlink(missing_ok=True)
                    else:
                        keep.mkdir(exist_ok=True)
                        os.replace(path, keep / path.name)
                except OSError as error:
                    raise _mapped(error, self.directory) from error
                del self._segments[0]
            if self._segments:
                self._synced = max(self._synced, self._segments[0].base)

    def close(self) -> None:
        if self._bounds_at_close:
            return
        try:
            if not self._refusal:
                self.sync()
        finally:
            with self._lock:
                self._bounds_at_close = (self._segments[0].base, self._segments[-1].end)
                self._refusal = StorageError(f"the log {self.directory} is closed", "open it again")
                self._segments.clear()
                os.close(self._claim)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- writing ---

    def _roll(self) -> Segment:
        """A new segment; the one before it is on the disk first, so that a gap between two is never a crash's doing."""
        last = self._segments[-1]
        last.flush()
        self._make_durable(last)
        segment = Segment(Segment.path_of(self.directory, last.end), last.end)
        self._segments.append(segment)
        self._make_names_durable()
        return segment

    def _make_durable(self, *segments: Segment) -> None:
        if self._fsync is not Fsync.OFF:
            for segment in segments:
                os.fsync(segment.fd)

    def _make_names_durable(self) -> None:
        if self._fsync is not Fsync.OFF:
            handle = os.open(self.directory, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def _failed(self, error: OSError) -> StorageError:
        """What to raise. Only a full disk can be gone on from: the log is as it was at the last sync."""
        mapped = _mapped(error, self.directory)
        if isinstance(mapped, DiskFull):
            try:
                self._take_back()
            except OSError as another:
                mapped = _mapped(another, self.directory)
        if not isinstance(mapped, DiskFull):
            self._refusal = mapped
        return mapped

    def _take_back(self) -> None:
        while len(self._segments) > 1 and self._segments[-1].base > self._synced:
            self._segments.pop().path.unlink(missing_ok=True)
        self._segments[-1].cut(self._synced)
        self._make_durable(self._segments[-1])
        self._make_names_durable()  # a segment that came back would overlap with what is appended from here on

    # --- opening ---

    def _recover(self) -> list[Segment]:
        paths = sorted(path for path in self.directory.glob(f"*{SUFFIX}") if path.stem.isdigit())
        segments: list[Segment] = []
        for number, path in enumerate(paths):
            segment = Segment(path, int(path.stem))
            if segments and segment.base != segments[-1].end:
                self._cut(segments[-1], memoryview(b""), paths[number:])
                return segments
            rest = segment.scan()
            segments.append(segment)
            if rest:
                self._cut(segment, rest, paths[number + 1 :])
                return segments
        if not segments:
            segments.append(Segment(Segment.path_of(self.directory, 0), 0))
            self._make_names_durable()
        return segments

    def _cut(self, segment: Segment, rest: memoryview, later: list[Path]) -> None:
        """Cuts off what follows the last good record, unless a good one lies behind: then it is no torn tail."""
        what = f"{segment.path} is damaged at byte {segment.size}, position {segment.end}"
        lost_bytes = len(rest)
        promised = self._promised_end is None or segment.end < self._promised_end
        for data in (rest, *(memoryview(path.read_bytes()) for path in later)) if promised else ():
            behind = find_record(data, segment.end)
            if behind is not None:
                raise CorruptLog(
                    f"{what}, and there are good records behind it, from position {behind} on",
                    "restore the file from a copy; or, if the machine lost power before a sync and what follows was "
                    f"promised to nobody, shorten the file to {segment.size} bytes and remove the files behind it",
                )
        for path in reversed(later):
            lost_bytes += path.stat().st_size
            path.unlink()
        segment.cut(segment.end)
        self._make_names_durable()
        self.recovered = f"{what}: {lost_bytes} bytes behind it were cut off"


def _claimed(directory: Path) -> int:
    """A lock that other processes see and that goes with this one."""
    handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise StorageError(
            f"the log {directory} is open in another process", "stop that one first, or use another directory"
        ) from error
    return handle


def _mapped(error: OSError, directory: Path) -> StorageError:
    if error.errno in (ENOSPC, EDQUOT):
        return DiskFull(
            f"no space left for the log {directory}: what was appended since the last sync was taken back",
            "make room on the file system, then append again from the log's end",
        )
    return StorageError(
        f"the log {directory} cannot be used: {error}",
        "check the disk and the rights of the directory, then open the log again: what had been synced is there",
    )
