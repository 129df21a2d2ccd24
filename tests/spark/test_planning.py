"""A planned migration on Spark: measured, previewed, carried out hottest key first, compared with its prediction."""

import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from peregrine import Link, Topology, run
from peregrine.control import calibrated, calibrating
from peregrine.control.auditing import audit_deployment
from peregrine.control.planning import BY_STRATEGY, Planner
from peregrine.control.running import Running
from peregrine.core.coordinator import Status
from peregrine.plan import predict
from peregrine.plan.calibration import Costs
from peregrine.types import OpId, SiteId
from peregrine.workloads.key_count import key_count

CLOUD, EDGE = SiteId("cloud"), SiteId("edge1")
TOPOLOGY = Topology.tree(CLOUD, {EDGE: (CLOUD, Link(10.0, 200.0))})
OP = OpId("key_count/count")
KEYS, SLOTS, STATE_BYTES = 9, 4, 64_000
ROUND = [key for key in range(KEYS) for _ in range(KEYS // (key + 1))]  # the lower the number, the hotter


class Traffic(threading.Thread):
    """Sends until it is told to stop: everything happens while rows flow."""

    def __init__(self, running: Running) -> None:
        super().__init__(name="traffic", daemon=True)
        self.device = running.device("gate", "edge1")
        self.sent: Counter[int] = Counter()
        self.stopping, self.resting = threading.Event(), threading.Event()

    def run(self) -> None:
        at_ms = 0
        while not self.stopping.wait(0.1):
            for key in () if self.resting.is_set() else ROUND:
                at_ms += 1
                self.device.send("touches", at_ms=at_ms, key=key, slot=self.sent[key] % SLOTS)
                self.sent[key] += 1


MINE = """
class OneByOne:
    def prioritise(self, keys, metrics):
        return sorted(keys)
    def chunk(self, order, metrics):
        return [[key] for key in order]
    def replicate(self, keyspace, metrics):
        return {}
"""


def test_a_planned_migration_is_previewed_carried_out_and_learnt_from(
    spark: Any, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "strategy_of_a_user.py").write_text(MINE)
    monkeypatch.syspath_prepend(str(elsewhere))
    monkeypatch.setenv("XDG_STATE_HOME", str(elsewhere))
    app = key_count(["gate"], state_bytes=STATE_BYTES, slots=SLOTS, groups=4)
    with run(app, topology=TOPOLOGY, directory=tmp_path, keep_journal=True) as running:
        traffic = Traffic(running)
        traffic.start()
        try:
            until_all_have_state(running)
            _a_calibration_of_the_machine_decides(running)
            _a_strategy_of_the_users_is_asked(running)
            _hot_first_in_three_chunks(running)
            traffic.resting.set()  # replicas of keys that change all the time are of no use
            running.settle()
            _replicas_are_reloaded(running)
            traffic.resting.clear()
            _an_abort_leaves_the_rest_where_it_is(running)
        finally:
            traffic.stopping.set()
            traffic.join()
        running.finish()
        counted = Counter(record.key for record in running.records("results"))
        last = {record.key: record.count for record in running.records("results")}
        assert audit_deployment(running.deployment, running.initial) == []
    assert counted == last == traffic.sent
    kept = predict.from_json((tmp_path / "planning" / "predictor.json").read_bytes())
    assert kept.lessons == 2, "what was aborted teaches nothing"


def until_all_have_state(running: Running) -> None:
    deadline_s = time.monotonic() + 60
    while len(running.records("results")) < 8 * len(ROUND) or running.deployment.progress()[0].batch < 5:
        assert time.monotonic() < deadline_s, "nothing comes out"
        time.sleep(0.2)


def _a_calibration_of_the_machine_decides(running: Running) -> None:
    usual = running.plan("count", to="edge1", mechanism="pause")
    assert usual.reasons[-1] == "thresholds: defaults; run peregrine calibrate"
    calibrated.write(calibrated.usual_file(), Costs(round_ms=1.0, ms_per_mb=1000.0))  # state is dear, rounds are cheap
    told = Planner(running.deployment).plan(usual.plan.moves, mechanism="pause")
    assert told.reasons[-1] == "thresholds: measured on this machine"
    assert len(told.plan.chunks) == KEYS > len(usual.plan.chunks)
    calibrated.usual_file().unlink()


def _a_strategy_of_the_users_is_asked(running: Running) -> None:
    plan = running.plan("count", to="edge1", strategy="strategy_of_a_user:OneByOne").plan
    assert [[each.unit for each in chunk.units] for chunk in plan.chunks] == [[str(key)] for key in range(KEYS)]


def _hot_first_in_three_chunks(running: Running) -> None:
    preview = running.plan("count", to="edge1", strategy="hot-first, chunks:3")
    rates = [each.load.rows_per_s for chunk in preview.plan.chunks for each in chunk.units]
    assert rates == sorted(rates, reverse=True)
    assert [len(chunk.units) for chunk in preview.plan.chunks] == [3, 3, 3]
    assert preview.plan.order[0] == "0"
    sizes = [each.load.state_bytes for chunk in preview.plan.chunks for each in chunk.units]
    assert max(sizes) > STATE_BYTES / 2
    text = preview.describe()
    assert all(name in text for name in ("live", "pause", "restart", "predicted"))
    assert "drain" not in text  # it has state
    under_way = preview.start()
    seen = [under_way.progress()]
    while not under_way.ended:
        seen.append(under_way.progress())
    migrated = under_way.wait()
    assert migrated.ended.outcome is Status.DONE
    assert migrated.measured.bytes_moved == migrated.ended.state.bytes_moved > STATE_BYTES
    assert {each.chunk for each in seen} == {1, 2, 3}
    assert all(a.keys_done <= b.keys_done for a, b in pairwise(seen))
    assert {"begin", "snapshot", "catch-up"} & {each.phase for each in seen}
    done = under_way.progress()
    assert (done.phase, done.keys_done, done.keys, done.left_ms) == ("done", KEYS, KEYS, 0.0)


def _replicas_are_reloaded(running: Running) -> None:
    kept = running.planner.replicate(OP, "consistent-hashing")
    assert set(kept.values()) == {("cloud",)}
    time.sleep(1.0)  # some ticks
    preview = running.plan("count", to="cloud", strategy="chunks:2", mechanism=BY_STRATEGY)
    assert preview.mechanism == "replica"
    migrated = preview.run()
    assert migrated.ended.outcome is Status.DONE
    assert migrated.ended.state.reload + migrated.ended.state.patch > 0


def _an_abort_leaves_the_rest_where_it_is(running: Running) -> None:
    under_way = running.plan("count", to="edge1", strategy="random:1, chunks:9").start()
    under_way.abort()
    migrated = under_way.wait()
    assert migrated.ended.outcome is Status.ABORTED
    assert under_way.progress().keys_done < KEYS
    if migrated.ended.moved:  # one had switched: its replica would be refreshed for ever, and nothing come to rest
        running.move("count", to="cloud")


def test_a_calibration_measures_every_cost(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With as little of everything as there can be: that figures come, not which."""
    for name, value in (("REPETITIONS", 2), ("CALM_S", 0.5), ("BURST_ROWS", 500)):
        monkeypatch.setattr(calibrating, name, value)
    steps: list[str] = []
    costs = calibrating.calibrate(steps.append)
    assert tuple(steps) == calibrating.STEPS
    assert costs.round_ms > 0 and costs.rows_per_s > 0
    assert min(costs.ms_per_mb, costs.ms_per_key, costs.replica_overhead) >= 0
    assert costs != Costs()
