"""However the process that has a deployment ends, everything that it started ends too, and Spark leaves no files."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from kill_course import JVM, Peer, descendants, needs_spark, running, until
from kill_runner import EDGE1

from peregrine.control.routers import read_addresses
from peregrine.net.device import Device
from peregrine.net.settings import read_token
from peregrine.types import SourceId
from peregrine.workloads import tm

PARTS = ("peregrine.net.router_process", JVM, "pyspark.daemon")


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[Peer]:
    needs_spark()
    os.mkdir(tmp_path / "spark")
    made = Peer("caller", tmp_path, own_group=True, SPARK_LOCAL_DIRS=str(tmp_path / "spark"))
    yield made
    made.kill()


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM", "SIGKILL"])
def test_nothing_outlives_the_caller(caller: Peer, tmp_path: Path, how: str) -> None:
    caller.hear(lambda said: "ready" in said)
    token = read_token(tmp_path / "token")
    with Device(SourceId("car0"), read_addresses(tmp_path), EDGE1, token) as device:  # so that Spark has workers
        device.send(tm.MOV_AVG, "car0", next(tm.readings("car0")))
        until(lambda: all(any(part in line for line in descendants(caller.pid).values()) for part in PARTS))
        assert list((tmp_path / "spark").iterdir())
        started = descendants(caller.pid)
        if how == "Ctrl-C":
            os.killpg(caller.pid, signal.SIGINT)  # a terminal sends it to everybody
        else:
            os.kill(caller.pid, {"SIGTERM": signal.SIGTERM, "SIGKILL": signal.SIGKILL}[how])
        until(lambda: not running(started))
    assert caller.wait() != 0
    assert not list((tmp_path / "spark").iterdir())
