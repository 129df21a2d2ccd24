"""A machine that was made wrong fails with what it had seen and done about this migration, or this site, in order."""

import pytest

from harness import AT_CLOUD, AT_EDGE1, CLOUD, EDGE1, EDGE2, OP, REGION, Net, keys, migration, sink, spec, tree
from peregrine.core import snapshot
from peregrine.core.attachments import Attachments
from peregrine.core.coordinator import Submit
from peregrine.core.leg import Leg
from peregrine.core.legs import Legs
from peregrine.core.manager import Manager
from peregrine.core.mechanisms.program import On
from peregrine.core.messages import FromLink, Report
from peregrine.core.placement import Placement
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.rehoming import Fenced, Rehoming, Said, Word
from peregrine.core.router import Router
from peregrine.core.rows import Clock, Rows
from peregrine.core.trail import EVENTS, SUBJECTS, Trail
from peregrine.errors import ProtocolError
from peregrine.types import MigrationId, OpId

M = migration(keys("car1"), AT_EDGE1, AT_CLOUD, EDGE1)
OTHER = migration(keys("car2"), AT_EDGE1, AT_CLOUD, EDGE1, id=MigrationId("other"))
SPECS = {OP: spec(), sink().op: sink()}


def story(error: BaseException) -> list[str]:
    (note,) = error.__notes__
    return [line.strip() for line in note.splitlines()]


class ForgetsItsTargets(Legs):
    def happen(self, leg: Leg, event: On) -> None:
        super().happen(leg, event)
        if event is On.COMPLETE:
            self.book.end(*leg.at, "done")


class MakesAGateOfTheTarget(Legs):
    def into_target(self, leg: Leg | None, item: Rows | Clock) -> None:
        assert leg is not None
        leg.behind_gate.append(item)


def net_of(wrong: type[Legs]) -> Net:
    """car1 and car2 live at edge1, and the migrations of both have begun there."""

    class Wrong(Router):
        legs_type = wrong

    net = Net(owners=[(keys("car1", "car2"), AT_EDGE1)], router=Wrong)
    net.send(EDGE1, "car1", "car2")
    net.settle()
    net.begin(M)
    net.begin(OTHER)
    return net


def test_rows_that_break_the_protocol_bring_the_story_of_their_migration_and_of_no_other() -> None:
    net = net_of(ForgetsItsTargets)
    net.drain(EDGE1, REGION)
    net.drain(REGION, CLOUD)
    net.work(AT_EDGE1)
    net.drain(EDGE1, REGION)
    net.drain(REGION, CLOUD)
    net.send(EDGE1, "car1")
    net.drain(EDGE1, REGION)
    with pytest.raises(ProtocolError, match="that nobody here expects") as caught:
        net.drain(REGION, CLOUD)
    assert story(caught.value) == [
        "what router cloud has seen and done about m, the oldest first:",
        "marker reconfig from anchor to target at cloud",
        "target reconfig",
        "state from edge1 to cloud",
        "target state",
        "reached restored",
        "target complete",
    ]


def test_an_invariant_that_does_not_hold_tells_the_story_of_its_migration() -> None:
    net = net_of(MakesAGateOfTheTarget)
    net.send(EDGE1, "car2")
    net.drain(EDGE1, REGION)
    with pytest.raises(AssertionError, match="wait at an open gate") as caught:
        net.drain(REGION, CLOUD)
    assert story(caught.value) == [
        "what router cloud has seen and done about other, the oldest first:",
        "marker reconfig from anchor to target at cloud",
        "target reconfig",
    ]


def test_the_story_goes_on_after_a_restart_from_a_snapshot() -> None:
    net = net_of(MakesAGateOfTheTarget)
    trail = snapshot.decode(snapshot.encode(net.routers[EDGE1].trail))
    assert trail.of(M.id) == net.routers[EDGE1].trail.of(M.id)
    assert trail.of(M.id)[:2] == ["reports begun", "anchor begin"]


def test_what_breaks_a_rehoming_tells_the_story_of_its_site() -> None:
    router = Net().routers[CLOUD]
    gone = Rehoming(EDGE2, REGION, None, CLOUD, 7)
    over = Rehoming(EDGE1, REGION, CLOUD, CLOUD, 8)
    router.step(FromLink(REGION, 0, (Word(Said.LEAVE, gone), Word(Said.LEAVE, over))))
    with pytest.raises(ProtocolError, match="which is over") as caught:
        router.step(FromLink(REGION, 2, (Fenced(over, Word(Said.LEAVE, gone)),)))
    assert story(caught.value) == [
        "what router cloud has seen and done about edge1, the oldest first:",
        "leave for cloud in rehoming 8",
        "Fenced for cloud in rehoming 8",
    ]


def test_a_manager_that_fails_over_a_report_tells_the_story_of_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    placement = Placement(tree(), SPECS)
    placement.move(OP, keys("car1", "car2"), AT_CLOUD, AT_EDGE1)
    manager = Manager(placement, SPECS, Attachments(), lambda op, key_set: ())

    def wrong(op: OpId, *more: object) -> None:
        raise AssertionError(f"{op} is not there")

    for name in ("car1", "car2"):
        manager.step(Submit(Plan(f"of-{name}", ((Move(OP, keys(name), AT_EDGE1, AT_CLOUD),),))))
    monkeypatch.setattr(placement, "move", wrong)
    manager.step(Report(EDGE1, MigrationId("of-car1.0.0"), "switched"))
    manager.step(Report(EDGE1, MigrationId("of-car2.0.0"), "switched"))
    with pytest.raises(AssertionError) as caught:
        manager.step(Report(CLOUD, MigrationId("of-car1.0.0"), "done"))
    assert story(caught.value) == [
        "what the manager has seen and done about of-car1, the oldest first:",
        "submitted, by live",
        "edge1 reports switched of of-car1.0.0",
        "cloud reports done of of-car1.0.0",
    ]


def test_an_error_that_is_about_no_migration_has_no_story() -> None:
    router = net_of(Legs).routers[EDGE1]
    router.commits[AT_EDGE1] = 1_000_000
    with pytest.raises(AssertionError) as caught:
        router.check()
    assert not hasattr(caught.value, "__notes__")


def test_a_trail_keeps_the_last_of_many_and_tells_what_comes_again_once() -> None:
    trail = Trail("a machine")
    for i in range(2 * EVENTS):
        trail.note("m", "event", i)
        trail.note("m", "event", i)
    assert trail.of("m") == [f"event {i}" for i in range(EVENTS, 2 * EVENTS)]
    for i in range(SUBJECTS):
        trail.note(f"m{i}", "event")
    assert trail.of("m") == []
    assert trail.of("m0") == ["event"]
