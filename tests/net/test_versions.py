"""Processes of different versions refuse each other with what to do, before anything that they say is read."""

from collections.abc import Callable
from pathlib import Path

import pytest
from guided import Road
from real_sites import Cluster

from peregrine.core.format_version import FORMAT
from peregrine.errors import ProtocolError
from peregrine.net import connection, local_client, local_socket, protocol
from peregrine.net.client import RouterClient
from peregrine.types import SiteId

CLOUD = SiteId("cloud")
OTHER = FORMAT + 1


@pytest.mark.parametrize("local", [True, False] if local_socket.IS_HERE else [False])
def test_a_client_and_a_router_of_different_versions_refuse_each_other(
    start: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    cluster = start("cloud", hosts=False, local_socket=local)
    address = cluster.addresses[CLOUD]
    monkeypatch.setattr(connection, "FORMAT", OTHER)
    monkeypatch.setattr(local_client, "FORMAT", OTHER)
    told = f"the router of cloud speaks format {FORMAT}, and the caller format {OTHER}"
    for call in (
        lambda client: client.status(),
        lambda client: client.frame(SiteId("edge"), 0, []),
        lambda client: client.read_dead(0),
        lambda client: list(client.follow(CLOUD, 0)),
    ):
        with RouterClient(address, cluster.token, site=CLOUD) as client, pytest.raises(ProtocolError, match=told) as no:
            call(client)
        assert "run the same version of Peregrine" in no.value.remedy
    monkeypatch.undo()
    with RouterClient(address, cluster.token, site=CLOUD) as client:
        assert client.status().site == CLOUD


def test_a_client_and_a_guide_of_different_versions_refuse_each_other(
    start: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    road = Road(tmp_path, start)
    try:
        monkeypatch.setattr(connection, "FORMAT", OTHER)
        client = road.client()
        with client, pytest.raises(ProtocolError, match=f"speaks format {FORMAT}, and the caller format {OTHER}"):
            client.routers()
    finally:
        road.close()


def test_whoever_tells_no_version_is_refused(start: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch) -> None:
    """As everybody did before there were versions."""
    cluster = start("cloud", hosts=False, local_socket=False)
    monkeypatch.setattr(protocol, "VERSION", "x-nothing")
    client = RouterClient(cluster.addresses[CLOUD], cluster.token)
    with client, pytest.raises(ProtocolError, match="the caller format none"):
        client.status()
