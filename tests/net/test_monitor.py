"""Real routers, one of which is killed, stopped or cut off: what the monitor tells of it, and what it does not."""

import os
import signal
from collections.abc import Callable

from real_sites import Cluster, expected, fill, until

from peregrine.control.monitor import Monitor
from peregrine.core.topology import Link, Topology
from peregrine.plan.redeploy.changes import Changes
from peregrine.plan.redeploy.detector import Health, Patience
from peregrine.plan.redeploy.events import LinkRemoved, LinkSet, facts_of
from peregrine.plan.redeploy.queue import TopologyQueue, Verdict
from peregrine.plan.redeploy.world import World
from peregrine.types import SiteId

Start = Callable[..., Cluster]
CLOUD, EDGE1, EDGE2 = SiteId("cloud"), SiteId("edge1"), SiteId("edge2")
QUICK = Patience(suspect_ms=1000, lost_ms=4000, steady_ms=500)
NEVER = Patience(suspect_ms=500, lost_ms=600_000, steady_ms=500)
Events = list[LinkRemoved | LinkSet]


def watching(cluster: Cluster, patience: Patience) -> tuple[Monitor, Events]:
    told: Events = []
    return Monitor(cluster.topology, cluster.addresses, cluster.token, told.append, patience), told


def link(monitor: Monitor, edge: SiteId) -> Health:
    return monitor.health[CLOUD, edge]


def test_a_site_that_is_killed_is_told_as_lost_and_as_back_when_it_was_restarted(start: Start) -> None:
    cluster = start("cloud", "edge1", "edge2")
    monitor, told = watching(cluster, QUICK)
    keys = [f"k{i % 3}" for i in range(400)]
    device = cluster.device("d", EDGE1)
    with monitor:
        fill(device, keys[:200])
        assert device.flush(10)
        cluster.kill(EDGE1)
        until(lambda: bool(told))
        assert isinstance(told[0], LinkRemoved) and {told[0].a, told[0].b} == {CLOUD, EDGE1}
        assert monitor.lost_sites == {EDGE1}
        cluster.restart(EDGE1)  # at another port: the monitor looks it up
        fill(device, keys[200:], 200)
        until(lambda: len(told) == 2)
        assert told[1] == LinkSet(told[0].a, told[0].b, cluster.topology.link(EDGE1), told[0].version + 1)
        assert monitor.lost_sites == frozenset()
        assert device.flush(10)
        until(lambda: cluster.clients[CLOUD].status().results_end == len(keys))
        assert cluster.results() == expected("d", keys)
    assert len(told) == 2
    queue, world = TopologyQueue(CLOUD), World.of(cluster.topology, Changes())
    for event, parent in zip(told, (None, CLOUD), strict=True):
        assert queue.offer(event) is Verdict.TAKEN
        world.apply(facts_of(event))
        assert world.parent.get(EDGE1) == parent and world.parent[EDGE2] == CLOUD


def test_a_site_that_stops_for_a_moment_is_suspected_and_no_event_comes_of_it(start: Start) -> None:
    cluster = start("cloud", "edge1", "edge2", hosts=False)
    monitor, told = watching(cluster, NEVER)
    with monitor:
        for _ in range(2):
            os.kill(cluster.routers[EDGE1].pid, signal.SIGSTOP)
            try:
                until(lambda: link(monitor, EDGE1) is Health.SUSPECTED)
            finally:
                os.kill(cluster.routers[EDGE1].pid, signal.SIGCONT)
            until(lambda: link(monitor, EDGE1) is Health.UP)
        assert told == [] and monitor.lost_sites == frozenset()


def test_a_site_that_hangs_is_lost_and_comes_back(start: Start) -> None:
    """It still has its port and its connections: only its silence gives it away."""
    cluster = start("cloud", "edge1", "edge2", hosts=False)
    monitor, told = watching(cluster, QUICK)
    with monitor:
        os.kill(cluster.routers[EDGE2].pid, signal.SIGSTOP)
        try:
            until(lambda: bool(told))
            assert monitor.lost_sites == {EDGE2}
        finally:
            os.kill(cluster.routers[EDGE2].pid, signal.SIGCONT)
        until(lambda: len(told) == 2, 30.0)  # the cloud's call to it may hang until it times out
    assert [type(event) for event in told] == [LinkRemoved, LinkSet]
    assert {(event.a, event.b) for event in told} == {(CLOUD, EDGE2)}


def test_a_link_that_is_cut_is_lost_though_both_of_its_ends_live(start: Start) -> None:
    cluster = start("cloud", "edge1", "edge2", hosts=False)
    monitor, told = watching(cluster, QUICK)
    with monitor:
        cluster.join(cut={"edge2": "cloud"})
        until(lambda: bool(told))
        assert isinstance(told[0], LinkRemoved) and (told[0].a, told[0].b) == (CLOUD, EDGE2)
        assert cluster.clients[EDGE2].status().site == EDGE2
        cluster.join()
        until(lambda: len(told) == 2)
        assert isinstance(told[1], LinkSet)


def test_links_that_are_gone_by_plan_are_not_missed(start: Start) -> None:
    cluster = start("cloud", "edge1", "edge2", hosts=False)
    monitor, told = watching(cluster, QUICK)
    with monitor:
        monitor.follow(Topology.tree(CLOUD, {EDGE2: (CLOUD, Link(9.0))}))
        cluster.kill(EDGE1)
        cluster.kill(EDGE2)
        until(lambda: bool(told))
        assert [(event.a, event.b) for event in told] == [(CLOUD, EDGE2)] == list(monitor.health)
