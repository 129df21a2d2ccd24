"""Routers: keyed late binding, hand-over exactly once, back-pressure, and stepping through a journal again."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    row,
    rows,
    sink,
    spec,
    tree,
)
from peregrine.core.host import Emission
from peregrine.core.keyspace import KeySet
from peregrine.core.messages import (
    Abort,
    Append,
    Attach,
    Attached,
    Begin,
    Committed,
    DeadLetter,
    Deliver,
    Effect,
    FromGroups,
    FromHost,
    FromLink,
    FromSource,
    KeepReplicas,
    Query,
    Send,
    WarmUp,
)
from peregrine.core.operator import OpSpec
from peregrine.core.router import Router
from peregrine.core.rows import Clock, Marker, Rows, StateRows, rows_of
from peregrine.sim.operators import Clean, Ledger
from peregrine.types import OpId, PlaceId, SiteId, SourceId

# --- late binding ---


def test_rows_to_practise_on_are_in_the_log_of_the_place_and_change_nothing() -> None:
    net = Net(owners=[(keys("car1"), AT_EDGE1)])
    net.send(EDGE1, "car1")
    effects = net.step(CLOUD, WarmUp(AT_CLOUD, rows(row("car1", 0), row("car1", 1))))
    (appended,) = [effect for effect in effects if isinstance(effect, Append)]
    assert isinstance(appended.entry, Rows) and appended.entry.sample
    net.settle()
    net.send(EDGE1, "car1")
    net.settle()
    assert net.landed("car1") == [0, 1]


def test_a_key_that_nobody_claims_is_handled_at_the_root() -> None:
    """Falcon III-B: the catch-all. A new source needs no deployment to be heard."""
    net = Net(owners=[(keys("car1"), AT_EDGE1)])
    net.send(EDGE2, "nobody-knows-me")
    net.settle()
    assert net.log(AT_CLOUD) == ["nobody-knows-me#0"]
    assert net.landed("nobody-knows-me") == [0]


def test_a_row_is_handled_at_the_first_site_on_its_way_up_that_has_its_key() -> None:
    """Falcon III-C, figure 3: local if there is an instance for the key, otherwise up."""
    net = Net(owners=[(keys("car1"), AT_EDGE1), (keys("van1"), AT_REGION)])
    net.send(EDGE1, "car1", "van1", "bus1")
    net.settle(hosts=False)
    assert (net.log(AT_EDGE1), net.log(AT_REGION), net.log(AT_CLOUD)) == (["car1#0"], ["van1#1"], ["bus1#2"])


def test_a_producer_does_not_know_where_its_consumer_runs() -> None:
    """Shepherd IV-A: outputs of an operator are looked up like any row, from where it runs."""
    clean = OpId("app/clean")
    specs = (OpSpec(clean, GROUPS, stateless=True, feeds=(OP,)), spec(), sink())
    for consumer in (AT_EDGE1, AT_REGION, AT_CLOUD):
        net = Net(specs=specs, operators={clean: Clean(OP), OP: Ledger(SINK)}, owners=[(keys("car1"), consumer)])
        net.own(keys("car1"), AT_EDGE1, op=clean)
        net.give(EDGE1, rows(row("car1", 0), op=clean))
        net.settle()
        assert net.outputs("car1") == [(AT_EDGE1, 0), (consumer, 0)]
        assert net.landed("car1") == [0]


def test_applications_with_the_same_keys_do_not_meet() -> None:
    """Falcon III-C: the application is part of what a router looks up."""
    other = OpId("app2/count")
    specs = (spec(), sink(), OpSpec(other, 7, feeds=(SINK,)))
    net = Net(specs=specs, operators={OP: Ledger(SINK), other: Ledger(SINK)}, owners=[(keys("car1"), AT_EDGE1)])
    net.own(KeySet.of_keys(7, ["car1"]), AT_REGION, op=other)
    net.give(EDGE1, rows(row("car1", 0)))
    net.give(EDGE1, rows(row("car1", 1), op=other))
    net.settle(hosts=False)
    assert (net.log(AT_EDGE1), net.log(AT_REGION)) == (["car1#0"], ["car1#1"])


def test_a_batch_is_split_by_key_and_each_key_keeps_its_order() -> None:
    """Falcon III-C: routing is per key; a host applies the rows of a key in log order."""
    net = Net(owners=[(keys("car1"), AT_EDGE1)])
    net.send(EDGE1, "car1", "van1", "car1", "van1", "car1")
    assert net.log(AT_EDGE1) == ["car1#0", "car1#2", "car1#4"]
    assert net.link(EDGE1, REGION) == ["van1#1", "van1#3"]


def test_a_row_that_is_owned_below_another_child_goes_down_to_its_owner() -> None:
    """Falcon III-F: the router above knows which child's subtree has the key, and sends the row there meanwhile."""
    net = Net(specs=(spec(roaming=True), sink()), owners=[(keys("car1"), AT_EDGE1)])
    net.send(EDGE2, "car1")
    net.settle()
    assert net.log(AT_EDGE1) == ["car1#0"]
    assert net.landed("car1") == [0]


def test_a_watermark_goes_where_the_rows_of_its_keys_go() -> None:
    """Falcon III-B, windows: heartbeats take the path of the data."""
    net = Net(owners=[(keys("car1"), AT_EDGE1), (keys("van1"), AT_REGION)])
    net.give(EDGE1, Clock(OP, keys("car1", "van1", "bus1"), SourceId("s"), 9))
    net.settle(hosts=False)
    for place, key in ((AT_EDGE1, "car1"), (AT_REGION, "van1"), (AT_CLOUD, "bus1")):
        assert net.log(place) == net.log(place, of=key) == ["@9"]


def test_hosts_of_one_site_are_places_of_their_own() -> None:
    """Design section 2: a place is a site or one of its hosts; the first one has the catch-all."""
    net = Net(tree({"cloud": ("a", "b")}), owners=[(keys("car1"), PlaceId("cloud/b"))])
    net.send(CLOUD, "car1", "van1")
    assert (net.log(PlaceId("cloud/a")), net.log(PlaceId("cloud/b"))) == (["van1#1"], ["car1#0"])


# --- strays ---


def test_a_stray_is_reported_by_the_router_where_the_paths_meet_once_a_tick() -> None:
    """Falcon III-F: that router, and only it, can see that the source has moved."""
    net = Net(specs=(spec(roaming=True), sink()), owners=[(keys("car1", "van1"), AT_EDGE1)])
    net.send(EDGE2, "car1", "car1")
    net.send(EDGE1, "van1")
    net.settle()
    assert net.strays == []
    net.tick(10)
    assert [(stray.site, stray.key, stray.source) for stray in net.strays] == [(REGION, "car1", "s")]
    net.tick(20)
    assert len(net.strays) == 1


def test_rows_that_come_down_from_above_are_no_strays() -> None:
    """Falcon III-F: only the lowest common router reports; the ones below it forward."""
    net = Net(specs=(spec(roaming=True), sink()), owners=[(keys("car1"), AT_EDGE1)])
    net.give(CLOUD, rows(row("car1", 0)))
    net.settle()
    net.tick(10)
    assert [stray.site for stray in net.strays] == [CLOUD]


def test_keys_of_operators_whose_sources_stay_are_not_reported() -> None:
    net = Net(owners=[(keys("car1"), AT_EDGE1)])
    net.send(EDGE2, "car1")
    net.settle()
    net.tick(10)
    assert net.strays == []


def test_a_device_that_connects_is_announced_with_the_routers_time() -> None:
    """Falcon III-F: how long a source has stayed is counted from its connection."""
    net = Net()
    net.tick(70, EDGE1)
    assert net.step(EDGE1, Attach(SourceId("s"))) == [Attached(EDGE1, SourceId("s"), 70)]


# --- dead letters ---


def test_rows_of_an_operator_that_nobody_deployed_become_dead_letters_with_a_reason() -> None:
    """Design section 9: input that nobody can handle is kept with the reason, and disturbs nothing else."""
    net = Net()
    unknown = rows(row("car1", 0), op=OpId("app/typo"))
    (dead,) = net.give(EDGE1, unknown)
    assert isinstance(dead, DeadLetter)
    assert "app/typo" in dead.reason and "deployed" in dead.reason
    assert isinstance(dead.rows, Rows) and rows_of(dead.rows.batch) == rows_of(unknown.batch)
    beat = Clock(OpId("app/typo"), keys("car1"), SourceId("t"), 1)
    (again,) = net.give(EDGE1, beat, source="t")
    assert isinstance(again, DeadLetter) and again.offset == 1


def test_rows_without_their_header_become_dead_letters_and_the_next_are_taken() -> None:
    """Design section 9: input that does not parse goes to a dead-letter log with the reason."""
    net = Net(owners=[(keys("car1"), AT_EDGE1)])
    bare = Rows(OP, rows(row("car1", 0)).batch.select(["key", "payload"]))
    (dead,) = net.give(EDGE1, bare, seq=0)
    assert isinstance(dead, DeadLetter) and "columns" in dead.reason and "s" in dead.reason
    net.send(EDGE1, "car1")
    assert net.log(AT_EDGE1) == ["car1#1"]


# --- exactly once over at-least-once ---


def batch(first: int, count: int, source: str = "s") -> FromSource:
    given_rows = [row("car1", seq, source=source) for seq in range(first, first + count)]
    return FromSource(SourceId(source), ((first + count - 1, rows(*given_rows)),))


def appended(effects: list[Effect]) -> list[int]:
    return [each.seq for e in effects if isinstance(e, Append) for each in rows_of(e.entry.batch)]  # type: ignore[union-attr]


def test_rows_that_a_source_sends_again_are_dropped() -> None:
    """Falcon III-G: acknowledgement and replay, for devices."""
    net = Net(owners=[(keys("car1"), AT_EDGE1)])
    assert appended(net.step(EDGE1, batch(0, 3))) == [0, 1, 2]
    assert net.step(EDGE1, batch(0, 3)) == []
    assert net.step(EDGE1, batch(1, 1)) == []
    assert net.routers[EDGE1].acked_source(SourceId("s")) == 2


def test_of_a_batch_that_was_partly_seen_only_the_rest_is_taken() -> None:
    net = Net(owners=[(keys("car1"), AT_EDGE1)])
    net.step(EDGE1, batch(0, 3))
    assert appended(net.step(EDGE1, batch(1, 4))) == [3, 4]


def test_sources_are_counted_each_by_itself() -> None:
    net = Net(owners=[(keys("car1"), AT_EDGE1)])
    net.step(EDGE1, batch(0, 3))
    assert appended(net.step(EDGE1, batch(0, 2, source="t"))) == [0, 1]


def frame(first_seq: int, *seqs: int) -> FromLink:
    return FromLink(EDGE1, first_seq, tuple(rows(row("car1", seq)) for seq in seqs))


def test_frames_that_a_link_repeats_are_dropped_and_overlaps_are_cut() -> None:
    """Falcon III-G: a broken link repeats from the first that was not acknowledged."""
    net = Net(owners=[(keys("car1"), AT_REGION)])
    assert appended(net.step(REGION, frame(0, 0, 1))) == [0, 1]
    assert net.step(REGION, frame(0, 0, 1)) == []
    assert appended(net.step(REGION, frame(1, 1, 2, 3))) == [2, 3]
    assert net.routers[REGION].acked_link(EDGE1) == 3


def test_a_frame_behind_a_lost_one_is_not_taken() -> None:
    """Links are FIFO: a row must not overtake the one that was lost before it."""
    net = Net(owners=[(keys("car1"), AT_REGION)])
    net.step(REGION, frame(0, 0))
    assert net.step(REGION, frame(2, 2)) == []
    assert net.routers[REGION].acked_link(EDGE1) == 0
    assert appended(net.step(REGION, frame(1, 1, 2))) == [1, 2]


def output(*offsets: int, op: OpId = SINK) -> Emission:
    outs = [row("car1", offset, source="s>car1") for offset in offsets]
    return Emission(np.array(offsets, np.int64), rows(*outs, op=op))


def delivered(effects: list[Effect]) -> list[int]:
    return [each.seq for e in effects if isinstance(e, Deliver) for each in rows_of(e.rows.batch)]


def test_outputs_that_a_host_repeats_after_a_crash_are_dropped_even_if_cut_differently() -> None:
    """Falcon III-G: deterministic replay; outputs are recognised by group and input offset."""
    net = Net()

    def from_host(*emissions: Emission, group: int = 0) -> list[int]:
        return delivered(net.step(CLOUD, FromHost(AT_CLOUD, OP, group, emissions)))

    assert from_host(output(0, 1), output(4)) == [0, 1, 4]
    assert from_host(output(0), output(1, 4)) == []
    assert from_host(output(1, 4, 5)) == [5]
    assert from_host(output(2), group=1) == [2]  # another group has its own count


def test_of_outputs_of_several_groups_each_group_has_its_own_count() -> None:
    net = Net()

    def from_groups(*groups: tuple[int, list[int]]) -> list[int]:
        offsets = [offset for _, mine in groups for offset in mine]
        outs = rows(*(row("car1", offset, source="s>car1") for offset in offsets), op=SINK)
        counts = tuple((group, len(mine)) for group, mine in groups)
        return delivered(net.step(CLOUD, FromGroups(AT_CLOUD, OP, counts, np.array(offsets, np.int64), outs)))

    assert from_groups((0, [0, 3]), (1, [1, 2])) == [0, 3, 1, 2]
    assert from_groups((1, [2, 4]), (0, [0, 3])) == [4]
    assert delivered(net.step(CLOUD, FromHost(AT_CLOUD, OP, 0, (output(3, 5),)))) == [5]
    assert from_groups((0, [3, 5]), (1, [1, 2, 4])) == []
    assert from_groups((2, [0])) == [0]


def test_all_outputs_of_one_row_are_taken_although_they_share_an_offset() -> None:
    """A row may emit several rows, and to several operators."""
    net = Net()
    handed = FromHost(AT_CLOUD, OP, 0, (output(3, 3), output(3, op=OP), output(3)))
    assert delivered(net.step(CLOUD, handed)) == [3, 3, 3]
    assert net.step(CLOUD, handed) == []


# --- back-pressure ---


def test_devices_wait_while_a_host_is_far_behind_and_may_send_again_after_its_commit() -> None:
    """Falcon III-E warns of overloaded instances; here devices are told to wait, links and hosts never."""
    net = Net(owners=[(keys("car1"), AT_EDGE1)], host_lag_rows=2)
    edge, region = net.routers[EDGE1], net.routers[REGION]
    net.send(EDGE1, "car1", "car1")
    assert edge.accepts_rows()
    net.send(EDGE1, "car1")
    assert not edge.accepts_rows()
    assert region.accepts_rows()
    net.step(EDGE1, Committed(AT_EDGE1, 1))
    assert edge.accepts_rows()


def test_an_old_commit_does_not_take_back_a_newer_one() -> None:
    net = Net(owners=[(keys("car1"), AT_EDGE1)], host_lag_rows=0)
    net.send(EDGE1, "car1", "car1")
    net.step(EDGE1, Committed(AT_EDGE1, 2))
    net.step(EDGE1, Committed(AT_EDGE1, 1))
    assert net.routers[EDGE1].accepts_rows()


def test_a_parent_that_is_behind_makes_devices_of_its_children_wait() -> None:
    """Otherwise rows would pile up on the way to it."""
    edge = Net().routers[EDGE1]
    edge.hear_pressure(True)
    assert not edge.accepts_rows()
    edge.hear_pressure(False)
    assert edge.accepts_rows()


# --- stepping through the journal again ---


def replayed(net: Net, site: SiteId) -> list[list[Effect]]:
    machine = Router(net.configs[site])
    return [list(machine.step(event)) for event in net.journals[site]]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    mechanism=st.sampled_from(["live", "pause", "on-demand", "static-dynamic", "indirect", "restart", "replica"]),
    direction=st.sampled_from(
        [(AT_EDGE1, AT_CLOUD, EDGE1), (AT_CLOUD, AT_EDGE1, EDGE1), (AT_EDGE1, AT_REGION, REGION)]
    ),
)
def test_a_router_that_steps_through_its_journal_again_wants_the_same_done(
    seed: int, mechanism: str, direction: tuple[PlaceId, PlaceId, SiteId]
) -> None:
    """Falcon III-G: after a crash of a router, replay brings it back to where it was, in any phase of a migration."""
    rng = random.Random(seed)
    source, target, anchor = direction
    net = Net(specs=(spec(ticks=True, roaming=True), sink()), owners=[(keys("car1", "car2", "van1"), source)])
    m = migration(keys("car1", "van1"), source, target, anchor, mechanism)
    net.step(SiteId(source), KeepReplicas(OP, m.keys, source, target, 1))
    for moment in range(60):
        choice = rng.random()
        if choice < 0.25:
            net.send(rng.choice((EDGE1, EDGE2)), *rng.choices(("car1", "car2", "van1", "bus1"), k=3), source="s")
        elif choice < 0.3:
            net.tick(moment, rng.choice((EDGE1, EDGE2, REGION, CLOUD)))
        elif choice < 0.35:
            net.step(anchor, rng.choice((Begin, Begin, Begin, Query, Abort))(m))
        else:
            net.stir(rng)
    for each in net.topology.sites:
        assert replayed(net, each) == net.effects[each]


def test_performing_effects_again_changes_nothing_outside() -> None:
    """core/messages.py: every effect carries its position, so that a repetition is harmless."""
    net = Net(owners=[(keys("car1"), AT_EDGE1)])
    net.send(EDGE1, "car1", "van1")
    net.begin(migration(keys("car1"), AT_EDGE1, AT_CLOUD, EDGE1))
    net.send(EDGE1, "car1")
    positions = [
        (type(e).__name__, e.place, e.offset) if isinstance(e, Append) else ("Send", e.neighbour, e.seq)
        for effects in net.effects[EDGE1]
        for e in effects
        if isinstance(e, Append | Send)
    ]
    assert len(positions) == len(set(positions))
    before = net.log(AT_EDGE1)
    for effects in replayed(net, EDGE1):
        for effect in effects:
            if isinstance(effect, Append):
                net._perform(EDGE1, effect)
    assert net.log(AT_EDGE1) == before


# --- replicas ---


def test_replicas_are_refreshed_while_the_key_lives_there() -> None:
    """Spacker III-B: replication goes on ahead of any migration, and follows the key's place."""
    net = Net(owners=[(keys("car1"), AT_EDGE1)])
    net.step(EDGE1, KeepReplicas(OP, keys("car1"), AT_EDGE1, AT_EDGE2, 1))
    net.step(EDGE1, KeepReplicas(OP, keys("car1"), AT_EDGE1, AT_EDGE2, 1))  # said twice, kept once
    net.send(EDGE1, "car1")
    net.tick(1)
    net.settle()
    assert net.log(AT_EDGE1) == ["car1#0", "<snapshot>"]
    replica = net.routers[EDGE2].legs.replicas.get(OP, AT_EDGE1, AT_EDGE2, "car1")
    assert replica is not None and replica.version == 1
    net.begin(migration(keys("car1"), AT_EDGE1, AT_CLOUD, EDGE1))
    net.settle()
    net.tick(2)
    assert net.log(AT_EDGE1)[-1] == "<drop>"  # the key has left: nothing more to ask here


@pytest.mark.parametrize("kind", [Marker, StateRows])
def test_control_messages_for_another_site_pass_through(kind: type) -> None:
    """ISQD: state and markers travel the router network like rows, addressed by site."""
    net = Net(owners=[(keys("car1"), AT_EDGE1)])
    net.send(EDGE1, "car1")
    net.begin(migration(keys("car1"), AT_EDGE1, AT_CLOUD, EDGE1))
    net.work(AT_EDGE1)
    net.drain(EDGE1, REGION)
    passed = [item for _, item in net.links[REGION, CLOUD] if isinstance(item, kind)]
    assert len(passed) == 1
    assert net.routers[REGION].leftovers() == []
