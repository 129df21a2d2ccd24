"""Who may call a router, what it refuses, and how it begins and ends."""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from real_sites import GROUPS, OP, Cluster, HostLoop, expected, fill, payload, until

from peregrine.core.keyspace import KeySet
from peregrine.core.messages import Ahead, Attach, Attached, Committed, FromSource, SetOwner
from peregrine.core.rows import UNCHAINED, Row, Rows, batch_of
from peregrine.core.topology import Topology
from peregrine.errors import Busy, ConfigurationError, ProtocolError, Unauthorized, Unreachable
from peregrine.net.client import RouterClient
from peregrine.net.launch import RouterProcess
from peregrine.net.settings import RouterSettings, make_token, read_token
from peregrine.types import OpId, PlaceId, SiteId, SourceId

CLOUD = SiteId("cloud")
AT_CLOUD = PlaceId("cloud")
Start = Callable[..., Cluster]


def batch(first: int, count: int, op: OpId = OP) -> FromSource:
    rows = [Row("k", SourceId("s"), seq, UNCHAINED, seq, 0, payload("k", seq)) for seq in range(first, first + count)]
    return FromSource(SourceId("s"), ((first + count - 1, Rows(op, batch_of(rows))),))


def test_a_router_refuses_what_it_cannot_make_sense_of_and_goes_on(start: Start) -> None:
    cluster = start("cloud", hosts=False, host_lag_rows=100)
    client = cluster.clients[CLOUD]
    for token in ("", "wrong", cluster.token[:-1]):
        with RouterClient(cluster.addresses[CLOUD], token) as stranger:
            with pytest.raises(Unauthorized):
                stranger.status()
            with pytest.raises(Unauthorized):
                stranger.read_results(0)
    with pytest.raises(ProtocolError, match="log at router cloud ends at 0"):
        client.offer(Committed(AT_CLOUD, 7))
    with pytest.raises(ProtocolError, match="log at router cloud ends at 0"):
        client.offer(Ahead(AT_CLOUD, 7))
    with pytest.raises(ConfigurationError, match="unknown operator 'app/nothing'"):
        client.offer(SetOwner(OpId("app/nothing"), KeySet.everything(GROUPS), AT_CLOUD))
    with pytest.raises(ConfigurationError, match="unknown neighbour of cloud"):
        client.frame(SiteId("nowhere"), 0, [])
    with pytest.raises(ConfigurationError, match="place of cloud"):
        client.read_log(PlaceId("mars"), 0)
    before = client.status().events

    assert client.offer(batch(0, 60)) == 59
    assert client.offer(batch(0, 60)) == 59  # a repeat is acknowledged and changes nothing
    assert client.offer(batch(60, 60)) == 119
    with pytest.raises(Busy):
        client.offer(batch(120, 60))
    client.offer(Committed(AT_CLOUD, 120))
    assert client.offer(batch(120, 1, OpId("app/nothing"))) == 120
    dead, end = client.read_dead(0)
    assert end == 1 and "no operator" in dead.column("reason")[0].as_py()

    client.offer(Attach(SourceId("s"), 3))
    index, news = client.news(0)
    assert [(each.source, each.nth) for each in news if isinstance(each, Attached)] == [("s", 3)]
    assert client.news(index, 0.0) == (index, [])
    table, after = pickle.loads(pickle.dumps(client)).read_log(AT_CLOUD, 60, 10)
    assert (table.num_rows, after) == (1, 120)  # whole entries
    assert client.status().events > before


def test_a_slow_host_at_the_cloud_holds_a_device_at_the_edge_back(start: Start) -> None:
    cluster = start("cloud", "edge", hosts=False, host_lag_rows=50)
    edge = cluster.clients[SiteId("edge")]
    keys = ["k"] * 1000
    device = cluster.device("d", SiteId("edge"), batch_rows=10, max_waiting_rows=2000)
    fill(device, keys[:200])
    until(lambda: not edge.status().accepts, 5.0)
    fill(device, keys[200:], 200)
    time.sleep(0.3)
    assert device.backlog_rows >= 800
    cluster.hosts[AT_CLOUD] = HostLoop(AT_CLOUD, lambda: cluster.clients[CLOUD])
    assert device.flush(20)
    until(lambda: cluster.clients[CLOUD].status().results_end == len(keys))
    assert cluster.results() == expected("d", keys)


def test_a_torn_tail_of_a_journal_is_cut_off_and_told(start: Start) -> None:
    cluster = start("cloud")
    keys = [f"k{i % 3}" for i in range(600)]
    device = cluster.device("d", CLOUD)
    fill(device, keys[:300])
    assert device.flush(10)
    cluster.kill(CLOUD)
    newest = max((cluster.directory / "cloud" / "journal").glob("*.log"))
    with open(newest, "ab") as file:
        file.write(b"\x07" * 13)  # an event that was being written when the machine died
    cluster.restart(CLOUD)
    assert "cut off" in " ".join(cluster.clients[CLOUD].status().recovered)
    fill(device, keys[300:], 300)
    assert device.flush(10)
    until(lambda: cluster.clients[CLOUD].status().results_end == len(keys))
    assert cluster.results() == expected("d", keys)


def test_a_directory_belongs_to_one_router_and_one_configuration(start: Start, tmp_path: Path) -> None:
    cluster = start("cloud", hosts=False)
    settings = cluster.routers[CLOUD].settings
    with pytest.raises(Unreachable, match="open in another process"):
        RouterProcess(settings, tmp_path / "second.json", tmp_path / "second.log")
    cluster.routers[CLOUD].stop()
    with pytest.raises(Unreachable):
        cluster.clients[CLOUD].status()
    with pytest.raises(Unreachable, match="belongs to a router with another"):
        RouterProcess(replace(settings, operators=()), tmp_path / "second.json", tmp_path / "second.log")
    os.chmod(cluster.token_file, 0o644)
    with pytest.raises(ConfigurationError, match="others can read the token"):
        read_token(cluster.token_file)


@pytest.mark.parametrize("pipe", [True, False])
def test_no_router_outlives_the_process_that_started_it(tmp_path: Path, pipe: bool) -> None:
    make_token(tmp_path / "token")
    settings = RouterSettings.of(CLOUD, Topology.tree(CLOUD), (), tmp_path / "other", tmp_path / "token")
    settings.save(tmp_path / "other.json")
    parent = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-m', 'peregrine.net.router_process', '--config', sys.argv[1]],"
        f" stdin=subprocess.{'PIPE' if pipe else 'DEVNULL'}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)\n"
        "print(child.stdout.readline().decode(), end='', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", parent, str(tmp_path / "other.json")], stdout=subprocess.PIPE) as made:
        assert made.stdout is not None
        pid = int(made.stdout.readline().split(b'"pid": ')[1].rstrip(b"}\n"))
        os.kill(made.pid, signal.SIGKILL)
    until(lambda: not _runs(pid), 5.0)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_device_comes_back_from_its_directory_and_moves_with_what_it_has(start: Start, tmp_path: Path) -> None:
    cluster = start("cloud", "edge1", "edge2")
    edge1, edge2 = SiteId("edge1"), SiteId("edge2")
    keys = [f"k{i % 3}" for i in range(900)]
    first = cluster.device("d", edge1, roaming=True, directory=tmp_path / "device")
    fill(first, keys[:300])
    assert first.flush(10)
    until(lambda: cluster.clients[CLOUD].status().results_end == 300)
    cluster.kill(edge1)
    fill(first, keys[300:500], 300)
    first.close()  # with 200 rows that nobody has
    again = cluster.device("d", edge1, roaming=True, directory=tmp_path / "device", max_waiting_rows=500)
    assert again.backlog_rows >= 200
    again.move(edge2)
    fill(again, keys[500:], 500)
    assert again.flush(10)
    until(lambda: cluster.clients[CLOUD].status().results_end >= len(keys))
    time.sleep(0.1)
    assert cluster.results() == expected("d", keys)
