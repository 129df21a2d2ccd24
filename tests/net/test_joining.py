"""A deployment of real routers, without Spark, follows its topology: sites join, take devices, move and leave."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from real_sites import GROUPS, OP, OPERATORS, HostLoop, expected, fill, lines_of, until

from peregrine.control.auditing import audit_deployment
from peregrine.control.deployment import Deployment
from peregrine.control.founding import found
from peregrine.core.coordinator import Status
from peregrine.core.keyspace import KeySet
from peregrine.core.topology import Link, Site, Topology
from peregrine.errors import ConfigurationError
from peregrine.log.record_log import Fsync
from peregrine.net.protocol import Neighbour
from peregrine.net.settings import make_token, read_token
from peregrine.plan.redeploy.detector import Patience
from peregrine.plan.redeploy.events import LinkSet, SiteMoved, SiteRemoved, SiteSet, Station
from peregrine.types import PlaceId, SiteId

CLOUD, REGION1, REGION2 = SiteId("cloud"), SiteId("region1"), SiteId("region2")
EDGE, KIOSK = SiteId("edge"), SiteId("kiosk")
LINK = Link(1.0, 100.0)
TREE = Topology.tree(CLOUD, {REGION1: (CLOUD, LINK), REGION2: (CLOUD, LINK), EDGE: (REGION1, LINK)})
HERE = SiteSet(Station(Site(KIOSK), slots=0), 1)


@contextmanager
def deployed(directory: Path) -> Iterator[Deployment]:
    directory.mkdir(exist_ok=True)
    token = directory / "token"
    with ExitStack() as stack:
        secret = read_token(token) if token.exists() else make_token(token)
        made = Deployment(TREE, {spec.op: spec for spec in OPERATORS}, directory, secret, kept=True)
        found(made, (), Fsync.OFF, 5000, lambda told: None, stack, {"tick_ms": 20})
        stack.callback(made.close_devices)
        stack.enter_context(made.driver)
        stack.callback(made.supervisor.stop)
        yield made


def test_a_site_joins_takes_a_device_and_changes_its_parent(tmp_path: Path) -> None:
    keys = [f"k{i % 5}" for i in range(900)]
    with deployed(tmp_path / "run") as up:
        host = HostLoop(PlaceId(CLOUD), lambda: up.clients[CLOUD])
        with pytest.raises(ConfigurationError, match="no host for it"):
            up.change([SiteSet(Station(Site(KIOSK)), 1)])
        changed = up.change([HERE, LinkSet(KIOSK, EDGE, LINK, 1)])
        assert [each.outcome for each in changed.redeployed] == [Status.DONE]
        assert up.topology.parent(KIOSK) == EDGE and KIOSK in up.routers
        device = up.device("d", KIOSK, feeds=(OP, KeySet.of_keys(GROUPS, set(keys))))
        fill(device, keys[:300])
        up.change([SiteMoved(KIOSK, EDGE, REGION2, LINK, 2)])
        fill(device, keys[300:600], 300)
        assert up.topology.parent(KIOSK) == REGION2 and up.clients[KIOSK].status().parent == REGION2
        fill(device, keys[600:], 600)
        assert device.flush(20)
        until(lambda: up.clients[CLOUD].status().results_end == len(keys), 30)
        assert lines_of(up.clients[CLOUD]) == expected("d", keys)
        until(lambda: up.results_at_rest() == len(keys))
        assert audit_deployment(up) == []
        host.stop()


def test_the_router_of_a_site_that_leaves_ends_and_one_that_comes_back_goes_on(tmp_path: Path) -> None:
    with deployed(tmp_path / "run") as up:
        up.change([HERE, LinkSet(KIOSK, EDGE, LINK, 1)])
        assert up.topology.parent(KIOSK) == EDGE and up.clients[EDGE].status().links.keys() == {REGION1, KIOSK}
        changed = up.change([SiteRemoved(KIOSK, 3)])
        assert [each.outcome for each in changed.redeployed] == [Status.DONE] and KIOSK not in up.topology
        until(lambda: KIOSK not in up.routers)
        assert up.clients[EDGE].status().links.keys() == {REGION1} and KIOSK not in up.addresses
        up.change([SiteSet(Station(Site(KIOSK), slots=0), 4), LinkSet(KIOSK, REGION2, LINK, 4)])
        assert up.topology.parent(KIOSK) == REGION2 and up.clients[KIOSK].status().parent == REGION2
        assert up.clients[REGION2].status().links.keys() == {CLOUD, KIOSK}


def test_a_deployment_that_goes_on_has_the_tree_that_it_had(tmp_path: Path) -> None:
    with deployed(tmp_path / "run") as up:
        up.change([HERE, LinkSet(KIOSK, EDGE, LINK, 1), SiteMoved(EDGE, REGION1, REGION2, LINK, 1)])
        assert up.topology.parent(EDGE) == REGION2
    with deployed(tmp_path / "run") as up:
        assert up.topology.parent(EDGE) == REGION2 and up.topology.parent(KIOSK) == EDGE
        until(lambda: up.clients[EDGE].status().links == {"region2": "", "kiosk": ""})
        up.change([SiteMoved(EDGE, REGION2, REGION1, LINK, 2)])
        assert up.clients[EDGE].status().parent == REGION1


def test_a_link_that_the_monitor_misses_is_replaced_and_what_waited_for_it_takes_the_new_way(tmp_path: Path) -> None:
    keys = [f"k{i % 5}" for i in range(600)]
    with deployed(tmp_path / "run") as up, up.monitor(Patience(suspect_ms=500, lost_ms=1500, steady_ms=500)):
        host = HostLoop(PlaceId(CLOUD), lambda: up.clients[CLOUD])
        device = up.device("d", EDGE, feeds=(OP, KeySet.of_keys(GROUPS, set(keys))))
        up.change([LinkSet(EDGE, REGION2, Link(50.0, 100.0), 1)])
        assert up.topology.parent(EDGE) == REGION1, "which is nearer"
        fill(device, keys[:300])
        for near, far in ((EDGE, REGION1), (REGION1, EDGE)):
            up.clients[near].tell_neighbours({far: Neighbour("")})
        fill(device, keys[300:], 300)
        until(lambda: up.clients[EDGE].status().parent == REGION2, 30)
        assert device.flush(20)
        until(lambda: up.clients[CLOUD].status().results_end == len(keys), 30)
        assert lines_of(up.clients[CLOUD]) == expected("d", keys)
        up.driver.wait_changed()
        assert up.topology.parent(EDGE) == REGION2 and audit_deployment(up) == []
        host.stop()
