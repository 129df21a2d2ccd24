"""Routers and hosts under chance alone: sites change their parents, and each part of the protocol is needed for that.

Much quicker than a simulated network, and crueller: what a link had on its way when it was cut stays there.
"""

import pickle
from random import Random

import pytest

from harness import OP, keys
from peregrine.core import journal, wire
from peregrine.core.messages import Append, Effect, HandBack, Rehomed, Send
from peregrine.core.migrate import Migration
from peregrine.core.router import Router
from peregrine.core.topology import Link, Topology
from peregrine.types import MigrationId, PlaceId, SiteId
from rehoming_faults import ROUTERS
from rehoming_net import RehomingNet, play, run


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("start", range(0, 60, 20))
def test_rows_land_once_and_in_order_while_sites_change_their_parents(start: int, wide: bool) -> None:
    assert {seed: wrong for seed in range(start, start + 20) if (wrong := run(seed, wide=wide))} == {}


@pytest.mark.parametrize("seed", [26, 280, 505, 906, 1346, 2916, 5025, 18810, 18824])
def test_seeds_that_once_found_something_find_nothing(seed: int) -> None:
    assert run(seed) == []


@pytest.mark.parametrize("ends", ["aborted", "done"])
def test_keys_are_found_when_their_old_place_and_then_their_anchor_have_left_by_the_same_branch(ends: str) -> None:
    """The markers of the migration go straight between the two then: nobody on the branch that they left hears them."""
    net, m, (_, _, d, s, b) = moving_up()
    slow = {m.source, m.target}  # so it goes on all the while
    net.settle(but=slow)
    for site in (s, d):
        assert net.rehome(site, b)
        net.settle(but=slow)
        assert not net.open
    if ends == "aborted":
        net.abort(m)
    net.settle()
    assert net.statuses(m.id)[-1] == ends
    assert net.misled() == []


@pytest.mark.parametrize("fault", [None, "rules turn rows back"])
def test_rows_that_return_after_an_abort_stay_ahead_of_the_word_behind_them(fault: str | None) -> None:
    """The old branch holds what rules lead to who has left; what is addressed passes."""
    net, m, (_, d, p, s, b) = moving_up(Router if fault is None else ROUTERS[fault], target=1)
    slow = {m.source, m.target}
    net.settle(but=slow)
    last_mile = (p, d)
    net.send(s, "k0", source="d0")  # goes to the anchor, and is to return
    net.settle(but={*slow, last_mile})
    net.abort(m)
    net.settle(but={*slow, last_mile})
    net.send(s, "k0", source="d0")  # waits for the one that returns
    assert net.rehome(s, b)
    net.settle(but={*slow, last_mile})
    net.settle()
    assert net.statuses(m.id)[-1] == "aborted" and not net.open
    (results,) = net.lines.values()
    in_order = [seq for seq, _ in results] == [0, 1, 2]
    assert in_order == (fault is None)


@pytest.mark.parametrize("where", ["where the ways meet", "on the new branch"])
def test_rows_that_are_held_for_who_is_on_its_way_follow_the_word_that_their_keys_move(where: str) -> None:
    """The command to begin may be late, and find rows that rules have led to the old place and that wait for it."""
    root, old, new, site = (SiteId(f"s{i}") for i in range(4))
    parents = {old: (root, Link(1.0)), new: (root, Link(1.0)), site: (old, Link(1.0))}
    anchor, last_mile = (root, (root, old)) if where == "where the ways meet" else (new, (root, new))
    net = RehomingNet(Random(1), Topology.tree(root, parents), {"d0": (anchor, ["k0"])})
    net.own(keys("k0"), PlaceId(site))
    m = Migration(MigrationId("m"), OP, keys("k0"), PlaceId(site), PlaceId(anchor), anchor, "live", anchor, root)
    net.running[m.id] = m
    net.send(anchor, "k0", source="d0")
    net.settle()
    assert net.rehome(site, new)
    approaches = net.routers[new].rehomings.new_branch.approaches
    while anchor == new and not any(each.settling for each in approaches.values()):
        net.stir_once()
    net.settle(but={last_mile})
    net.send(anchor, "k0", source="d0")
    net.begin(m)
    net.settle()
    assert net.statuses(m.id)[-1] == "done" and not net.open
    (results,) = net.lines.values()
    assert [seq for seq, _ in results] == [0, 1]


@pytest.mark.parametrize("fault", [None, "outputs pass a gate whose word is held"])
def test_outputs_wait_for_the_word_that_closes_their_gate_where_a_new_branch_holds_it(fault: str | None) -> None:
    """The gate is above both the place to which keys go down and the site to which another comes meanwhile."""
    root, gate, below, site = (SiteId(f"s{i}") for i in range(4))
    parents = {gate: (root, Link(1.0)), below: (gate, Link(1.0)), site: (root, Link(1.0))}
    router = Router if fault is None else ROUTERS[fault]
    net = RehomingNet(Random(1), Topology.tree(root, parents), {"d0": (below, ["k0"])}, router)
    net.own(keys("k0"), PlaceId(gate))
    net.send(below, "k0", source="d0")
    net.settle()
    m = Migration(MigrationId("m"), OP, keys("k0"), PlaceId(gate), PlaceId(below), below, "live", gate, root)
    net.running[m.id] = m
    net.begin(m)
    net.settle(but={m.target})
    assert net.rehome(site, below)
    approaches = net.routers[gate].rehomings.new_branch.approaches
    while not any(each.settling for each in approaches.values()):
        assert net.stir_once(but={m.target})
    last_mile = (root, gate)
    net.send(below, "k0", source="d0")  # goes to both places; the old one is to emit what comes of it
    net.settle(but={last_mile})
    assert any(each.held for each in approaches.values())
    net.send(below, "k0", source="d0")  # goes to the new place alone
    net.settle(but={last_mile})
    net.settle()
    (results,) = net.lines.values()
    in_order = [seq for seq, _ in results] == [0, 1, 2]
    assert in_order == (fault is None)
    assert net.statuses(m.id)[-1] == "done" and not net.open


def moving_up(router: type[Router] = Router, target: int = 2) -> tuple[RehomingNet, Migration, list[SiteId]]:
    """s0 <- s1 <- s2 <- s3, and s4 beside s1: a key of s3 has been told to go to one of the sites above."""
    sites = [SiteId(f"s{i}") for i in range(5)]
    root, a, b, source, other = sites
    parents = {site: (above, Link(1.0)) for site, above in ((a, root), (b, a), (source, b), (other, root))}
    net = RehomingNet(Random(1), Topology.tree(root, parents), {"d0": (source, ["k0"])}, router)
    net.own(keys("k0"), PlaceId(source))
    net.owner = {"k0": PlaceId(source)}
    net.send(source, "k0", source="d0")
    net.settle()
    to = sites[target]
    m = Migration(MigrationId("m"), OP, keys("k0"), PlaceId(source), PlaceId(to), to, "live", to, root)
    net.running[m.id] = m
    net.begin(m)
    return net, m, sites


def test_a_router_is_a_function_of_its_journal_and_survives_a_snapshot() -> None:
    net, _ = play(14)
    for site, config in net.configs.items():
        again = Router(config)
        events, effects = net.journals[site], net.effects[site]
        for nth, (event, expected) in enumerate(zip(events, effects, strict=True)):
            if nth == len(events) // 2:
                again = pickle.loads(pickle.dumps(again))
            assert done(again.step(journal.decode(journal.encode(event)))) == done(expected)


def done(effects: list[Effect]) -> list[object]:
    """What is sent and written, as bytes: how a set is printed depends on its history."""
    sent = [(e.neighbour, e.seq, e.session, wire.encode(e.item)) for e in effects if isinstance(e, Send)]
    written = [(e.place, e.offset, wire.encode(e.entry)) for e in effects if isinstance(e, Append)]
    return [*sent, *written, *(e for e in effects if isinstance(e, HandBack | Rehomed))]


# Where each fault shows. What sends rows round for ever is stopped.
FIRST_SEED = {
    "no fence": 26,
    "no mark": 0,
    "nothing returns": 29,
    "the short way at once": 130,
    "no settling": 76,
    "markers that turn back teach nobody": 156,
    "old news teaches": 5025,
    "the parent that was left has the last word": 2916,
    "aborts teach nobody": 26,
    "the old branch keeps the keys": 13,
    "keys are not announced": 13,
}


@pytest.mark.parametrize("fault", FIRST_SEED)
def test_it_goes_wrong_without(fault: str) -> None:
    first = FIRST_SEED[fault]
    assert any(goes_wrong(seed, ROUTERS[fault]) for seed in (first, *range(200)))


def test_it_goes_wrong_if_fenced_markers_teach_who_has_one_of_their_places() -> None:
    assert goes_wrong(3421, ROUTERS["fenced markers teach all"], wide=True)


def goes_wrong(seed: int, router: type[Router], wide: bool = False) -> bool:
    try:
        return run(seed, router, most_steps=20_000, wide=wide) != []
    except (AssertionError, KeyError):
        return True
