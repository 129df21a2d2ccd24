"""TLS on every listener: who is not trusted is told so, and the token is asked for all the same."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from real_sites import Cluster, expected, fill, until

from peregrine.errors import ConfigurationError, Unauthorized, Unreachable
from peregrine.net.client import RouterClient
from peregrine.net.settings import RouterSettings
from peregrine.net.tls import TlsFiles, files_of, make_tls, tls_settings, where, with_tls
from peregrine.types import SiteId

CLOUD, EDGE = SiteId("cloud"), SiteId("edge")
Start = Callable[..., Cluster]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_tls(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_tls(tmp_path_factory.mktemp("other"))


def settings(files: TlsFiles, **more: bool) -> dict[str, object]:
    return {"tls_ca": files.ca, "tls_cert": files.cert, "tls_key": files.key, **more}


@pytest.mark.parametrize("verify_clients", [False, True])
def test_rows_flow_over_tls(start: Start, ours: TlsFiles, verify_clients: bool) -> None:
    cluster = start("cloud", "edge", **settings(ours, tls_verify_clients=verify_clients))
    keys = [f"k{i % 3}" for i in range(300)]
    device = cluster.device("d", EDGE)
    fill(device, keys)
    assert device.flush(10)
    until(lambda: cluster.clients[CLOUD].status().results_end == len(keys))
    assert cluster.results() == expected("d", keys)
    assert all(files_of(address) is not None for address in cluster.addresses.values())


def test_a_client_that_speaks_no_tls_or_trusts_another_ca_is_refused(
    start: Start, ours: TlsFiles, theirs: TlsFiles
) -> None:
    cluster = start("cloud", hosts=False, **settings(ours))
    address = where(cluster.addresses[CLOUD])
    with RouterClient(address, cluster.token) as plain, pytest.raises(Unreachable, match="hung up") as caught:
        plain.status()
    assert "ca=" in caught.value.remedy
    other = with_tls(address, TlsFiles(theirs.ca))
    with RouterClient(other, cluster.token) as stranger, pytest.raises(Unauthorized, match="CA has not signed"):
        stranger.status()
    with RouterClient(with_tls(address, TlsFiles(ours.ca)), cluster.token) as friend:
        assert friend.status().site == CLOUD


def test_the_token_is_asked_for_over_tls_too(start: Start, ours: TlsFiles) -> None:
    cluster = start("cloud", hosts=False, **settings(ours))
    with RouterClient(cluster.addresses[CLOUD], "0" * 64) as client, pytest.raises(Unauthorized, match="token"):
        client.status()


def test_a_router_that_verifies_clients_hangs_up_on_one_without_a_certificate_of_its_ca(
    start: Start, ours: TlsFiles, theirs: TlsFiles
) -> None:
    cluster = start("cloud", hosts=False, **settings(ours, tls_verify_clients=True))
    address = cluster.addresses[CLOUD]
    for files in (TlsFiles(ours.ca), TlsFiles(ours.ca, theirs.cert, theirs.key)):
        with RouterClient(with_tls(address, files), cluster.token) as client, pytest.raises(Unreachable):
            client.status()
    assert cluster.clients[CLOUD].status().site == CLOUD


def test_a_client_with_a_ca_is_told_that_a_router_speaks_no_tls(start: Start, ours: TlsFiles) -> None:
    cluster = start("cloud", hosts=False)
    address = with_tls(cluster.addresses[CLOUD], TlsFiles(ours.ca))
    with RouterClient(address, cluster.token) as client, pytest.raises(Unauthorized, match="speaks no TLS"):
        client.status()


def test_an_address_carries_whom_to_trust(tmp_path: Path) -> None:
    files = TlsFiles("/a b/ca.pem", "/x/cert.pem", "/x/key&.pem")
    address = with_tls("127.0.0.1:1?ca=/old", files)
    assert where(address) == "127.0.0.1:1" and files_of(address) == files
    assert files_of("127.0.0.1:1") is None
    for wrong in ("x:1?cert=/c&key=/k", "x:1?ca=/c&cert=/d", "x:1?ca=/c&verify=no"):
        with pytest.raises(ConfigurationError, match="whom to trust"):
            files_of(wrong)
    with RouterClient(f"x:1?ca={tmp_path}/none", "t") as client, pytest.raises(ConfigurationError, match="cannot read"):
        client.status()


def test_a_deployment_makes_its_files_once(tmp_path: Path) -> None:
    first = tls_settings(tmp_path / "tls")
    before = Path(first["tls_cert"]).read_bytes()
    assert tls_settings(tmp_path / "tls") == first
    assert Path(first["tls_cert"]).read_bytes() == before


def test_keys_are_for_their_owner_alone_and_nothing_else_is_left(ours: TlsFiles) -> None:
    directory = Path(ours.ca).parent
    assert sorted(path.name for path in directory.iterdir()) == ["ca.key", "ca.pem", "cert.key", "cert.pem"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.glob("*.key")} == {0o600}


def test_a_router_whose_key_is_not_that_of_its_certificate_says_so(
    start: Start, ours: TlsFiles, theirs: TlsFiles
) -> None:
    with pytest.raises(Unreachable, match="did not start") as caught:
        start("cloud", **settings(TlsFiles(ours.ca, ours.cert, theirs.key)))
    assert "tls_cert and tls_key belong together" in caught.value.remedy


def test_settings_with_half_of_tls_are_refused(ours: TlsFiles, tmp_path: Path) -> None:
    whole = RouterSettings(CLOUD, CLOUD, {}, {}, (), str(tmp_path), "token", **settings(ours))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="only some of what TLS needs"):
        replace(whole, tls_key="")
    (tmp_path / "half.json").write_text(
        '{"site":"c","root":"c","parents":{},"hosts":{},"operators":[],"directory":"d","token_file":"t",'
        '"tls_verify_clients":true}'
    )
    with pytest.raises(ConfigurationError, match="only some of what TLS needs"):
        RouterSettings.load(tmp_path / "half.json")
