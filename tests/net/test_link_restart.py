"""Routers that are restarted find each other again without anybody telling them."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from real_sites import Cluster, expected, fill, until

from peregrine.errors import Unreachable
from peregrine.net.addresses import Addresses
from peregrine.net.client import RouterClient
from peregrine.net.launch import RouterProcess
from peregrine.net.protocol import Neighbour
from peregrine.types import SiteId

CLOUD, EDGE = SiteId("cloud"), SiteId("edge")
Start = Callable[..., Cluster]


def test_routers_that_were_killed_are_found_at_their_ports_and_find_their_neighbours(start: Start) -> None:
    cluster = start("cloud", "edge", latency_ms=1.0)
    keys = [f"k{i % 3}" for i in range(900)]
    device = cluster.device("d", EDGE, batch_rows=20)
    for part in range(3):
        fill(device, keys[300 * part : 300 * part + 300], 300 * part)
        for router in cluster.routers.values():
            port = router.port
            router.kill()
            router.restart()
            assert router.port == port
    assert device.flush(15)
    until(lambda: cluster.clients[CLOUD].status().results_end == len(keys))  # the same client as before
    assert cluster.results() == expected("d", keys)


def test_a_router_whose_port_was_taken_meanwhile_gets_another(start: Start) -> None:
    cluster = start("cloud", hosts=False)
    router = cluster.routers[CLOUD]
    port = router.port
    router.kill()
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as another router would
        squatter.bind(("127.0.0.1", port))
        squatter.listen()
        router.restart()
    assert router.port != port
    with router.client() as client:
        assert client.status().site == CLOUD


def test_a_router_that_is_told_a_port_that_is_in_use_says_so(start: Start, tmp_path: Path) -> None:
    cluster = start("cloud", hosts=False)
    settings = replace(
        cluster.routers[CLOUD].settings, directory=str(tmp_path / "second"), port=cluster.routers[CLOUD].port
    )
    with pytest.raises(Unreachable, match="did not start") as caught:
        RouterProcess(settings, tmp_path / "second.json", tmp_path / "second.log")
    assert f"port {settings.port} is in use" in caught.value.remedy


def test_a_router_does_not_take_calls_that_are_meant_for_another_site(start: Start) -> None:
    cluster = start("cloud", "edge", hosts=False)
    lost = RouterClient(cluster.addresses[EDGE], cluster.token, site=CLOUD)
    with lost, pytest.raises(Unreachable, match="the router of edge listens there now"):
        lost.status()


def test_a_device_does_not_send_to_the_router_that_got_its_sites_port(start: Start) -> None:
    cluster = start("cloud", "edge", hosts=False)
    edge, cluster.addresses[EDGE] = cluster.addresses[EDGE], cluster.addresses[CLOUD]
    device = cluster.device("d", EDGE)
    fill(device, ["k"])
    until(lambda: "the router of cloud listens there now" in device.trouble)
    assert cluster.clients[CLOUD].status().ends == {"cloud": 0}
    cluster.addresses[EDGE] = edge
    assert device.flush(10)


def test_a_link_does_not_deliver_to_the_router_that_got_its_neighbours_port(start: Start) -> None:
    cluster = start("cloud", "edge1", "edge2", hosts=False)
    there = Neighbour(cluster.addresses[SiteId("edge2")])
    cluster.clients[CLOUD].tell_neighbours({SiteId("edge1"): there})
    until(lambda: "edge2 listens there" in cluster.clients[CLOUD].status().links["edge1"])
    assert cluster.clients[CLOUD].status().links["edge2"] == ""


def test_what_was_told_counts_until_the_settings_say_something_new(tmp_path: Path) -> None:
    settings = {EDGE: Neighbour("a:1")}
    told = {EDGE: Neighbour("b:2", 5.0, None, 0.1), CLOUD: Neighbour("c:3")}
    Addresses(tmp_path, settings).remember(told)
    assert Addresses(tmp_path, settings).neighbours == told
    assert Addresses(tmp_path, {EDGE: Neighbour("d:4")}).neighbours == {**told, EDGE: Neighbour("d:4")}
    (tmp_path / "neighbours").write_text("{")
    assert Addresses(tmp_path, settings).neighbours == settings
