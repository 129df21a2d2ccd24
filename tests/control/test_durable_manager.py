"""A manager that dies at any record goes on where it was: nothing that was promised is forgotten."""

from pathlib import Path

import pytest

from peregrine.control import durable_manager
from peregrine.control.durable_manager import DurableManager, Initial
from peregrine.core.attachments import Attachments
from peregrine.core.coordinator import Cancel, PlanEnded, Status, Submit, ToRouter
from peregrine.core.keyspace import KeySet
from peregrine.core.manager import Manager, ManagerEvent
from peregrine.core.messages import Attached, Begin, Rehome, Rehomed, Report, Stray, Tick
from peregrine.core.operator import OpSpec
from peregrine.core.placement import Placement
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.redeploying import Redeployed, TopologyChanged
from peregrine.core.topology import Link, Topology
from peregrine.core.validity import AttachedProducers, Feeds
from peregrine.errors import PlanError, ProtocolError, StorageError, UnknownName
from peregrine.net import snapshots
from peregrine.plan.redeploy.events import SiteMoved, SiteRemoved
from peregrine.plan.redeploy.planning import planning_of
from peregrine.types import MigrationId, OpId, PlaceId, SiteId, SourceId
from peregrine.workloads import tm

CLOUD, EDGE1, EDGE2, TRAIN = SiteId("cloud"), SiteId("edge1"), SiteId("edge2"), SiteId("train")
AT_CLOUD, AT_EDGE1, AT_EDGE2 = PlaceId("cloud"), PlaceId("edge1"), PlaceId("edge2")
CAR0, CAR1 = KeySet.of_keys(tm.GROUPS, ["car0"]), KeySet.of_keys(tm.GROUPS, ["car1"])
INITIAL: Initial = ((tm.MOV_AVG, CAR1, AT_EDGE1),)


def make(initial: Initial, feeds: Feeds) -> Manager:
    link = Link(10.0, 100.0)
    topology = Topology.tree(CLOUD, {EDGE1: (CLOUD, link), EDGE2: (CLOUD, link)})
    attachments = Attachments()
    placement = Placement(topology, tm.specs(), initial)
    return Manager(placement, tm.specs(), attachments, AttachedProducers(feeds, attachments), dwell_ms=100)


def plan(name: str, keys: KeySet, source: PlaceId, target: PlaceId) -> Plan:
    return Plan(name, ((Move(tm.MOV_AVG, keys, source, target),),))


def report(name: str, status: str) -> Report:
    return Report(EDGE1, MigrationId(f"{name}.0.0"), status)


# A plan runs, is followed by a car that drives from edge1 to edge2, and by a plan that is taken back.
STORY: list[ManagerEvent] = [
    Attached(EDGE1, SourceId("car1"), 5, 0),
    Submit(plan("down", CAR0, AT_CLOUD, AT_EDGE1)),
    Tick(1000),
    report("down", "begun"),
    report("down", "switched"),
    report("down", "done"),
    Attached(EDGE2, SourceId("car1"), 2000, 1),
    Stray(CLOUD, tm.MOV_AVG, "car1", SourceId("car1")),
    report("roam0-up", "done"),
    Tick(2050),
    Tick(2200),
    report("roam1-down", "done"),
    Submit(plan("back", CAR0, AT_EDGE1, AT_CLOUD)),
    Cancel("back"),
    report("back", "aborted"),
]


def story_told(directory: Path, die_after_each: bool) -> tuple[list[object], DurableManager]:
    effects: list[object] = []
    manager = DurableManager(directory, make)
    manager.place(INITIAL)
    manager.feed(SourceId("car1"), ((tm.MOV_AVG, CAR1),))
    for event in STORY:
        if die_after_each:
            manager.close()
            manager = DurableManager(directory, make)
        effects += manager.step(event)
    return effects, manager


@pytest.mark.parametrize("snapshot_bytes", [1 << 20, 1])
def test_a_manager_that_dies_after_every_event_does_what_one_that_lives_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot_bytes: int
) -> None:
    monkeypatch.setattr(durable_manager, "SNAPSHOT_BYTES", snapshot_bytes)
    lived, one = story_told(tmp_path / "one", die_after_each=False)
    died, other = story_told(tmp_path / "other", die_after_each=True)
    assert died == lived
    ended = {each.plan.id: each.outcome for each in lived if isinstance(each, PlanEnded)}
    assert ended == dict.fromkeys(("down", "roam0-up", "roam1-down"), Status.DONE) | {"back": Status.ABORTED}
    for manager in (one, other):
        assert manager.machine.coordinator.placement.owner(tm.MOV_AVG, "car0") == AT_EDGE1
        assert manager.machine.coordinator.placement.owner(tm.MOV_AVG, "car1") == AT_EDGE2
        back = manager.ended("back")
        assert back is not None and back.outcome is Status.ABORTED
        manager.close()


COUNT, OTHER, OUT = OpId("app/count"), OpId("other/count"), OpId("app/out")
STATIC = {op: OpSpec(op, 4, feeds=(OUT,)) for op in (COUNT, OTHER)} | {OUT: OpSpec(OUT, 4, sink=True)}
LAMP = KeySet.of_keys(4, ["lamp"])


def moving(initial: Initial, feeds: Feeds) -> Manager:
    link = Link(10.0, 100.0)
    topology = Topology.tree(CLOUD, {EDGE1: (CLOUD, link), EDGE2: (CLOUD, link), TRAIN: (EDGE1, link)})
    attachments = Attachments()
    placement = Placement(topology, STATIC, initial)
    planning = planning_of(topology, STATIC, initial, feeds)
    return Manager(placement, STATIC, attachments, AttachedProducers(feeds, attachments), planning=planning)


@pytest.mark.parametrize("fails", [COUNT, OTHER])
@pytest.mark.parametrize("snapshot_bytes", [1 << 20, 1])
def test_a_manager_that_dies_after_every_event_carries_out_a_topology_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot_bytes: int, fails: OpId
) -> None:
    """The train drives from one edge to the other, and the first is closed: what two applications count there for the
    train's lamp has to leave before. A first try of one of them fails: what the other has moved returns, and what was
    planned is taken back, by a manager that has died since.
    """
    monkeypatch.setattr(durable_manager, "SNAPSHOT_BYTES", snapshot_bytes)
    told: list[list[object]] = []
    for die in (False, True):
        directory = tmp_path / str(die)
        manager = DurableManager(directory, moving)
        manager.place(((COUNT, LAMP, AT_EDGE1), (OTHER, LAMP, AT_EDGE1)))
        manager.feed(SourceId("lamp"), ((COUNT, LAMP), (OTHER, LAMP)))
        effects: list[object] = []
        waiting: list[ManagerEvent] = [
            Attached(TRAIN, SourceId("lamp"), 5, 0),
            TopologyChanged(SiteRemoved(EDGE1, 1)),
            TopologyChanged(SiteMoved(TRAIN, EDGE1, EDGE2, Link(5.0, 100.0), 1)),
        ]
        now_ms, failed = 0, False
        while not any(isinstance(each, Redeployed) and each.outcome is Status.DONE for each in effects):
            assert now_ms < 60_000, "it does not end"
            if die:
                manager.close()
                manager = DurableManager(directory, moving)
            now_ms += 100
            new = manager.step(waiting.pop(0) if waiting else Tick(now_ms))
            effects += new
            for command in [each.command for each in new if isinstance(each, ToRouter)]:
                if isinstance(command, Begin):
                    fail = command.migration.op == fails and not failed
                    failed = failed or fail
                    waiting.append(Report(CLOUD, command.migration.id, "aborted" if fail else "done"))
                elif isinstance(command, Rehome):
                    waiting.append(Rehomed(command.rehoming.site, command.rehoming.number))
        placement = manager.machine.coordinator.placement
        assert placement.topology.parent(TRAIN) == EDGE2 and EDGE1 not in placement.topology
        assert placement.owner(COUNT, "lamp") != AT_EDGE1 != placement.owner(OTHER, "lamp")
        back = [each for each in effects if isinstance(each, PlanEnded) and each.plan.id.endswith("-back")]
        assert [(m.op, m.target) for each in back for m in each.moved] == [(({COUNT, OTHER} - {fails}).pop(), AT_EDGE1)]
        first, *_, last = [each for each in effects if isinstance(each, Redeployed)]
        assert first.outcome is Status.ABORTED and first.wrong == first.contexts == ()
        assert last.complete and last.wrong == () and last.contexts
        manager.close()
        told.append(effects)
    assert told[0] == told[1]


def test_a_plan_that_was_promised_is_begun_again_by_the_next_manager(tmp_path: Path) -> None:
    manager = DurableManager(tmp_path, make)
    assert not manager.placed
    manager.place(INITIAL)
    manager.step(Submit(plan("p", CAR0, AT_CLOUD, AT_EDGE1)))  # and dies before the command has gone out
    # The process is gone: nobody closes the journal. (Its lock is this process's own, so it does not stand in the way.)
    again = DurableManager(tmp_path, make)
    assert again.placed
    assert [e.site for e in again.step(Tick(10_000)) if isinstance(e, ToRouter)] == [EDGE1, EDGE1]
    with pytest.raises(PlanError, match="already a plan 'p'"):
        again.step(Submit(plan("p", CAR0, AT_CLOUD, AT_EDGE1)))


def test_a_new_dwell_time_does_not_change_what_happened_before(tmp_path: Path) -> None:
    _, manager = story_told(tmp_path, die_after_each=False)
    manager.dwell(60_000)
    manager.close()
    again = DurableManager(tmp_path, make)
    assert again.machine.coordinator.placement.owner(tm.MOV_AVG, "car1") == AT_EDGE2
    assert again.machine.mobility.dwell_ms == 60_000
    again.close()


def test_what_is_refused_is_refused_for_ever_and_leaves_no_trace(tmp_path: Path) -> None:
    manager = DurableManager(tmp_path, make)
    manager.place(())
    manager.feed(SourceId("car0"), ((tm.MOV_AVG, CAR0),))
    manager.step(Attached(EDGE2, SourceId("car0"), 5, 0))
    with pytest.raises(PlanError, match="would not be above car0"):
        manager.step(Submit(plan("p", CAR0, AT_CLOUD, AT_EDGE1)))
    with pytest.raises(UnknownName):
        manager.step(Cancel("p"))
    manager.close()
    again = DurableManager(tmp_path, make)
    assert not again.machine.coordinator.knows("p") and again.machine.idle
    with pytest.raises(PlanError, match="would not be above car0"):  # it still knows who feeds what
        again.step(Submit(plan("p", CAR0, AT_CLOUD, AT_EDGE1)))
    assert again.step(Submit(plan("p", CAR0, AT_CLOUD, AT_EDGE2)))
    again.close()


def test_nothing_is_done_that_could_not_be_written(tmp_path: Path) -> None:
    manager = DurableManager(tmp_path, make)
    manager.place(())
    manager.close()
    with pytest.raises(StorageError):
        manager.step(Submit(plan("p", CAR0, AT_CLOUD, AT_EDGE1)))
    assert not manager.machine.coordinator.knows("p")


def test_a_snapshot_that_cannot_be_written_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(machine: object) -> bytes:
        raise ProtocolError("it holds something without a name", "name it")

    monkeypatch.setattr(durable_manager, "SNAPSHOT_BYTES", 1)
    monkeypatch.setattr(snapshots.snapshot, "encode", refuse)
    told, manager = story_told(tmp_path / "manager", die_after_each=False)
    manager.close()
    monkeypatch.undo()
    assert told == story_told(tmp_path / "other", die_after_each=False)[0]
    again = DurableManager(tmp_path / "manager", make)
    assert again.ended("down") is not None
    again.close()
