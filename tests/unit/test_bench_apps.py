"""The benchmark of applications: what it measures is right, and it says so when it is not."""

import json
from pathlib import Path
from typing import Any

import pytest

from peregrine.bench.apps import overhead
from peregrine.bench.apps.__main__ import main
from peregrine.bench.apps.cases import CASES, Case, readings
from peregrine.bench.apps.measure import disagreements, measure, ready
from peregrine.core.operator import Marks, Out
from peregrine.core.rows import Clock, Row
from peregrine.workloads import tm


def test_a_quick_run_prints_figures_and_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--only", "shell,q5", "--json", str(tmp_path / "apps.json")]) == 0
    assert "application / by hand" in capsys.readouterr().out
    found = json.loads((tmp_path / "apps.json").read_text())
    assert found["quick"] and found["machine"]["cores"]
    assert [each["what"] for each in found["ratios"]] == ["application / by hand"]
    application, by_hand, q5 = found["measured"]
    assert application["results"] == by_hand["results"] == application["rows"] == 6000
    counts, join = q5["operators"].values()
    assert counts["rows_in"] == 6000 and counts["rows_out"] == join["rows_in"] and counts["bytes_per_key"] > 0
    assert counts["clocks_in"] == 4 * 4 * 3  # four seconds, four heartbeats a second, three devices


@pytest.mark.parametrize("name", CASES)
def test_every_application_gives_what_it_gives_in_memory(name: str) -> None:
    assert disagreements(CASES[name]) == []


def test_windows_tell_as_much_as_what_they_are_held_against() -> None:
    told = {each.name: each for each in measure(overhead.windows(3000), 1)}
    assert [each.wrong for each in told.values() if each.wrong] == []
    outputs = {name: len(each.best.results) for name, each in told.items()}
    assert outputs[overhead.SILENT] == outputs[overhead.HEARING] == 0
    assert {outputs[name] for name in (overhead.RUNNING, *overhead.ONE_EACH)} == {3000}
    assert all(0 < outputs[name] < 150 for name in overhead.FEW)
    clocks = {name: sum(work.clocks_in for work in each.best.works.values()) for name, each in told.items()}
    assert clocks[overhead.SILENT] == 0 < clocks[overhead.HEARING] == clocks["tumbling, 1 s"]
    assert len(overhead.windows_ratios(told)) == len(overhead.FEW) + len(overhead.IN_TIME) + len(overhead.ONE_EACH)


def test_a_run_without_results_is_wrong() -> None:
    nothing = ready("tm", Case(tm.app, readings), 50)
    nothing.steps = [[], nothing.steps[-1]]
    (found,) = measure([nothing], 1)
    assert found.wrong == ("0 results came out",)


class Counting:
    """An operator that is not what operators must be: it remembers its calls."""

    calls = 0

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        self.calls += 1
        return None, [Out(tm.RESULTS, key, row.source, row.seq, row.time_ms, b"%d" % self.calls)]


def test_results_that_are_not_the_same_in_every_run_are_wrong() -> None:
    application, by_hand = overhead.shell(50)
    by_hand.operators = {**by_hand.operators, tm.MOV_AVG: Counting()}
    found = measure([application, by_hand], 1)
    assert [each.wrong for each in found] == [(), ("results depend on how batches were cut",)]


def test_devices_that_have_nothing_new_to_tell_have_no_heartbeat() -> None:
    steps = ready("toll", CASES["toll"], 1500).steps
    clocks = [what for step in steps[:-1] for _, what in step if isinstance(what, Clock)]
    rows = [what for step in steps for _, what in step if isinstance(what, Row)]
    assert len(rows) == 2 * 1500  # both operators take every report
    assert 0 < len(clocks) <= 2 * 3 * 4
