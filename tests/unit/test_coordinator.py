"""The coordinator: refuses what cannot be carried out and changes nothing; carries out the rest, come what may."""

import random
from typing import Any

import pytest

from harness import (
    AT_CLOUD,
    AT_EDGE1,
    AT_EDGE2,
    AT_REGION,
    CLOUD,
    EDGE1,
    EDGE2,
    GROUPS,
    OP,
    REGION,
    Net,
    keys,
    row,
    rows,
    sink,
    spec,
    tree,
)
from peregrine.core.attachments import Attachments
from peregrine.core.coordinator import (
    RETRY_MS,
    Cancel,
    Coordinator,
    CoordinatorEffect,
    PlanEnded,
    Status,
    Submit,
    ToRouter,
)
from peregrine.core.keyspace import KeySet
from peregrine.core.manager import Manager, ManagerEvent
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.messages import Abort, Begin, Query, Report, Tick
from peregrine.core.operator import OpSpec
from peregrine.core.placement import Placement
from peregrine.core.reconfigure import Move, Plan, even_chunks, in_chunks, sideways, split
from peregrine.errors import ConfigurationError, OverlapError, PeregrineError, PlanError, UnknownName
from peregrine.sim.operators import Clean, Ledger
from peregrine.types import MigrationId, OpId, PlaceId, SiteId
from rehoming_faults import PATCHES

CLEAN, WINDOWS = OpId("app/clean"), OpId("app/windows")
SPECS = {
    CLEAN: OpSpec(CLEAN, GROUPS, stateless=True, feeds=(OP,)),
    OP: spec(roaming=True),
    WINDOWS: OpSpec(WINDOWS, GROUPS, windowed=True),
    sink().op: sink(),
}
EVERYTHING = KeySet.everything(GROUPS)


def coordinator(producers: Any = lambda op, key_set: ()) -> Coordinator:
    """car1 and car2 of `count` at edge1, van1 at the region; `windows` at edge1 for car1; the rest at the cloud.

    `clean` is below what it feeds.
    """
    placement = Placement(tree(), SPECS)
    placement.move(CLEAN, EVERYTHING, AT_CLOUD, AT_EDGE1)
    placement.move(OP, keys("car1", "car2"), AT_CLOUD, AT_EDGE1)
    placement.move(OP, keys("van1"), AT_CLOUD, AT_REGION)
    placement.move(WINDOWS, keys("car1"), AT_CLOUD, AT_EDGE1)
    return Coordinator(placement, SPECS, producers)


def plan(*moves: Move, id: str = "p", **more: Any) -> Plan:
    return Plan(id, (moves,), **more)


def up(*names: str, **more: Any) -> Move:
    return Move(OP, keys(*names), AT_EDGE1, AT_CLOUD, **more)


def told(effects: list[CoordinatorEffect]) -> list[tuple[SiteId, str, str]]:
    return [(e.site, type(e.command).__name__, e.command.migration.id) for e in effects if isinstance(e, ToRouter)]  # type: ignore[union-attr]


def picture(c: Coordinator) -> Any:
    """Everything about a coordinator that a refused plan must not change."""
    instances = {op: dict(c.placement.instances(op)) for op in c.placement.operators}
    running = {id: (run.plan, run.begun, [*run.open], {*run.switched}, run.cancelled) for id, run in c.running.items()}
    return instances, running, set(c._known), [c.busy(OP, keys(name)) for name in ("car1", "car2", "van1", "bus1")]


# --- refusals ---

REFUSED: dict[str, tuple[Plan, type[PeregrineError], list[str], str]] = {
    # what is wrong: (plan, error, words that say what, a word of the remedy)
    "unknown operator": (plan(Move(OpId("app/typo"), keys("car1"), AT_EDGE1, AT_CLOUD)), UnknownName, ["app/typo"], OP),
    "a sink is no operator": (plan(Move(sink().op, keys("car1"), AT_EDGE1, AT_CLOUD)), UnknownName, [sink().op], OP),
    "unknown site": (plan(Move(OP, keys("car1"), AT_EDGE1, PlaceId("moon"))), UnknownName, ["moon"], "edge1"),
    "unknown host": (plan(Move(OP, keys("car1"), AT_EDGE1, PlaceId("cloud/9"))), UnknownName, ["cloud/9"], "cloud"),
    "unknown mechanism": (plan(up("car1"), mechanism="magic"), UnknownName, ["mechanism", "magic"], "live"),
    "to itself": (plan(Move(OP, keys("car1"), AT_EDGE1, AT_EDGE1)), PlanError, ["edge1", "itself"], "another target"),
    "no keys": (plan(Move(OP, KeySet.nothing(GROUPS), AT_EDGE1, AT_CLOUD)), PlanError, ["no keys"], "name keys"),
    "other groups": (
        plan(Move(OP, keys("car1", groups=9), AT_EDGE1, AT_CLOUD)),
        ConfigurationError,
        ["9"],
        "number of groups",
    ),
    "not at S": (
        plan(Move(OP, keys("van1"), AT_EDGE1, AT_CLOUD)),
        PlanError,
        ["van1", "edge1", "region"],
        "where the keys are",
    ),
    "partly not at S": (plan(up("car1", "van1")), PlanError, ["van1", "edge1", "region"], "leave out"),
    "nothing to do": (Plan("p", ()), PlanError, ["moves nothing"], "at least one"),
    "empty stages": (Plan("p", ((), ())), PlanError, ["moves nothing"], "at least one"),
    "an anchor that is neither": (plan(up("car1", anchor=REGION)), PlanError, ["region", "anchor"], "edge1 or cloud"),
    "the upper end as anchor of a way down": (
        plan(Move(WINDOWS, keys("car2"), AT_CLOUD, AT_EDGE1, anchor=CLOUD)),
        PlanError,
        ["cloud", "anchor"],
        "use edge1",
    ),
    "stateless mechanism": (plan(up("car1"), mechanism="drain"), PlanError, ["drain", "stateless", OP], "live"),
    "windowed mechanism": (
        plan(up("car1"), mechanism="window-recreation"),
        PlanError,
        ["static sources", "windowed"],
        "live",
    ),
    "not above its producer": (
        plan(Move(OP, keys("van1"), AT_REGION, AT_EDGE2)),
        PlanError,
        [OP, "edge2", CLEAN, "edge1"],
        "region",
    ),
    "not below its consumer": (
        plan(Move(CLEAN, EVERYTHING, AT_EDGE1, AT_CLOUD)),
        PlanError,
        [OP, CLEAN, "cloud"],
        "cloud",
    ),
    "one key twice in a stage": (
        plan(up("car1"), up("car1", "car2")),
        OverlapError,
        ["car1", OP],
        "stages of their own",
    ),
    "two restarts of one place": (
        plan(up("car1"), up("car2"), mechanism="restart"),
        OverlapError,
        ["restart", "cloud", "edge1"],
        "stages of their own",
    ),
    "a mistake in a later stage": (
        Plan("p", ((up("car1"),), (Move(OP, keys("car1"), AT_EDGE1, AT_REGION),))),
        PlanError,
        ["car1", "edge1", "cloud"],
        "where the keys are",
    ),
}


@pytest.mark.parametrize(("bad", "error", "words", "remedy"), REFUSED.values(), ids=REFUSED)
def test_a_plan_that_cannot_be_carried_out_is_refused_with_a_remedy_and_changes_nothing(
    bad: Plan, error: type[PeregrineError], words: list[str], remedy: str
) -> None:
    """Falcon III-B (valid plans), III-D (what Migrate can do); errors.py: an error has changed nothing."""
    c = coordinator()
    before = picture(c)
    with pytest.raises(error) as raised:
        c.step(Submit(bad))
    for word in words:
        assert word in raised.value.what
    assert remedy in raised.value.remedy
    assert picture(c) == before
    assert c.step(Tick(RETRY_MS)) == []
    assert told(c.step(Submit(plan(up("car1"))))) == [(EDGE1, "Begin", "p.0.0")]  # its id is still free


def test_a_plan_below_a_source_of_its_keys_is_refused() -> None:
    """Falcon III-B: sources are producers, too."""
    c = coordinator(lambda op, key_set: [("camera7", EDGE2)] if op == WINDOWS and "car5" in key_set else [])
    before = picture(c)
    with pytest.raises(PlanError) as raised:
        c.step(Submit(plan(Move(WINDOWS, keys("car5"), AT_CLOUD, AT_EDGE1))))
    assert all(word in raised.value.what for word in (WINDOWS, "edge1", "camera7", "edge2"))
    assert "region" in raised.value.remedy
    assert picture(c) == before
    c.step(Submit(plan(Move(WINDOWS, keys("car5"), AT_CLOUD, AT_REGION))))


def test_a_plan_must_be_valid_when_what_runs_has_ended_too() -> None:
    """Falcon III-B, with migrations in parallel: `clean` is on its way up, so `count` may not stay below it."""
    c = coordinator()
    c.placement.move(OP, keys("car1", "car2"), AT_EDGE1, AT_REGION)
    c.step(Submit(plan(Move(CLEAN, EVERYTHING, AT_EDGE1, AT_REGION), id="first")))
    with pytest.raises(PlanError, match=CLEAN):
        c.step(Submit(plan(Move(OP, keys("van1"), AT_REGION, AT_EDGE1))))


def test_keys_that_are_moving_cannot_be_moved_by_another_plan() -> None:
    """Falcon III-D: migrations run in parallel if they have no key in common."""
    c = coordinator()
    c.step(Submit(plan(up("car1"), id="first")))
    before = picture(c)
    with pytest.raises(OverlapError) as raised:
        c.step(Submit(plan(up("car1", "car2"))))
    assert "first" in raised.value.what and "car1" in raised.value.what and "car2" not in raised.value.what
    assert "cancel" in raised.value.remedy
    assert picture(c) == before
    assert told(c.step(Submit(plan(up("car2"))))) == [(EDGE1, "Begin", "p.0.0")]


def test_keys_of_a_later_stage_are_taken_from_the_beginning() -> None:
    c = coordinator()
    c.step(Submit(Plan("first", ((up("car1"),), (up("car2"),)))))
    with pytest.raises(OverlapError, match="first"):
        c.step(Submit(plan(up("car2"))))


@pytest.mark.parametrize(("first", "second"), [("restart", "live"), ("live", "restart"), ("restart", "restart")])
def test_a_restart_shares_its_places_with_nobody(first: str, second: str) -> None:
    """Falcon II-C: it stops keys that do not migrate, so no migration may run there meanwhile."""
    c = coordinator()
    c.step(Submit(plan(up("car1"), id="first", mechanism=first)))
    before = picture(c)
    with pytest.raises(OverlapError) as raised:
        c.step(Submit(plan(Move(OP, keys("car2"), AT_EDGE1, AT_REGION), mechanism=second)))
    assert "edge1" in raised.value.what and "first" in raised.value.what
    assert picture(c) == before


def test_a_restart_elsewhere_is_no_obstacle() -> None:
    c = coordinator()
    c.step(Submit(plan(Move(WINDOWS, keys("car1"), AT_EDGE1, AT_EDGE2), id="first", mechanism="restart")))
    assert told(c.step(Submit(plan(Move(OP, keys("van1"), AT_REGION, AT_CLOUD))))) == [(REGION, "Begin", "p.0.0")]


def test_an_id_is_used_once_even_after_its_plan_has_ended() -> None:
    """Routers recognise repeats by the id of a migration, which comes from that of its plan."""
    c = coordinator()
    c.step(Submit(plan(up("car1"))))
    c.step(Report(CLOUD, MigrationId("p.0.0"), "done"))
    assert c.running == {}
    with pytest.raises(PlanError, match="already a plan"):
        c.step(Submit(plan(up("car2"))))


def test_cancelling_a_plan_that_never_was_names_those_that_run() -> None:
    c = coordinator()
    c.step(Submit(plan(up("car1"))))
    with pytest.raises(UnknownName) as raised:
        c.step(Cancel("q"))
    assert "p" in raised.value.remedy


# --- carrying out ---


def test_the_anchor_is_the_lower_end() -> None:
    """Falcon III-E: markers enter the queue of the child datacenter, up or down; sideways that of the target."""
    c = coordinator()
    down = Move(WINDOWS, keys("car2"), AT_CLOUD, AT_EDGE1)
    across = Move(WINDOWS, keys("car1"), AT_EDGE1, AT_EDGE2)
    above = up("car2", anchor=CLOUD)
    effects = c.step(Submit(plan(up("car1"), down, across, above)))
    assert [site for site, _, _ in told(effects)] == [EDGE1, EDGE1, EDGE2, CLOUD]


@pytest.mark.parametrize("fault", [None, "the old place decides the order although rows come from above"])
def test_the_lower_end_decides_no_order_of_rows_that_come_from_above(
    fault: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on its way down when the keys move up would come back behind rows that D has taken."""
    if fault is not None:
        PATCHES[fault](monkeypatch)
    specs = {OP: spec(), sink().op: sink()}
    placement = Placement(tree(), specs)
    placement.move(OP, keys("car1"), AT_CLOUD, AT_EDGE1)
    c = Coordinator(placement, specs, lambda op, key_set: [("s", REGION)])  # edge1 was above it once
    (begin,) = c.step(Submit(plan(Move(OP, keys("car1"), AT_EDGE1, AT_REGION))))
    assert isinstance(begin, ToRouter) and isinstance(begin.command, Begin)
    assert (begin.site == REGION) == (fault is None)
    found = [landed_by_chance(begin.command, random.Random(seed)) for seed in range(50)]
    assert all(seqs == [*range(20)] for seqs in found) == (fault is None)


def landed_by_chance(begin: Begin, rng: random.Random) -> list[int]:
    net = Net(owners=[(keys("car1"), AT_EDGE1)])
    net.begin(begin.migration)
    for _ in range(20):
        net.send(REGION, "car1")
        for _ in range(rng.randrange(6)):
            net.stir(rng)
    net.settle()
    (line,) = net.lines.values()
    return [seq for seq, _ in line]


def test_the_placement_changes_with_the_report_that_it_is_done() -> None:
    """Falcon III-D; design section 4, step 6."""
    c = coordinator()
    c.step(Submit(plan(up("car1"))))
    for status in ("begun", "switched"):
        assert c.step(Report(EDGE1, MigrationId("p.0.0"), status)) == []
        assert c.placement.owner(OP, "car1") == AT_EDGE1
    (ended,) = c.step(Report(CLOUD, MigrationId("p.0.0"), "done"))
    assert isinstance(ended, PlanEnded) and ended.outcome is Status.DONE
    assert [m.id for m in ended.moved] == ["p.0.0"]
    assert c.placement.owner(OP, "car1") == AT_CLOUD
    assert not c.busy(OP, keys("car1"))


def test_a_repeated_report_changes_nothing() -> None:
    c = coordinator()
    c.step(Submit(Plan("p", ((up("car1"),), (up("car2"),)))))
    c.step(Report(CLOUD, MigrationId("p.0.0"), "done"))
    before = picture(c)
    assert c.step(Report(CLOUD, MigrationId("p.0.0"), "done")) == []
    assert c.step(Report(CLOUD, MigrationId("unknown"), "done")) == []
    assert picture(c) == before


def test_a_stage_begins_when_the_one_before_has_ended() -> None:
    """Falcon III-D, figure 4c; Spacker III-C2: the next chunk when all have acknowledged the last."""
    c = coordinator()
    stages = ((up("car1"), Move(WINDOWS, keys("car1"), AT_EDGE1, AT_EDGE2)), (up("car2"),))
    assert len(told(c.step(Submit(Plan("p", stages))))) == 2
    assert c.step(Report(CLOUD, MigrationId("p.0.0"), "done")) == []
    assert told(c.step(Report(EDGE2, MigrationId("p.0.1"), "done"))) == [(EDGE1, "Begin", "p.1.0")]


def test_in_a_plan_that_overlaps_a_stage_begins_when_the_one_before_has_switched() -> None:
    c = coordinator()
    c.step(Submit(Plan("p", ((up("car1"),), (up("car2"),)), overlap=True)))
    assert told(c.step(Report(EDGE1, MigrationId("p.0.0"), "switched"))) == [(EDGE1, "Begin", "p.1.0")]
    assert c.running["p"].stage == 0
    assert c.step(Report(CLOUD, MigrationId("p.0.0"), "done")) == [] and c.running["p"].stage == 1
    assert c.step(Report(EDGE1, MigrationId("p.1.0"), "switched")) == []
    (ended,) = c.step(Report(CLOUD, MigrationId("p.1.0"), "done"))
    assert isinstance(ended, PlanEnded) and ended.outcome is Status.DONE
    assert [m.id for m in ended.moved] == ["p.0.0", "p.1.0"]


def test_stages_of_the_same_keys_do_not_overlap() -> None:
    c = coordinator()
    back = Move(OP, keys("car1"), AT_CLOUD, AT_REGION)
    c.step(Submit(Plan("p", ((up("car1"),), (back,)), overlap=True)))
    assert c.step(Report(EDGE1, MigrationId("p.0.0"), "switched")) == []
    assert told(c.step(Report(CLOUD, MigrationId("p.0.0"), "done"))) == [(REGION, "Begin", "p.1.0")]


def test_a_plan_that_overlaps_ends_when_all_that_has_begun_has_ended() -> None:
    c = coordinator()
    c.step(Submit(Plan("p", ((up("car1"),), (up("car2"),)), overlap=True)))
    c.step(Report(EDGE1, MigrationId("p.0.0"), "switched"))
    assert (EDGE1, "Abort", "p.1.0") in told(c.step(Cancel("p")))
    assert c.step(Report(EDGE1, MigrationId("p.1.0"), "aborted")) == []
    (ended,) = c.step(Report(CLOUD, MigrationId("p.0.0"), "done"))
    assert isinstance(ended, PlanEnded) and ended.outcome is Status.ABORTED
    assert [m.id for m in ended.moved] == ["p.0.0"]


def test_commands_are_sent_again_until_they_are_answered() -> None:
    """Commands may be lost: the anchor is asked to begin, the target how it stands."""
    c = coordinator()
    c.step(Submit(plan(up("car1"))))
    c.step(Tick(0))
    assert c.step(Tick(RETRY_MS - 1)) == []
    assert told(c.step(Tick(RETRY_MS))) == [(EDGE1, "Begin", "p.0.0"), (CLOUD, "Query", "p.0.0")]
    c.step(Report(EDGE1, MigrationId("p.0.0"), "switched"))
    assert told(c.step(Tick(2 * RETRY_MS))) == [(CLOUD, "Query", "p.0.0")]
    c.step(Report(CLOUD, MigrationId("p.0.0"), "done"))
    assert c.step(Tick(3 * RETRY_MS)) == []


def test_a_cancelled_plan_is_aborted_at_its_anchor_again_and_again() -> None:
    """Design section 4: abort before q."""
    c = coordinator()
    c.step(Submit(Plan("p", ((up("car1"),), (up("car2"),)))))
    assert (EDGE1, "Abort", "p.0.0") in told(c.step(Cancel("p")))
    assert (EDGE1, "Abort", "p.0.0") in told(c.step(Tick(RETRY_MS)))
    (ended,) = c.step(Report(EDGE1, MigrationId("p.0.0"), "aborted"))
    assert isinstance(ended, PlanEnded) and ended.outcome is Status.ABORTED and ended.moved == ()
    assert c.placement.owner(OP, "car1") == AT_EDGE1
    assert c.step(Cancel("p")) == []
    assert not c.busy(OP, keys("car1", "car2"))


def test_what_has_switched_when_a_plan_is_cancelled_goes_on_and_no_stage_follows() -> None:
    """Design section 4: after q, roll forward; what moved has moved."""
    c = coordinator()
    c.step(Submit(Plan("p", ((up("car1"),), (up("car2"),)))))
    c.step(Report(EDGE1, MigrationId("p.0.0"), "switched"))
    assert told(c.step(Cancel("p"))) == [(CLOUD, "Query", "p.0.0")]
    (ended,) = c.step(Report(CLOUD, MigrationId("p.0.0"), "done"))
    assert isinstance(ended, PlanEnded) and ended.outcome is Status.ABORTED
    assert [m.id for m in ended.moved] == ["p.0.0"]
    assert c.placement.owner(OP, "car1") == AT_CLOUD and c.placement.owner(OP, "car2") == AT_EDGE1


def test_a_plan_whose_migration_was_aborted_by_its_router_ends_without_its_later_stages() -> None:
    c = coordinator()
    c.step(Submit(Plan("p", ((up("car1"),), (up("car2"),)))))
    (ended,) = c.step(Report(EDGE1, MigrationId("p.0.0"), "aborted"))
    assert isinstance(ended, PlanEnded) and ended.outcome is Status.ABORTED


# --- manager and routers together ---


class Deployment:
    """A manager whose commands and reports the test passes on, or loses."""

    def __init__(self, net: Net, key_set: KeySet, place: PlaceId) -> None:
        self.net = net
        self.initial = (key_set, place)
        net.own(key_set, place)
        self.manager = self.make()
        self.journal: list[ManagerEvent] = []
        self.commands: list[ToRouter] = []
        self.ended: list[PlanEnded] = []
        self._heard = 0

    def make(self) -> Manager:
        placement = Placement(self.net.topology, self.net.specs)
        placement.move(OP, self.initial[0], AT_CLOUD, self.initial[1])
        return Manager(placement, self.net.specs, Attachments(), lambda op, key_set: ())

    def tell(self, event: ManagerEvent) -> None:
        effects = self.manager.step(event)
        self.journal.append(event)
        self.commands += [e for e in effects if isinstance(e, ToRouter)]
        self.ended += [e for e in effects if isinstance(e, PlanEnded)]

    def pass_on(self) -> None:
        """Commands reach their routers, everything settles, and reports reach the manager, until all is quiet."""
        while self.commands or self._heard < len(self.net.reports):
            commands, self.commands = self.commands, []
            for each in commands:
                self.net.step(each.site, each.command)
            self.net.settle()
            reports, self._heard = self.net.reports[self._heard :], len(self.net.reports)
            for report in reports:
                self.tell(report)

    def lose_commands(self) -> None:
        self.commands.clear()

    def lose_reports(self) -> None:
        self._heard = len(self.net.reports)

    def restart(self) -> None:
        """A new manager from the journal; what the old one had wanted to send is lost."""
        self.lose_commands()
        self.manager = self.make()
        for event in self.journal:
            self.manager.step(event)


def deployment() -> Deployment:
    deployed = Deployment(Net(), keys("car1", "car2", "van1"), AT_EDGE1)
    deployed.net.send(EDGE1, "car1", "car2", "van1")
    return deployed


def test_a_plan_in_chunks_moves_chunk_after_chunk_and_no_row_is_lost() -> None:
    """Spacker III-C1 and III-C2: ordered chunks, executed sequentially."""
    deployed = deployment()
    whole = keys("car1", "car2", "van1")
    stages = in_chunks(split(OP, whole, AT_EDGE1, AT_CLOUD), even_chunks(whole, 3))
    deployed.tell(Submit(Plan("p", stages, mechanism="progressive")))
    begun = []
    while deployed.commands:
        begun += [c.command.migration.keys for c in deployed.commands if isinstance(c.command, Begin)]
        assert len(deployed.commands) == 1  # one chunk at a time
        command = deployed.commands.pop()
        deployed.net.step(command.site, command.command)
        deployed.net.send(EDGE1, "car1", "car2", "van1")
        deployed.net.settle()
        for report in deployed.net.reports[deployed._heard :]:
            deployed._heard += 1
            deployed.tell(report)
    assert begun == [keys("car1"), keys("car2"), keys("van1")]
    assert [ended.outcome for ended in deployed.ended] == [Status.DONE]
    assert deployed.manager.coordinator.placement.instances(OP).keys() == {AT_CLOUD}
    assert [len(deployed.net.landed(key)) for key in ("car1", "car2", "van1")] == [4, 4, 4]


def test_sideways_in_two_legs_arrives() -> None:
    """Falcon III-D, figure 4c."""
    deployed = deployment()
    placement = deployed.manager.coordinator.placement
    deployed.tell(Submit(Plan("p", sideways(placement, OP, keys("car1"), AT_EDGE1, AT_EDGE2))))
    deployed.pass_on()
    assert deployed.net.whereabouts("car1") == [AT_EDGE2]
    assert placement.owner(OP, "car1") == AT_EDGE2


@pytest.mark.parametrize("mechanism", [name for name in MECHANISMS if name not in ("drain", "window-recreation")])
def test_a_lost_command_or_report_only_delays(mechanism: str) -> None:
    deployed = deployment()
    deployed.tell(Submit(plan(up("car1"), mechanism=mechanism)))
    deployed.lose_commands()
    deployed.tell(Tick(0))  # sent again
    for each in deployed.commands:
        deployed.net.step(each.site, each.command)
    deployed.commands.clear()
    deployed.net.settle()
    deployed.lose_reports()
    deployed.tell(Tick(RETRY_MS))  # asked again
    deployed.pass_on()
    assert [ended.outcome for ended in deployed.ended] == [Status.DONE]
    assert deployed.net.whereabouts("car1") in ([AT_CLOUD], [])
    assert deployed.net.leftovers() == []


def test_a_manager_rebuilt_from_its_journal_goes_on_where_it_was() -> None:
    """Falcon III-G; design section 1: rows keep flowing while it is down."""
    deployed = deployment()
    deployed.tell(Submit(Plan("p", ((up("car1"),), (up("car2"),)))))
    for each in deployed.commands:
        deployed.net.step(each.site, each.command)
    deployed.commands.clear()
    before = picture(deployed.manager.coordinator)
    deployed.restart()
    assert picture(deployed.manager.coordinator) == before
    deployed.net.send(EDGE1, "car1")
    deployed.net.settle()  # the first stage ends while nobody listens
    deployed.lose_reports()
    deployed.tell(Tick(RETRY_MS))
    deployed.pass_on()
    assert [ended.outcome for ended in deployed.ended] == [Status.DONE]
    assert deployed.net.whereabouts("car2") == [AT_CLOUD]
    assert deployed.net.landed("car1") == [0, 3]


def test_a_manager_that_dies_between_two_stages_begins_the_second() -> None:
    deployed = deployment()
    deployed.tell(Submit(Plan("p", ((up("car1"),), (up("car2"),)))))
    command = deployed.commands.pop()
    deployed.net.step(command.site, command.command)
    deployed.net.settle()
    for report in deployed.net.reports:
        deployed.tell(report)
    deployed.lose_reports()
    assert told(list(deployed.commands)) == [(EDGE1, "Begin", "p.1.0")]
    deployed.restart()
    deployed.tell(Tick(RETRY_MS))
    deployed.pass_on()
    assert [ended.outcome for ended in deployed.ended] == [Status.DONE]


def test_an_abort_that_overtakes_its_begin_ends_the_plan() -> None:
    deployed = deployment()
    deployed.tell(Submit(plan(up("car1"))))
    deployed.tell(Cancel("p"))
    deployed.commands.sort(key=lambda each: isinstance(each.command, Begin))
    assert [type(each.command) for each in deployed.commands] == [Abort, Query, Begin]
    deployed.pass_on()
    assert [ended.outcome for ended in deployed.ended] == [Status.ABORTED]
    assert deployed.net.whereabouts("car1") == [AT_EDGE1]
    assert deployed.net.leftovers() == []


def test_a_refused_plan_leaves_a_manager_whose_journal_does_not_know_it() -> None:
    deployed = deployment()
    with pytest.raises(PlanError):
        deployed.tell(Submit(plan(Move(OP, keys("car1"), AT_CLOUD, AT_EDGE1))))
    assert deployed.journal == []
    deployed.restart()
    deployed.tell(Submit(plan(up("car1"))))
    deployed.pass_on()
    assert [ended.outcome for ended in deployed.ended] == [Status.DONE]


# --- an operator and who it feeds ---


@pytest.mark.parametrize("up_or_down", ["up", "down"])
def test_an_operator_and_its_consumer_do_not_move_in_one_stage(up_or_down: str) -> None:
    """Falcon III-B: at every moment an instance is above its producers, in whatever order the two migrations end.

    The migrations of a stage run at the same time, so they may not depend on each other's end.
    """
    placement = Placement(tree(), SPECS)
    moves = (Move(CLEAN, EVERYTHING, AT_CLOUD, AT_EDGE1), Move(OP, EVERYTHING, AT_CLOUD, AT_EDGE1))
    if up_or_down == "up":
        for each in moves:
            placement.move(each.op, each.keys, each.source, each.target)
        moves = (Move(OP, EVERYTHING, AT_EDGE1, AT_CLOUD), Move(CLEAN, EVERYTHING, AT_EDGE1, AT_CLOUD))
    with pytest.raises(PlanError):
        Coordinator(placement, SPECS).step(Submit(plan(*moves)))


def chain(*plans: Plan) -> list[int]:
    """`clean` and the `count` that it feeds move down from the cloud as the plans say; the results of car1, in order.

    `count` has arrived when `clean` switches: what `clean` emits at the edge does not pass the gate at the cloud.
    """
    specs = (OpSpec(CLEAN, GROUPS, stateless=True, feeds=(OP,)), spec(), sink())
    net = Net(specs=specs, operators={CLEAN: Clean(OP), OP: Ledger(sink().op)})
    by_id = {each.op: each for each in specs}
    c = Coordinator(Placement(net.topology, by_id), by_id)
    heard = 0

    def perform(effects: list[CoordinatorEffect]) -> None:
        for effect in effects:
            if isinstance(effect, ToRouter):
                net.step(effect.site, effect.command)

    rng = random.Random(0)
    waiting = list(plans)
    seq = 0
    for _ in range(600):
        if waiting and not c.running:
            perform(c.step(Submit(waiting.pop(0))))
        if rng.random() < 0.3:
            net.give(EDGE1, rows(row("car1", seq), op=CLEAN))
            seq += 1
        net.stir(rng)
        for report in net.reports[heard:]:
            heard += 1
            perform(c.step(report))
    net.settle()
    assert c.running == {} and not waiting
    return [number for _, number in net.results]


DOWN = (Move(CLEAN, EVERYTHING, AT_CLOUD, AT_EDGE1), Move(OP, EVERYTHING, AT_CLOUD, AT_EDGE1))


# Delete this one if such plans are refused: it shows why they should be.
def test_an_operator_and_its_consumer_that_move_one_after_the_other_keep_the_order() -> None:
    """Falcon III-D: as stages of their own."""
    results = chain(Plan("p", ((DOWN[0],), (DOWN[1],))))
    assert results == sorted(results) and len(results) > 100
