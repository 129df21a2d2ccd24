"""One Spark application for each site, with executors in processes of their own (Spark's `local-cluster`)."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peregrine import proof
from peregrine.control.auditing import audit_routers
from peregrine.control.local import Deployment, local
from peregrine.core.keyspace import KeySet
from peregrine.core.messages import Reached
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.rows import UNCHAINED, Row
from peregrine.core.topology import Link, Topology
from peregrine.errors import ConfigurationError
from peregrine.net.settings import RouterSettings
from peregrine.types import PlaceId, Runner, SiteId, SourceId
from peregrine.workloads import tm

CLOUD, EDGE = SiteId("cloud"), SiteId("edge")
CARS = tm.vehicles(6)


class Traffic:
    def __init__(self, up: Deployment) -> None:
        self.up = up
        self.sent: list[Row] = []
        self._devices = {
            car: up.device(car, EDGE, feeds=(tm.MOV_AVG, KeySet.of_keys(tm.GROUPS, [car])), durable=False)
            for car in CARS
        }
        self._readings = {car: tm.readings(car) for car in CARS}

    def send(self, count: int) -> None:
        """So many rows of each car."""
        for _ in range(count):
            for car, device in self._devices.items():
                payload = next(self._readings[car])
                device.send(tm.MOV_AVG, car, payload)
                seq = sum(row.source == car for row in self.sent)
                self.sent.append(Row(car, SourceId(car), seq, UNCHAINED, 0, 0, payload))

    def settled(self) -> None:
        for device in self._devices.values():
            assert device.flush(30.0), device.trouble
        until(self.quiet, f"rows still on their way: {[c.status() for c in self.up.clients.values()]}")

    def quiet(self) -> bool:
        return self.up.results_at_rest() == len(self.sent)


@pytest.mark.parametrize(
    ("runner", "master"),
    [
        ("microbatch", "local-cluster[1,1,1024]"),
        pytest.param(
            *("continuous", "local-cluster[2,1,1024]"),
            marks=pytest.mark.skipif(
                os.environ.get("PEREGRINE_KILLS") != "all", reason="takes a minute: make test-kills"
            ),
        ),
    ],
)
def test_half_of_the_keys_move_between_two_applications_over_tls_and_one_of_them_and_an_executor_die(
    java: None, tmp_path: Path, runner: Runner, master: str
) -> None:
    topology = Topology.tree(CLOUD, {EDGE: (CLOUD, Link(5.0, 1000.0))})
    specs, operators = tm.specs(), tm.operators()
    cluster = {"hosts": "per-site", "master": master, "tls": True, "runner": runner}
    news: list[Any] = []
    with local(topology, specs, operators, directory=tmp_path, watch=news.append, **cluster) as up:
        traffic = Traffic(up)
        traffic.send(20)
        traffic.settled()
        assert all(len(host.pids) > 2 for host in up.hosts.values()), "a driver and an executor each"
        seen = {pid for host in up.hosts.values() for pid in host.pids}

        half = KeySet.of_keys(tm.GROUPS, CARS[:3])
        up.submit(Plan("half", ((Move(tm.MOV_AVG, half, PlaceId(CLOUD), PlaceId(EDGE)),),)))
        until(lambda: any(isinstance(each, Reached) and each.step == "snapshot" for each in news), "no snapshot")
        os.kill(up.hosts[EDGE].pids[0], signal.SIGKILL)
        traffic.send(20)
        up.wait("half", 180.0)
        traffic.send(10)
        traffic.settled()
        os.kill(executors(up.hosts[CLOUD].pids)[0], signal.SIGKILL)  # the driver has another started
        traffic.send(10)
        traffic.settled()

        progress = {each.query: each for each in up.progress()}
        assert set(progress) == {"host cloud", "host edge"}
        assert all(each.running and each.batch >= 0 and each.groups > 0 for each in progress.values())
        found, should, should_states = up.states(), *proof.expected(specs, operators, {tm.MOV_AVG: traffic.sent})
        assert len({blob for op, blob in found if op == tm.MOV_AVG}) > 1
        result = proof.prove(len(traffic.sent), up.result_lines(), should, proof.values(found), should_states)
        assert result.holds, result
        assert result.rows_out == len(traffic.sent) == 360
        seen |= {pid for host in up.hosts.values() for pid in host.pids}
    assert [pid for pid in seen if runs(pid)] == []
    assert audit_routers([RouterSettings.load(tmp_path / f"{site}.json") for site in (CLOUD, EDGE)]) == []
    with (
        pytest.raises(ConfigurationError, match='hosts="per-site"'),
        local(topology, specs, operators, directory=tmp_path),
    ):
        pass


def test_settings_of_a_host_come_back_as_they_were_written_and_a_mistake_has_its_place(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install --editable '.[spark]'")
    from peregrine.spark.host import HostConfig
    from peregrine.spark.host_process import HostSettings

    config = HostConfig(
        tmp_path / "served", tmp_path / "token", tmp_path / "operators", tmp_path / "checkpoint", max_rows=7
    )
    settings = HostSettings(config, "local[1]", str(tmp_path), {"spark.executor.memory": "2g"})
    settings.save(tmp_path / "host.json")
    assert HostSettings.load(tmp_path / "host.json") == settings
    text = (tmp_path / "host.json").read_text()
    (tmp_path / "host.json").write_text(text.replace('"max_rows": 7', '"max_rows": "seven"'))
    with pytest.raises(ConfigurationError, match=r"host.max_rows"):
        HostSettings.load(tmp_path / "host.json")


def executors(pids: list[int]) -> list[int]:
    return [pid for pid in pids if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def runs(pid: int) -> bool:
    """It may have ended and not be buried yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(done: Callable[[], bool], complaint: str, patience_s: float = 90.0) -> None:
    deadline_s = time.monotonic() + patience_s
    while not done():
        assert time.monotonic() < deadline_s, complaint
        time.sleep(0.1)
