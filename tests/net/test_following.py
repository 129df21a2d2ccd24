"""Devices that follow a guide along real routers: told where to go, and no row lost, repeated or out of order."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import real_sites
from guided import CLOUD, EDGES, MARGIN_M, Road, at, managed
from real_sites import GROUPS, OP, SINK, Cluster, expected, fill, until

from peregrine.control import questions
from peregrine.control.auditing import audit_routers
from peregrine.core.keyspace import KeySet
from peregrine.core.operator import OpSpec
from peregrine.core.reconfigure import Move, Plan
from peregrine.errors import Unreachable
from peregrine.net.device import Device
from peregrine.net.follower import Follower
from peregrine.plan.guide import Notice
from peregrine.types import PlaceId, SiteId, SourceId

Start = Callable[..., Cluster]
ROAMING = (OpSpec(OP, GROUPS, roaming=True, feeds=(SINK,)), OpSpec(SINK, GROUPS, sink=True))
CAR = SourceId("car")


@pytest.fixture
def make_road(tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Road]]:
    monkeypatch.setattr(real_sites, "OPERATORS", ROAMING)
    made: list[Road] = []

    def make(**more: float) -> Road:
        made.append(Road(tmp_path, start, **more))
        return made[-1]

    yield make
    for road in made:
        road.close()


class Drive:
    """A car on the road that sends rows all the time, and the follower that takes it along."""

    def __init__(self, road: Road, cluster: Cluster, directory: Path | None = None) -> None:
        self.cluster = cluster
        self.sent: list[str] = []
        self.notices: list[Notice] = []
        self.addresses: dict[SiteId, str] = {}
        self.follower = Follower(road.client(), self.addresses, heard=self.notices.append)
        first = self.follower.nearest(at(EDGES[0]))
        self.car = Device(CAR, self.addresses, first, road.token, roaming=True, batch_rows=10, directory=directory)
        self.follower.follow(self.car)
        cluster.devices.append(self.car)

    def send(self, rows: int) -> None:
        keys = [f"k{i % 3}" for i in range(len(self.sent), len(self.sent) + rows)]
        fill(self.car, keys, len(self.sent))
        self.sent += keys

    def drive(self, edge: SiteId) -> None:
        """There, step by step, with rows on the way, until the car is connected there."""
        here, there = at(self.car.site)[0], at(edge)[0]
        for step in range(1, 6):
            self.follower.seen(self.car, (here + (there - here) * step / 5, 0.0))
            self.send(20)
        until(lambda: self.car.site == edge)
        self.send(100)

    def check(self) -> None:
        """All that was sent has come out, once, in order, and every state and journal says so."""
        assert self.car.flush(15)
        until(lambda: self.cluster.clients[CLOUD].status().results_end == len(self.sent))
        assert self.cluster.results() == expected(CAR, self.sent)
        until(lambda: all(client.status().leftovers == [] for client in self.cluster.clients.values()))
        assert all(client.status().dead_end == 0 for client in self.cluster.clients.values())
        assert [host.failed for host in self.cluster.hosts.values() if host.failed] == []
        assert audit_routers([router.settings for router in self.cluster.routers.values()]) == []

    def close(self) -> None:
        self.follower.close()


def test_a_car_that_follows_its_notices_along_four_edges_loses_repeats_and_reorders_nothing(
    make_road: Callable[..., Road],
) -> None:
    """The guide moves the car, and its stray rows move its keys behind it, live."""
    road = make_road()
    cluster = road.routers(latency_ms=2.0)
    until(lambda: road.registered() == list(EDGES))
    keys = KeySet.of_keys(GROUPS, ["k0", "k1", "k2"])
    drive = Drive(road, cluster)
    way = (*EDGES[1:], EDGES[0], EDGES[3])
    with managed(cluster, {CAR: ((OP, keys),)}) as manager:
        drive.send(100)
        manager.submit(Plan("down", ((Move(OP, keys, PlaceId(CLOUD), PlaceId(EDGES[0])),),)))
        manager.wait("down")

        def owners() -> set[PlaceId]:
            return set(manager.ask(questions.owners, OP, ("k0", "k1", "k2")).values())

        for edge in way:
            drive.drive(edge)
            until(lambda edge=edge: owners() == {PlaceId(edge)})  # type: ignore[misc]
        assert [notice.site for notice in drive.notices] == list(way)
        drive.check()
    drive.close()


def test_a_car_at_a_border_is_not_sent_to_and_fro(make_road: Callable[..., Road]) -> None:
    road = make_road()
    cluster = road.routers(EDGES[:2], hosts=False)
    until(lambda: road.registered() == list(EDGES[:2]))
    drive = Drive(road, cluster)
    middle = at(EDGES[1])[0] / 2
    swings = [middle + side * 0.4 * MARGIN_M for side in (1, -1, 1, -1, 1, -1)]
    with road.client() as client:
        for x in swings:
            drive.follower.seen(drive.car, (x, 0.0))
            until(lambda: not drive.follower._untold)
            nearest = client.nearest((x, 0.0))
            assert nearest is not None and nearest.site == (EDGES[1] if x > middle else EDGES[0])
    drive.drive(EDGES[1])  # the follower still hears: what it was not told before, it was not to be told
    assert [notice.site for notice in drive.notices] == [EDGES[1]]
    drive.close()


def test_without_its_guide_a_car_stays_and_sends_and_follows_again_when_the_guide_is_back(
    make_road: Callable[..., Road],
) -> None:
    road = make_road(lease_s=1.0)
    cluster = road.routers(EDGES[:3])
    until(lambda: road.registered() == list(EDGES[:3]))
    drive = Drive(road, cluster)
    drive.drive(EDGES[1])
    road.guide.kill()
    drive.follower.seen(drive.car, at(EDGES[2]))
    drive.send(300)
    assert drive.car.flush(10), "rows need no guide"
    until(lambda: "guide" in drive.follower.trouble)
    assert drive.car.site == EDGES[1]
    road.restart()  # it knows nobody: routers register again, and the follower says again where the car is
    until(lambda: drive.car.site == EDGES[2])
    assert [notice.site for notice in drive.notices] == [EDGES[1], EDGES[2]], "never to an edge between"
    until(lambda: drive.follower.trouble == "")
    drive.send(100)
    drive.check()
    drive.close()


def test_a_guide_that_hangs_keeps_no_row_from_its_way(make_road: Callable[..., Road]) -> None:
    road = make_road()
    cluster = road.routers(EDGES[:2])
    until(lambda: road.registered() == list(EDGES[:2]))
    drive = Drive(road, cluster)
    os.kill(road.guide.pid, signal.SIGSTOP)
    try:
        drive.follower.seen(drive.car, at(EDGES[1]))
        drive.send(300)
        assert drive.car.flush(10)
    finally:
        os.kill(road.guide.pid, signal.SIGCONT)
    until(lambda: drive.car.site == EDGES[1])
    drive.check()
    drive.close()


def test_a_car_whose_router_dies_is_sent_to_the_next_and_back(make_road: Callable[..., Road]) -> None:
    """What the dead router had acknowledged is on its disk and comes when it is back; keys wait for it."""
    road = make_road(lease_s=1.0)
    cluster = road.routers(EDGES[:2])
    until(lambda: road.registered() == list(EDGES[:2]))
    drive = Drive(road, cluster)
    drive.follower.seen(drive.car, (40.0, 0.0))  # both edges reach it
    drive.send(100)
    cluster.kill(EDGES[0])
    drive.send(100)
    until(lambda: drive.car.site == EDGES[1])
    assert drive.car.flush(10)
    cluster.restart(EDGES[0])
    drive.send(100)
    until(lambda: drive.car.site == EDGES[0])
    drive.check()
    drive.close()


def test_a_car_that_comes_back_from_its_disk_is_told_where_its_router_is(
    make_road: Callable[..., Road], tmp_path: Path
) -> None:
    road = make_road(lease_s=1.0)
    cluster = road.routers(EDGES[:2])
    until(lambda: road.registered() == list(EDGES[:2]))
    drive = Drive(road, cluster, tmp_path / "car")
    drive.drive(EDGES[1])
    drive.follower.forget(drive.car)
    road.guide.kill()
    drive.send(50)
    assert drive.car.flush(10)
    drive.car.close()
    drive.addresses.clear()  # as in a new process
    drive.car = cluster.devices[-1] = Device(
        CAR, drive.addresses, EDGES[0], road.token, roaming=True, directory=tmp_path / "car"
    )
    assert drive.car.site == EDGES[1]
    drive.send(50)
    until(lambda: "no address of site 'edge2'" in drive.car.trouble)
    drive.follower.follow(drive.car)
    road.restart()
    drive.check()
    drive.close()


def test_who_begins_where_no_router_reaches_is_told_so(make_road: Callable[..., Road]) -> None:
    road = make_road()
    road.routers(EDGES[:1], hosts=False)
    until(lambda: road.registered() == [EDGES[0]])
    with Follower(road.client(), {}) as follower, pytest.raises(Unreachable, match="no router covers"):
        follower.nearest((1000.0, 0.0))
