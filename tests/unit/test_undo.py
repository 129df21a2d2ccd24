"""Abort: before the switch it leaves no trace, after it there is only forward."""

import random

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
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.messages import KeepReplicas, Query
from peregrine.core.migrate import Migration
from peregrine.core.routes import Route
from peregrine.core.rows import Clock, DropKeys
from peregrine.sim.operators import Tumbling
from peregrine.types import PlaceId, SiteId, SourceId

K = keys("car1")
UP = migration(K, AT_EDGE1, AT_CLOUD, EDGE1)
ABORTABLE = [name for name, mechanism in MECHANISMS.items() if mechanism.abortable]
ONE_WAY = [name for name in MECHANISMS if name not in (*ABORTABLE, "drain")]  # drain is for what has no state


def at_edge1(**more: object) -> Net:
    net = Net(owners=[(keys("car1", "car2"), AT_EDGE1)], **more)  # type: ignore[arg-type]
    net.send(EDGE1, "car1", "car2")
    net.settle()
    return net


def rules(net: Net) -> dict[SiteId, list[tuple[Route, KeySet]]]:
    return {site: router.table.partition(OP, KeySet.everything(GROUPS)) for site, router in net.routers.items()}


# --- before the switch ---


def test_an_abort_in_the_middle_of_a_live_migration_leaves_no_trace() -> None:
    """Design section 4: uncopy, drop the muted state at D; S never noticed."""
    net = at_edge1()
    before = rules(net)
    net.begin(UP)
    net.send(EDGE1, "car1")
    net.settle(hosts=False)
    net.work(AT_EDGE1)
    net.settle(hosts=False)
    net.work(AT_CLOUD, max_rows=2)  # D has restored and applied a row, and is not caught up for want of a commit
    net.abort(UP)
    net.send(EDGE1, "car1")
    net.settle()
    assert net.statuses()[-1] == "aborted" and "switched" not in net.statuses()
    assert rules(net) == before
    assert net.whereabouts("car1") == [AT_EDGE1]
    assert net.outputs("car1") == [(AT_EDGE1, seq) for seq in (0, 2, 3)]
    assert net.leftovers() == []


def test_rows_that_d_held_are_forgotten_and_state_that_comes_late_is_not_restored() -> None:
    """Falcon III-E phase 3, undone: whatever is on its way to D for this migration must come to nothing."""
    net = at_edge1()
    net.begin(UP)
    net.send(EDGE1, "car1")
    net.settle(hosts=False)  # D holds the row
    net.work(AT_EDGE1)
    net.abort(UP)
    assert net.link(EDGE1, REGION) == ["[car1]", "car1#2", "X>target"]  # the row is S's output
    net.settle()
    assert net.log(AT_CLOUD, of="car1") == ["<restore>", "car1#2~", "<drop>"]
    assert net.whereabouts("car1") == [AT_EDGE1]


def test_state_that_arrives_behind_the_abort_is_ignored() -> None:
    net = at_edge1()
    net.begin(UP)
    net.send(EDGE1, "car1")
    net.drain(EDGE1, REGION)
    net.drain(REGION, CLOUD)
    net.abort(UP)  # S's host has not taken the snapshot yet
    net.settle()
    assert net.log(AT_EDGE1, of="car1")[:3] == ["car1#0", "<snapshot>", "car1#2"]
    assert net.log(AT_CLOUD, of="car1") == ["<drop>"]
    assert net.leftovers() == []


def test_a_target_that_is_ready_too_late_does_not_take_over() -> None:
    """Falcon III-E phase 4: the anchor decides; once it aborts, READY on its way to it counts for nothing."""
    net = at_edge1()
    net.begin(UP)
    net.settle(hosts=False)
    net.work(AT_EDGE1)
    net.settle(hosts=False)
    net.work(AT_CLOUD)
    assert net.link(CLOUD, REGION) == ["ready>anchor"]
    net.abort(UP)
    net.send(EDGE1, "car1")
    net.settle()
    assert net.statuses() == ["begun", "aborted"]
    assert net.outputs("car1") == [(AT_EDGE1, 0), (AT_EDGE1, 2)]


def test_rows_held_during_the_flush_come_out_behind_those_that_were_on_their_way_round() -> None:
    """One order for K (core/undo.py): with the anchor above S, rows of a static source are still going round by it.

    Without the FLUSH the row that came last would enter S's log first.
    """
    net = at_edge1()
    m = migration(K, AT_EDGE1, AT_REGION, REGION)
    net.begin(m)
    net.drain(REGION, EDGE1)  # R: S's router now sends rows of K round by the anchor
    net.send(EDGE1, "car1")  # row 2, on its way up
    assert net.link(EDGE1, REGION) == ["car1#2"]
    net.abort(m)
    net.drain(REGION, EDGE1)  # X
    net.send(EDGE1, "car1")  # row 3 waits
    assert net.log(AT_EDGE1, of="car1") == ["car1#0", "<snapshot>", "<ForgetSent>"]
    net.deliver(EDGE1, REGION)  # row 2 turns round at the anchor
    net.drain(REGION, EDGE1)
    net.send(EDGE1, "car1")  # row 4 waits too, although row 2 is back
    assert net.log(AT_EDGE1, of="car1")[3:] == ["car1#2"]
    net.settle()
    assert net.log(AT_EDGE1, of="car1")[3:] == ["car1#2", "car1#3", "car1#4"]
    assert net.landed("car1") == [0, 2, 3, 4]
    assert net.statuses() == ["begun", "aborted"] and net.leftovers() == []


def test_other_keys_do_not_wait_for_the_flush() -> None:
    """Spacker III-C2: keys that do not migrate never wait, not even for an abort."""
    net = at_edge1()
    m = migration(K, AT_EDGE1, AT_REGION, REGION)
    net.begin(m)
    net.drain(REGION, EDGE1)
    net.abort(m)
    net.drain(REGION, EDGE1)
    net.send(EDGE1, "car1", "car2")
    assert net.log(AT_EDGE1, of="car2")[-1] == "car2#3"
    assert net.log(AT_EDGE1, of="car1")[-1] == "<ForgetSent>"


def test_an_abort_that_overtakes_nothing_needs_no_flush_where_s_is_the_anchor() -> None:
    net = at_edge1()
    net.begin(UP)
    net.abort(UP)
    net.send(EDGE1, "car1")
    assert net.log(AT_EDGE1, of="car1")[-1] == "car1#2"


def test_an_aborted_key_can_migrate_later() -> None:
    net = at_edge1()
    net.begin(UP)
    net.send(EDGE1, "car1")
    net.abort(UP)
    net.settle()
    net.begin(migration(K, AT_EDGE1, AT_CLOUD, EDGE1, id="again"))
    net.send(EDGE1, "car1")
    net.settle()
    assert net.statuses("again")[-1] == "done"
    assert net.whereabouts("car1") == [AT_CLOUD]
    assert net.landed("car1") == [0, 2, 3]


def test_replicas_that_an_abort_gave_up_are_sent_whole_again() -> None:
    """Spacker III-B: S must not believe that D still has chunks which D has given up."""
    net = at_edge1(chunk_bytes=8)
    net.step(EDGE1, KeepReplicas(OP, K, AT_EDGE1, AT_CLOUD, 1))
    net.tick(1)
    net.settle()
    assert net.routers[CLOUD].legs.replicas.get(OP, AT_EDGE1, AT_CLOUD, "car1") is not None
    net.begin(UP)
    net.settle(hosts=False)
    net.abort(UP)
    net.settle()
    assert net.routers[CLOUD].legs.replicas.get(OP, AT_EDGE1, AT_CLOUD, "car1") is None
    net.tick(2)
    net.settle()
    assert net.routers[CLOUD].legs.replicas.get(OP, AT_EDGE1, AT_CLOUD, "car1") is not None
    net.send(EDGE1, "car1")
    net.begin(migration(K, AT_EDGE1, AT_CLOUD, EDGE1, "replica", id="again"))
    net.settle()
    assert net.whereabouts("car1") == [AT_CLOUD]
    assert net.landed("car1") == [0, 2]


# --- at any moment, by chance ---

WAYS = {
    # S, D, the anchor, and where two sources are
    "up": (AT_EDGE1, AT_CLOUD, EDGE1, (EDGE1, EDGE1)),
    "up, anchor above": (AT_EDGE1, AT_REGION, REGION, (EDGE1, EDGE2)),
    "down": (AT_CLOUD, AT_EDGE1, EDGE1, (EDGE1, EDGE1)),
    "sideways": (AT_EDGE1, AT_EDGE2, EDGE2, (EDGE2, EDGE2)),
}
Way = tuple[PlaceId, PlaceId, SiteId, tuple[SiteId, SiteId]]
NAMES = ("car1", "car2", "van1")


def network(mechanism: str, source: PlaceId) -> Net:
    windowed = "windowed" in MECHANISMS[mechanism].needs
    operators = {OP: Tumbling(SINK, OP, 100, lambda key: ("s1", "s2"))} if windowed else None
    specs = (spec(windowed=windowed), sink())
    return Net(specs=specs, operators=operators, owners=[(keys(*NAMES), source)], chunk_bytes=8)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("mechanism", ABORTABLE)
def test_an_abort_at_any_moment_ends_as_if_nothing_had_been_or_as_if_it_had_not_come(
    mechanism: str, way: Way, seed: int
) -> None:
    """Design section 4: abort before q, roll forward after it. Results and state are those of a calm run either way."""
    source, target, anchor, sites = way
    producers = dict(zip(("s1", "s2"), sites, strict=True))
    rng = random.Random(f"{mechanism} {way} {seed}")
    net, calm = network(mechanism, source), network(mechanism, source)
    m = migration(keys("car1", "van1"), source, target, anchor, mechanism)
    net.step(SiteId(source), KeepReplicas(OP, m.keys, source, target, 1))
    before = rules(net)
    begins_at, aborts_at = 10, rng.randrange(10, 70)
    for moment in range(100):
        if moment == begins_at:
            net.begin(m)
        if moment == aborts_at:
            net.abort(m)
        if moment % 2 == 0:
            name = rng.choice(("s1", "s2"))
            names = rng.choices(NAMES, k=2)
            for each in (net, calm):
                each.send(producers[name], *names, source=name, time_ms=moment * 10)
        if moment % 10 == 0:
            net.tick(moment)
        net.stir(rng)
    for each in (net, calm):
        for name in ("s1", "s2"):
            each.give(producers[name], Clock(OP, keys(*NAMES), SourceId(name), 10_000), source=name)
        each.settle()
    for now_ms in (200, 210, 220):
        net.tick(now_ms)
        net.settle()
    aborted = "aborted" in net.statuses()
    assert aborted != ("switched" in net.statuses())
    assert net.statuses()[-1] == ("aborted" if aborted else "done")
    assert net.leftovers() == []
    if aborted:
        assert rules(net) == before
    for key in NAMES:
        place = source if aborted or key not in m.keys else target
        assert net.whereabouts(key) in ([], [place])
        assert net.key_state(place, key) == calm.key_state(source, key)
    if MECHANISMS[mechanism].ordered:
        assert net.lines == calm.lines
    else:
        assert {line: sorted(got) for line, got in net.lines.items()} == calm.lines


# --- after the switch, before the begin, again ---


@pytest.mark.parametrize("mechanism", ONE_WAY)
def test_what_switches_first_cannot_be_aborted_and_goes_on(mechanism: str) -> None:
    """Design section 4: after the switch there is no way back."""
    net = at_edge1()
    m = migration(K, AT_EDGE1, AT_CLOUD, EDGE1, mechanism)
    net.begin(m)
    net.abort(m)
    net.send(EDGE1, "car1")
    net.settle()
    assert net.statuses() == ["begun", "switched", "done"]
    assert net.whereabouts("car1") == [AT_CLOUD]
    assert net.landed("car1") == [0, 2]


def test_an_abort_after_the_switch_is_answered_with_the_switch_and_the_migration_ends() -> None:
    net = at_edge1()
    net.begin(UP)
    net.settle()
    net.reports.clear()
    net.abort(UP)
    assert net.statuses() == ["switched"]
    net.settle()
    assert net.whereabouts("car1") == [AT_CLOUD]


def test_a_begin_that_comes_after_its_abort_is_too_late() -> None:
    """Commands may be lost or overtake each other; an abort that came first still counts."""
    net = at_edge1()
    before = rules(net)
    net.abort(UP)
    net.begin(UP)
    net.send(EDGE1, "car1")
    net.settle()
    assert rules(net) == before
    assert net.statuses() == ["aborted"]
    assert net.log(AT_EDGE1, of="car1") == ["car1#0", "<ForgetSent>", "car1#2"]


def test_who_stands_in_for_a_gate_hears_of_an_abort_that_came_before_the_begin() -> None:
    """docs/decisions/0022, Gates: the one that stands in has nobody but those who pass to tell it."""
    net = Net()
    down = migration(K, AT_CLOUD, AT_EDGE1, EDGE1)
    net.routers[REGION].legs.stand_in(down)
    net.abort(down)
    net.settle()
    assert [router.leftovers() for router in net.routers.values()] == [[]] * len(net.routers)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("aborts", [False, True])
def test_repeated_commands_get_an_answer_and_change_nothing(way: Way, aborts: bool) -> None:
    """core/coordinator.py: commands are sent again until they are answered, so routers must recognise repeats."""

    def run(times: int) -> Net:
        source, target, anchor, (producer, _) = way
        net = Net(owners=[(K, source)])
        m = migration(K, source, target, anchor)

        def command(perform: object) -> None:
            for _ in range(times):
                perform(m)  # type: ignore[operator]
                if times > 1:
                    net.step(m.anchor, Query(m))
                    net.step(SiteId(m.target), Query(m))

        net.send(producer, "car1")
        command(net.begin)
        for _ in range(3):
            net.send(producer, "car1")
            net.settle(hosts=False)
            net.work(source, max_rows=1)
        if aborts:
            command(net.abort)
        command(net.begin)
        net.settle()
        command(net.abort)
        net.send(producer, "car1")
        net.settle()
        return net

    once, often = run(1), run(3)
    for place in once.logs:
        assert often.log(place) == once.log(place)
    assert often.emitted == once.emitted
    assert set(often.statuses()) == set(once.statuses())
    assert ("aborted" in once.statuses()) == aborts
    assert often.leftovers() == []


def test_an_abort_asks_d_to_forget_without_an_acknowledgement() -> None:
    """Falcon III-E phase 6 must not be set off by an abort."""
    net = at_edge1()
    net.begin(UP)
    net.abort(UP)
    net.settle()
    drops = [entry for _, entry in net.logs[AT_CLOUD].read(0, 100) if isinstance(entry, DropKeys)]
    assert [drop.ack for drop in drops] == [None]


def test_an_aborted_window_recreation_asks_no_more() -> None:
    """Survey IV-C: the question whether windows have closed is asked again and again until it is moot."""
    net = network("window-recreation", AT_EDGE1)
    net.send(EDGE1, "car1", source="s1", time_ms=10)
    m: Migration = migration(K, AT_EDGE1, AT_CLOUD, EDGE1, "window-recreation")
    net.begin(m)
    net.settle()
    net.tick(1)
    net.settle()
    asked = net.log(AT_EDGE1).count("<AskRipe>")
    assert asked == 2
    net.abort(m)
    net.settle()
    net.tick(2)
    assert net.log(AT_EDGE1).count("<AskRipe>") == asked
