from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
from made_cells import HOLDS, MACHINE, TEXT, definition, measured

from peregrine.bench.engine import check, report, runner
from peregrine.bench.engine.analysis import analyse
from peregrine.bench.engine.check import Rule, Verdict
from peregrine.bench.engine.definition import cells
from peregrine.bench.engine.measured import Measured
from peregrine.bench.engine.store import SUMMARY, Store


def test_a_summary_has_the_figures_the_proof_and_the_machine(tmp_path: Path) -> None:
    cell = cells(definition(tmp_path), "quick")[0]
    store = Store(tmp_path / "out", "quick")
    store.keep(measured(cell, jitter_ms=70.0), MACHINE)
    (path,) = store.files("summary")
    table = pq.read_table(path)
    assert table.schema.equals(SUMMARY)
    (row,) = table.to_pylist()
    assert (row["variant"], row["x"], row["jitter_ms"], row["bytes_on_links"]) == ("live", 20.0, 70.0, 34)
    assert (row["lost"], row["states_that_differ"], row["trouble"]) == (0, 0, "")
    assert dict(row["phases_ms"]) == {"begin": 5.0, "state": 40.0}
    assert "abacus" in row["machine"] and '"round_trip_ms":20' in row["setting"]


def test_samples_are_latency_in_stretches_of_time_from_the_request_on(tmp_path: Path) -> None:
    store = Store(tmp_path / "out", "quick")
    store.keep(measured(cells(definition(tmp_path), "quick")[0], jitter_ms=50.0), MACHINE)
    rows = pq.read_table(store.files("samples")[0]).to_pylist()
    assert [(row["at_ms"], row["results"], row["slowest_ms"]) for row in rows] == [
        (-100.0, 1, 100.0),
        (0.0, 2, 110.0),
        (200.0, 1, 150.0),
    ]


def test_what_has_been_found_is_there_until_its_definition_changes(tmp_path: Path) -> None:
    before = cells(definition(tmp_path), "quick")
    store = Store(tmp_path / "out", "quick")
    store.keep(measured(before[0]), MACHINE)
    assert [store.has(cell) for cell in before] == [True, False, False, False]
    after = cells(definition(tmp_path, TEXT.replace("[sweep]", "[base]\nrows_per_s = 7\n[sweep]")), "quick")
    assert not any(map(store.has, after))
    store.prune("made", after)
    assert store.files("summary") == store.files("samples") == []


def test_a_cell_that_does_not_apply_is_kept_without_figures(tmp_path: Path) -> None:
    cell = cells(definition(tmp_path), "quick")[0]
    store = Store(tmp_path / "out", "quick")
    store.keep(Measured(cell, trouble="does not apply: why"), MACHINE)
    (row,) = pq.read_table(store.files("summary")[0]).to_pylist()
    assert (row["jitter_ms"], row["lost"], row["trouble"]) == (None, None, "does not apply: why")
    assert pq.read_table(store.files("samples")[0]).num_rows == 0


def test_a_cell_that_failed_is_known_with_its_reason_until_it_passes(tmp_path: Path) -> None:
    cell = cells(definition(tmp_path), "quick")[0]
    store = Store(tmp_path / "out", "quick")
    store.keep(Measured(cell, trouble="no Java", failed=True), MACHINE)
    (failure,) = store.failures()
    assert (failure.experiment, failure.variant, failure.x_label, failure.why) == ("made", "live", "20", "no Java")
    assert not store.has(cell) and store.files("summary") == []
    store.keep(measured(cell), MACHINE)
    assert store.has(cell) and store.failures() == []
    store.keep(Measured(cell, trouble="no Java", failed=True), MACHINE)
    assert not store.has(cell), "it runs again"
    assert store.files("summary"), "what it found before stays"
    store.prune("made", [])
    assert store.failures() == store.files("summary") == []


def test_where_all_cells_failed_that_is_what_there_is_to_say(tmp_path: Path) -> None:
    made = definition(tmp_path)
    store = Store(tmp_path / "out", "quick")
    store.keep(Measured(cells(made, "quick")[0], trouble="no Java", failed=True), MACHINE)
    found = analyse(store, spark=None)
    (row,) = found.cells
    assert (row["variant"], row["x"], row["size"], row["runs"], row["failed"]) == ("live", 20.0, "quick", 0, "no Java")
    rules = [Rule(name="proof", kind="proof"), Rule(name="size", kind="proof", size="full")]
    proof, other = check.check(rules, found.cells)
    assert (proof.verdict, proof.told) == (Verdict.FAIL, "made: live, 20: no Java")
    assert other.verdict is Verdict.NOT_RUN
    page = report.write(tmp_path / "report", "quick", {"made": made}, found, [proof]).read_text()
    assert "Failed: live, 20: no Java" in page


def test_violations_of_a_proof_are_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "out", "quick")
    bad = replace(HOLDS, violations=("a key in two places",))
    store.keep(measured(cells(definition(tmp_path), "quick")[0], proof=bad), MACHINE)
    (row,) = pq.read_table(store.files("summary")[0]).to_pylist()
    assert row["violations"] == 1


def test_only_what_is_missing_is_run_and_what_fails_is_run_again(tmp_path: Path) -> None:
    made = definition(tmp_path)
    asked, told = [], []
    failing = {"restart"}

    def found(group, heat):
        asked.extend(cell.variant for cell in group)
        return [
            Measured(cell, trouble="no Java", failed=True) if cell.variant in failing else measured(cell)
            for cell in group
        ]

    wrong = runner.run(made, "quick", tmp_path / "out", False, told.append, found)
    assert wrong == [f"made: restart, {x}: no Java" for x in (20, 320)]
    assert (told[-1].done, told[-1].all, told[-1].wrong) == (4, 4, True)
    failing.clear()
    asked.clear()
    assert runner.run(made, "quick", tmp_path / "out", False, told.append, found) == []
    assert asked == ["restart", "restart"]
    asked.clear()
    assert runner.run(made, "quick", tmp_path / "out", False, told.append, found) == []
    assert asked == []
    runner.run(made, "quick", tmp_path / "out", True, told.append, found)
    assert len(asked) == 4


def test_a_proof_that_does_not_hold_is_a_fault(tmp_path: Path) -> None:
    bad = replace(HOLDS, lost=3)
    wrong = runner.run(
        definition(tmp_path),
        "quick",
        tmp_path / "out",
        find=lambda group, first: [measured(cell, proof=bad) for cell in group],
    )
    assert len(wrong) == 4 and "lost 3" in wrong[0]


def test_variants_of_a_value_share_a_deployment_unless_they_leave_something_behind(tmp_path: Path) -> None:
    text = TEXT.replace('["live", "restart"]', '["restart", "live", "live-unordered", "replica", "pause"]')
    alone = definition(tmp_path, "reuse = false\n" + text)
    shared = definition(tmp_path, text)

    def names(made):
        return [[cell.variant for cell in group] for group in runner.groups(made, cells(made, "quick"))]

    assert names(alone)[:3] == [["live"], ["live-unordered"], ["pause"]]
    assert names(shared) == [["live-unordered"], ["live", "pause", "replica", "restart"]] * 2


def test_only_some_variants_and_values_are_run_if_they_are_named(tmp_path: Path) -> None:
    made = definition(tmp_path)
    asked = []

    def found(group, heat):
        asked.extend((cell.variant, cell.x_label) for cell in group)
        return [measured(cell) for cell in group]

    runner.run(made, "quick", tmp_path / "out", find=found, only=runner.Only(["live"], ["320"]))
    assert asked == [("live", "320")]
    runner.run(made, "quick", tmp_path / "out", find=found)
    assert asked[1:] == [("live", "20"), ("restart", "20"), ("restart", "320")]
