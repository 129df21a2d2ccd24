"""The stepping thread with a disk that fails: what was promised stays, what was not never happened."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from real_sites import OP, OPERATORS, payload

from peregrine.core import wire
from peregrine.core.messages import Append, Committed, Effect, FromSource, Rehome
from peregrine.core.rehoming import Fenced, Rehoming
from peregrine.core.rows import UNCHAINED, Row, Rows, batch_of
from peregrine.core.topology import Link, Topology
from peregrine.errors import Busy, CorruptLog, DiskFull, ProtocolError, StorageError, Unreachable
from peregrine.net import snapshots
from peregrine.net.settings import RouterSettings
from peregrine.net.stepper import Stepper
from peregrine.net.store import Store
from peregrine.types import PlaceId, SiteId, SourceId

CLOUD, AT_CLOUD = SiteId("cloud"), PlaceId("cloud")
EDGE, REGION = SiteId("edge"), SiteId("region")
Open = Callable[[], Stepper]


def rows(first: int, count: int) -> FromSource:
    batch = batch_of(
        [Row("k", SourceId("s"), i, UNCHAINED, i, 0, payload("k", i)) for i in range(first, first + count)]
    )
    return FromSource(SourceId("s"), ((first + count - 1, Rows(OP, batch)),))


@pytest.fixture
def reopen(tmp_path: Path) -> Iterator[Open]:
    """Each call ends the stepper before it, as a crash would as far as the machine goes, and opens the directory."""
    settings = RouterSettings.of(
        CLOUD, Topology.tree(CLOUD), OPERATORS, tmp_path / "router", tmp_path / "token", tick_ms=3_600_000
    )
    opened: list[Stepper] = []

    def end() -> None:
        for stepper in opened:
            stepper.stop()
            stepper.store.close()
        opened.clear()

    def open_again() -> Stepper:
        end()
        opened.append(Stepper(settings, Store(settings), lambda error: failures.append(error)))
        opened[-1].start()
        return opened[-1]

    failures: list[BaseException] = []
    yield open_again
    end()


def test_a_full_disk_refuses_what_is_offered_and_the_same_is_taken_later(
    reopen: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepper = reopen()
    assert stepper.offer(rows(0, 5)) == 4

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DiskFull):
            stepper.offer(rows(5, 5))
    assert stepper.store.hosts[AT_CLOUD].end == 5
    assert stepper.offer(rows(5, 5)) == 9
    assert reopen().store.hosts[AT_CLOUD].end == 10


def test_an_effect_that_fails_ends_the_router_and_is_performed_after_the_restart(
    reopen: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepper = reopen()
    assert stepper.offer(rows(0, 5)) == 4
    perform = stepper.store.perform
    ended = threading.Event()
    monkeypatch.setattr(stepper, "_failed", lambda error: ended.set())

    def broken(effect: Effect) -> None:
        if isinstance(effect, Append):
            raise StorageError("the disk is gone", "get another")
        perform(effect)

    monkeypatch.setattr(stepper.store, "perform", broken)
    with pytest.raises(Unreachable):
        stepper.offer(rows(5, 5))
    assert ended.wait(5)
    with pytest.raises(Unreachable):
        stepper.offer(rows(5, 5))  # not even asked: who has failed says nothing more
    again = reopen()
    assert again.store.hosts[AT_CLOUD].end == 10
    assert again.offer(rows(0, 12)) == 11  # what it has it recognises
    assert again.store.hosts[AT_CLOUD].end == 12


def test_a_snapshot_and_what_came_behind_it_make_the_same_machine(reopen: Open) -> None:
    stepper = reopen()
    stepper.offer(rows(0, 5))
    stepper.ask(stepper.snapshot)
    stepper.offer(rows(5, 5))
    again = reopen()
    assert again.machine.acked_source(SourceId("s")) == 9
    assert again.machine.ends == {AT_CLOUD: 10}
    assert again.journal_bytes > 0  # only what came behind it was stepped through
    assert again.store.hosts[AT_CLOUD].end == 10


def test_pressure_that_a_snapshot_has_kept_is_of_long_ago(reopen: Open) -> None:
    """Its parent may be gone, or no longer be the parent: nobody would ever take it back."""
    stepper = reopen()
    stepper.hear_pressure(True)
    with pytest.raises(Busy):
        stepper.offer(rows(0, 5))
    stepper.ask(stepper.snapshot)
    assert reopen().offer(rows(0, 5)) == 4


@pytest.mark.parametrize("lacks", ["legs", "replicas", "all"])
def test_a_snapshot_of_another_version_is_refused_with_what_to_do(reopen: Open, lacks: str) -> None:
    stepper = reopen()
    stepper.ask(stepper.snapshot)
    directory = stepper.store.directory
    position, (machine, ends) = snapshots.load(directory) or (0, (None, {}))
    if lacks != "all":
        del vars(machine if lacks == "legs" else machine.legs)[lacks]
    snapshots.save(directory, position, (machine, ends) if lacks != "all" else {"another": "layout"})
    with pytest.raises(StorageError, match="is of another version: it lacks") as refused:
        reopen()
    assert "empty directories" in refused.value.remedy
    if lacks != "all":
        assert lacks in refused.value.what


@pytest.mark.parametrize("snapshot", [False, True])
def test_what_was_to_be_handed_back_is_handed_back_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: bool
) -> None:
    """It comes from the log of the link that has ended, which goes when it is not needed any more."""
    link = Link(1.0)
    topology = Topology.tree(CLOUD, {REGION: (CLOUD, link), EDGE: (CLOUD, link)})
    settings = RouterSettings.of(EDGE, topology, OPERATORS, tmp_path / "edge", tmp_path / "token", tick_ms=3_600_000)

    def opened() -> Stepper:
        stepper = Stepper(settings, Store(settings), lambda error: None)
        stepper.start()
        return stepper

    stepper = opened()
    monkeypatch.setattr(stepper, "_hand_back", lambda: None)  # it dies before
    stepper.offer(rows(0, 5))
    stepper.offer(Rehome(Rehoming(EDGE, CLOUD, REGION, CLOUD, 3)))
    stepper.offer(rows(5, 5))
    assert stepper.store.outs[REGION, 3].end == 1  # only that it joins
    if snapshot:
        stepper.ask(stepper.snapshot)
    stepper.stop()
    stepper.store.close()

    again = opened()
    again.offer(rows(10, 5))
    assert again.machine.hand_backs() == [] and again.machine.parent == REGION
    assert (CLOUD, 0) in again.store.ended
    sent = [wire.decode_item(message) for _, message in again.store.outs[REGION, 3].read(1)]
    assert [item.number for item in sent if isinstance(item, Fenced)] == [0, None, None]
    again.stop()
    again.store.close()

    again = opened()  # what was handed back before is not wanted any more, and its session is still over
    assert (CLOUD, 0) in again.store.ended
    again.ask(again.snapshot)
    assert sorted(path.name for path in (tmp_path / "edge" / "out").iterdir()) == ["region@3"]
    again.stop()
    again.store.close()

    last = opened()
    assert sorted(last.store.outs) == [(REGION, 3)] and last.machine.parent == REGION
    last.stop()
    last.store.close()


def test_what_the_parent_said_of_its_load_is_forgotten_with_the_life_in_which_it_was_said(reopen: Open) -> None:
    """It is told again while it is so. A parent that is away says nothing."""
    stepper = reopen()
    stepper.hear_pressure(True)
    assert not stepper.machine.accepts_rows()
    stepper.ask(stepper.snapshot)
    assert reopen().machine.accepts_rows()


def test_a_snapshot_that_was_not_finished_does_not_count(tmp_path: Path) -> None:
    assert snapshots.load(tmp_path) is None
    snapshots.save(tmp_path, 7, {"a": 1})
    (tmp_path / "snapshot.new").write_bytes(b"half")
    assert snapshots.load(tmp_path) == (7, {"a": 1})
    (tmp_path / "snapshot").write_bytes((tmp_path / "snapshot").read_bytes()[:-1] + b"?")
    with pytest.raises(StorageError, match="checksum") as caught:
        snapshots.load(tmp_path)
    assert not isinstance(caught.value, CorruptLog)


def test_what_is_left_for_the_next_one_is_in_the_journal_with_it(reopen: Open) -> None:
    stepper = reopen()
    stepper.offer(rows(0, 5))
    before = stepper.store.journal.end
    stepper.leave(Committed(AT_CLOUD, 5))
    assert stepper.store.journal.end == before, "a commit alone is not worth a write"
    stepper.offer(rows(5, 5))
    assert stepper.machine.commits[AT_CLOUD] == 5
    assert reopen().machine.commits[AT_CLOUD] == 5


def test_a_snapshot_that_cannot_be_written_stops_nothing(reopen: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(machine: object) -> bytes:
        raise ProtocolError("it holds something without a name", "name it")

    stepper = reopen()
    assert stepper.offer(rows(0, 5)) == 4
    with monkeypatch.context() as patch:
        patch.setattr(snapshots.snapshot, "encode", refuse)
        stepper.ask(stepper.snapshot)
    assert stepper.offer(rows(5, 5)) == 9
    assert reopen().store.hosts[AT_CLOUD].end == 10
