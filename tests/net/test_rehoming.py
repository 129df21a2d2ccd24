"""A site of real routers, with what is below it, changes its parent while rows flow: none is lost or overtaken.

cloud
  region1     the old parent; owns some of the keys
    edge      moves, with a device and with all below it
      shop    has a device, and owns one key
  region2     the new parent
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from real_sites import GROUPS, OP, Cluster, expected, fill, until
from test_router_process import device_seq

from peregrine.control import questions
from peregrine.control.auditing import audit_routers
from peregrine.control.driver import ManagerDriver, Told
from peregrine.control.durable_manager import DurableManager, Initial
from peregrine.core.attachments import Attachments
from peregrine.core.coordinator import Status
from peregrine.core.keyspace import KeySet
from peregrine.core.manager import Manager
from peregrine.core.messages import SetOwner
from peregrine.core.placement import Placement
from peregrine.core.redeploying import PATIENCE_MS
from peregrine.core.topology import Link
from peregrine.core.validity import AttachedProducers, Feeds
from peregrine.log.record_log import Fsync
from peregrine.net.device import Device
from peregrine.plan.redeploy.events import SiteMoved
from peregrine.plan.redeploy.planning import planning_of
from peregrine.types import PlaceId, SiteId, SourceId, site_of

CLOUD, REGION1, REGION2 = SiteId("cloud"), SiteId("region1"), SiteId("region2")
EDGE, SHOP = SiteId("edge"), SiteId("shop")
PARENTS = {EDGE: REGION1, SHOP: EDGE}
LINK = Link(0.0, 100.0)
Start = Callable[..., Cluster]
KEYS = {"d": [f"k{i % 7}" for i in range(3000)], "s": [f"s{i % 5}" for i in range(3000)]}
INITIAL: Initial = (
    (OP, KeySet.of_keys(GROUPS, ["k1", "k2"]), PlaceId(REGION1)),
    (OP, KeySet.of_keys(GROUPS, ["k3"]), PlaceId(EDGE)),
    (OP, KeySet.of_keys(GROUPS, ["s1"]), PlaceId(SHOP)),
)


def rehomes(manager: Manager) -> bool:
    """Is any site on its way from one parent to another?"""
    return manager.redeploying is not None and bool(manager.redeploying.rehomer.commands())


class Tree:
    """The routers, two devices that send a little at every `flow`, and the manager."""

    def __init__(self, cluster: Cluster, driver: ManagerDriver, devices: dict[str, Device] | None) -> None:
        self.cluster = cluster
        self.driver = driver
        self.devices = devices or {
            "d": cluster.device("d", EDGE, batch_rows=10),
            "s": cluster.device("s", SHOP, batch_rows=10),
        }

    def flow(self, rows: int = 50) -> None:
        for name, device in self.devices.items():
            first = device_seq(device)
            fill(device, KEYS[name][first : first + rows], first)

    def moves(self, source: SiteId, target: SiteId, version: int) -> None:
        self.driver.tell(SiteMoved(EDGE, source, target, LINK, version))

    def is_on_its_way(self, target: SiteId) -> bool:
        """Has it left its old parent, and is it not settled below the new one?"""
        return self.driver.ask(rehomes) and self.parent() == target

    def settle(self) -> None:
        """While rows flow."""
        ends_at_s = time.monotonic() + 60
        while self.driver.changing:
            assert time.monotonic() < ends_at_s, "the change did not end"
            self.flow(10)
            time.sleep(0.02)

    def parent(self) -> str:
        return self.cluster.clients[EDGE].status().parent

    def proves(self) -> None:
        """All that was sent has come out, once and in order; nothing is left, and the journals agree."""
        cluster = self.cluster
        for name, device in self.devices.items():
            first = device_seq(device)
            fill(device, KEYS[name][first:], first)
            assert device.flush(20)
        until(lambda: cluster.clients[CLOUD].status().results_end >= sum(map(len, KEYS.values())), 30)
        wanted = {line: rows for name, keys in KEYS.items() for line, rows in expected(name, keys).items()}
        assert cluster.results() == wanted
        until(lambda: not any(client.status().leftovers for client in cluster.clients.values()))
        until(lambda: all(not any(client.status().waiting.values()) for client in cluster.clients.values()))
        assert [host.failed for host in cluster.hosts.values() if host.failed] == []
        assert audit_routers([router.settings for router in cluster.routers.values()], INITIAL) == []


@contextmanager
def managed(
    cluster: Cluster,
    devices: dict[str, Device] | None = None,
    patience_ms: int = PATIENCE_MS,
    heard: Callable[[Told], None] = lambda told: None,
) -> Iterator[Tree]:
    def make(initial: Initial, feeds: Feeds) -> Manager:
        specs = {spec.op: spec for spec in cluster.routers[CLOUD].settings.operators}
        attachments = Attachments()
        placement = Placement(cluster.topology, specs, initial)
        planning = planning_of(cluster.topology, specs, initial, feeds)
        producers = AttachedProducers(feeds, attachments)
        return Manager(placement, specs, attachments, producers, planning=planning, patience_ms=patience_ms)

    durable = DurableManager(cluster.directory / "manager", make, Fsync.OFF)
    if not durable.placed:
        for op, keys, place in INITIAL:
            for site, client in cluster.clients.items():
                if cluster.topology.is_at_or_above(site, site_of(place)):
                    client.offer(SetOwner(op, keys, place))
        durable.place(INITIAL)
        for name, keys in KEYS.items():
            durable.feed(SourceId(name), ((OP, KeySet.of_keys(GROUPS, sorted(set(keys)))),))
    try:
        with ManagerDriver(durable, cluster.clients, heard, cluster.introduce) as driver:
            cluster.ways = driver.introductions
            yield Tree(cluster, driver, devices)
    finally:
        durable.close()


@pytest.fixture
def tree(start: Start) -> Iterator[Tree]:
    """Links are slow enough to do something in the middle of a change."""
    cluster = start(
        *(CLOUD, REGION1, REGION2, EDGE, SHOP), parents=PARENTS, latency_ms=60.0, snapshot_mb=0.05, keep_journal=True
    )
    with managed(cluster) as made:
        yield made


def test_a_site_with_all_below_it_changes_its_parent_while_rows_flow(tree: Tree) -> None:
    tree.flow(300)
    assert tree.parent() == REGION1
    changed = tree.driver.change([SiteMoved(EDGE, REGION1, REGION2, LINK, 1)])
    assert [each.outcome for each in changed.redeployed] == [Status.DONE] and changed.put_off == ()
    assert tree.parent() == REGION2
    tree.proves()
    assert tree.driver.ask(questions.topology).parent(EDGE) == REGION2
    links = {site: set(client.status().links) for site, client in tree.cluster.clients.items()}
    assert links[REGION1] == {CLOUD} and links[REGION2] == {CLOUD, EDGE} and links[EDGE] == {REGION2, SHOP}


@pytest.mark.parametrize("killed", [EDGE, REGION1, REGION2, CLOUD], ids=["C", "old parent", "new parent", "M"])
def test_a_router_that_is_killed_in_the_middle_of_a_change_loses_nothing(tree: Tree, killed: SiteId) -> None:
    tree.flow(300)
    tree.moves(REGION1, REGION2, 1)
    until(lambda: tree.is_on_its_way(REGION2), 30)
    tree.cluster.kill(killed)
    tree.flow(100)
    time.sleep(0.3)
    assert tree.driver.changing, "it needs the one that is away"
    tree.cluster.restart(killed)
    tree.settle()
    assert tree.parent() == REGION2
    tree.proves()


def test_a_site_comes_back_to_the_parent_that_it_had_and_leaves_it_again(tree: Tree) -> None:
    """The same two are neighbours three times: what is said in each session has numbers of its own."""
    tree.flow(200)
    for version, (source, target) in enumerate([(REGION1, REGION2), (REGION2, REGION1), (REGION1, REGION2)], start=1):
        tree.moves(source, target, version)
        tree.settle()
        assert tree.parent() == target
        tree.cluster.kill(EDGE)  # it keeps its parent, and what its links had sent
        tree.cluster.restart(EDGE)
        assert tree.parent() == target
    tree.proves()
    logs = {path.name for path in (tree.cluster.directory / REGION1 / "out").iterdir()}
    assert EDGE not in logs, "the log of the first session was handed back, and a snapshot removed it"


def test_a_manager_that_dies_in_the_middle_of_a_change_goes_on_with_it(start: Start) -> None:
    cluster = start(CLOUD, REGION1, REGION2, EDGE, SHOP, parents=PARENTS, latency_ms=60.0)
    with managed(cluster) as tree:
        tree.flow(300)
        tree.moves(REGION1, REGION2, 1)
        until(lambda: tree.is_on_its_way(REGION2), 30)
    with managed(cluster, tree.devices) as again:
        again.settle()
        assert again.parent() == REGION2
        again.proves()
