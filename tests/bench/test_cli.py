"""The command, as far as it does not need Spark."""

from pathlib import Path

import pytest
from made_cells import MACHINE, measured

from peregrine.bench.engine.definition import cells, load_all
from peregrine.bench.engine.store import Store
from peregrine.cli import main


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["bench", *words])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def test_the_list_says_how_much_of_each_experiment_has_been_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    known = {name: cells(each, "quick") for name, each in load_all().items()}
    Store(tmp_path, "quick").keep(measured(known["falcon-10"][0]), MACHINE)
    code, out, _ = told(capsys, "list", "--out", str(tmp_path))
    lines = {line.split()[0]: line.split()[1:3] for line in out.splitlines() if line.startswith(("falcon", "spacker"))}
    assert code == 0
    assert lines["falcon-10"] == [str(len(known["falcon-10"])), "1"]
    assert lines["spacker-8"] == [str(len(known["spacker-8"])), "0"]


def test_an_experiment_that_there_is_not_is_told_before_anything_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = told(capsys, "run", "falcon-9000", "--out", str(tmp_path))
    assert code == 2
    assert "unknown experiment 'falcon-9000'" in err and "falcon-10" in err


@pytest.mark.parametrize(
    ("words", "told_of"),
    [(["--variant", "slowly"], "unknown variant 'slowly'"), (["--value", "7"], "unknown value '7'")],
)
def test_cells_that_there_are_not_are_told_before_anything_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], told_of: str
) -> None:
    code, _, err = told(capsys, "run", "falcon-10", *words, "--out", str(tmp_path))
    assert code == 2
    assert told_of in err


@pytest.mark.parametrize("command", ["report", "check"])
def test_without_results_it_says_what_to_run(capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str) -> None:
    code, _, err = told(capsys, command, "--out", str(tmp_path))
    assert code == 2
    assert "peregrine bench run NAME" in err
