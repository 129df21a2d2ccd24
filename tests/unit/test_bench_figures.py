"""The benchmark of the data plane, where it only computes: targets, ratios, tables, JSON, and when it fails."""

import json
from typing import Any

import pytest
from rich.console import Console

from peregrine import InMemory, proof
from peregrine.bench.spark import (
    application,
    experiment,
    figures,
    large_state,
    many_keys,
    memory,
    moves,
    steady,
    throughput,
)
from peregrine.bench.spark.experiment import Experiment, Found, PartFailed, Scale
from peregrine.bench.spark.figures import Figure, Outcome, at_least, at_most
from peregrine.core.rows import UNCHAINED, Row
from peregrine.types import SourceId
from peregrine.workloads import road, tm

FINE = {
    "rows_in": 10,
    "rows_out": 10,
    "lost": 0,
    "repeated": 0,
    "out_of_order": 0,
    "states": 2,
    "states_that_differ": 0,
    "violations": [],
}


def outcome(*shown: Figure, wrong: tuple[str, ...] = ()) -> Outcome:
    return Outcome("name", "title", shown, wrong, {"ours": {"latency": 1.0}}, 2.5)


def printed(outcomes: list[Outcome]) -> list[str]:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(figures.show(outcomes))
    return [" ".join(line.split()) for line in capture.get().splitlines() if line.strip()]


# --- targets ---


@pytest.mark.parametrize(
    ("target", "value", "verdict"),
    [
        (at_most(0.35), 0.35, "pass"),
        (at_most(0.35), 0.36, "short"),
        (at_least(2), 2.0, "pass"),
        (at_least(2), 1.99, "short"),
        (at_most(1), None, "not measured"),
        (None, 7.0, ""),
    ],
)
def test_a_figure_passes_or_falls_short_of_its_target(target: Any, value: float | None, verdict: str) -> None:
    assert Figure("what", value, "x", target).verdict == verdict


def test_a_ratio_to_nothing_is_no_figure() -> None:
    assert figures.ratio(3.0, 2.0) == 1.5
    assert figures.ratio(3.0, 0.0) is None


def test_figures_with_a_target_stand_first_with_the_target_beside_them() -> None:
    lines = printed(
        [outcome(Figure("duration", 1234.5, "ms")), outcome(Figure("ratio", 0.5, "x", at_most(0.35), "80 / 160 ms"))]
    )
    assert lines[1:3] == ["name: ratio 0.50x ≤ 0.35x short", "80 / 160 ms"]
    assert lines[-1] == "name: duration 1,234 ms"


def test_what_is_wrong_is_shown_and_fails_the_benchmark_and_a_missed_target_does_not() -> None:
    short = outcome(Figure("ratio", 0.5, "x", at_most(0.35)))
    wrong = outcome(wrong=("ours: steady: lost 3",))
    assert figures.holds([short])
    assert not figures.holds([short, wrong])
    assert "name: ours: steady: lost 3" in printed([short, wrong])


def test_the_json_has_the_machine_the_figures_with_verdicts_and_everything_the_parts_found() -> None:
    told = figures.as_dict([outcome(Figure("ratio", 0.3, "x", at_most(0.35)))], {"cores": 2}, quick=True)
    again = json.loads(json.dumps(told))
    assert again["machine"] == {"cores": 2} and again["quick"] and again["holds"]
    (one,) = again["experiments"]
    assert one["parts"] == {"ours": {"latency": 1.0}}
    (figure,) = one["figures"]
    assert (figure["value"], figure["target"], figure["verdict"]) == (0.3, {"bound": "≤", "value": 0.35}, "pass")


# --- proofs and parts ---


def test_a_part_that_proves_nothing_counts_as_wrong() -> None:
    assert experiment.broken({"trigger_ms": 1.0}) == ["nothing was proved"]
    assert experiment.broken({"proofs": {"run": FINE}}) == []


@pytest.mark.parametrize("name", ["lost", "repeated", "out_of_order", "states_that_differ"])
def test_a_proof_that_does_not_hold_is_told_with_its_number(name: str) -> None:
    assert experiment.broken({"proofs": {"run": {**FINE, name: 3}}}) == [f"run: {name} 3"]


def test_a_run_without_any_result_is_wrong() -> None:
    assert experiment.broken({"proofs": {"run": {**FINE, "rows_out": 0}}}) == ["run: nothing came out"]


def test_a_part_that_fails_leaves_its_last_words_and_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_a_process(name: str, part: str, scale: Scale) -> Found:
        if part == "bad":
            raise PartFailed("exit code 1\nno Java")
        return {"proofs": {"run": FINE}}

    monkeypatch.setattr(experiment, "_in_a_process", in_a_process)
    parts = {"good": lambda scale: {}, "bad": lambda scale: {}}
    told = experiment.run(Experiment("e", "", parts, lambda found: [Figure("f", 1.0, "x")]), Scale(), lambda text: None)
    assert told.wrong == ("bad: exit code 1\nno Java",)
    assert told.figures == ()


# --- figures of each experiment ---


def test_an_application_is_told_beside_the_plain_query_with_both_sizes_of_batches() -> None:
    found = {"microbatch": 60e3, "continuous": 90e3, "plain 50000": 45e3, "plain 100000": 90e3}
    shown = application.figures({part: {"rows_per_s": value} for part, value in found.items()})
    assert [each.value for each in shown] == pytest.approx([60 / 45, 60 / 90, 2.0, 1.0])
    assert shown[0].note == "60,000 / 45,000 rows/s" and all(each.target is None for each in shown)


def test_the_proof_of_the_application_knows_each_result_and_misses_one() -> None:
    rows = 3 * application.KEYS
    run = InMemory(tm.app([application.DEVICE], limit=road.LIMIT))
    run.send("readings", [application.record(number) for number in range(rows)], sender=application.DEVICE)
    came = run.results("results")
    assert proof.prove(rows, application.lines(came), application.should(rows), {}, {}).holds
    missing = proof.prove(rows, application.lines(came[:-1]), application.should(rows), {}, {})
    assert missing.lost == 1 and not missing.holds


def latency(mean_ms: float, p99_ms: float, trigger_ms: float) -> Found:
    return {"latency": {"mean_ms": mean_ms, "p99_ms": p99_ms}, "trigger_ms": trigger_ms}


def test_steady_compares_mean_latencies() -> None:
    first, *_ = steady.figures({"ours": latency(100, 200, 60), "plain": latency(400, 800, 300)})
    assert (first.value, first.verdict, first.note) == (0.25, "pass", "100 / 400 ms")


def test_throughput_compares_rows_per_second_for_each_number_of_keys() -> None:
    ours, plain = {"10": 90.0, "1000": 60.0, "10000": 45.0}, {"10": 30.0, "1000": 30.0, "10000": 30.0}
    found = throughput.figures({"ours": {"rows_per_s": ours}, "plain": {"rows_per_s": plain}})
    assert [(figure.value, figure.verdict) for figure in found] == [(3.0, "pass"), (2.0, "pass"), (1.5, "short")]


def test_throughput_counts_what_the_batches_behind_the_warm_up_did() -> None:
    def batch(first: int, end: int, ms: int) -> dict[str, Any]:
        offsets = {"startOffset": {"cloud": first}, "endOffset": {"cloud": end}}
        return {"sources": [offsets], "durationMs": {"triggerExecution": ms}}

    told = [batch(0, 100, 9000), batch(100, 200, 5000), batch(200, 300, 1000), batch(300, 400, 3000)]
    assert throughput.rows_per_s(told) == 50.0


def a_move(disruption_ms: float, moved_ms: float = 90.0, unmoved_ms: float = 60.0) -> dict[str, Any]:
    return {
        "disruption_ms": disruption_ms,
        "jitter_moved_ms": moved_ms,
        "jitter_unmoved_ms": unmoved_ms,
        "duration_ms": 500.0,
        "freeze_ms": 80.0,
        "phases_ms": {"begin": 40.0, "switch": 60.0},
    }


def moved(*live: dict[str, Any]) -> dict[str, Figure]:
    steady_state = {"steady": {"p99_ms": 60.0}, "trigger_ms": 50.0}
    found = {
        "live": {**steady_state, "moves": list(live)},
        "restart": {**steady_state, "moves": [a_move(3000.0)]},
        "plain restart": {"disruption_ms": 4000.0, "freeze_ms": 3500.0},
    }
    return {figure.what: figure for figure in moves.figures(found)}


def test_the_median_of_the_live_moves_counts() -> None:
    told = moved(a_move(0.0), a_move(60.0), a_move(40.0))
    assert told["disruption of live / trigger interval"].value == pytest.approx(0.8)
    assert "worst of 3 moves 60 ms" in told["disruption of live / trigger interval"].note
    assert told["disruption of restart / live"].value == pytest.approx(75.0)
    assert told["peak jitter of moved keys / steady p99"].verdict == "pass"
    assert told["peak jitter of unmoved keys / steady p99"].value == pytest.approx(1.0)
    assert told["duration of live"].note == "begin 40, switch 60"


def test_a_live_move_that_disrupted_nothing_is_compared_as_one_millisecond() -> None:
    assert moved(a_move(0.0))["disruption of restart / live"].value == 3000.0


def test_jitter_within_what_the_steady_state_has_anyway_counts_as_that() -> None:
    calm = {"mean_ms": 60.0, "p99_ms": 100.0}
    assert moves.jitter_ms({"jitter_ms": -5.0, "steady": calm}) == 40.0
    assert moves.jitter_ms({"jitter_ms": 70.0, "steady": calm}) == 70.0


def test_the_cost_of_keys_is_linear_when_each_further_key_costs_the_same() -> None:
    assert many_keys.growth({10: 110.0, 1010: 210.0, 10010: 1110.0}, noise_ms=50) == pytest.approx(1.0)
    assert many_keys.growth({10: 110.0, 1010: 210.0, 10010: 2110.0}, noise_ms=50) == pytest.approx(2.0)
    assert many_keys.growth({10: 110.0, 1010: 210.0}, noise_ms=50) is None


def test_a_cost_that_cannot_be_told_from_the_time_of_a_batch_does_not_look_like_growth() -> None:
    assert many_keys.growth({10: 150.0, 1010: 120.0, 10010: 700.0}, noise_ms=60) == pytest.approx(550 / 600)


def test_memory_that_saws_is_flat_and_memory_that_climbs_is_not() -> None:
    saw = [50.0, 80.0, 60.0, 100.0] * 6
    assert memory.flatness(saw) == pytest.approx(1.0)
    assert memory.flatness([50.0 + 10 * i for i in range(30)]) == pytest.approx(340 / 240)
    climbing = [{"rows": i * 1e6, "rss_mb": 50.0 + 2 * i} for i in range(30)]
    assert memory.slope(climbing) == pytest.approx(2.0)


def large(jitter_ms: float, written: float) -> dict[str, float]:
    return {
        "jitter_ms": jitter_ms,
        "written_bytes_per_batch": written,
        "duration_ms": 500.0,
        "steady": {"mean_ms": 60.0, "p99_ms": 90.0},
        "bytes_moved": 1000,
    }


def test_large_state_compares_jitter_and_what_a_batch_writes_with_what_there_is() -> None:
    sizes = {"10 KiB": large(50.0, 20e3), "10 MiB": large(80.0, 524288.0)}
    found = {"live": {"sizes": sizes}, "untouched": {"trigger_ms": {"nothing": 50.0, "100 MiB": 53.0}}}
    flat, beside, written, *_ = large_state.figures(found)
    assert (flat.value, flat.verdict) == (1.6, "pass")
    assert (beside.value, beside.verdict) == (1.06, "pass")
    assert (written.value, written.verdict) == (0.025, "pass")


def test_a_large_key_holds_as_much_as_it_should_and_no_two_entries_alike() -> None:
    held = large_state.entries_of(large_state.MOVES, 1 << 20)
    assert sum(map(len, held.values())) == 1 << 20
    assert len(set(held.values())) == len(held)
    assert large_state.entries_of("k1", 1 << 20) == {}


def test_the_operator_of_large_keys_counts_and_audits_what_it_holds() -> None:
    hoard, value = large_state.Hoard(4096), None
    payloads = []
    for seq, payload in enumerate([b"", b"", large_state.AUDIT]):
        row = Row(large_state.MOVES, SourceId("s"), seq, UNCHAINED, 0, 0, payload)
        value, (out,) = hoard.on_row(row.key, value, row, {})
        payloads.append(json.loads(out.payload))
    checksum = large_state._checksum(large_state.entries_of(large_state.MOVES, 4096))
    assert payloads == [[1, None], [2, None], [3, checksum]]
