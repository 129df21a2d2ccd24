"""A device's heartbeats close windows wherever their keys live, through one operator and through the next."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import real_sites
from real_sites import GROUPS, OP, SINK, Cluster, HostLoop, Part, until

from peregrine.core.host import Emission, apply
from peregrine.core.keyspace import KeySet
from peregrine.core.messages import SetOwner
from peregrine.core.operator import OpSpec
from peregrine.core.slices import entries_of
from peregrine.net.device import Device
from peregrine.sim.operators import Tumbling
from peregrine.types import OpId, PlaceId, SiteId, SourceId

CLOUD, EDGE = SiteId("cloud"), SiteId("edge")
AREA = OpId("app/area")
OPERATORS = {
    OP: Tumbling(AREA, OP, 100, lambda key: ("d",), lambda key: "all", clocks_to=((AREA, 2),)),
    AREA: Tumbling(SINK, AREA, 200, lambda key: (f"{OP}/d",), time_from_rows=False),
}
SPECS = (
    OpSpec(OP, GROUPS, windowed=True, feeds=(AREA,)),
    OpSpec(AREA, 2, windowed=True, feeds=(SINK,)),
    OpSpec(SINK, GROUPS, sink=True),
)
Start = Callable[..., Cluster]


class WindowLoop(HostLoop):
    def apply(self, op: OpId, group: int, before: bytes, slices: list[Part]) -> tuple[list[Emission], bytes]:
        return apply(OPERATORS[op], before, entries_of(slices))


@pytest.fixture
def cluster(start: Start, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The first windows live at the edge, the windows over them at the cloud."""
    monkeypatch.setattr(real_sites, "OPERATORS", SPECS)
    cluster = start("cloud", "edge", hosts=False)
    cluster.offer_all(SetOwner(OP, KeySet.everything(GROUPS), PlaceId("edge")))
    for site in (CLOUD, EDGE):
        cluster.hosts[PlaceId(site)] = WindowLoop(PlaceId(site), lambda site=site: cluster.clients[site])  # type: ignore[misc]
    return cluster


def window_ends(cluster: Cluster) -> list[int]:
    return [seq for seq, _ in cluster.results().get(f"{AREA}>all", [])]


def test_heartbeats_close_windows_over_windows_at_another_site(cluster: Cluster) -> None:
    device = cluster.device("d", EDGE)
    for i in range(40):
        device.send(OP, f"k{i % 7}", b"1", time_ms=10 * i)
    device.heartbeat(OP, GROUPS, 300)
    until(lambda: window_ends(cluster) == [200])
    device.heartbeat(OP, GROUPS, 1000)
    until(lambda: window_ends(cluster) == [200, 400, 600])
    counts = [int(payload.split(b":")[0]) for _, payload in cluster.results()[f"{AREA}>all"]]
    assert counts == [7, 14, 7]  # each of the 7 keys closes windows that end at 100, 200, 300 and 400
    assert all(client.status().dead_end == 0 for client in cluster.clients.values())


def test_a_heartbeat_that_was_not_sent_yet_survives_the_device(cluster: Cluster, tmp_path: Path) -> None:
    nowhere = {EDGE: "grpc://127.0.0.1:1"}
    with Device(SourceId("d"), nowhere, EDGE, cluster.token, directory=tmp_path / "d") as device:
        device.send(OP, "k1", b"1", time_ms=50)
        device.heartbeat(OP, GROUPS, 1000)
    again = cluster.device("d", EDGE, directory=tmp_path / "d")
    assert again.taken == 2
    until(lambda: window_ends(cluster) == [200])


def test_a_heartbeat_of_a_car_that_has_moved_and_is_silent_waits_for_its_rows_on_the_old_path(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old edge has acknowledged its rows and cannot deliver them: windows wait, and close with all rows in them."""
    roaming = (replace(SPECS[0], roaming=True), *SPECS[1:])
    monkeypatch.setattr(real_sites, "OPERATORS", roaming)
    cluster = start("cloud", "edge", "edge2", hosts=False)
    cluster.hosts[PlaceId("cloud")] = WindowLoop(PlaceId("cloud"), lambda: cluster.clients[CLOUD])
    device = cluster.device("d", EDGE, roaming=True)
    device.send(OP, "k1", b"1", time_ms=10)
    assert device.flush(10)
    until(lambda: cluster.clients[CLOUD].status().commits["cloud"] == 1)
    cluster.join(cut={"edge": "cloud"})
    for i in range(5):
        device.send(OP, f"k{i}", b"1", time_ms=20 + i)
    assert device.flush(10)
    device.move(SiteId("edge2"))
    device.heartbeat(OP, GROUPS, 1000)
    assert device.flush(10)
    until(lambda: cluster.clients[CLOUD].status().commits["cloud"] >= 2)
    until(lambda: (status := cluster.clients[CLOUD].status()).commits == status.ends)
    assert window_ends(cluster) == [], "rows of the first window are still at the old edge"
    cluster.join()
    until(lambda: window_ends(cluster) == [200])
    assert [int(payload.split(b":")[0]) for _, payload in cluster.results()[f"{AREA}>all"]] == [5]
    assert all(client.status().dead_end == 0 for client in cluster.clients.values())
