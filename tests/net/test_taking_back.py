"""A change that real routers cannot carry out is taken back while rows flow, and comes again.

cloud
  region1     is to leave; has a key of one application
    edge      is to go to region2, with a device
  region2
  region3     is to leave; has a key of the other application, and its router is away
"""

from collections.abc import Callable

import pytest
import real_sites
from real_sites import GROUPS, OP, SINK, Cluster, expected, fill, until

from peregrine.control import questions
from peregrine.control.driver import ManagerDriver, Told
from peregrine.control.durable_manager import DurableManager, Initial
from peregrine.core.attachments import Attachments
from peregrine.core.coordinator import PlanEnded, Status
from peregrine.core.keyspace import KeySet
from peregrine.core.manager import Manager
from peregrine.core.messages import SetOwner
from peregrine.core.operator import OpSpec
from peregrine.core.placement import Placement
from peregrine.core.redeploying import Redeployed
from peregrine.core.topology import Link
from peregrine.core.validity import AttachedProducers, Feeds
from peregrine.log.record_log import Fsync
from peregrine.plan.redeploy.events import SiteMoved, SiteRemoved
from peregrine.plan.redeploy.planning import planning_of
from peregrine.types import OpId, PlaceId, SiteId, SourceId, site_of

CLOUD, EDGE = SiteId("cloud"), SiteId("edge")
REGION1, REGION2, REGION3 = SiteId("region1"), SiteId("region2"), SiteId("region3")
OTHER = OpId("other/count")
K1 = KeySet.of_keys(GROUPS, ["k1"])
SPECS = {op: OpSpec(op, GROUPS, feeds=(SINK,)) for op in (OP, OTHER)} | {SINK: OpSpec(SINK, GROUPS, sink=True)}
INITIAL: Initial = ((OP, K1, PlaceId(REGION1)), (OTHER, K1, PlaceId(REGION3)))
KEYS = [f"k{i % 3}" for i in range(1200)]
Start = Callable[..., Cluster]


def test_what_has_moved_returns_when_the_rest_cannot_move_and_no_row_is_lost_or_overtaken(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_sites, "OPERATORS", tuple(SPECS.values()))
    cluster = start(CLOUD, REGION1, REGION2, REGION3, EDGE, parents={EDGE: REGION1}, latency_ms=5.0)

    def make(initial: Initial, feeds: Feeds) -> Manager:
        attachments = Attachments()
        placement = Placement(cluster.topology, SPECS, initial)
        planning = planning_of(cluster.topology, SPECS, initial, feeds)
        return Manager(placement, SPECS, attachments, AttachedProducers(feeds, attachments), planning=planning)

    for op, keys, place in INITIAL:
        for site, client in cluster.clients.items():
            if cluster.topology.is_at_or_above(site, site_of(place)):
                client.offer(SetOwner(op, keys, place))
    durable = DurableManager(cluster.directory / "manager", make, Fsync.OFF)
    durable.place(INITIAL)
    durable.feed(SourceId("d"), ((OP, KeySet.of_keys(GROUPS, sorted(set(KEYS)))),))
    device = cluster.device("d", EDGE, batch_rows=10)
    fill(device, KEYS[:300])
    assert device.flush(20)
    news: list[Told] = []
    with ManagerDriver(durable, cluster.clients, news.append, cluster.introduce) as driver:
        cluster.ways = driver.introductions
        driver.wait_attached(SourceId("d"), EDGE, 20)
        cluster.kill(REGION3)
        for event in (
            SiteRemoved(REGION1, 2),
            SiteRemoved(REGION3, 2),
            SiteMoved(EDGE, REGION1, REGION2, Link(5.0, 100.0), 1),
        ):
            driver.tell(event)
        until(lambda: driver.ask(questions.owner, OP, "k1") == CLOUD, 30)
        fill(device, KEYS[300:600], 300)
        (stuck,) = [plan for plan in driver.ask(questions.running) if plan.endswith("-other-before")]
        assert cluster.clients[EDGE].status().parent == REGION1, "no site has changed its parent"
        driver.cancel(stuck)
        cluster.restart(REGION3)
        until(lambda: any(isinstance(each, Redeployed) for each in news), 30)
        fill(device, KEYS[600:900], 600)
        driver.wait_changed()
        taken_back, *_, done = [each for each in news if isinstance(each, Redeployed)]
        assert taken_back.outcome is Status.ABORTED and taken_back.left_out == (stuck,)
        assert taken_back.rehomed == taken_back.contexts == taken_back.wrong == ()
        (back,) = [each for each in news if isinstance(each, PlanEnded) and each.plan.id.endswith("-back")]
        assert [(each.op, each.source, each.target) for each in back.moved] == [(OP, CLOUD, REGION1)]
        assert done.complete and done.wrong == ()
        assert set(driver.ask(questions.topology).sites) == {CLOUD, REGION2, EDGE}
        assert cluster.clients[EDGE].status().parent == REGION2
        fill(device, KEYS[900:], 900)
        assert device.flush(20)
        until(lambda: cluster.clients[CLOUD].status().results_end >= len(KEYS), 30)
        assert cluster.results() == expected("d", KEYS)
    durable.close()
