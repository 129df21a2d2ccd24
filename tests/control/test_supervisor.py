"""What dies is started again; what keeps dying is given up and named; nothing is started after the end."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from peregrine.control import supervisor as supervision
from peregrine.control.routers import SupervisedRouter, neighbours_of
from peregrine.control.supervisor import Incident, Supervisor
from peregrine.core.messages import FromSource
from peregrine.core.rows import UNCHAINED, Row, Rows, batch_of
from peregrine.core.topology import Link, Topology
from peregrine.net.settings import RouterSettings, make_token
from peregrine.types import SiteId, SourceId
from peregrine.workloads import tm

CLOUD, EDGE = SiteId("cloud"), SiteId("edge")


class Patient:
    """Fails as often as it is told to."""

    name = "patient"

    def __init__(self, failures: int, restart_fails: bool = False) -> None:
        self.left = failures
        self.restarts = 0
        self._restart_fails = restart_fails

    def failure(self) -> str | None:
        return "ill" if self.left else None

    def restart(self) -> None:
        self.restarts += 1
        if self._restart_fails:
            raise OSError("no bed")
        self.left -= 1


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "BACK_OFF_S", (0.0001, 0.001))
    monkeypatch.setattr(supervision, "LOOK_EVERY_S", 0.001)


def test_what_fails_now_and_then_is_started_again_and_told() -> None:
    told: list[Incident] = []
    with Supervisor(told.append) as supervisor:
        patient = Patient(3)
        supervisor.watch_over(patient)
        until(lambda: patient.left == 0 and len(told) == 6)
    assert [each.status for each in told] == ["failed", "restarted"] * 3
    assert told[0] == Incident("patient", "failed", "ill") and not supervisor.given_up


def test_what_is_stopped_on_purpose_is_started_again_and_has_not_failed(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Incident] = []
    with Supervisor(told.append) as supervisor:
        patient = Patient(2)
        supervisor.expect("patient", "plan 'p' restarts it")
        supervisor.watch_over(patient)
        until(lambda: patient.left == 0 and len(told) == 4)
    assert [each.status for each in told] == ["stopped", "restarted", "failed", "restarted"]
    assert [each.levelname for each in caplog.records] == ["ERROR"], "only of what nobody had asked for"


@pytest.mark.parametrize("restart_fails", [True, False])
def test_what_always_fails_is_given_up(restart_fails: bool) -> None:
    told: list[Incident] = []
    with Supervisor(told.append) as supervisor:
        patient = Patient(1000, restart_fails)
        supervisor.watch_over(patient)
        until(lambda: bool(told) and told[-1].status == "given up")
        healthy = Patient(1)
        supervisor.watch_over(healthy)
        until(lambda: healthy.left == 0)
    assert patient.restarts == supervision.FAILURES
    assert supervisor.given_up == {"patient": "ill"}


def test_what_ran_well_in_between_is_not_given_up() -> None:
    with Supervisor() as supervisor:
        patient = Patient(5 * supervision.FAILURES)
        supervisor.watch_over(patient, steady_s=0.0)
        until(lambda: patient.left == 0)
    assert not supervisor.given_up


def test_nothing_is_started_once_the_supervisor_has_stopped() -> None:
    supervisor = Supervisor()
    patient = Patient(0)
    supervisor.watch_over(patient)
    supervisor.stop()
    patient.left = 1
    assert not [thread for thread in threading.enumerate() if thread.name == "supervise-patient"]
    assert patient.restarts == 0


def test_a_router_that_was_killed_comes_back_to_its_address_with_what_it_had(tmp_path: Path) -> None:
    topology = Topology.tree(CLOUD, {EDGE: (CLOUD, Link(1.0, 100.0))})
    make_token(tmp_path / "token")
    routers = {
        site: SupervisedRouter(
            RouterSettings.of(site, topology, tm.specs().values(), tmp_path / site, tmp_path / "token"), tmp_path
        )
        for site in topology.sites
    }
    try:
        with Supervisor() as supervisor:
            for site, router in routers.items():
                router.join(neighbours_of(site, topology, routers))
                supervisor.watch_over(router)
            edge = routers[EDGE]
            pid, address = edge.process.pid, edge.process.address
            edge.process.client().offer(rows(0, 7))
            edge.process.kill()
            until(lambda: edge.process.alive and edge.process.pid != pid)
            assert edge.process.address == address
            with edge.process.client() as client:
                assert client.offer(rows(0, 7)) == 6  # it knows them
            with routers[CLOUD].process.client() as cloud:
                until(lambda: cloud.status().ends == {"cloud": 7})
    finally:
        for router in routers.values():
            router.stop()
    settings = RouterSettings.of(EDGE, topology, tm.specs().values(), tmp_path / EDGE, tmp_path / "token")
    again = SupervisedRouter(settings, tmp_path)  # as the next caller starts it, who does not name the port
    again.stop()
    assert again.process.address == address


def rows(first: int, count: int) -> FromSource:
    sent = [Row("car0", SourceId("car0"), first + i, UNCHAINED, i, 0, b"{}") for i in range(count)]
    return FromSource(SourceId("car0"), ((first + count - 1, Rows(tm.MOV_AVG, batch_of(sent))),))


def until(true: Callable[[], bool], timeout_s: float = 20.0) -> None:
    ends_at_s = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < ends_at_s, "it did not come true in time"
        time.sleep(0.002)
