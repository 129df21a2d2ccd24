"""The short way to a router of this machine: what is said on it, who may come in, what becomes of lines that end."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from real_sites import Cluster, until

from peregrine.errors import Busy, ConfigurationError, TransportError, Unauthorized, Unreachable
from peregrine.net import local_socket
from peregrine.net.client import RouterClient
from peregrine.net.local_client import LocalClient
from peregrine.net.local_server import LocalServer
from peregrine.types import PlaceId, SiteId

CLOUD = SiteId("cloud")
Start = Callable[..., Cluster]
pytestmark = pytest.mark.skipif(not local_socket.IS_HERE, reason="abstract names are of Linux")


class Answers:
    """Some of what a router may answer."""

    def __init__(self) -> None:
        self.left = threading.Event()
        self.go_on = threading.Event()

    def act(self, name: str, body: bytes) -> bytes | Iterator[bytes]:
        match name:
            case "echo":
                return body
            case "parts":
                return iter([body, b"", body])
            case "busy":
                raise Busy("no rows now", "wait")
            case "broken":
                raise KeyError(name)
            case "breaks":
                return self._breaks()
            case "endless":
                return self._endless()
        self.go_on.wait(10)
        return b"late"

    def _breaks(self) -> Iterator[bytes]:
        yield b"first"
        raise Unreachable("the next hop", "wait")

    def _endless(self) -> Iterator[bytes]:
        try:
            while not self.go_on.wait(0.01):
                yield b"on"
        finally:
            self.left.set()


@pytest.fixture
def answers() -> Iterator[Answers]:
    found = Answers()
    yield found
    found.go_on.set()


@pytest.fixture
def port() -> int:
    """One that no listener can have: the name is ours, and of no other run of these tests."""
    return 1_000_000 + os.getpid()


@pytest.fixture
def server(answers: Answers, port: int) -> Iterator[LocalServer]:
    found = LocalServer(port, "secret", CLOUD, answers.act)
    yield found
    found.stop()


@pytest.fixture
def client(server: LocalServer, port: int) -> Iterator[LocalClient]:
    found = LocalClient(port, "secret", None, 5.0)
    yield found
    found.close()


@pytest.mark.parametrize("size", [0, 1, local_socket.LARGE_BYTES, 10 << 20])
def test_what_is_said_arrives_whole(client: LocalClient, size: int) -> None:
    body = bytes(i % 251 for i in range(min(size, 1000))) * (size // 1000 or 1)
    assert client.act("echo", body) == body
    parts = client.act_in_parts("parts", body)
    assert parts is not None and list(parts) == [body, b"", body]


def test_a_line_is_used_again_and_calls_at_once_have_lines_of_their_own(client: LocalClient, answers: Answers) -> None:
    assert client.act("echo", b"1") == b"1"
    assert client.act("echo", b"2") == b"2"
    assert len(client._open) == 1
    late: list[bytes | None] = []
    waiting = threading.Thread(target=lambda: late.append(client.act("wait", b"")))
    waiting.start()
    until(lambda: not client._idle)
    assert client.act("echo", b"3") == b"3"
    answers.go_on.set()
    waiting.join(5)
    assert late == [b"late"] and len(client._open) == 2


def test_errors_keep_their_kind_and_the_line_goes_on(client: LocalClient) -> None:
    with pytest.raises(Busy, match="no rows now"):
        client.act("busy", b"")
    with pytest.raises(TransportError, match="KeyError"):
        client.act("broken", b"")
    parts = client.act_in_parts("breaks", b"")
    assert parts is not None and next(parts) == b"first"
    with pytest.raises(Unreachable, match="next hop"):
        next(parts)
    assert client.act("echo", b"on") == b"on" and len(client._open) == 1


def test_parts_that_have_come_are_given_together_and_before_the_error_that_follows_them(client: LocalClient) -> None:
    bunches = client.act_in_bunches("parts", b"body", 2)
    assert bunches is not None
    found = list(bunches)
    assert [part for bunch in found for part in bunch] == [b"body", b"", b"body"] and max(map(len, found)) <= 2
    bunches = client.act_in_bunches("breaks", b"", 8)
    assert bunches is not None and next(bunches) == [b"first"]
    with pytest.raises(Unreachable, match="next hop"):
        next(bunches)
    assert client.act("echo", b"on") == b"on" and len(client._open) == 1


def test_who_leaves_before_the_end_is_found_out(client: LocalClient, answers: Answers) -> None:
    parts = client.act_in_bunches("endless", b"", 1)
    assert parts is not None and next(parts) == [b"on"]
    parts.close()  # type: ignore[attr-defined]
    assert answers.left.wait(5)


def test_closing_wakes_who_waits(client: LocalClient) -> None:
    woken = threading.Event()

    def wait() -> None:
        with pytest.raises(OSError):
            client.act("wait", b"")
        woken.set()

    threading.Thread(target=wait, daemon=True).start()
    until(lambda: bool(client._open))
    client.close()
    assert woken.wait(5)


def test_only_who_has_the_token_and_looks_for_this_site_comes_in(server: LocalServer, port: int) -> None:
    for token, site, error in (
        ("guess", None, Unauthorized),
        ("", None, Unauthorized),
        ("secret", SiteId("edge"), Unreachable),
    ):
        with pytest.raises(error):
            LocalClient(port, token, site, 5.0).act("echo", b"x")
    assert LocalClient(port, "secret", CLOUD, 5.0).act("echo", b"x") == b"x"


def test_what_comes_without_a_hello_is_refused(server: LocalServer, port: int) -> None:
    client = LocalClient(port, "secret", None, 5.0)
    client._hello = b"\xc1"  # no msgpack at all
    with pytest.raises(Unauthorized):
        client.act("echo", b"x")


def test_a_name_that_somebody_has_is_not_shared(server: LocalServer, port: int) -> None:
    with pytest.raises(ConfigurationError, match="has the name"):
        LocalServer(port, "secret", CLOUD, lambda name, body: body)


def test_where_nobody_listens_flight_is_asked(port: int) -> None:
    assert LocalClient(port + 10_000_000, "secret", None, 5.0).act("echo", b"x") is None
    for elsewhere in ("10.0.0.1:4711", "127.0.0.1:4711?ca=ca.pem", "no address"):
        assert LocalClient.of(elsewhere, "secret", None, 5.0) is None


def test_where_too_many_wait_to_be_let_in_flight_is_asked(port: int) -> None:
    with socket.socket(socket.AF_UNIX) as listener, ExitStack() as waiting:
        listener.bind(local_socket.name_of(port))
        listener.listen(0)
        with pytest.raises(BlockingIOError):
            for _ in range(10):
                line = waiting.enter_context(socket.socket(socket.AF_UNIX))
                line.setblocking(False)
                line.connect(local_socket.name_of(port))
        assert LocalClient(port, "secret", None, 5.0).act("echo", b"x") is None


@pytest.mark.parametrize("local", [True, False])
def test_a_client_goes_the_short_way_where_there_is_one(start: Start, local: bool) -> None:
    cluster = start("cloud", hosts=False, local_socket=local)
    with RouterClient(cluster.addresses[CLOUD], cluster.token) as client:
        assert client.status().site == CLOUD
        frames = client.follow(PlaceId(CLOUD), 0)
        next(frames)
        assert (client._connection._client is None) == local
    with RouterClient(cluster.addresses[CLOUD], "guess") as stranger, pytest.raises(Unauthorized, match="token"):
        stranger.status()


def test_a_router_that_was_restarted_is_found_again_at_once(start: Start) -> None:
    cluster = start("cloud", hosts=False)
    with RouterClient(cluster.addresses[CLOUD], cluster.token) as client:
        client.status()
        cluster.kill(CLOUD)
        with pytest.raises(Unreachable):
            client.status()
        cluster.restart(CLOUD)
        assert cluster.addresses[CLOUD] == client.address
        assert client.status().site == CLOUD
        cluster.kill(CLOUD)
        cluster.restart(CLOUD)
        assert client.status().site == CLOUD  # on a line that had gone with the one before
