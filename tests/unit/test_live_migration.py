"""Live key migration phase by phase (Falcon III-E), each interleaving written down by hand.

S is at edge1 and D at the cloud unless a test says otherwise; K is car1, and car2 stays.
"""

from dataclasses import dataclass

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
    migration,
    sink,
    spec,
    tree,
)
from peregrine.core.keyspace import KeySet
from peregrine.core.messages import Ahead
from peregrine.core.migrate import Migration
from peregrine.core.routes import Down, Local, Up
from peregrine.types import PlaceId, SiteId

K = keys("car1")
UP = migration(K, AT_EDGE1, AT_CLOUD, EDGE1)


def at_edge1(**more: object) -> Net:
    """Both keys live at edge1, and each has seen one row."""
    net = Net(owners=[(keys("car1", "car2"), AT_EDGE1)], **more)  # type: ignore[arg-type]
    net.send(EDGE1, "car1", "car2")
    net.settle()
    return net


def caught_up(net: Net, m: Migration) -> None:
    """Everything up to the moment in which READY waits to be delivered to the anchor."""
    net.begin(m)
    net.drain(EDGE1, REGION)
    net.drain(REGION, CLOUD)
    net.work(AT_EDGE1)  # takes the snapshot
    net.drain(EDGE1, REGION)
    net.drain(REGION, CLOUD)
    net.work(AT_CLOUD)


# --- phase 0 ---


def test_before_a_migration_rows_of_k_go_to_s_alone_and_others_pass_it_by() -> None:
    """Falcon III-E phase 0: S takes its own keys, what belongs to D goes up."""
    net = at_edge1()
    net.send(EDGE1, "car1", "van1", "car2")
    assert net.log(AT_EDGE1) == ["car1#0", "car2#1", "car1#2", "car2#4"]
    assert net.link(EDGE1, REGION) == ["van1#3"]


# --- phase 1 ---


def test_after_begin_each_row_of_k_goes_to_both_places_and_other_keys_are_untouched() -> None:
    """Falcon III-E phase 1: dual routing is for K and nothing else."""
    net = at_edge1()
    net.begin(UP)
    net.send(EDGE1, "car1")
    net.send(EDGE1, "car2")
    net.send(EDGE1, "van1")
    assert net.log(AT_EDGE1)[2:] == ["<snapshot>", "car1#2", "car2#3"]
    assert net.link(EDGE1, REGION) == ["R>target", "car1#2", "van1#4"]


def test_rows_of_k_that_went_before_begin_are_not_copied() -> None:
    """Falcon III-E phase 1: D must not apply what the state that comes to it already contains."""
    net = at_edge1()
    net.send(EDGE1, "car1")
    net.begin(UP)
    assert net.link(EDGE1, REGION) == ["R>target"]


# --- phase 2 ---


def test_both_markers_lie_behind_the_rows_that_went_before() -> None:
    """Falcon III-E phase 2: R enters the same queues as the rows, so S and D agree on before and after."""
    net = Net(owners=[(KeySet.everything(GROUPS), AT_CLOUD)])
    down = migration(K, AT_CLOUD, AT_EDGE1, EDGE1)
    net.send(EDGE1, "car1")
    net.begin(down)
    net.send(EDGE1, "car1")
    assert net.link(EDGE1, REGION) == ["car1#0", "R>source", "car1#1"]
    assert net.log(AT_EDGE1) == []  # D's marker is here already, and what follows it waits
    net.drain(EDGE1, REGION)
    net.drain(REGION, CLOUD)
    assert net.log(AT_CLOUD) == ["car1#0", "<snapshot>", "car1#1"]


def test_a_marker_does_not_stop_other_keys_at_either_place() -> None:
    """Falcon III-E phase 2: the operator's queue is not paused for a marker."""
    net = at_edge1()
    net.begin(UP)
    net.drain(EDGE1, REGION)
    net.drain(REGION, CLOUD)
    net.send(EDGE1, "car1", "car2", "van1")
    net.settle(hosts=False)
    net.work(AT_CLOUD)
    assert net.outputs("van1") == [(AT_CLOUD, 4)]  # although D's state of K has not come
    net.work(AT_EDGE1)
    assert net.outputs("car2") == [(AT_EDGE1, 1), (AT_EDGE1, 3)]


# --- phase 3 ---


def test_the_snapshot_is_taken_at_the_position_of_the_marker_while_s_works_on() -> None:
    """Falcon III-E phase 3: state as of R, whatever S has applied in the same batch since."""
    net = at_edge1()
    net.send(EDGE1, "car1")  # before R: part of the snapshot
    net.begin(UP)
    net.send(EDGE1, "car1", "car1")  # behind R: reach D by themselves
    net.work(AT_EDGE1)
    assert net.outputs("car1") == [(AT_EDGE1, seq) for seq in (0, 2, 3, 4)]
    (state,) = [item for _, item in net.links[EDGE1, REGION] if hasattr(item, "images")]
    assert [(image.key, image.version) for image in state.images] == [("car1", 2)]


def test_d_holds_rows_of_k_until_the_state_has_come_and_then_applies_them_muted() -> None:
    """Falcon III-E phase 3: D buffers during the restore and then only synchronises: it emits nothing."""
    net = at_edge1()
    net.begin(UP)
    net.send(EDGE1, "car1", "car1")
    net.settle(hosts=False)
    assert net.log(AT_CLOUD, of="car1") == []
    net.work(AT_EDGE1)
    net.drain(EDGE1, REGION)
    net.drain(REGION, CLOUD)
    assert net.log(AT_CLOUD, of="car1") == ["<restore>", "car1#2~", "car1#3~"]
    net.work(AT_CLOUD)
    assert net.outputs("car1") == [(AT_EDGE1, 0), (AT_EDGE1, 2), (AT_EDGE1, 3)]
    assert net.key_state(AT_CLOUD, "car1") == net.key_state(AT_EDGE1, "car1")


def test_rows_that_come_after_the_state_are_muted_too() -> None:
    """Falcon III-E phases 3 and 4: the emission filter stays until T."""
    net = at_edge1()
    caught_up(net, UP)
    net.send(EDGE1, "car1")
    net.drain(EDGE1, REGION)
    net.drain(REGION, CLOUD)
    assert net.log(AT_CLOUD, of="car1") == ["<restore>", "car1#2~"]


def test_no_key_waits_for_the_state_of_another() -> None:
    """Falcon III-E phase 3, per key: groups are snapshotted and settled by themselves."""
    net = at_edge1()  # car1 and car2 are of different groups
    net.begin(migration(keys("car1", "car2"), AT_EDGE1, AT_CLOUD, EDGE1))
    net.send(EDGE1, "car1", "car2")
    net.settle(hosts=False)
    net.work(AT_EDGE1, max_rows=1)  # the snapshot of car1's group alone
    assert net.log(AT_EDGE1)[2:4] == ["<snapshot>", "<snapshot>"]
    net.settle(hosts=False)
    assert net.log(AT_CLOUD) == ["<restore>", "car1#2~"]
    net.work(AT_EDGE1)
    net.settle(hosts=False)
    assert net.log(AT_CLOUD) == ["<restore>", "car1#2~", "<restore>", "car2#3~"]


def test_a_key_that_first_appears_after_the_marker_starts_empty_at_d() -> None:
    """Design section 4, step 3: where K names groups, a key without state is settled by its group's snapshot."""
    net = Net(owners=[(KeySet.everything(GROUPS), AT_EDGE1)])
    net.begin(migration(KeySet.everything(GROUPS), AT_EDGE1, AT_CLOUD, EDGE1))
    net.send(EDGE1, "new", "new")
    net.settle()
    net.send(EDGE1, "new")
    net.settle()
    assert net.log(AT_CLOUD) == ["new#0~", "new#1~", "new#2"]
    assert net.outputs("new") == [(AT_EDGE1, 0), (AT_EDGE1, 1), (AT_CLOUD, 2)]
    assert net.leftovers() == []


# --- phase 4 ---


def test_dual_routing_goes_on_until_d_has_caught_up() -> None:
    """Falcon III-E phase 4: the termination markers wait for D's backlog, not for its state."""
    net = at_edge1()
    net.begin(UP)
    net.send(EDGE1, "car1", "car1")
    net.settle(hosts=False)
    net.work(AT_EDGE1)
    net.settle(hosts=False)  # the state is there, and D's host has not touched it
    assert net.statuses() == ["begun"]
    net.send(EDGE1, "car1")
    assert net.link(EDGE1, REGION) == ["car1#4"]  # still copied
    net.work(AT_CLOUD, max_rows=1)
    assert net.link(CLOUD, REGION) == []
    net.work(AT_CLOUD)
    assert net.link(CLOUD, REGION) == ["ready>anchor"]


def test_a_host_that_commits_later_tells_how_far_ahead_it_is() -> None:
    """What counts is that D has applied its backlog: the log is safe, whatever D has committed of it."""
    net = at_edge1()
    net.begin(UP)
    net.send(EDGE1, "car1", "car1")
    net.settle(hosts=False)
    net.work(AT_EDGE1)
    net.settle(hosts=False)
    end = net.logs[AT_CLOUD].end
    net.step(CLOUD, Ahead(AT_CLOUD, end - 1))
    assert net.link(CLOUD, REGION) == []
    net.step(CLOUD, Ahead(AT_CLOUD, end))
    net.step(CLOUD, Ahead(AT_CLOUD, end - 1))  # of one that was thought dead
    assert net.link(CLOUD, REGION) == ["ready>anchor"]
    assert net.routers[CLOUD].commits.get(AT_CLOUD, 0) < end
    net.settle()
    assert net.statuses() == ["begun", "switched", "done"]


@pytest.mark.parametrize(("lag_rows", "told_after"), [(0, 3), (1, 2), (2, 1), (3, 0)])
def test_d_counts_as_caught_up_when_its_backlog_is_within_the_threshold(lag_rows: int, told_after: int) -> None:
    """Falcon III-E phase 4: the threshold is part of the migration. D has a restore and two rows to apply."""
    net = at_edge1()
    net.begin(migration(K, AT_EDGE1, AT_CLOUD, EDGE1, caught_up_lag_rows=lag_rows))
    net.send(EDGE1, "car1")
    net.send(EDGE1, "car1")
    net.settle(hosts=False)
    net.work(AT_EDGE1)
    net.drain(EDGE1, REGION)
    net.drain(REGION, CLOUD)
    assert net.log(AT_CLOUD) == ["<restore>", "car1#2~", "car1#3~"]
    applied = 0
    while "ready>anchor" not in net.link(CLOUD, REGION):
        assert net.work(AT_CLOUD, max_rows=1)
        applied += 1
    assert applied == told_after


# --- phase 5 ---


def test_behind_the_termination_markers_rows_of_k_go_to_d_alone() -> None:
    """Falcon III-E phases 4 and 5: T goes down both paths, and at that position the copying ends."""
    net = at_edge1()
    caught_up(net, UP)
    net.send(EDGE1, "car1")
    net.drain(CLOUD, REGION)
    net.deliver(REGION, EDGE1)  # READY
    net.send(EDGE1, "car1", "car2")
    assert net.log(AT_EDGE1)[2:] == ["<snapshot>", "car1#2", "<drop>", "car2#4"]
    assert net.link(EDGE1, REGION) == ["car1#2", "T>gate", "T>target", "car1#3"]
    assert net.statuses() == ["begun", "switched"]


def test_routers_on_the_way_learn_where_k_lives_from_the_marker_that_passes() -> None:
    """Falcon III-F: each router knows which child's subtree owns a key; T tells it, in order with the rows."""
    net = at_edge1()
    caught_up(net, UP)
    net.drain(CLOUD, REGION)
    net.drain(REGION, EDGE1)
    assert net.routers[REGION].table.lookup_one(OP, "car1") == Down(EDGE1)
    net.drain(EDGE1, REGION)
    assert net.routers[REGION].table.lookup_one(OP, "car1") == Up()
    assert net.routers[EDGE1].table.lookup_one(OP, "car1") == Up()
    assert net.routers[REGION].table.lookup_one(OP, "car2") == Down(EDGE1)


# --- phase 6 ---


def switched(net: Net) -> None:
    """T has been sent, a row of K before it and one behind it, and S's host has not moved since."""
    caught_up(net, UP)
    net.send(EDGE1, "car1")
    net.drain(CLOUD, REGION)
    net.drain(REGION, EDGE1)
    net.send(EDGE1, "car1")
    net.settle(hosts=False)


def test_d_works_behind_the_gate_while_it_waits_for_s() -> None:
    """Falcon III-E phase 6: D applies what follows T at once, unmuted; only its outputs wait."""
    net = at_edge1()
    switched(net)
    assert net.log(AT_CLOUD, of="car1") == ["<restore>", "car1#2~", "car1#3!"]
    net.work(AT_CLOUD)
    assert net.committed[AT_CLOUD] == net.logs[AT_CLOUD].end
    assert net.outputs("car1") == [(AT_EDGE1, 0)]
    assert net.leftovers() == ["m is open as target", "m is open as gate, 0 batches held, 1 behind its gate"]


def test_the_outputs_of_d_follow_the_last_output_of_s() -> None:
    """Falcon III-E phase 6: S acknowledges T in band, behind what it emitted before; that opens the gate."""
    net = at_edge1()
    switched(net)
    net.work(AT_CLOUD)
    net.work(AT_EDGE1)  # emits row 2, drops K and acknowledges
    assert net.link(EDGE1, REGION) == ["car1#2", "ack>gate"]
    net.deliver(EDGE1, REGION)
    net.deliver(REGION, CLOUD)
    assert net.landed("car1") == [0, 2]
    net.settle(hosts=False)
    assert net.landed("car1") == [0, 2, 3]
    assert net.outputs("car1") == [(AT_EDGE1, 0), (AT_EDGE1, 2), (AT_CLOUD, 3)]


def test_outputs_behind_an_open_gate_pass_although_their_rows_were_marked() -> None:
    """Falcon III-E phase 6: a host that is slower than the acknowledgement finds the gate open."""
    net = at_edge1()
    switched(net)
    net.work(AT_EDGE1)
    net.settle(hosts=False)
    assert net.statuses()[-1] == "done"
    net.work(AT_CLOUD)
    assert net.landed("car1") == [0, 2, 3]


def test_s_forgets_k_and_keeps_its_other_keys() -> None:
    """Falcon III-E phase 6: S removes K from its keyspace when it processes T."""
    net = at_edge1()
    switched(net)
    net.settle()
    assert net.whereabouts("car1") == [AT_CLOUD]
    assert net.whereabouts("car2") == [AT_EDGE1]
    assert net.routers[CLOUD].table.lookup_one(OP, "car1") == Local(AT_CLOUD)
    assert net.statuses() == ["begun", "switched", "done"]
    assert net.leftovers() == []


def test_the_gate_opens_only_when_every_group_of_k_is_acknowledged() -> None:
    """Falcon III-E phase 6, with K in several groups that S's host works off one by one."""
    net = at_edge1()
    m = migration(keys("car1", "car2"), AT_EDGE1, AT_CLOUD, EDGE1)
    caught_up(net, m)
    net.settle(hosts=False)
    assert net.log(AT_EDGE1)[-2:] == ["<drop>", "<drop>"]
    net.send(EDGE1, "car1")
    net.settle(hosts=False)
    net.work(AT_CLOUD)
    net.work(AT_EDGE1, max_rows=1)
    net.settle(hosts=False)
    assert net.landed("car1") == [0]
    net.work(AT_EDGE1, max_rows=1)
    net.settle(hosts=False)
    assert net.landed("car1") == [0, 2]


def test_the_gate_stands_where_the_paths_of_s_and_d_meet() -> None:
    """Falcon III-E phase 6: D's outputs wait for S's last word, and have come as far as they can meanwhile.

    Sideways from edge1 to edge2 both pass the region: the gate is there, not at edge2.
    """
    net = Net(owners=[(K, AT_EDGE1)])
    m = migration(K, AT_EDGE1, AT_EDGE2, EDGE2)
    assert m.gate == REGION
    net.send(EDGE2, "car1")
    net.settle()
    net.begin(m)
    net.settle(hosts=False)
    net.work(AT_EDGE1)
    net.settle(hosts=False)
    net.send(EDGE2, "car1")  # the last row for S
    net.settle(hosts=False)
    net.work(AT_EDGE2)
    net.settle(hosts=False)
    net.send(EDGE2, "car1")
    net.settle(hosts=False)
    net.work(AT_EDGE2)
    net.settle(hosts=False)
    assert net.statuses() == ["begun", "switched"]
    assert net.log(AT_EDGE2) == ["<restore>", "car1#1~", "car1#2!"]
    (waits,) = net.routers[REGION].leftovers()
    assert waits == "m is open as gate, 0 batches held, 1 behind its gate"
    net.settle()
    assert net.landed("car1") == [0, 1, 2]
    assert net.statuses()[-1] == "done" and net.leftovers() == []


def test_the_gate_is_closed_before_the_first_output_that_must_wait_can_reach_it() -> None:
    """Falcon III-E phase 6, down: T for the gate leaves ahead of everything that D emits unmuted."""
    net = Net(owners=[(K, AT_CLOUD)])
    m = migration(K, AT_CLOUD, AT_EDGE1, EDGE1)
    net.begin(m)
    net.settle(hosts=False)
    net.send(EDGE1, "car1")
    net.settle(hosts=False)
    net.work(AT_CLOUD, max_rows=1)  # the snapshot; row 0 stays in S's log
    net.settle(hosts=False)
    net.work(AT_EDGE1)  # ready: the anchor switches
    net.send(EDGE1, "car1")
    net.work(AT_EDGE1)
    sent = net.link(EDGE1, REGION)
    assert sent.index("T>gate") < sent.index("T>source") < sent.index("car1#1!")
    net.settle(hosts=False)
    assert net.landed("car1") == []
    net.settle()
    assert net.landed("car1") == [0, 1]


def test_what_a_slow_host_emits_needs_no_gate_that_is_known_to_be_open() -> None:
    """The consumer may have followed D below the gate by then, and would pass the mark on as its own."""
    net = Net(owners=[(K, AT_CLOUD)])
    net.begin(migration(K, AT_CLOUD, AT_EDGE1, EDGE1))
    net.settle(hosts=False)
    net.work(AT_CLOUD)  # the snapshot
    net.settle(hosts=False)
    net.work(AT_EDGE1)  # ready: the anchor switches
    net.send(EDGE1, "car1")
    assert net.log(AT_EDGE1, of="car1")[-1] == "car1#0!"
    net.settle(hosts=False)
    net.work(AT_CLOUD)  # drops K and acknowledges
    net.settle(hosts=False)
    assert net.statuses()[-1] == "done"
    net.work(AT_EDGE1)
    assert net.link(EDGE1, REGION) == ["car1#0"]
    assert net.outputs("car1") == [(AT_EDGE1, 0)]
    net.settle()
    assert net.landed("car1") == [0]


# --- every direction ---


@dataclass(frozen=True)
class Way:
    source: PlaceId
    target: PlaceId
    anchor: SiteId
    producer: SiteId

    def migration(self, key_set: KeySet, **more: object) -> Migration:
        return migration(key_set, self.source, self.target, self.anchor, **more)


A, B = PlaceId("edge1/a"), PlaceId("edge1/b")
WAYS = {
    "up": Way(AT_EDGE1, AT_CLOUD, EDGE1, EDGE1),
    "up, anchor above": Way(AT_EDGE1, AT_REGION, REGION, EDGE1),
    "up, anchor above, source elsewhere": Way(AT_EDGE1, AT_REGION, REGION, EDGE2),
    "down": Way(AT_CLOUD, AT_EDGE1, EDGE1, EDGE1),
    "sideways": Way(AT_EDGE1, AT_EDGE2, EDGE2, EDGE2),
    "between hosts of one site": Way(A, B, EDGE1, EDGE1),
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def start(way: Way) -> Net:
    topology = tree({"edge1": ("a", "b")}) if way.source == A else tree()
    net = Net(topology, owners=[(keys("car1", "car2"), way.source)])
    net.send(way.producer, "car1", "car2", "car1")
    return net


@ways
def test_the_state_at_d_equals_a_run_without_migration(way: Way) -> None:
    """Falcon III-E, state correctness; one protocol serves every direction."""
    nets = start(way), start(way)
    m = way.migration(K)
    for net in nets:
        if net is nets[0]:
            net.begin(m)
        for moment in range(12):
            net.send(way.producer, "car1", "car2")
            for near, far in list(net.links):
                if net.links[near, far]:
                    net.deliver(near, far)
            if moment % 3 == 0:
                net.work(way.source, max_rows=2)
            if moment % 4 == 0:
                net.work(way.target, max_rows=3)
        net.settle()
        net.send(way.producer, "car1", "car2")
        net.settle()
    moved, calm = nets
    assert moved.statuses() == ["begun", "switched", "done"]
    assert moved.whereabouts("car1") == [way.target]
    assert moved.key_state(way.target, "car1") == calm.key_state(way.source, "car1")
    assert moved.key_state(way.source, "car2") == calm.key_state(way.source, "car2")
    assert moved.landed("car1") == calm.landed("car1") and len(calm.landed("car1")) == 15
    assert moved.landed("car2") == calm.landed("car2")
    assert moved.outputs("car1")[-1][0] == way.target
    assert moved.leftovers() == []


@ways
def test_one_place_emits_for_k_and_then_the_other(way: Way) -> None:
    """Falcon III-E, state correctness: no output of S follows one of D."""
    net = start(way)
    net.begin(way.migration(K))
    for _ in range(10):
        net.send(way.producer, "car1")
        net.settle(hosts=False)
        net.work(way.target)
        net.work(way.source, max_rows=2)
    net.settle()
    net.send(way.producer, "car1")
    net.settle()
    places = [place for place, _ in net.outputs("car1")]
    assert places == sorted(places, key=(way.source, way.target).index)
    assert set(places) == {way.source, way.target}
    assert [seq for _, seq in net.outputs("car1")] == net.landed("car1") == sorted(net.landed("car1"))


def test_rows_that_s_router_has_not_seen_through_the_anchor_take_the_way_round() -> None:
    """One order for K: with the anchor above S, what reaches S's router behind R goes up first and comes back."""
    net = at_edge1()
    m = migration(K, AT_EDGE1, AT_REGION, REGION)
    net.begin(m)
    net.send(EDGE1, "car1")  # R has not come here: S's router still decides
    net.drain(REGION, EDGE1)
    net.send(EDGE1, "car1", "car2")
    assert net.log(AT_EDGE1)[2:] == ["car1#2", "<snapshot>", "car2#4"]
    assert net.link(EDGE1, REGION) == ["car1#3"]
    net.drain(EDGE1, REGION)
    net.drain(REGION, EDGE1)
    assert net.log(AT_EDGE1, of="car1")[-2:] == ["<snapshot>", "car1#3"]


def test_migrations_of_disjoint_keys_run_at_the_same_time() -> None:
    """Falcon III-D: migrations without a key in common do not wait for each other, whatever their directions."""
    net = Net(owners=[(keys("car1", "car2"), AT_EDGE1)])
    ups = migration(K, AT_EDGE1, AT_CLOUD, EDGE1, id="up")
    downs = migration(keys("van1"), AT_CLOUD, AT_EDGE1, EDGE1, id="down")
    net.send(EDGE1, "car1", "van1", "car2")
    net.begin(ups)
    net.begin(downs)
    for _ in range(6):
        net.send(EDGE1, "car1", "van1", "car2")
        net.settle(hosts=False)
        net.work(AT_CLOUD, max_rows=2)
        net.work(AT_EDGE1, max_rows=2)
    net.settle()
    assert net.statuses("up") == net.statuses("down") == ["begun", "switched", "done"]
    assert net.whereabouts("car1") == [AT_CLOUD] and net.whereabouts("van1") == [AT_EDGE1]
    for key in ("car1", "van1", "car2"):
        assert net.landed(key) == sorted(net.landed(key)) and len(net.landed(key)) == 7


def test_a_key_can_move_on_and_come_back() -> None:
    """Falcon III-D: what Migrate has done, Migrate can undo; nothing of the first is in the way of the second."""
    net = at_edge1()
    for number, (source, target, anchor) in enumerate(
        [(AT_EDGE1, AT_CLOUD, EDGE1), (AT_CLOUD, AT_EDGE1, EDGE1), (AT_EDGE1, AT_REGION, EDGE1)]
    ):
        net.begin(migration(K, source, target, anchor, id=f"m{number}"))
        net.send(EDGE1, "car1")
        net.settle()
        assert net.whereabouts("car1") == [target]
    net.send(EDGE1, "car1")
    net.settle()
    assert net.landed("car1") == [0, 2, 3, 4, 5]
    assert [place for place, _ in net.outputs("car1")][-1] == AT_REGION


# --- time ---


def since_the_marker(log: list[str]) -> list[str]:
    """What the operator sees between R and T, without the flags."""
    if "<drop>" in log:
        log = log[: log.index("<drop>")]
    begin = log.index("<snapshot>") if "<snapshot>" in log else log.index("<restore>")
    return [text.rstrip("~") for text in log[begin + 1 :] if not text.startswith("<") and not text.endswith("!")]


@pytest.mark.parametrize("name", ["up", "up, anchor above", "down", "sideways"])
def test_ticks_lie_at_the_same_place_between_the_rows_of_k_at_s_and_at_d(name: str) -> None:
    """Design section 3, Time: during a migration the anchor alone tells K's clock, in one order with K's rows."""
    way = WAYS[name]
    net = Net(specs=(spec(ticks=True), sink()), owners=[(K, way.source)])
    net.send(way.producer, "car1")
    net.settle()
    net.begin(way.migration(K))
    net.settle(hosts=False)  # R is everywhere; S's host has not taken the snapshot, so D cannot be ready
    for now_ms in range(1, 6):
        net.tick(now_ms)
        net.send(way.producer, "car1")
        net.tick(now_ms)
        net.settle(hosts=False)
    net.work(way.source)
    net.settle()
    at_s, at_d = (since_the_marker(net.log(place, of="car1")) for place in (way.source, way.target))
    assert at_s == at_d
    assert [text for text in at_s if text.startswith("car1")] == [f"car1#{seq}" for seq in range(1, 6)]
    assert [text for text in at_s if text.startswith("@")].count("@3") == 2


def test_a_key_at_rest_hears_the_clock_of_its_own_router_once() -> None:
    """Design section 3, Time: a tick is told by the router of the place where the key lives, and by no other."""
    net = Net(specs=(spec(ticks=True), sink()), owners=[(K, AT_EDGE1)])
    net.tick(7)
    net.settle()
    assert net.log(AT_EDGE1) == ["@7"]
    assert net.log(AT_REGION) == net.log(AT_EDGE2) == []
    assert net.log(AT_CLOUD) == ["@7"]  # the catch-all's keys
    assert net.log(AT_CLOUD, of="car1") == []
