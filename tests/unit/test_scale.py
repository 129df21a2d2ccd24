"""A small run at scale, and an audit that notices when something is wrong."""

import json
from dataclasses import replace
from typing import Any

import pytest

from peregrine.core.operator import Marks, Out
from peregrine.core.rows import UNCHAINED, Row, Rows, batch_of
from peregrine.errors import ConfigurationError
from peregrine.sim.scale import run_scale
from peregrine.sim.scale_machines import RESULTS, Count
from peregrine.sim.scale_report import Audit, Cost, ScaleReport
from peregrine.types import SourceId

NO_COST = Cost(0.0, 0.0, 0.0, 0.0)


@pytest.fixture(scope="module")
def report() -> ScaleReport:
    return run_scale(20, keys=200, seed=1)


def test_no_row_is_lost_repeated_or_out_of_order(report: ScaleReport) -> None:
    assert (report.lost, report.repeated, report.out_of_order, report.wrong_states) == (0, 0, 0, 0)
    assert report.unfinished == ()
    assert report.passed


def test_every_key_has_rows_and_every_row_a_result(report: ScaleReport) -> None:
    assert report.keys_with_rows == report.keys == 200
    assert report.results_out == report.rows_in >= 200


def test_keys_follow_their_sources_up_and_down(report: ScaleReport) -> None:
    assert report.sources_moved >= report.mobile_sources == 2
    assert report.legs_up and report.legs_down
    assert report.in_motion.rows and report.steady.rows
    assert report.steady.rows + report.in_motion.rows == report.results_out


def test_one_seed_gives_one_report(report: ScaleReport) -> None:
    again = run_scale(20, keys=200, seed=1)
    assert replace(again, cost=NO_COST) == replace(report, cost=NO_COST)
    assert replace(run_scale(20, keys=200, seed=2), cost=NO_COST) != replace(report, cost=NO_COST)


def test_several_seeds_with_many_moves_pass() -> None:
    for seed in range(3):
        assert run_scale(40, keys=160, seconds=3, seed=seed).passed


def test_a_run_notices_an_operator_that_swallows_results(monkeypatch: pytest.MonkeyPatch) -> None:
    on_row = Count.on_row

    def swallow(self: Count, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        value, outs = on_row(self, key, value, row, marks)
        return value, [] if key == "k7" else outs

    monkeypatch.setattr(Count, "on_row", swallow)
    report = run_scale(4, keys=40)
    assert report.lost and not report.wrong_states and not report.passed


def test_a_run_notices_a_state_that_counts_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    on_row = Count.on_row

    def miscount(self: Count, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        value, outs = on_row(self, key, value, row, marks)
        return value + (key == "k7"), outs

    monkeypatch.setattr(Count, "on_row", miscount)
    report = run_scale(4, keys=40)
    assert report.wrong_states == 1 and not report.lost and not report.passed


def test_a_report_is_told_as_a_table_and_as_json(report: ScaleReport) -> None:
    assert dict(report.table())["lost / repeated / out of order"] == "0 / 0 / 0"
    told = json.loads(json.dumps(report.as_dict()))
    assert told["edges"] == 20 and told["regions"] == 4 and told["sites"] == 25
    assert told["passed"] is True
    assert told["edge_up"]["links"] == 20 and told["edge_up"]["max_bytes"] >= told["edge_up"]["mean_bytes"] > 0


def test_progress_ends_at_one() -> None:
    told: list[float] = []
    run_scale(4, keys=8, seconds=1, progress=lambda fraction, news: told.append(fraction))
    assert told == sorted(told) and told[0] == 0 and told[-1] == 1


@pytest.mark.parametrize(("edges", "keys", "seconds"), [(1, 100, 4), (20, 20, 4), (20, 200, 0)])
def test_what_cannot_be_simulated_is_refused(edges: int, keys: int, seconds: float) -> None:
    with pytest.raises(ConfigurationError):
        run_scale(edges, keys, seconds)


# The audit.


def results(*seqs: int) -> Rows:
    return Rows(RESULTS, batch_of([Row("k1", SourceId("s"), seq, UNCHAINED, 0, 100, b"") for seq in seqs]))


@pytest.fixture
def audit() -> Audit:
    audit = Audit()
    for seq in (0, 3, 4):
        audit.produced("k1", "s", seq)
    return audit


def verdict(audit: Audit) -> tuple[int, int, int]:
    return audit.lost, audit.repeated, audit.out_of_order


def test_the_audit_is_content_with_all_in_order(audit: Audit) -> None:
    audit.delivered(results(0, 3), 150.0)
    audit.delivered(results(4), 160.0)
    assert verdict(audit) == (0, 0, 0)
    assert audit.steady_ms.tolist() == [50.0, 50.0, 60.0]


def test_the_audit_notices_a_lost_result(audit: Audit) -> None:
    audit.delivered(results(0, 4), 150.0)
    assert audit.lost == 1


def test_the_audit_notices_a_repeated_result(audit: Audit) -> None:
    audit.delivered(results(0, 3, 3, 4), 150.0)
    assert verdict(audit) == (0, 1, 0)


def test_the_audit_notices_results_that_changed_places(audit: Audit) -> None:
    audit.delivered(results(0, 4, 3), 150.0)
    assert verdict(audit) == (0, 0, 1)


def test_the_audit_notices_a_result_of_another_source(audit: Audit) -> None:
    audit.delivered(Rows(RESULTS, batch_of([Row("k1", SourceId("t"), 0, UNCHAINED, 0, 100, b"")])), 150.0)
    assert verdict(audit) == (3, 1, 0)


def test_the_audit_notices_a_state_that_missed_a_row(audit: Audit) -> None:
    assert audit.wrong_counts({"k1": 3}) == 0
    assert audit.wrong_counts({"k1": 2}) == 1
    assert audit.wrong_counts({}) == 1


def test_rows_between_the_move_and_the_end_of_the_second_leg_are_in_motion(audit: Audit) -> None:
    audit.left("k1", 90.0)
    audit.settled("k1", 110.0)
    audit.delivered(results(0), 150.0)
    assert (len(audit.in_motion_ms), len(audit.steady_ms)) == (1, 0)
    audit.left("k1", 120.0)
    audit.delivered(results(3), 150.0)
    assert (len(audit.in_motion_ms), len(audit.steady_ms)) == (1, 1)
