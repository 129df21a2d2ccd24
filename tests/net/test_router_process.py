"""Rows through real processes, sockets and disks: what the simulator shows of the machines holds of these too."""

import time
from collections.abc import Callable

import pytest
from real_sites import GROUPS, OP, Cluster, expected, fill, until

from peregrine.core.coordinator import Coordinator, PlanEnded, Status, Submit, ToRouter
from peregrine.core.keyspace import KeySet
from peregrine.core.messages import Report, Tick
from peregrine.core.placement import Placement
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.topology import Link, Topology
from peregrine.types import PlaceId, SiteId

CLOUD, EDGE = SiteId("cloud"), SiteId("edge")
Start = Callable[..., Cluster]


@pytest.mark.parametrize("local_socket", [True, False])
def test_rows_of_a_device_at_an_edge_reach_the_results_at_the_cloud(start: Start, local_socket: bool) -> None:
    cluster = start("cloud", "edge", local_socket=local_socket)
    keys = [f"k{i % 7}" for i in range(3000)]
    device = cluster.device("d", EDGE)
    fill(device, keys)
    assert device.flush(10)
    until(lambda: cluster.clients[CLOUD].status().results_end == len(keys))
    assert cluster.results() == expected("d", keys)
    status = cluster.clients[CLOUD].status()
    assert status.ends == status.commits == {"cloud": len(keys)}
    assert status.leftovers == [] and status.dead_end == 0 and status.links == {"edge": ""}
    until(lambda: cluster.clients[EDGE].status().waiting == {"cloud": 0})


def test_a_live_migration_from_the_cloud_to_an_edge_changes_no_result(start: Start) -> None:
    cluster = start("cloud", "edge", latency_ms=10.0, bandwidth_mbps=100.0)
    keys = [f"k{i % 7}" for i in range(2000)]
    device = cluster.device("d", EDGE, batch_rows=20)
    moved = KeySet.of_keys(GROUPS, ["k1", "k2", "k3"])
    fill(device, keys[:500])
    outcome = _carry_out(
        cluster,
        Plan("p", ((Move(OP, moved, PlaceId("cloud"), PlaceId("edge")),),)),
        meanwhile=lambda i: fill(device, keys[500 + 5 * i : 505 + 5 * i], 500 + 5 * i) if i < 200 else None,
    )
    assert outcome is Status.DONE
    fill(device, keys[device_seq(device) :], device_seq(device))
    assert device.flush(10)
    until(lambda: cluster.clients[CLOUD].status().results_end == len(keys))
    assert cluster.results() == expected("d", keys)
    assert all(client.status().leftovers == [] for client in cluster.clients.values())
    assert cluster.clients[EDGE].status().commits["edge"] > 0


@pytest.mark.parametrize("local_socket", [True, False])
def test_a_router_that_is_killed_loses_repeats_and_reorders_nothing(start: Start, local_socket: bool) -> None:
    cluster = start("cloud", "edge", snapshot_mb=0.05, local_socket=local_socket)
    keys = [f"k{i % 5}" for i in range(6000)]
    device = cluster.device("d", EDGE, batch_rows=50)
    for site, at in ((EDGE, 1000), (CLOUD, 2500), (EDGE, 4000), (CLOUD, 5000)):
        fill(device, keys[device_seq(device) : at], device_seq(device))
        time.sleep(0.05)
        cluster.kill(site)
        fill(device, keys[at : at + 300], at)
        cluster.restart(site)
    fill(device, keys[device_seq(device) :], device_seq(device))
    while uncut(cluster) and len(keys) < 60_000:  # a snapshot comes with the rows, sooner or later
        keys += [f"k{i % 5}" for i in range(1000)]
        fill(device, keys[device_seq(device) :], device_seq(device))
        assert device.flush(15)
    assert device.flush(15)
    until(lambda: cluster.clients[CLOUD].status().results_end == len(keys))
    assert cluster.results() == expected("d", keys)
    assert [host.failed for host in cluster.hosts.values()] == [None, None]
    assert uncut(cluster) == []


def uncut(cluster: Cluster) -> list[str]:
    """The logs that still have their beginning: no snapshot has been taken behind it."""
    logs = ("cloud/journal", "edge/journal", "edge/out/cloud", "cloud/hosts/cloud")
    return [log for log in logs if list((cluster.directory / log).glob(f"{0:020d}.*"))]


def test_a_broken_link_stores_and_forwards(start: Start) -> None:
    cluster = start("cloud", "edge")
    cluster.join(cut={"edge": "cloud"})
    keys = [f"k{i % 3}" for i in range(500)]
    device = cluster.device("d", EDGE)
    fill(device, keys)
    assert device.flush(10)  # safe at the edge, whatever the link does
    assert cluster.clients[EDGE].status().waiting["cloud"] > 0
    assert cluster.clients[CLOUD].status().ends["cloud"] == 0
    cluster.join()
    until(lambda: cluster.clients[CLOUD].status().results_end == len(keys))
    assert cluster.results() == expected("d", keys)


def test_an_emulated_link_delays_frames_and_does_not_limit_their_number(start: Start) -> None:
    """All of them are on their way before the first has arrived: a link that let one at a time through would need them
    to follow each other.
    """
    cluster = start("cloud", "edge", latency_ms=2000.0, hosts=False)
    device = cluster.device("d", EDGE, batch_rows=1)
    until(lambda: not cluster.clients[EDGE].status().links["cloud"])
    began_s = time.monotonic()
    fill(device, ["k"] * 20)
    assert device.flush(10)
    until(lambda: cluster.clients[CLOUD].status().ends["cloud"] > 0)
    assert time.monotonic() - began_s >= 2.0
    until(lambda: cluster.clients[CLOUD].status().ends["cloud"] == 20)
    assert time.monotonic() - began_s < 20 * 2.0, "not one after the other"


def device_seq(device: object) -> int:
    return device._source._next_seq  # type: ignore[attr-defined, no-any-return]


def _carry_out(cluster: Cluster, plan: Plan, meanwhile: Callable[[int], None]) -> Status:
    """The manager, in a few lines: commands out, news in, until the plan has ended."""
    link = Link(1.0, 100.0)
    topology = Topology.tree(CLOUD, {EDGE: (CLOUD, link)})
    specs = {spec.op: spec for spec in cluster.routers[CLOUD].settings.operators}
    coordinator = Coordinator(Placement(topology, specs), specs)
    after = dict.fromkeys(cluster.clients, 0)
    effects = list(coordinator.step(Submit(plan)))
    for i in range(2000):
        for effect in effects:
            if isinstance(effect, PlanEnded):
                return effect.outcome
            assert isinstance(effect, ToRouter)
            cluster.clients[effect.site].offer(effect.command)
        meanwhile(i)
        effects = list(coordinator.step(Tick(time.time_ns() // 1_000_000)))
        for site, client in cluster.clients.items():
            after[site], news = client.news(after[site], 0.005)
            effects += [each for report in news if isinstance(report, Report) for each in coordinator.step(report)]
    raise AssertionError("the plan did not end")
