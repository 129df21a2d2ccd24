"""Mechanisms: their place in the survey's taxonomy, what that demands of their programs, and what they do."""

import random
from collections.abc import Iterator

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
    SINK,
    Net,
    keys,
    migration,
    sink,
    spec,
)
from peregrine.core.keyspace import KeySet
from peregrine.core.mechanisms import MECHANISMS, Mechanism
from peregrine.core.mechanisms import program as do
from peregrine.core.mechanisms.program import Movement, On, Track
from peregrine.core.messages import KeepReplicas
from peregrine.core.migrate import Role
from peregrine.core.rows import Clock, StateRows
from peregrine.sim.operators import Clean, Ledger, Tumbling
from peregrine.types import PlaceId, SiteId, SourceId

every = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)


def steps(mechanism: Mechanism) -> Iterator[tuple[Role, On, do.Step]]:
    return ((role, event, step) for (role, event), program in mechanism.program.items() for step in program)


def count(mechanism: Mechanism, kind: type[do.Step]) -> int:
    return sum(isinstance(step, kind) for _, _, step in steps(mechanism))


# --- the taxonomy (survey III-A, figures 4 and 5; IV-B to IV-F) ---

S, P = Track.SINGLE, Track.PARALLEL
TAXONOMY = {
    # name: (track, movement, direct, checkpoint-assisted), and where the survey speaks of it
    "live": (P, Movement.ALL_AT_ONCE, True, False),  # IV-C, state-recreation
    "live-unordered": (P, Movement.ALL_AT_ONCE, True, False),  # IV-C
    "pause": (S, Movement.ALL_AT_ONCE, True, False),  # IV-B
    "progressive": (S, Movement.PARTIAL, True, False),  # IV-E, Megaphone
    "on-demand": (S, Movement.PARTIAL, True, False),  # IV-E, Meces
    "replica": (S, Movement.PARTIAL, True, True),  # IV-F, Rhino
    "static-dynamic": (S, Movement.PARTIAL, True, False),  # IV-E, MigCEP; listing 7
    "window-recreation": (P, Movement.NONE, True, False),  # IV-C
    "drain": (S, Movement.NONE, True, False),  # III-A, pause-drain-resume
    "indirect": (S, Movement.ALL_AT_ONCE, False, False),  # IV-D
    "restart": (S, Movement.ALL_AT_ONCE, True, False),  # Falcon II-C
    "shed": (S, Movement.PARTIAL, True, False),  # IV-E
}


def test_the_taxonomy_is_complete() -> None:
    assert MECHANISMS.keys() == TAXONOMY.keys()
    assert all(name == mechanism.name for name, mechanism in MECHANISMS.items())


@every
def test_each_mechanism_says_where_it_stands_in_the_taxonomy(mechanism: Mechanism) -> None:
    """Survey IV-B to IV-F."""
    stands = (mechanism.track, mechanism.movement, mechanism.direct, mechanism.checkpoint_assisted)
    assert stands == TAXONOMY[mechanism.name]


def test_what_gives_up_a_guarantee_says_so() -> None:
    """Falcon IV-A (Falcon-OOP) gives up order; survey IV-E (state shedding) gives up state; nobody else does."""
    assert [name for name, m in MECHANISMS.items() if not m.ordered] == ["live-unordered"]
    assert [name for name, m in MECHANISMS.items() if not m.lossless] == ["shed"]


# --- what a class demands of a program ---


@every
def test_only_parallel_tracks_copy_rows(mechanism: Mechanism) -> None:
    """Survey III-A: on a single track every tuple is processed at one host only."""
    assert count(mechanism, do.Copy) == (mechanism.track is Track.PARALLEL)


@every
def test_parallel_tracks_switch_later_than_they_begin(mechanism: Mechanism) -> None:
    """Survey IV-C: the hand-over comes when the new host is ready, so that there is no downtime."""
    at_begin = [step for role, event, step in steps(mechanism) if event is On.BEGIN and isinstance(step, do.Switch)]
    if mechanism.track is Track.PARALLEL:
        assert at_begin == []


@every
def test_state_is_taken_if_and_only_if_the_mechanism_moves_state(mechanism: Mechanism) -> None:
    """Survey III-A: moving state or not is the first question of the taxonomy."""
    taken = [step for _, _, step in steps(mechanism) if isinstance(step, do.Snapshot)]
    assert any(not step.beside_windows for step in taken) == (mechanism.movement is not Movement.NONE)


@every
def test_state_goes_by_way_of_the_store_if_and_only_if_the_mechanism_is_indirect(mechanism: Mechanism) -> None:
    """Survey IV-D: donate and collect."""
    uses_store = any(
        role is Role.STORE or getattr(step, "to", None) is Role.STORE for role, _, step in steps(mechanism)
    )
    assert uses_store == (not mechanism.direct)
    assert uses_store == (mechanism.name == "indirect")


@every
def test_only_what_changed_travels_where_something_went_ahead(mechanism: Mechanism) -> None:
    """Survey IV-E and IV-F: incremental movement needs a replica, kept ahead of time or shipped first."""
    taken = [step for _, _, step in steps(mechanism) if isinstance(step, do.Snapshot)]
    assert any(step.delta for step in taken) == (mechanism.name in ("replica", "static-dynamic"))
    assert any(step.static for step in taken) == (mechanism.name == "static-dynamic")


@every
def test_a_single_track_with_state_holds_rows_until_the_state_has_come(mechanism: Mechanism) -> None:
    """Survey III-A: while the state travels, tuples can be processed at neither host and are buffered."""
    assert bool(count(mechanism, do.Hold)) == bool(count(mechanism, do.Snapshot)) == count(mechanism, do.Release)


@every
def test_the_anchor_switches_once_and_the_target_ends_it_once(mechanism: Mechanism) -> None:
    assert [role for role, _, step in steps(mechanism) if isinstance(step, do.Switch)] == [Role.ANCHOR]
    assert [role for role, _, step in steps(mechanism) if isinstance(step, do.Done)] == [Role.TARGET]


@every
def test_what_is_closed_is_opened_again(mechanism: Mechanism) -> None:
    for close, again in ((do.Gate, do.Open), (do.Close, do.Open), (do.Mute, do.Unmute), (do.Halt, do.Resume)):
        assert count(mechanism, close) == count(mechanism, again), close


@every
def test_rows_of_k_belong_to_the_migration_at_the_target_once_the_anchor_has_switched(mechanism: Mechanism) -> None:
    assert count(mechanism, do.Own) == 1


@every
def test_only_a_mechanism_that_stops_whole_places_must_run_alone(mechanism: Mechanism) -> None:
    """Falcon II-C: a full restart stops keys that do not migrate."""
    assert mechanism.alone == bool(count(mechanism, do.Halt))


@every
def test_an_order_is_promised_only_if_the_outputs_of_two_tracks_cannot_mix(mechanism: Mechanism) -> None:
    """Falcon III-E phase 6: where D can emit while S still works, a gate keeps the order."""
    works_on = any(isinstance(step, do.Drop) for _, _, step in steps(mechanism))
    if works_on:
        assert mechanism.ordered == bool(count(mechanism, do.Gate))


@every
def test_the_gate_is_told_of_the_switch_before_the_places_are(mechanism: Mechanism) -> None:
    """Falcon III-E phase 6: it must be closed when D's first output comes."""
    for _, _, step in steps(mechanism):
        if isinstance(step, do.Mark) and step.event is On.TERMINATE and count(mechanism, do.Gate):
            assert step.roles[0] is Role.GATE


@every
def test_primitives_are_used_by_the_role_that_can_perform_them(mechanism: Mechanism) -> None:
    """Design section 4: stream management at the anchor and at D's router, state management at S's and D's hosts."""
    roles: dict[type[do.Step], set[Role]] = {
        do.Copy: {Role.ANCHOR},
        do.Switch: {Role.ANCHOR},
        do.Mark: {Role.ANCHOR},
        do.Defer: {Role.SOURCE},
        do.Snapshot: {Role.SOURCE},
        do.Ripen: {Role.SOURCE},
        do.Drop: {Role.SOURCE},
        do.Collect: {Role.STORE},
        do.Close: {Role.GATE},
        do.Open: {Role.GATE},
        do.Halt: {Role.SOURCE, Role.TARGET},
        do.Resume: {Role.SOURCE, Role.TARGET},
        do.Tell: {Role.SOURCE, Role.TARGET, Role.GATE},
    }
    for role, event, step in steps(mechanism):
        assert role in roles.get(type(step), {Role.TARGET}), (role, event, step)


def test_a_migration_can_be_aborted_where_the_switch_does_not_come_first() -> None:
    """Design section 4: before the switch S has not noticed anything; after it there is no way back."""
    assert [name for name, m in MECHANISMS.items() if m.abortable] == [
        "live",
        "live-unordered",
        "static-dynamic",
        "window-recreation",
    ]


# --- every mechanism, every way, by chance ---

WAYS = {
    "up": (AT_EDGE1, AT_CLOUD, EDGE1, EDGE1),
    "up, anchor above": (AT_EDGE1, AT_REGION, REGION, EDGE2),
    "down": (AT_CLOUD, AT_EDGE1, EDGE1, EDGE1),
    "sideways": (AT_EDGE1, AT_EDGE2, EDGE2, EDGE2),
}
NAMES = ("car1", "car2", "car4", "van1", "bus1")


def network(mechanism: Mechanism, source: PlaceId) -> Net:
    """An operator that the mechanism fits, and a small chunk size, so that values have several."""
    stateless = "stateless" in mechanism.needs
    windowed = "windowed" in mechanism.needs
    operator = Clean(SINK) if stateless else Tumbling(SINK, OP, 100, lambda key: ("s",)) if windowed else Ledger(SINK)
    specs = (spec(stateless=stateless, windowed=windowed), sink())
    return Net(specs=specs, operators={OP: operator}, owners=[(keys(*NAMES), source)], chunk_bytes=8)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@every
def test_results_and_state_equal_a_run_without_migration(
    mechanism: Mechanism, way: tuple[PlaceId, PlaceId, SiteId, SiteId], seed: int
) -> None:
    """Survey III-A: state consistency means that an observer cannot tell; Falcon III-E, state correctness."""
    source, target, anchor, producer = way
    rng = random.Random(f"{mechanism.name} {way} {seed}")
    net, calm = network(mechanism, source), network(mechanism, source)
    m = migration(keys("car1", "car2", "van1"), source, target, anchor, mechanism.name)
    if mechanism.checkpoint_assisted:
        net.step(SiteId(source), KeepReplicas(OP, m.keys, source, target, 1))
    begins_at = rng.randrange(5, 40)
    for moment in range(120):
        if moment == begins_at:
            net.begin(m)
        if moment % 4 == 0:
            names = rng.choices(NAMES, k=2)
            for each in (net, calm):
                each.send(producer, *names, time_ms=moment * 10)
        if moment % 10 == 0:
            net.tick(moment)
        net.stir(rng)
    for each in (net, calm):
        each.give(producer, Clock(OP, keys(*NAMES), SourceId("s"), 10_000))
        each.settle()
    for now_ms in (200, 210, 220):  # window-recreation asks again with each tick
        net.tick(now_ms)
        net.settle()
    assert net.statuses()[-1] == "done"
    assert net.leftovers() == []
    if mechanism.lossless:
        results = net.lines if mechanism.ordered else {line: sorted(got) for line, got in net.lines.items()}
        assert results == calm.lines
    for key in NAMES:
        assert sorted(net.landed(key)) == calm.landed(key), key
        assert net.whereabouts(key) in ([], [target if key in m.keys else source])
        moved = net.key_state(target if key in m.keys else source, key)
        if mechanism.lossless:
            assert moved == calm.key_state(source, key), key


# --- one by one ---


def started(mechanism: str, *names: str, **more: object) -> Net:
    """The named keys live at edge1 with one row each; their migration to the cloud has begun."""
    net = Net(owners=[(keys("car1", "car2", "car4", "van1"), AT_EDGE1)], chunk_bytes=8)
    net.send(EDGE1, "car1", "car2", "car4", "van1")
    net.settle()
    net.begin(migration(keys(*names), AT_EDGE1, AT_CLOUD, EDGE1, mechanism, **more))
    return net


def up(net: Net) -> None:
    net.drain(EDGE1, REGION)
    net.drain(REGION, CLOUD)


def test_pause_sends_rows_of_k_to_d_alone_from_the_first_moment() -> None:
    """Spacker III-C2, routing update; survey IV-B: S never sees what comes after the control message."""
    net = started("pause", "car1")
    net.send(EDGE1, "car1", "car2")
    assert net.log(AT_EDGE1)[4:] == ["<snapshot>", "car2#5"]
    assert net.link(EDGE1, REGION) == ["R>target", "car1#4"]


def test_keys_that_do_not_migrate_never_wait() -> None:
    """Spacker III-C2: the control message does not block; only migrating keys are buffered."""
    net = started("pause", "car1")
    net.send(EDGE1, "car1", "car2")
    net.send(EDGE1, "bus1")
    up(net)
    net.work(AT_CLOUD)
    assert net.log(AT_CLOUD) == ["bus1#6"]
    assert net.landed("bus1") == [6]
    net.work(AT_EDGE1)
    assert net.outputs("car2") == [(AT_EDGE1, 1), (AT_EDGE1, 5)]
    assert net.outputs("car1") == [(AT_EDGE1, 0)]


def test_buffered_rows_of_a_key_follow_its_state() -> None:
    """Spacker III-C2, buffered record consumption: as soon as this key's state is there, whatever the others do."""
    net = started("pause", "car1", "car2")
    net.send(EDGE1, "car1", "car2", "car1")
    up(net)
    net.work(AT_EDGE1, max_rows=1)  # the snapshot of car1's group
    up(net)
    assert net.log(AT_CLOUD) == ["<restore>", "car1#4", "car1#6"]
    net.send(EDGE1, "car1")
    up(net)
    assert net.log(AT_CLOUD)[-1] == "car1#7"


def test_pause_needs_no_gate_because_the_state_leaves_behind_the_last_output() -> None:
    """Survey IV-B: D can emit for a key only after its state came, which left S behind all that S emitted."""
    net = Net(owners=[(keys("car1"), AT_EDGE1)])
    net.send(EDGE1, "car1")  # not applied yet
    net.begin(migration(keys("car1"), AT_EDGE1, AT_CLOUD, EDGE1, "pause"))
    net.send(EDGE1, "car1")
    net.work(AT_EDGE1)
    assert net.link(EDGE1, REGION) == ["R>target", "car1#1", "car1#0", "[car1]"]
    net.settle()
    assert net.landed("car1") == [0, 1]


def test_on_demand_fetches_the_key_of_the_first_row_that_waits_and_only_that_key() -> None:
    """Survey IV-E, Meces: what incoming tuples need comes first."""
    net = started("on-demand", "car1", "van1", "car2")  # car1 and van1 share a group
    up(net)
    assert net.link(CLOUD, REGION) == ["fetch>source"]  # the sweep takes the first group
    net.send(EDGE1, "car2")
    net.send(EDGE1, "car2")
    up(net)
    asked = [item.keys for _, item in net.links[CLOUD, REGION]]  # type: ignore[union-attr]
    assert asked == [keys("car1", "van1"), keys("car2")]


def test_on_demand_sweeps_what_nobody_asks_for_one_group_after_the_other() -> None:
    """Survey IV-E, Meces: the rest moves in the background."""
    net = started("on-demand", "car1", "car2", "car4")
    seen = []
    for _ in range(20):
        up(net)
        seen += [
            item.keys for _, item in net.links.get((CLOUD, REGION), ()) if getattr(item, "event", None) is On.FETCH
        ]  # type: ignore[union-attr]
        net.drain(CLOUD, REGION)
        net.drain(REGION, EDGE1)
        net.work(AT_EDGE1)
    assert seen == [keys("car1"), keys("car2"), keys("car4")]
    assert net.statuses()[-1] == "done"
    net.settle()
    assert net.whereabouts("car4") == [AT_CLOUD]


def moved_bytes(net: Net) -> int:
    return max(report.moved.bytes_moved for report in net.reports)


def grown(mechanism: str, replicas: bool, rows_after: int) -> Net:
    """A key with a large value, replicated or not, some more rows, and then its migration."""
    net = Net(owners=[(keys("car1"), AT_EDGE1)], chunk_bytes=32)
    for number in range(30):
        net.send(EDGE1, "car1", source=f"source-{number:03}")
    if replicas:
        net.step(EDGE1, KeepReplicas(OP, keys("car1"), AT_EDGE1, AT_CLOUD, 1))
        net.tick(1)
    net.settle()
    for number in range(rows_after):
        net.send(EDGE1, "car1", source=f"source-{number:03}")
    net.begin(migration(keys("car1"), AT_EDGE1, AT_CLOUD, EDGE1, mechanism))
    net.settle()
    assert net.whereabouts("car1") == [AT_CLOUD]
    return net


def test_with_a_fresh_replica_only_the_books_travel() -> None:
    """Spacker III-C1, reload; survey IV-F: the state already exists at the new host."""
    assert moved_bytes(grown("replica", True, 0)) < moved_bytes(grown("pause", True, 0)) / 2


def test_with_an_old_replica_what_has_changed_travels() -> None:
    """Survey IV-F, Rhino: an incremental checkpoint with the changes since the last."""
    fresh, old, none = (grown("replica", *given) for given in ((True, 0), (True, 1), (False, 1)))
    assert moved_bytes(fresh) < moved_bytes(old) < moved_bytes(none)
    for net, how in ((fresh, (1, 0, 0)), (old, (0, 1, 0)), (none, (0, 0, 1))):
        moved = net.reports[-1].moved
        assert (moved.reload, moved.patch, moved.transfer) == how


def test_a_replicated_key_goes_on_as_one_whose_state_was_moved() -> None:
    """Spacker III-C1: however the state is retrieved, it is the latest."""
    one, other = grown("replica", True, 3), grown("pause", False, 3)
    assert one.key_state(AT_CLOUD, "car1") == other.key_state(AT_CLOUD, "car1")


def test_static_dynamic_ships_the_state_while_s_works_on() -> None:
    """Survey VI, listing 7: the static part goes first, and the operator is not stopped for it."""
    net = started("static-dynamic", "car1")
    net.send(EDGE1, "car1")
    net.work(AT_EDGE1)
    assert net.outputs("car1") == [(AT_EDGE1, 0), (AT_EDGE1, 4)]
    assert net.statuses() == ["begun"]
    up(net)
    assert net.log(AT_CLOUD) == []  # kept as a replica, not restored
    net.drain(CLOUD, REGION)
    net.drain(REGION, EDGE1)
    assert net.statuses() == ["begun", "switched"]
    net.settle()
    assert net.whereabouts("car1") == [AT_CLOUD]


def test_window_recreation_moves_no_values_and_waits_for_the_old_windows() -> None:
    """Survey IV-C: D fills its own windows; its time is that of the windows, not that of the state."""
    mechanism = MECHANISMS["window-recreation"]
    assert all(step.beside_windows for _, _, step in steps(mechanism) if isinstance(step, do.Snapshot | do.Restore))
    net = network(mechanism, AT_EDGE1)
    net.send(EDGE1, "car1", time_ms=10)
    net.settle()
    net.begin(migration(keys("car1"), AT_EDGE1, AT_CLOUD, EDGE1, "window-recreation"))
    net.send(EDGE1, "car1", time_ms=20)
    net.settle()
    net.tick(1)
    net.settle()
    assert net.statuses() == ["begun"]  # the window up to 100 was open at R
    net.send(EDGE1, "car1", time_ms=110)
    net.settle()
    net.tick(2)
    net.settle()
    assert net.statuses() == ["begun", "switched", "done"]
    net.send(EDGE1, "car1", time_ms=220)
    net.settle()
    assert net.outputs("car1") == [(AT_EDGE1, 100), (AT_CLOUD, 200)]


def test_window_recreation_asks_a_slow_host_again_only_when_it_has_answered() -> None:
    """Its log would fill with questions faster than it can answer them."""
    net = network(MECHANISMS["window-recreation"], AT_EDGE1)
    net.send(EDGE1, "car1", time_ms=10)
    net.begin(migration(keys("car1"), AT_EDGE1, AT_CLOUD, EDGE1, "window-recreation"))
    net.settle()
    for now_ms in (1, 2, 3):
        net.tick(now_ms)
    assert net.log(AT_EDGE1).count("<AskRipe>") == 2
    net.settle()
    net.tick(4)
    assert net.log(AT_EDGE1).count("<AskRipe>") == 3


def test_drain_moves_nothing_and_lets_s_finish_first() -> None:
    """Survey III-A, pause-drain-resume: redirect, and let the old host work off what it has."""
    net = network(MECHANISMS["drain"], AT_EDGE1)
    net.send(EDGE1, "car1")
    net.begin(migration(keys("car1"), AT_EDGE1, AT_CLOUD, EDGE1, "drain"))
    net.send(EDGE1, "car1")
    net.settle(hosts=False)
    net.work(AT_CLOUD)
    assert net.outputs("car1") == []  # D is done and waits for S
    net.settle()
    assert net.outputs("car1") == [(AT_EDGE1, 0), (AT_CLOUD, 1)]
    assert "<snapshot>" not in net.log(AT_EDGE1)


def test_indirect_collects_only_when_everything_has_been_donated() -> None:
    """Survey IV-D: a barrier lies between donating and collecting."""
    net = Net(owners=[(keys("car1", "car2"), AT_EDGE1)])
    net.send(EDGE1, "car1", "car2")
    net.settle()
    net.begin(migration(keys("car1", "car2"), AT_EDGE1, AT_EDGE2, EDGE2, "indirect"))
    net.settle(hosts=False)
    net.work(AT_EDGE1, max_rows=1)
    net.settle(hosts=False)
    assert net.log(AT_EDGE2) == [] and net.routers[CLOUD].leftovers() == ["m is open as store"]
    net.work(AT_EDGE1)
    net.settle(hosts=False)
    assert net.log(AT_EDGE2) == ["<restore>", "<restore>"]
    assert net.leftovers() == []


def test_state_of_indirect_passes_through_the_store() -> None:
    net = Net(owners=[(keys("car1"), AT_EDGE1)])
    net.begin(migration(keys("car1"), AT_EDGE1, AT_EDGE2, EDGE2, "indirect"))
    net.settle()
    at_root = [e for e in net.effects[CLOUD] for each in e if isinstance(getattr(each, "item", None), StateRows)]
    assert len(at_root) == 1  # it was sent on from there


def test_restart_stops_both_hosts_for_all_of_their_keys_and_loses_nothing() -> None:
    """Falcon II-C: a full restart is a stoppage of the whole application at these places."""
    net = started("restart", "car1")
    net.send(EDGE1, "car1", "car2", "bus1")
    up(net)
    assert net.log(AT_EDGE1)[4:] == ["<snapshot>"]
    assert net.log(AT_CLOUD) == []
    net.settle()
    assert net.log(AT_EDGE1)[5:] == ["car2#5"]
    assert sorted(net.log(AT_CLOUD)) == ["<restore>", "bus1#6", "car1#4"]
    assert net.leftovers() == []


def test_shed_reports_exactly_what_it_has_lost() -> None:
    """Survey IV-E, state shedding."""
    net = Net(owners=[(keys("car1", "car2"), AT_EDGE1)])
    net.send(EDGE1, "car1", "car2", "car1", "car1")
    net.settle()
    net.begin(migration(keys("car1", "car2"), AT_EDGE1, AT_CLOUD, EDGE1, "shed", shed_below=2))
    net.settle()
    assert net.reports[-1].moved.shed == (("car2", 1),)
    assert net.key_state(AT_CLOUD, "car1") is not None
    assert net.whereabouts("car2") == []


def test_live_unordered_lets_d_emit_before_s_has_finished() -> None:
    """Falcon IV-A, Falcon-OOP: without the wait of phase 6 the last outputs of S may come later."""
    net = started("live-unordered", "car1")
    net.settle(hosts=False)
    net.work(AT_EDGE1)
    net.settle(hosts=False)
    net.work(AT_CLOUD)
    net.send(EDGE1, "car1")  # the last that S gets
    net.settle(hosts=False)
    net.send(EDGE1, "car1")
    net.settle(hosts=False)
    net.work(AT_CLOUD)
    assert net.outputs("car1") == [(AT_EDGE1, 0), (AT_CLOUD, 5)]
    net.settle()
    assert sorted(net.landed("car1")) == [0, 4, 5] != net.landed("car1")


def test_whole_groups_move_like_single_keys() -> None:
    """Spacker III-C2: key groups are the unit that existing engines manage."""
    for name in ("pause", "on-demand", "indirect"):
        net = Net(owners=[(KeySet.everything(GROUPS), AT_EDGE1)])
        net.send(EDGE1, *NAMES)
        net.begin(migration(KeySet.of_groups(GROUPS, [0, 1]), AT_EDGE1, AT_CLOUD, EDGE1, name))
        net.send(EDGE1, *NAMES, "new")
        net.settle()
        assert [net.whereabouts(key) for key in ("car1", "car2", "car4")] == [[AT_CLOUD], [AT_CLOUD], [AT_EDGE1]]
        assert net.leftovers() == []
