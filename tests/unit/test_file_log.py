"""The log of a host on a disk keeps the contract of every log, whatever the size of its segments, and over restarts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from peregrine.core.log import Log
from peregrine.core.rows import length
from peregrine.errors import CorruptMarker
from peregrine.log import FileLog, Fsync, RecordLog
from unit.test_log_contract import DROP, THREE, TICK, LogContract


class TestFileLog(LogContract):
    segment_bytes = 1 << 20

    @pytest.fixture(autouse=True)
    def directory(self, tmp_path: Path) -> Iterator[None]:
        self.log = FileLog(RecordLog(tmp_path / "log", self.segment_bytes, Fsync.OFF))
        yield
        self.log.close()

    def make(self) -> Log:
        return self.log


class TestFileLogOfTinySegments(TestFileLog):
    """Each entry in a segment of its own: reading goes over the border of segments all the time."""

    segment_bytes = 1

    def test_what_was_truncated_cannot_be_read(self) -> None:
        log = self.filled()
        log.truncate(4)
        assert self.log.first == 4
        assert [offset for offset, _ in log.read(0, 100)] == [4, 7]


@pytest.mark.parametrize("segment_bytes", [1, 1 << 20])
def test_a_reopened_log_has_the_same_entries_and_goes_on_where_it_ended(tmp_path: Path, segment_bytes: int) -> None:
    with FileLog(RecordLog(tmp_path, segment_bytes)) as log:
        for entry in (THREE, DROP, TICK):
            log.append(log.end, entry)
    with FileLog(RecordLog(tmp_path, segment_bytes)) as log:
        assert log.read(0, 100) == [(0, THREE), (3, DROP), (4, TICK)]
        log.append(0, THREE)
        log.append(5, THREE)
        assert log.end == 5 + length(THREE)


def test_a_read_of_many_rows_goes_on_behind_the_bytes_of_one_read(tmp_path: Path) -> None:
    with FileLog(RecordLog(tmp_path, fsync=Fsync.OFF)) as log:
        while log.records.size_bytes < 3 << 20:
            log.append(log.end, THREE)
        assert sum(length(entry) for _, entry in log.read(0, log.end)) == log.end
        assert sum(length(entry) for _, entry in log.read(3, log.end - 6)) == log.end - 6


def test_a_record_that_is_no_entry_is_named_and_not_returned(tmp_path: Path) -> None:
    with FileLog(RecordLog(tmp_path, fsync=Fsync.OFF)) as log:
        log.records.append(0, b"something else")
        with pytest.raises(CorruptMarker, match="checksum"):
            log.read(0, 1)
