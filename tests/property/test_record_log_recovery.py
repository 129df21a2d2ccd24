"""Whatever happens to the end of a log, opening it gives a prefix of what was appended, or says that it cannot."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from peregrine.errors import CorruptLog
from peregrine.log import Fsync, RecordLog
from peregrine.log.segment import HEADER

Record = tuple[bytes, int]
records = st.lists(st.tuples(st.binary(max_size=60), st.integers(1, 5)), max_size=25)
segment_sizes = st.sampled_from([1, 100, 300, 1 << 20])


@contextmanager
def written(appended: list[Record], segment_bytes: int) -> Iterator[Path]:
    with TemporaryDirectory() as name:
        with RecordLog(Path(name), segment_bytes, Fsync.OFF) as log:
            for record, length in appended:
                log.append(log.end, record, length)
        yield Path(name)


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def recovered(directory: Path, segment_bytes: int) -> list[bytes]:
    """What a reopened log has, after it has shown that it can be appended to and opened again."""
    with RecordLog(directory, segment_bytes, Fsync.OFF) as log:
        found = contents(log)
        log.append(log.end, b"goes on")
    with RecordLog(directory, segment_bytes, Fsync.OFF) as log:
        assert log.recovered is None
        assert contents(log) == [*found, b"goes on"]
    return found


def contents(log: RecordLog) -> list[bytes]:
    found: list[bytes] = []
    position = log.first
    while read := log.read(position, max_bytes=150):
        found += [record for _, record in read]
        position = read[-1][0] + 1
    return found


def cut(directory: Path, keep: int) -> None:
    """Keeps the first bytes of all segments together, as a crash does that lost the rest."""
    for path in segments(directory):
        size = path.stat().st_size
        if keep <= 0 and path != segments(directory)[0]:
            path.unlink()
        elif keep < size:
            path.write_bytes(path.read_bytes()[: max(keep, 0)])
        keep -= size


@settings(max_examples=100, deadline=None)
@given(synced=records, unsynced=records, segment_bytes=segment_sizes, data=st.data())
def test_what_was_synced_is_there_wherever_the_rest_is_cut(
    synced: list[Record], unsynced: list[Record], segment_bytes: int, data: st.DataObject
) -> None:
    safe_bytes = sum(HEADER.size + len(record) for record, _ in synced)
    with written(synced + unsynced, segment_bytes) as directory:
        total_bytes = sum(path.stat().st_size for path in segments(directory))
        cut(directory, data.draw(st.integers(safe_bytes, total_bytes)))
        found = recovered(directory, segment_bytes)
    appended = [record for record, _ in synced + unsynced]
    assert len(found) >= len(synced)
    assert found == appended[: len(found)]


@settings(max_examples=100, deadline=None)
@given(appended=records.filter(bool), segment_bytes=segment_sizes, data=st.data())
def test_flipped_bytes_give_the_prefix_before_them_or_are_refused(
    appended: list[Record], segment_bytes: int, data: st.DataObject
) -> None:
    """Refused exactly if a good record lies behind the first bad one; nothing is changed then."""
    ends = [0]
    for record, _ in appended:
        ends.append(ends[-1] + HEADER.size + len(record))
    flips = data.draw(st.dictionaries(st.integers(0, ends[-1] - 1), st.integers(1, 255), min_size=1, max_size=4))
    bad = {next(number for number, end in enumerate(ends[1:]) if at < end) for at in flips}
    with written(appended, segment_bytes) as directory:
        start = 0
        for path in segments(directory):
            content = bytearray(path.read_bytes())
            for at, mask in flips.items():
                if start <= at < start + len(content):
                    content[at - start] ^= mask
            start += len(content)
            path.write_bytes(content)
        copy = directory / "copy"
        copy.mkdir()
        for path in segments(directory):
            shutil.copy(path, copy)
        if set(range(min(bad), len(appended))) - bad:
            try:
                RecordLog(directory, segment_bytes, Fsync.OFF).close()
            except CorruptLog as error:
                assert str(directory) in error.what
            else:
                raise AssertionError("good records behind a bad one were cut off")
            assert [path.read_bytes() for path in segments(directory)] == [p.read_bytes() for p in segments(copy)]
        else:
            found = recovered(directory, segment_bytes)
            assert found == [record for record, _ in appended[: min(bad)]]


@settings(max_examples=50, deadline=None)
@given(appended=records, segment_bytes=segment_sizes, garbage=st.binary(min_size=1, max_size=200))
def test_garbage_behind_the_end_is_cut_off_and_nothing_else(
    appended: list[Record], segment_bytes: int, garbage: bytes
) -> None:
    with written(appended, segment_bytes) as directory:
        with segments(directory)[-1].open("ab") as file:
            file.write(garbage)
        assert recovered(directory, segment_bytes) == [record for record, _ in appended]
