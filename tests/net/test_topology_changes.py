"""Who changes the topology of a deployment is told what was touched, and can look at what runs where; without Spark.

cloud
  region1   has the keys of the device, until its edge leaves
    edge    with the device; goes to region2
  region2
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from real_sites import GROUPS, OP, OPERATORS, HostLoop, expected, fill, lines_of, until

from peregrine.control.deployment import Deployment
from peregrine.control.founding import found
from peregrine.control.guiding import guiding
from peregrine.control.supervisor import Incident
from peregrine.core.coordinator import Status
from peregrine.core.keyspace import KeySet
from peregrine.core.topology import Link, Site, Topology
from peregrine.errors import ConfigurationError
from peregrine.log.record_log import Fsync
from peregrine.net.settings import make_token
from peregrine.net.tls import tls_settings
from peregrine.plan.redeploy.delta import RunningFragment, State
from peregrine.plan.redeploy.events import LinkSet, SiteMoved, SiteRemoved, SiteSet, Station
from peregrine.plan.redeploy.layout import AppId
from peregrine.types import PlaceId, SiteId, SourceId

CLOUD, REGION1, REGION2 = SiteId("cloud"), SiteId("region1"), SiteId("region2")
EDGE, KIOSK = SiteId("edge"), SiteId("kiosk")
LINK = Link(1.0, 100.0)
TREE = Topology.tree(CLOUD, {REGION1: (CLOUD, LINK), REGION2: (CLOUD, LINK), EDGE: (REGION1, LINK)})
APP = AppId("app")
NAMES = [f"k{i}" for i in range(5)]
KEYS = KeySet.of_keys(GROUPS, NAMES)


@contextmanager
def deployed(
    directory: Path, topology: Topology = TREE, tls: bool = False, watch: Callable[[Any], None] = lambda told: None
) -> Iterator[Deployment]:
    directory.mkdir()
    settings = {"tick_ms": 20, **(tls_settings(directory / "tls") if tls else {})}
    with ExitStack() as stack:
        secret = make_token(directory / "token")
        made = Deployment(topology, {spec.op: spec for spec in OPERATORS}, directory, secret, kept=True)
        initial = ((OP, KEYS, PlaceId(REGION1)),)
        found(made, initial, Fsync.OFF, 5000, watch, stack, settings)
        stack.callback(made.close_devices)
        stack.enter_context(made.driver)
        stack.callback(made.supervisor.stop)
        for site in (CLOUD, REGION1, REGION2):
            for place in topology.places(site):
                stack.callback(HostLoop(place, lambda site=site: made.clients[site]).stop)  # type: ignore[misc]
        yield made


def test_a_change_tells_what_it_touched_and_nothing_else_is_otherwise(tmp_path: Path) -> None:
    names = [NAMES[i % 5] for i in range(600)]
    with deployed(tmp_path / "run") as up:
        device = up.device("d", EDGE, feeds=(OP, KEYS))
        fill(device, names[:300])
        until(lambda: RunningFragment(EDGE, APP, 1, (), (SourceId("d"),)) in up.fragments())
        before = up.fragments()
        assert [(each.site, each.version, each.operators) for each in before] == [
            (CLOUD, 1, (OP,)),
            (EDGE, 1, ()),
            (REGION1, 1, (OP,)),
        ]

        changed = up.change([SiteMoved(EDGE, REGION1, REGION2, LINK, 1)])
        assert [(each.outcome, each.complete) for each in changed.redeployed] == [(Status.DONE, True)]
        assert [
            (each.site, each.state, each.version_before, each.version_after, each.came, each.went)
            for each in changed.touched
        ] == [
            (EDGE, State.TO_BE_UPDATED, 1, 2, (), ()),
            (REGION1, State.TO_BE_UNDEPLOYED, 1, None, (), (OP,)),
            (REGION2, State.TO_BE_DEPLOYED, None, 1, (OP,), ()),
        ]
        assert [line.split() for line in changed.describe().splitlines()] == [
            ["edge", "app", "updated,", "version", "1", "to", "2"],
            ["region1", "app", "undeployed,", "version", "1,", "went:", OP],
            ["region2", "app", "deployed,", "version", "1,", "came:", OP],
        ]
        assert set(up.fragments()) - set(before) == {
            RunningFragment(EDGE, APP, 2, (), (SourceId("d"),)),
            RunningFragment(REGION2, APP, 1, (OP,), ()),
        }
        fill(device, names[300:], 300)
        assert device.flush(20)
        until(lambda: up.clients[CLOUD].status().results_end == len(names), 30)
        assert lines_of(up.clients[CLOUD]) == expected("d", names)


def test_what_is_put_off_comes_with_its_reason_and_touches_nothing(tmp_path: Path) -> None:
    with deployed(tmp_path / "run") as up:
        up.device("d", EDGE, feeds=(OP, KEYS))
        until(lambda: EDGE in {each.site for each in up.fragments()})
        before = up.fragments()
        changed = up.change([SiteRemoved(EDGE, 1)])
        assert (changed.redeployed, changed.touched, len(changed.put_off)) == ((), (), 1)
        assert changed.describe().startswith("put off: site edge is gone: edge was removed")
        assert up.fragments() == before
        assert up.change([SiteSet(Station(Site(EDGE)), 2)]).put_off == (), "it stays after all"


def test_what_has_no_room_is_put_off_and_the_last_valid_deployment_goes_on(tmp_path: Path) -> None:
    names = [NAMES[i % 5] for i in range(200)]
    with deployed(tmp_path / "run") as up:
        device = up.device("d", EDGE, feeds=(OP, KEYS))
        until(lambda: EDGE in {each.site for each in up.fragments()})
        before = up.fragments()
        changed = up.change([SiteSet(Station(Site(CLOUD), slots=0), 1)])
        assert (changed.redeployed, changed.touched, len(changed.put_off)) == ((), (), 1)
        assert "no site from cloud up to the root has room for it" in changed.describe()
        assert "give a site on the way more slots" in changed.describe()
        assert up.fragments() == before
        fill(device, names)
        changed = up.change([SiteMoved(EDGE, REGION1, REGION2, LINK, 1)])
        assert [each.site for each in changed.touched] == [EDGE, REGION1, REGION2], "others are not held up"
        assert device.flush(20)
        until(lambda: up.clients[CLOUD].status().results_end == len(names), 30)
        assert lines_of(up.clients[CLOUD]) == expected("d", names)


def test_hosts_of_a_site_that_runs_cannot_change(tmp_path: Path) -> None:
    parents = {REGION1: (CLOUD, LINK), REGION2: (CLOUD, LINK)}
    with deployed(tmp_path / "run", Topology.tree(CLOUD, parents, {REGION2: ("a", "b")})) as up:
        for wrong, has in ((Site(REGION1, ("x",)), "region1"), (Site(REGION2, ("a",)), "region2/a and region2/b")):
            event = SiteSet(Station(wrong), 1)
            for tell in (up.tell, lambda each: up.change([each])):
                with pytest.raises(ConfigurationError, match=f"{wrong.id!r} has {has} and was told .* cannot change"):
                    tell(event)
        assert up.topology.site(REGION1).hosts == ()
        changed = up.change([SiteSet(Station(Site(REGION2, ("a", "b")), slots=1), 1)])
        assert changed.put_off == ()


def test_a_link_that_has_changed_feels_so_at_both_ends_also_after_a_restart(tmp_path: Path) -> None:
    slow = Link(300.0, 100.0)
    with deployed(tmp_path / "run") as up:
        changed = up.change([LinkSet(REGION1, CLOUD, slow, 1)])
        assert (changed.touched, changed.put_off) == ((), ())
        ends = [(REGION1, CLOUD), (CLOUD, REGION1)]
        until(lambda: all(up.supervised_routers[near].neighbours[far].feels_like(slow) for near, far in ends))
        os.kill(up.supervised_routers[REGION1].process.pid, signal.SIGKILL)
        device = up.device("d", EDGE, feeds=(OP, KEYS))
        begun_s = time.monotonic()
        fill(device, NAMES)
        until(lambda: up.clients[CLOUD].status().results_end == len(NAMES), 30)
        assert time.monotonic() - begun_s >= slow.latency_ms / 1000, "nothing is faster than its link"
        assert lines_of(up.clients[CLOUD]) == expected("d", NAMES)


@pytest.mark.parametrize("tls", [False, True])
def test_devices_follow_the_guide_of_a_deployment_also_to_sites_that_join(tmp_path: Path, tls: bool) -> None:
    positions = {REGION1: (0.0, 0.0), REGION2: (1000.0, 0.0), KIOSK: (2000.0, 0.0)}
    with deployed(tmp_path / "run", tls=tls) as up, guiding(up, positions) as follower:
        device = up.device("car", follower.nearest((10.0, 0.0)), roaming=True)
        assert device.site == REGION1
        follower.follow(device)
        follower.seen(device, (1990.0, 0.0))
        until(lambda: device.site == REGION2)
        up.change([SiteSet(Station(Site(KIOSK), slots=0), 1), LinkSet(KIOSK, REGION2, LINK, 1)])
        until(lambda: device.site == KIOSK)
        fill(device, NAMES)
        assert device.flush(20)
        follower.seen(device, (10.0, 0.0))
        until(lambda: device.site == REGION1)
        up.driver.wait_changed()
        fill(device, NAMES, len(NAMES))
        assert device.flush(20)
        until(lambda: up.clients[CLOUD].status().results_end == 2 * len(NAMES), 30)
        up.change([SiteRemoved(KIOSK, 2)])
        assert KIOSK not in up.topology
        follower.seen(device, (1990.0, 0.0))
        until(lambda: device.site == REGION2)


def test_a_guide_that_is_killed_comes_back_to_its_address_and_devices_go_on_following(tmp_path: Path) -> None:
    incidents: list[Incident] = []

    def watch(told: Any) -> None:
        if isinstance(told, Incident):
            incidents.append(told)

    with deployed(tmp_path / "run", watch=watch) as up:
        with guiding(up, {REGION1: (0.0, 0.0), REGION2: (1000.0, 0.0)}) as follower:
            device = up.device("car", follower.nearest((10.0, 0.0)), roaming=True)
            follower.follow(device)
            for nth, (site, x) in enumerate([(REGION2, 990.0), (REGION1, 10.0)], 1):
                (killed,) = guides(up)
                os.kill(killed, signal.SIGKILL)
                until(lambda killed=killed: killed not in guides(up))  # type: ignore[misc]
                follower.seen(device, (x, 0.0))  # this one never hears of it
                until(lambda site=site: device.site == site)  # type: ignore[misc]
                until(lambda nth=nth: len(incidents) == 2 * nth)  # type: ignore[misc]
        assert guides(up) == []
    assert incidents == 2 * [Incident("guide", "failed", "the process has ended"), Incident("guide", "restarted")]


def guides(up: Deployment) -> list[int]:
    """The guide processes of this deployment, as whoever kills one finds them."""
    settings = str(up.directory / "guide.json").encode()
    found = []
    for process in Path("/proc").iterdir():
        with suppress(OSError):  # no process, or it has just ended
            if settings in (process / "cmdline").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


def test_a_position_that_is_none_is_refused_before_a_guide_is_started(tmp_path: Path) -> None:
    with deployed(tmp_path / "run") as up:
        with pytest.raises(ConfigurationError), guiding(up, {REGION1: (float("nan"), 0.0)}):
            raise AssertionError("it has begun")
        assert not (up.directory / "guide.json").exists()
