"""The guide as a process: who may call it, what it refuses, who registers, and how it begins and ends."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from guided import EDGES, Road, at
from msgspec.structs import replace
from real_sites import Cluster, until

from peregrine.errors import ConfigurationError, ProtocolError, Unauthorized, Unreachable
from peregrine.net.connection import Connection
from peregrine.net.guide_client import GuideClient
from peregrine.net.guide_settings import GuideSettings
from peregrine.net.launch import GuideProcess
from peregrine.net.settings import RouterSettings, make_token
from peregrine.net.tls import TlsFiles, files_of, make_tls, where, with_tls
from peregrine.plan.guide import Notice, Sighting, Use
from peregrine.plan.nearest import Geometry, Whereabouts
from peregrine.types import SiteId, SourceId

Start = Callable[..., Cluster]
CAR = SourceId("car")
A, B = (Whereabouts(SiteId(name), f"{name}:1", (x, 0.0), 80.0) for name, x in (("a", 0.0), ("b", 100.0)))


@pytest.fixture
def road(tmp_path: Path, start: Start) -> Iterator[Road]:
    road = Road(tmp_path, start, lease_s=1.0)
    yield road
    road.close()


def test_a_guide_refuses_what_it_cannot_make_sense_of_and_goes_on(road: Road) -> None:
    for token in ("", "wrong"):
        with GuideClient(road.guide.address, token) as stranger, pytest.raises(Unauthorized, match="guide at"):
            stranger.register(A)
    connection = Connection("guide", road.guide.address, road.token, 5.0)
    with pytest.raises(ConfigurationError, match="unknown action 'dance'"):
        connection.act("dance", b"")
    with pytest.raises(ProtocolError, match="body of see cannot be read"):
        connection.act("see", b"\xc1")
    with pytest.raises(ConfigurationError, match="reaches"):
        connection.act("register", b"\x84\xa4site\xa1x\xa7address\xa1x\xa8position\x92\x00\x00\xa7reach_m\x00")
    at_site = Connection("guide", road.guide.address, road.token, 5.0, SiteId("edge1"))
    with pytest.raises(Unreachable, match="somebody who is no router listens there now"):
        at_site.act("routers", b"")
    with road.client() as client:
        with pytest.raises(ConfigurationError, match="position"):
            client.see([Sighting(CAR, (float("nan"), 0.0), 1)])
        assert client.routers() == []
        assert client.register(A) == 1.0
        assert client.routers() == [A]
    for each in (connection, at_site):
        each.close()


def test_a_call_that_waits_is_answered_when_the_device_has_moved_and_when_the_map_has_changed(road: Road) -> None:
    with road.client() as client, road.client() as observer:
        client.register(A)
        answers: list[list[Notice]] = []

        def listen() -> None:
            use = Use(CAR, A.site, A.address)
            while not (found := client.follow([], [use], 5.0)):
                client.register(A)
            answers.append(found)

        def told_after(happens: Callable[[], object]) -> list[Notice]:
            thread = threading.Thread(target=listen, daemon=True)
            thread.start()
            happens()
            until(lambda: not thread.is_alive())
            return answers.pop()

        observer.register(B)
        assert told_after(lambda: observer.see([Sighting(CAR, B.position, 1)])) == [Notice(CAR, B.site, B.address)]
        observer.see([Sighting(CAR, A.position, 2)])
        moved = Whereabouts(A.site, "a:2", A.position, A.reach_m)
        assert told_after(lambda: observer.register(moved)) == [Notice(CAR, A.site, "a:2")]


def test_routers_register_renew_and_withdraw(road: Road) -> None:
    cluster = road.routers(EDGES[:3], hosts=False)
    until(lambda: road.registered() == list(EDGES[:3]))
    with road.client() as client:
        found = {router.site: router for router in client.routers()}
        assert found[EDGES[1]] == Whereabouts(EDGES[1], cluster.addresses[EDGES[1]], at(EDGES[1]), 80.0)
    cluster.kill(EDGES[0])
    until(lambda: road.registered() == list(EDGES[1:3]))  # the others renew, it does not
    cluster.routers[EDGES[1]].stop()
    until(lambda: road.registered() == [EDGES[2]])
    cluster.routers[EDGES[0]].restart()
    until(lambda: road.registered() == [EDGES[0], EDGES[2]])


def test_a_router_works_without_its_guide_and_registers_when_that_is_back(road: Road) -> None:
    road.guide.kill()
    cluster = road.routers(EDGES[:1], hosts=False)
    assert cluster.clients[EDGES[0]].status().site == EDGES[0]
    road.restart()
    until(lambda: road.registered() == [EDGES[0]])


@pytest.mark.parametrize("verify_clients", [False, True])
def test_a_guide_and_its_routers_speak_tls(tmp_path: Path, start: Start, verify_clients: bool) -> None:
    files = make_tls(tmp_path / "tls")
    token_file = tmp_path / "token"
    token = make_token(token_file)
    tls = {"tls_ca": files.ca, "tls_cert": files.cert, "tls_key": files.key, "tls_verify_clients": verify_clients}
    settings = GuideSettings(str(token_file), geometry=Geometry.PLANE, **tls)  # type: ignore[arg-type]
    guide = GuideProcess(settings, tmp_path / "guide.json", tmp_path / "guide.log")
    try:
        assert files_of(guide.address) is not None
        start(
            *("cloud", "edge1"),
            each=lambda site: {"guide": where(guide.address), "position": (0.0, 0.0)} if site == "edge1" else {},
            token_file=token_file,
            hosts=False,
            **tls,
        )
        with guide.client() as client:
            until(lambda: [router.site for router in client.routers()] == ["edge1"])
        with GuideClient(where(guide.address), token) as plain, pytest.raises(Unreachable, match="hung up"):
            plain.routers()
        other = make_tls(tmp_path / "other")
        address = with_tls(guide.address, TlsFiles(other.ca))
        with GuideClient(address, token) as stranger, pytest.raises(Unauthorized, match="CA has not signed"):
            stranger.routers()
    finally:
        guide.kill()


def test_the_command_says_where_it_listens_and_ends_with_who_started_it(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token = make_token(token_file)
    command = [sys.executable, "-m", "peregrine", "guide", "--token-file", str(token_file), "--geometry", "plane"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        port = json.loads(process.stdout.readline())["port"]
        with GuideClient(f"127.0.0.1:{port}", token) as client:
            client.register(A)
            assert client.nearest((1.0, 0.0)) == A
            taken = subprocess.run([*command, "--port", str(port)], capture_output=True, text=True, check=False)
            assert taken.returncode == 2 and f"port {port} is in use" in taken.stderr
        process.stdin.close()
        assert process.wait(15) == 0


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    make_token(token_file)
    os.chmod(token_file, 0o644)
    with pytest.raises(Unreachable, match="did not start") as caught:
        GuideProcess(GuideSettings(str(token_file)), tmp_path / "guide.json", tmp_path / "guide.log")
    assert "others can read the token" in caught.value.remedy


def test_settings_with_half_of_a_guide_are_refused(tmp_path: Path) -> None:
    edge = SiteId("edge")
    plain = RouterSettings(edge, edge, {}, {}, (), str(tmp_path), "token")
    whole = replace(plain, guide="127.0.0.1:1", position=(1.0, 2.0), reach_m=3.0)
    assert plain.whereabouts("x:1") is None
    assert whole.whereabouts("x:1") == Whereabouts(edge, "x:1", (1.0, 2.0), 3.0)
    for wrong in ({"position": None}, {"guide": ""}):
        with pytest.raises(ConfigurationError, match="only some of what a guide needs"):
            replace(whole, **wrong)
    with pytest.raises(ConfigurationError, match="reaches"):
        replace(whole, reach_m=0.0)
    assert whole.fingerprint() == plain.fingerprint(), "a router that gets a guide keeps its directory"
