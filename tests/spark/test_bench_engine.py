"""The engine of the experiments on Spark: one small cell as it is, and the analysis of cells made by hand."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))
from made_cells import HOLDS, MACHINE, TEXT, definition, measured

from peregrine.bench.engine import check, report, runner
from peregrine.bench.engine.analysis import analyse
from peregrine.bench.engine.check import Rule, Verdict
from peregrine.bench.engine.definition import cells
from peregrine.bench.engine.measured import Forecast, Measured
from peregrine.bench.engine.store import Store

SMALL = (
    TEXT.replace('"live", "restart"', '"live"')
    .replace("[20, 320]", "[10]")
    .replace('"restart"', '"live"')
    .replace("[sweep]", "[base]\nrows_per_s = 300\nwarm_s = 1\ncalm_s = 2\nsettle_s = 1\n[sweep]")
)


def test_a_cell_runs_moves_keys_is_proved_and_shown(spark: Any, tmp_path: Path) -> None:
    made = definition(tmp_path, SMALL)
    news: list[runner.Progress] = []
    wrong = runner.run(
        made, "quick", tmp_path / "out", say=news.append, find=lambda group, first: runner.on_spark(group, heat=False)
    )
    assert wrong == []
    store = Store(tmp_path / "out", "quick")
    assert all(map(store.has, cells(made, "quick")))
    found = analyse(store, spark)
    (cell,) = found.cells
    assert (cell["variant"], cell["runs"], cell["lost"], cell["states_that_differ"]) == ("live", 1, 0, 0)
    assert cell["rows_out"] > 1000 and cell["bytes_moved"] > 0 and cell["duration_ms"] > 0
    assert cell["bytes_on_links"] >= cell["bytes_moved"]
    assert {row["phase"] for row in found.phases} >= {"begin", "snapshot", "switch"}
    checked = check.check([Rule(name="proof", kind="proof")], found.cells)
    assert [each.verdict for each in checked] == [Verdict.PASS]
    page = report.write(tmp_path / "report", "quick", {"made": made}, found, checked).read_text()
    assert "made: Round trip" in page and page.count("<svg") == 2


def test_repetitions_become_medians_and_ratios_to_live(spark: Any, tmp_path: Path) -> None:
    store = Store(tmp_path, "full")
    jitters = iter([10.0, 60.0, 500.0, 900.0])  # of live: the first is less than what the steady state has anyway
    for cell in cells(definition(tmp_path), "full"):
        if cell.x == 20:
            other = cell.variant != "live"
            found_here = measured(cell, jitter_ms=next(jitters), disruption_ms=300.0 * other)
            store.keep(replace(found_here, bytes_on_links=34 * other), MACHINE)
        elif cell.variant == "live":
            store.keep(measured(cell, proof=replace(HOLDS, lost=2)), MACHINE)
        else:
            store.keep(Measured(cell, trouble="does not apply: why"), MACHINE)
    found = analyse(store, spark)
    by = {(cell["variant"], cell["x"]): cell for cell in found.cells}
    assert (by["live", 20]["jitter_ms"], by["live", 20]["felt_jitter_ms"]) == (35.0, 40.0)
    assert (by["restart", 20]["jitter_ms"], by["restart", 20]["runs"]) == (700.0, 2)
    assert (by["live", 320]["lost"], by["restart", 320]["runs"], by["restart", 320]["trouble"]) == (
        4,
        0,
        "does not apply: why",
    )
    (ratio,) = found.ratios  # where both were run
    assert (ratio["variant"], ratio["jitter_ms"], ratio["disruption_ms"]) == ("restart", 17.5, 300.0)
    assert ratio["bytes_on_links"] is None, "over nothing there is no ratio"
    assert {(row["phase"], row["ms"]) for row in found.phases} == {("begin", 5.0), ("state", 40.0)}
    live = [row for row in found.curves if (row["variant"], row["x"]) == ("live", 20)]
    assert [row["at_ms"] for row in live] == [-100.0, 0.0, 200.0]
    assert [row["cells"] for row in found.machines] == [8]


def test_predictions_count_once_they_have_learnt(spark: Any, tmp_path: Path) -> None:
    store = Store(tmp_path, "full")
    lessons = iter([4, 5, 6, 7])
    for cell in cells(definition(tmp_path, TEXT.replace("repetitions = 2", "repetitions = 4")), "full")[:4]:
        taught = next(lessons)
        forecast = Forecast(
            duration_ms=800.0 * (taught - 3), bytes_moved=12.0, lessons=taught
        )  # 800 ms is what it took
        store.keep(replace(measured(cell), forecast=forecast), MACHINE)
    (cell,) = analyse(store, spark).cells
    assert (cell["duration_error"], cell["bytes_error"]) == (2.0, 0.0)
