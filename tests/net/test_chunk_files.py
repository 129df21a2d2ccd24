"""The chunk store of a site on a disk, what hosts write down about it, and the collector."""

import os
import pickle
import threading
import time
from pathlib import Path

import pytest

from peregrine.core.big_map import BigMap
from peregrine.core.chunks import chunk_name
from peregrine.core.large import Sizes, Spill
from peregrine.core.state import Books, KeyState, canonical, decode, encode
from peregrine.errors import MissingChunk, StorageError
from peregrine.net.chunk_collector import collect, referred_to, write_down
from peregrine.net.chunk_files import ChunkFiles
from peregrine.types import OpId, PlaceId

SMALL = Sizes(inline_bytes=64, chunk_bytes=48, bucket_bytes=64)
PLACE, OP, GRACE_S = PlaceId("edge1/h1"), OpId("app/count"), 100.0


@pytest.fixture
def chunks(tmp_path: Path) -> ChunkFiles:
    return ChunkFiles(tmp_path / "chunks")


def file_of(chunks: ChunkFiles, name: bytes) -> Path:
    return chunks.directory / name.hex()[:2] / name.hex()


def age(chunks: ChunkFiles, *names: bytes, by_s: float = 10 * GRACE_S) -> None:
    for name in names or [bytes.fromhex(path.name) for path in chunks.directory.glob("??/*")]:
        os.utime(file_of(chunks, name), (time.time() - by_s,) * 2)


def batch(chunks: ChunkFiles, state: bytes, key: str, value: object, offset: int, group: int = 0) -> bytes:
    """What a host does in a batch that gives one key another value; it has not committed yet."""
    spill = Spill(chunks, SMALL)
    keys = decode(state, spill)
    keys.setdefault(key, KeyState(None, Books())).value = value
    after = encode(keys, spill)
    write_down(chunks, PLACE, OP, group, offset, spill)
    return after


def nothing_pinned() -> set[bytes]:
    return set()


# --- the store ---


def test_a_chunk_is_a_file_under_its_name(chunks: ChunkFiles) -> None:
    name = chunks.put(b"some state")
    assert name == chunk_name(b"some state")
    assert file_of(chunks, name).read_bytes() == b"some state"
    assert chunks.get(name) == b"some state" and chunks.has(name)
    assert pickle.loads(pickle.dumps(chunks)).get(name) == b"some state"


def test_putting_a_chunk_again_only_touches_it(chunks: ChunkFiles) -> None:
    name = chunks.put(b"x")
    age(chunks, name)
    inode = file_of(chunks, name).stat().st_ino
    assert chunks.put(b"x") == name
    found = file_of(chunks, name).stat()
    assert found.st_ino == inode and time.time() - found.st_mtime < GRACE_S


def test_a_damaged_chunk_is_not_taken_for_state(chunks: ChunkFiles) -> None:
    name = chunks.put(b"x" * 100)
    file_of(chunks, name).write_bytes(b"x" * 99 + b"y")
    with pytest.raises(MissingChunk, match="damaged"):
        chunks.get(name)


def test_a_chunk_that_is_not_there_is_an_error_that_says_where(chunks: ChunkFiles) -> None:
    with pytest.raises(MissingChunk) as error:
        chunks.get(chunk_name(b"x"))
    assert str(chunks.directory) in error.value.what
    assert not chunks.has(chunk_name(b"x")) and not chunks.claim(chunk_name(b"x"))


def test_nothing_half_written_is_ever_seen(chunks: ChunkFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: object) -> None:
        raise OSError("the process dies here")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", dies)
        with pytest.raises(StorageError):
            chunks.put(b"x")
    assert not chunks.has(chunk_name(b"x"))
    assert chunks.get(chunks.put(b"x")) == b"x"


def test_a_directory_that_cannot_be_written_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError) as error:
        ChunkFiles(tmp_path / "file").put(b"x")
    assert str(tmp_path / "file") in error.value.what


# --- what is needed ---


def test_a_group_needs_its_chunks_of_before_and_after_a_batch(chunks: ChunkFiles) -> None:
    """Until it has committed a host may have to apply the batch again, from the state before it."""
    first = batch(chunks, b"", "car1", list(range(100)), 0)
    second = batch(chunks, first, "car1", list(range(100, 200)), 10)
    age(chunks)
    assert collect(chunks, nothing_pinned, GRACE_S) == 0
    assert canonical(first, chunks) != canonical(second, chunks)
    third = batch(chunks, second, "car1", list(range(200, 300)), 20)
    age(chunks)
    assert collect(chunks, nothing_pinned, GRACE_S) > 0
    assert canonical(second, chunks) and canonical(third, chunks)
    with pytest.raises(MissingChunk):
        canonical(first, chunks)


def test_a_batch_that_is_applied_again_finds_everything(chunks: ChunkFiles) -> None:
    before = batch(chunks, b"", "car1", BigMap({f"e{i}": "x" * 20 for i in range(50)}), 0)
    once = batch(chunks, before, "car1", list(range(100)), 10)
    age(chunks)
    collect(chunks, nothing_pinned, GRACE_S)
    again = batch(chunks, before, "car1", list(range(100)), 10)
    assert again == once
    age(chunks)
    collect(chunks, nothing_pinned, GRACE_S)
    assert canonical(before, chunks) and canonical(again, chunks)


def test_groups_do_not_speak_for_each_other(chunks: ChunkFiles) -> None:
    one = batch(chunks, b"", "car1", list(range(100)), 0, group=1)
    batch(chunks, b"", "car2", list(range(100, 200)), 0, group=2)
    batch(chunks, b"", "car2", 3, 10, group=2)
    age(chunks)
    collect(chunks, nothing_pinned, GRACE_S)
    assert canonical(one, chunks)["car1"][0] == list(range(100))


def test_a_group_without_large_state_leaves_no_file_behind(chunks: ChunkFiles) -> None:
    state = batch(chunks, b"", "car1", list(range(100)), 0)
    state = batch(chunks, state, "car1", 1, 10)
    assert referred_to(chunks)
    batch(chunks, state, "car1", 2, 20)
    assert not referred_to(chunks)
    assert [path for path in chunks.directory.glob("references/**/*") if path.is_file()] == []


def test_a_batch_that_spark_gave_up_does_not_take_back_what_a_later_one_wrote(chunks: ChunkFiles) -> None:
    before = batch(chunks, b"", "car1", list(range(100)), 0)
    later = batch(chunks, before, "car1", list(range(200)), 10)
    batch(chunks, b"", "car1", list(range(100)), 0)
    age(chunks)
    collect(chunks, nothing_pinned, GRACE_S)
    assert canonical(later, chunks)["car1"][0] == list(range(200))


def test_references_that_cannot_be_read_keep_the_collector_from_removing_anything(chunks: ChunkFiles) -> None:
    batch(chunks, b"", "car1", list(range(100)), 0)
    loose = chunks.put(b"nobody needs this")
    age(chunks)
    (path,) = [path for path in chunks.directory.glob("references/**/*") if path.is_file()]
    path.write_bytes(b"\xc1")
    with pytest.raises(StorageError, match="no chunk is removed"):
        collect(chunks, nothing_pinned, GRACE_S)
    assert chunks.has(loose)


# --- the collector ---


def test_what_nobody_needs_goes_after_the_grace_period(chunks: ChunkFiles) -> None:
    pinned, young, old = chunks.put(b"pinned"), chunks.put(b"young"), chunks.put(b"old")
    age(chunks, pinned, old)
    assert collect(chunks, lambda: {pinned}, GRACE_S) == len(b"old")
    assert chunks.has(pinned) and chunks.has(young) and not chunks.has(old)


def test_a_chunk_that_is_claimed_while_the_collector_looks_stays(chunks: ChunkFiles) -> None:
    name = chunks.put(b"x")
    age(chunks, name)

    def pinned_a_moment_too_late() -> set[bytes]:
        assert chunks.claim(name)  # by a fetch or a host, behind the collector's back
        return set()

    assert collect(chunks, pinned_a_moment_too_late, GRACE_S) == 0
    assert chunks.has(name)


def test_state_that_leaves_a_host_for_its_router_while_the_collector_looks_stays(chunks: ChunkFiles) -> None:
    """First the router has not pinned it yet; when the references are read, the host has dropped it."""
    state = batch(chunks, b"", "car1", list(range(100)), 0)
    names = referred_to(chunks)
    answers = [set(), names]

    def pinned() -> set[bytes]:
        if len(answers) == 2:
            batch(chunks, batch(chunks, state, "car1", None, 10), "car1", None, 20)
        return answers.pop(0)

    age(chunks)
    assert collect(chunks, pinned, GRACE_S) == 0
    assert all(map(chunks.has, names))


def test_what_a_crash_has_left_half_written_goes(chunks: ChunkFiles) -> None:
    name = chunks.put(b"x")
    aside = file_of(chunks, name).with_name(name.hex() + ".1-2-3.new")
    aside.write_bytes(b"half")
    os.utime(aside, (0, 0))
    collect(chunks, nothing_pinned, GRACE_S)
    assert not aside.exists() and chunks.has(name)


def test_writers_and_the_collector_do_not_lose_a_chunk_between_them(chunks: ChunkFiles) -> None:
    """Each round, both want the same old chunks at once; what was put is there afterwards."""
    contents = [b"chunk %d" % i for i in range(40)]
    for _ in range(15):
        for content in contents:
            age(chunks, chunks.put(content))
        collector = threading.Thread(target=collect, args=(chunks, nothing_pinned, GRACE_S))
        collector.start()
        names = [ChunkFiles(chunks.directory).put(content) for content in reversed(contents)]
        collector.join()
        assert all(map(chunks.has, names))
