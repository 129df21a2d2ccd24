"""A continuous host: its process dies, stops and comes back, changes to batches and back, and nothing shows."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from test_per_site import runs

from peregrine import proof
from peregrine.control.auditing import audit_deployment
from peregrine.control.local import Deployment, local
from peregrine.core.keyspace import KeySet
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.topology import Link, Topology
from peregrine.log.record_log import Fsync
from peregrine.spark.talk import SLOTS, Done, Ping, Talk, name_of
from peregrine.types import PlaceId, Runner, SiteId
from peregrine.workloads import road, tm

CLOUD, EDGE = SiteId("cloud"), SiteId("edge")
TREE = Topology.tree(CLOUD, {EDGE: (CLOUD, Link(1.0, 100.0))})
KEYS = 10
PATIENCE_S = 90.0


class Run:
    """A device at the edge sends; `proves` waits for all results."""

    def __init__(self, up: Deployment) -> None:
        self.up = up
        self.device = up.device(road.SOURCE, EDGE, feeds=(tm.MOV_AVG, KeySet.everything(tm.GROUPS)))
        self.sent = 0

    def send(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):
            row = road.row(number, KEYS)
            self.device.send(tm.MOV_AVG, row.key, row.payload)
        self.sent += count

    def until(self, done: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < deadline_s, "it takes too long"
            self.send(5)
            time.sleep(0.02)

    def results(self) -> int:
        return self.up.clients[CLOUD].status().results_end

    def all_out(self) -> None:
        """Every row that was sent has its result, whether it is committed or not."""
        assert self.device.flush(PATIENCE_S)
        deadline_s = time.monotonic() + PATIENCE_S
        while self.results() < self.sent:
            assert time.monotonic() < deadline_s, f"{self.results()} of {self.sent}"
            time.sleep(0.01)

    def move(self, plan: str, source: SiteId, target: SiteId) -> None:
        half = KeySet.of_keys(tm.GROUPS, [road.vehicle(n, KEYS) for n in range(KEYS // 2)])
        self.up.submit(Plan(plan, ((Move(tm.MOV_AVG, half, PlaceId(source), PlaceId(target)),),)))

    def proves(self) -> None:
        self.all_out()
        deadline_s = time.monotonic() + PATIENCE_S
        while self.up.results_at_rest() != self.sent:
            assert time.monotonic() < deadline_s, "it is not at rest"
            time.sleep(0.1)
        rows = [road.row(number, KEYS) for number in range(self.sent)]
        should, states = proof.expected(tm.specs(), tm.operators(road.LIMIT), {tm.MOV_AVG: rows})
        found = proof.prove(self.sent, self.up.result_lines(), should, proof.values(self.up.states()), states)
        assert found.holds, found
        assert audit_deployment(self.up) == []


@contextmanager
def running(directory: Path, runner: Runner = "continuous") -> Iterator[Run]:
    specs, operators = tm.specs(roaming=False), tm.operators(road.LIMIT)
    with local(TREE, specs, operators, directory=directory, fsync=Fsync.OFF, keep_journal=True, runner=runner) as up:
        yield Run(up)


def processes(run: Run) -> list[int]:
    """Of the host, those that answer."""
    found = []
    for slot in range(SLOTS):
        try:
            talk = Talk.to(name_of(str(run.up.checkpoint), slot))
            answer = talk.ask(Ping())
            talk.close()
        except OSError:
            continue
        assert isinstance(answer, Done)
        found.append(answer.pid)
    return found


def test_rows_come_out_before_spark_commits_them_and_a_process_that_dies_is_replaced(
    spark: Any, tmp_path: Path
) -> None:
    with running(tmp_path / "run") as run:
        run.send(200)
        run.all_out()
        (pid,) = processes(run)
        run.move("there", CLOUD, EDGE)
        run.send(50)
        os.kill(pid, signal.SIGKILL)
        run.until(lambda: bool(processes(run)))
        run.up.wait("there", PATIENCE_S)
        run.send(200)
        run.proves()
        (other,) = processes(run)
        assert other != pid
    assert not runs(other)


def test_a_process_that_was_thought_dead_comes_back_and_can_only_repeat(spark: Any, tmp_path: Path) -> None:
    with running(tmp_path / "run") as run:
        run.send(200)
        run.all_out()
        (stopped,) = processes(run)
        os.kill(stopped, signal.SIGSTOP)
        try:
            run.move("there", CLOUD, EDGE)
            run.until(lambda: bool(processes(run)))
            run.up.wait("there", PATIENCE_S)
            run.send(200)
            run.all_out()
            assert stopped not in processes(run)
        finally:
            os.kill(stopped, signal.SIGCONT)
        run.send(200)
        run.all_out()
        run.move("back", EDGE, CLOUD)
        run.up.wait("back", PATIENCE_S)
        run.send(200)
        run.proves()
        mine = processes(run)
    assert not any(map(runs, mine))


@pytest.mark.parametrize("first", ["microbatch", "continuous"])
def test_a_site_changes_its_runner_while_rows_flow(spark: Any, tmp_path: Path, first: Runner) -> None:
    second: Runner = "continuous" if first == "microbatch" else "microbatch"
    with running(tmp_path / "run", first) as run:
        run.send(200)
        run.all_out()
        run.up.run_as(CLOUD, second)
        run.send(200)
        run.all_out()
        run.move("there", CLOUD, EDGE)
        run.up.wait("there", PATIENCE_S)
        run.up.run_as(EDGE, second)
        run.send(200)
        run.all_out()
        run.up.run_as(CLOUD, first)
        run.move("back", EDGE, CLOUD)
        run.up.wait("back", PATIENCE_S)
        run.send(200)
        run.proves()
