"""Records on a disk: what is appended, what survives, what is told about the rest."""

import errno
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from peregrine.errors import CorruptLog, DiskFull, ProtocolError, StorageError
from peregrine.log import Fsync, RecordLog
from peregrine.log.segment import HEADER


def filled(directory: Path, count: int = 6, segment_bytes: int = 1 << 20) -> RecordLog:
    log = RecordLog(directory, segment_bytes)
    for position in range(count):
        log.append(position, text(position))
    return log


def text(position: int) -> bytes:
    return f"record {position:4d}".encode()


def all_of(log: RecordLog) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    position = log.first
    while records := log.read(position):
        found += records
        position = records[-1][0] + 1
    return found


def expected(*positions: int) -> list[tuple[int, bytes]]:
    return [(position, text(position)) for position in positions]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


SIZE = HEADER.size + len(text(0))


# --- appending and reading ---


def test_a_record_can_be_read_before_and_after_it_is_written(tmp_path: Path) -> None:
    with filled(tmp_path) as log:
        before = all_of(log)
        log.sync()
        log.append(6, text(6))
        assert before == expected(*range(6))
        assert log.read(4) == expected(4, 5, 6)  # two from the file, one from memory


def test_a_repeat_is_ignored_and_a_gap_is_refused(tmp_path: Path) -> None:
    with filled(tmp_path) as log:
        log.append(2, b"something else")
        with pytest.raises(ProtocolError, match=r"offset 8.*ends at 6"):
            log.append(8, b"x")
        assert all_of(log) == expected(*range(6))


def test_a_record_may_take_several_positions(tmp_path: Path) -> None:
    with RecordLog(tmp_path) as log:
        log.append(0, b"three", 3)
        log.append(3, b"one")
        assert log.end == 4
        assert log.read(0) == [(0, b"three"), (3, b"one")]
        assert log.read(1) == [(3, b"one")]
        assert log.read(0, max_length=3) == [(0, b"three")]


@pytest.mark.parametrize(("max_bytes", "count"), [(0, 1), (SIZE, 1), (2 * SIZE - 1, 1), (2 * SIZE, 2), (6 * SIZE, 6)])
def test_a_read_gives_at_least_one_record_and_no_more_than_fit(tmp_path: Path, max_bytes: int, count: int) -> None:
    with filled(tmp_path) as log:
        assert len(log.read(0, max_bytes)) == count


@pytest.mark.parametrize("segment_bytes", [1, 2 * SIZE, 1 << 20])
def test_a_reopened_log_goes_on_where_it_ended(tmp_path: Path, segment_bytes: int) -> None:
    filled(tmp_path, 5, segment_bytes).close()
    with RecordLog(tmp_path, segment_bytes) as log:
        assert log.recovered is None
        log.append(5, text(5))
        assert all_of(log) == expected(*range(6))


def test_truncating_drops_whole_segments_and_first_tells(tmp_path: Path) -> None:
    with filled(tmp_path, 6, 2 * SIZE) as log:
        log.truncate(3)
        assert log.first == 2
        log.truncate(100)
        assert (log.first, log.end) == (4, 6)
    with RecordLog(tmp_path) as log:
        assert all_of(log) == expected(4, 5)


def test_readers_see_a_prefix_while_records_are_appended_and_dropped(tmp_path: Path) -> None:
    wrong: list[object] = []
    done = threading.Event()

    def reader(log: RecordLog) -> None:
        position = 0
        while not done.is_set():
            for at, record in log.read(position, 500):
                if at < position or record != text(at):
                    wrong.append((position, at, record))
                position = at + 1

    with RecordLog(tmp_path, 100 * SIZE, Fsync.OFF) as log:
        threads = [threading.Thread(target=reader, args=(log,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for position in range(5000):
            log.append(position, text(position))
            if position % 50 == 0:
                log.sync()
            if position % 1000 == 0:
                log.truncate(position - 500)
        done.set()
        for thread in threads:
            thread.join()
    assert wrong == []


# --- what is durable when ---


@pytest.mark.parametrize(("fsync", "after_appends", "after_sync"), [("always", 3, 3), ("grouped", 0, 1), ("off", 0, 0)])
def test_the_policy_says_how_often_the_disk_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: str, after_appends: int, after_sync: int
) -> None:
    with RecordLog(tmp_path, fsync=Fsync(fsync)) as log:
        calls: list[int] = []
        monkeypatch.setattr(os, "fsync", calls.append)
        for position in range(3):
            log.append(position, text(position))
        assert len(calls) == after_appends
        log.sync()
        log.sync()
        assert len(calls) == after_sync


@pytest.mark.parametrize("fsync", list(Fsync))
def test_what_was_synced_survives_a_killed_process(tmp_path: Path, fsync: Fsync) -> None:
    code = f"""if 1:
        import os, pathlib
        from peregrine.log import Fsync, RecordLog
        log = RecordLog(pathlib.Path({str(tmp_path)!r}), fsync=Fsync({str(fsync)!r}))
        for position in range(3):
            log.append(position, b"record %4d" % position)
        log.sync()
        os.kill(os.getpid(), 9)
    """
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    with RecordLog(tmp_path) as log:
        assert all_of(log) == expected(0, 1, 2)


def test_a_log_that_another_process_has_open_is_refused(tmp_path: Path) -> None:
    code = f"import pathlib, peregrine.log as l; l.RecordLog(pathlib.Path({str(tmp_path)!r}))"
    with filled(tmp_path):
        other = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "is open in another process" in other.stderr


def test_a_closed_log_refuses_everything_and_says_so(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close()
    log.close()
    for attempt in (lambda: log.append(6, b"x"), log.sync, lambda: log.read(0)):
        with pytest.raises(StorageError, match="closed"):
            attempt()


# --- damage ---


@pytest.mark.parametrize("cut", [1, HEADER.size - 1, HEADER.size, SIZE - 1])
def test_a_torn_record_at_the_end_is_cut_off_and_reported(tmp_path: Path, cut: int) -> None:
    filled(tmp_path).close()
    (path,) = tmp_path.glob("*.log")
    os.truncate(path, 5 * SIZE + cut)
    with RecordLog(tmp_path) as log:
        assert f"position 5: {cut} bytes" in str(log.recovered)
        log.append(5, text(5))
        assert all_of(log) == expected(*range(6))
    with RecordLog(tmp_path) as log:
        assert log.recovered is None


@pytest.mark.parametrize("garbage", [bytes(5000), b"\x01" * 5000, bytes(range(256)) * 20])
def test_garbage_behind_the_last_record_is_cut_off(tmp_path: Path, garbage: bytes) -> None:
    filled(tmp_path).close()
    (path,) = tmp_path.glob("*.log")
    path.write_bytes(path.read_bytes() + garbage)
    with RecordLog(tmp_path) as log:
        assert "5000" in str(log.recovered) or "5120" in str(log.recovered)
        assert all_of(log) == expected(*range(6))


@pytest.mark.parametrize("at", range(SIZE))
def test_damage_in_the_middle_is_refused_with_its_place_and_changes_nothing(tmp_path: Path, at: int) -> None:
    filled(tmp_path).close()
    (path,) = tmp_path.glob("*.log")
    flip(path, 2 * SIZE + at)
    before = path.read_bytes()
    with pytest.raises(CorruptLog, match=rf"{path.name} is damaged at byte {2 * SIZE}, position 2") as caught:
        RecordLog(tmp_path)
    assert "from position 3 on" in caught.value.what
    assert f"shorten the file to {2 * SIZE} bytes" in caught.value.remedy
    assert path.read_bytes() == before


def test_damage_at_the_end_of_a_segment_is_in_the_middle_if_the_next_one_has_records(tmp_path: Path) -> None:
    filled(tmp_path, 6, 2 * SIZE).close()
    paths = sorted(tmp_path.glob("*.log"))
    os.truncate(paths[1], 2 * SIZE - 1)
    with pytest.raises(CorruptLog, match="position 3"):
        RecordLog(tmp_path)
    paths[2].write_bytes(b"")
    with RecordLog(tmp_path) as log:
        assert all_of(log) == expected(0, 1, 2)
        assert log.end == 3


def test_a_segment_that_is_missing_is_damage_in_the_middle(tmp_path: Path) -> None:
    filled(tmp_path, 6, 2 * SIZE).close()
    sorted(tmp_path.glob("*.log"))[1].unlink()
    with pytest.raises(CorruptLog, match=r"position 2.*from position 4 on"):
        RecordLog(tmp_path)


def test_a_record_that_rots_under_an_open_log_is_not_returned(tmp_path: Path) -> None:
    with filled(tmp_path) as log:
        log.sync()
        (path,) = tmp_path.glob("*.log")
        with path.open("r+b") as file:
            file.seek(SIZE - 1)
            file.write(b"!")
        with pytest.raises(CorruptLog, match="has changed since it was opened"):
            log.read(0)
        assert log.read(1) == expected(*range(1, 6))


# --- full and broken disks ---


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=False, capture_output=True, text=True
        )
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    yield disk
    gc.collect()  # a file stays open as long as the traceback of an error holds it
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("fsync", list(Fsync))
@pytest.mark.parametrize("segment_bytes", [100_000, 1 << 26])
def test_a_full_disk_takes_the_log_back_to_the_last_sync(small_disk: Path, fsync: Fsync, segment_bytes: int) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(200_000))
    with RecordLog(small_disk / "log", segment_bytes, fsync) as log:
        synced = 0
        with pytest.raises(DiskFull, match=r"no space left[\s\S]*make room"):
            while True:
                log.append(log.end, bytes([log.end % 256]) * 7000)
                if log.end % 10 == 0 or fsync is Fsync.ALWAYS:
                    log.sync()
                    synced = log.end
        assert synced > 50
        assert log.end == synced
        assert all_of(log) == [(at, bytes([at % 256]) * 7000) for at in range(synced)]
        filler.unlink()
        for position in range(synced, synced + 10):
            log.append(position, bytes([position % 256]) * 7000)
        log.sync()
    with RecordLog(small_disk / "log", segment_bytes, fsync) as log:
        assert log.recovered is None
        assert all_of(log) == [(at, bytes([at % 256]) * 7000) for at in range(synced + 10)]


def test_a_group_that_does_not_fit_is_taken_back_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where it began in another segment, and the disk takes half of a record before it is full."""
    real = os.pwrite
    room = 3 * SIZE + SIZE // 2

    def pwrite(fd: int, data: bytes, at: int) -> int:
        nonlocal room
        written = real(fd, data[:room], at) if room else 0
        room -= written
        if not written:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written

    with filled(tmp_path, 3, 4 * SIZE) as log:
        log.sync()
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", pwrite)
            for position in range(3, 8):
                log.append(position, text(position))
            with pytest.raises(DiskFull):
                log.sync()
        assert all_of(log) == expected(0, 1, 2)
        log.append(3, text(3))
    with RecordLog(tmp_path) as log:
        assert (log.recovered, all_of(log)) == (None, expected(0, 1, 2, 3))


def test_after_a_failed_sync_nothing_is_appended_until_the_log_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second fsync may succeed although the first has lost what it was for."""

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with filled(tmp_path) as log:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", broken)
            with pytest.raises(StorageError, match="Input/output error"):
                log.sync()
        with pytest.raises(StorageError, match="Input/output error"):
            log.append(6, text(6))
        assert all_of(log) == expected(*range(6))


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file/log"):
        RecordLog(tmp_path / "file" / "log")


def test_damage_behind_what_was_promised_is_cut_off_whatever_lies_behind_it(tmp_path: Path) -> None:
    filled(tmp_path, 6).close()
    (path,) = tmp_path.glob("*.log")
    data = bytearray(path.read_bytes())
    data[4 * SIZE + SIZE - 1] ^= 1  # the last byte of record 4; record 5 is good
    path.write_bytes(data)
    with pytest.raises(CorruptLog):
        RecordLog(tmp_path, promised_end=5)
    with RecordLog(tmp_path, promised_end=4) as log:
        assert log.recovered is not None and all_of(log) == expected(*range(4))


def test_the_newest_segments_that_fit_into_a_size_are_found(tmp_path: Path) -> None:
    with filled(tmp_path, 8, 2 * SIZE) as log:  # segments begin at 0, 2, 4 and 6
        assert [log.first_within(count * SIZE) for count in (0, 2, 3, 4, 7, 8, 100)] == [6, 6, 6, 4, 2, 0, 0]
