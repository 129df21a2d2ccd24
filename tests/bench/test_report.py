import json
import re
from pathlib import Path

import pytest
from made_cells import MACHINE, TEXT, definition

from peregrine.bench.engine import charts, report
from peregrine.bench.engine.analysis import Analysed
from peregrine.bench.engine.check import Checked, Rule, Verdict
from peregrine.bench.engine.definition import MEASURES


def analysed() -> Analysed:
    cells = [
        {
            **dict.fromkeys(MEASURES, None),
            "experiment": "made",
            "variant": variant,
            "mechanism": variant,
            "app": "tm",
            "x": x,
            "x_label": f"{x:g}",
            "runs": 1,
            "steady_mean_ms": 100.0,
            "steady_p99_ms": 120.0,
            "trouble": "",
            "rows_out": 5,
            "lost": 0,
            "repeated": 0,
            "out_of_order": 0,
            "states_that_differ": 0,
            "jitter_ms": jitter,
        }
        for variant, x, jitter in (("live", 20.0, 51.0), ("live", 320.0, 53.0), ("restart", 20.0, 7123.0))
    ]
    cells[1]["lost"] = 4
    named = {"experiment": "made", "variant": "restart", "x": 20.0, "x_label": "20"}
    ratio = {
        **named,
        "reference": "live",
        "disruption_ms": 812.0,
        "jitter_ms": 140.0,
        "freeze_ms": None,
        "duration_ms": None,
    }
    curves = [{**named, "at_ms": at, "results": 1, "median_ms": 90.0, "slowest_ms": 99.0} for at in (-100.0, 0.0)]
    phases = [{**named, "phase": "begin", "ms": 33.0}]
    machines = [{"machine": json.dumps(MACHINE), "cells": 3}]
    return Analysed(cells, [{**ratio, "bytes_on_links": None}], phases, curves, machines)


def rule(verdict: Verdict) -> Checked:
    return Checked(Rule(name="50 times less", kind="ratio", at_least=50), verdict, 812.0, "812 / 1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a report on one experiment that was run and one that was not: pictures take seconds."""
    home = tmp_path_factory.mktemp("made")
    made = {"made": definition(home), "other": definition(home, name="other")}
    return report.write(home / "report", "quick", made, analysed(), [rule(Verdict.PASS)]).parent


@pytest.fixture
def page(folder: Path) -> str:
    (found,) = folder.glob("*.html")
    return found.read_text()


def test_the_report_has_the_figures_the_papers_words_and_the_machine(page: str) -> None:
    for told in ("abacus", "50 times less", "812", "7,123", "140x", "tens of seconds", "10,000 – 99,000", "lost 4"):
        assert told in page, told
    assert "What &lt;happens&gt; &amp; why." in page
    assert page.count("<svg") == 2
    assert page.index("What must hold") < page.index("made: Round trip")


def test_ratios_say_over_what_they_are_and_near_one_they_have_more_digits(page: str) -> None:
    assert "times as much peak latency jitter as live" in page
    assert [report._times(value) for value in (1.031, 9.0, 140.0, 0.0, None)] == ["1.03x", "9.00x", "140x", "0x", ""]


def test_the_report_needs_nothing_else(page: str, folder: Path) -> None:
    assert not re.search(r"<(script|link|img|iframe)|@import|url\(\s*[\"']?http", page)
    assert "<!DOCTYPE svg" not in page and "<?xml" not in page
    pictures = sorted(path.name for path in folder.glob("*.png"))
    assert pictures == ["made-jitter_ms.png", "made-latency.png"]
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in pictures)


def test_an_experiment_that_was_not_run_is_said_to_be(page: str) -> None:
    assert "not run" in page[page.index("<h2>other") :]


def test_the_paper_and_ours_have_the_same_axes(tmp_path: Path) -> None:
    figure = charts.measure_chart(definition(tmp_path), "jitter_ms", analysed().cells)
    assert figure is not None
    paper, ours = figure.axes
    assert paper.get_ylim() == ours.get_ylim() and paper.get_xlim() == ours.get_xlim()
    assert paper.get_yscale() == ours.get_yscale() == "log"
    assert [label.get_text() for label in ours.get_xticklabels()] == ["20", "320"]
    assert "Flink (restart)" in [text.get_text() for text in paper.get_legend().get_texts()]


def test_a_measure_that_nobody_took_has_no_picture(tmp_path: Path) -> None:
    assert charts.measure_chart(definition(tmp_path), "freeze_ms", analysed().cells) is None


def test_values_beyond_the_machine_lie_on_a_straight_line_and_are_marked(tmp_path: Path) -> None:
    made = definition(tmp_path, "extrapolate = [620]\n" + TEXT)
    assert charts.extrapolated(made, "jitter_ms", analysed().cells) == {"live": {620: pytest.approx(55.0)}}
    page = report.write(tmp_path / "report", "quick", {"made": made}, analysed(), []).read_text()
    assert "extrapolated to round trip (ms)" in page and "dashed: extrapolated" in page
    assert charts.extrapolated(definition(tmp_path), "jitter_ms", analysed().cells) == {}
