"""What a person types, what is printed, and the exit code."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import peregrine
from peregrine.cli import main
from peregrine.control import demo as spark_demo
from peregrine.core.mechanisms import MECHANISMS
from peregrine.proof import Proof
from peregrine.sim import cars, checkers, retelling, runner
from peregrine.sim.runner import SeedResult
from peregrine.sim.scenario import Options
from peregrine.sim.simulation import Simulation

FINE = SeedResult(0, 100, {"live": 2}, 1, 3, 4, 1000, (), "digest")


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_who_is_told_to_end_cleans_up_as_with_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned: list[bool] = []

    def works(**_: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            cleaned.append(True)

    monkeypatch.setattr("peregrine.cli.app", works)
    before = signal.getsignal(signal.SIGTERM)
    assert call() == 128 + signal.SIGTERM
    assert cleaned and signal.getsignal(signal.SIGTERM) is before


def fake_seeds(monkeypatch: pytest.MonkeyPatch, *violating: int) -> list[tuple[int, Options]]:
    """Runs nothing; the given seeds violate."""
    asked: list[tuple[int, Options]] = []

    def run_seed(seed: int, options: Options) -> SeedResult:
        asked.append((seed, options))
        return replace(FINE, seed=seed, violations=("none lost: [k1] is gone",) if seed in violating else ())

    monkeypatch.setattr(runner, "run_seed", run_seed)
    return asked


def test_a_search_without_violation_ends_with_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("simulate", "--seeds", "2", "--sites", "3", "--faults", "none", "--mechanism", "pause") == 0
    printed = capsys.readouterr().out
    for fact in ("runs", "rows", "migrations", "pause", "cancelled", "refused plans", "crashes", "events/s", "seconds"):
        assert fact in printed
    assert "replay" not in printed


def test_every_violating_seed_comes_with_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_seeds(monkeypatch, 4, 6)
    options = ("--mechanism", "live", "--sites", "3", "--faults", "none")
    assert call("simulate", "--start", "4", "--seeds", "3", "--processes", "1", *options) == 1
    printed = capsys.readouterr().out
    assert "replay: peregrine simulate --seed 4 --explain --mechanism live --sites 3 --faults none\n" in printed
    assert "replay: peregrine simulate --seed 6 --explain --mechanism live --sites 3 --faults none\n" in printed
    assert "--seed 5" not in printed
    assert "none lost: [k1] is gone" in printed


def test_the_replay_command_leaves_out_what_was_not_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_seeds(monkeypatch, 7)
    assert call("simulate", "--seed", "7") == 1
    assert "replay: peregrine simulate --seed 7 --explain\n" in capsys.readouterr().out


def test_no_more_than_ten_violating_seeds_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_seeds(monkeypatch, *range(12))
    assert call("simulate", "--seeds", "20", "--processes", "1") == 1
    printed = capsys.readouterr().out
    assert printed.count("replay:") == 10
    assert "2 more violating seeds" in printed


def test_seed_and_start_choose_what_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = fake_seeds(monkeypatch)
    call("simulate", "--seed", "42")
    call("simulate", "--start", "5", "--seeds", "2", "--faults", "none")
    assert [seed for seed, _ in asked] == [42, 5, 6]
    assert [options.faults for _, options in asked] == [True, False, False]


def test_json_is_one_object_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_seeds(monkeypatch, 1)
    assert call("simulate", "--seeds", "2", "--processes", "1", "--json") == 1
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["runs"] == 2
    assert outcome["migrations"] == {"live": 4}
    assert [found["seed"] for found in outcome["violations"]] == [1]


def test_an_interrupted_search_tells_what_it_found_so_far(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_seed(seed: int, options: Options) -> SeedResult:
        if seed == 2:
            raise KeyboardInterrupt
        return replace(FINE, seed=seed)

    monkeypatch.setattr(runner, "run_seed", run_seed)
    assert call("simulate", "--seeds", "9", "--processes", "1") == 130
    assert "stopped after 2 of 9" in capsys.readouterr().out


def test_explain_tells_topology_operators_sources_timeline_and_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("simulate", "--seed", "1", "--explain", "--mechanism", "live", "--sites", "3", "--faults", "none") == 0
    printed = capsys.readouterr().out
    places = [printed.index(word) for word in ("Seed 1", "cloud", "Operators", "Sources", "What happened", "Verdict")]
    assert places == sorted(places)
    for word in ("submitted: live", "at rest", "no violation"):
        assert word in printed


def test_explain_tells_a_run_that_broke_down_as_far_as_it_came(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def break_down(self: Simulation) -> bool:
        raise AssertionError("broken on purpose")

    monkeypatch.setattr(Simulation, "_at_rest", break_down)
    assert call("simulate", "--seed", "1", "--explain") == 1
    printed = capsys.readouterr().out
    assert "violation: raised AssertionError: broken on purpose" in printed and "Verdict" in printed


def test_explain_of_many_runs_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("simulate", "--explain") == 2
    assert "add --seed N" in capsys.readouterr().err


def test_an_unknown_mechanism_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("simulate", "--mechanism", "teleport") == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "unknown mechanism 'teleport'" in printed.err
    assert "live-unordered" in printed.err
    assert "Traceback" not in printed.err


SCRIPT = """\
site cloud
site edge1 under cloud, 10 ms
app roam
car1 at edge1 sends 20 rows of car1 every 10 ms from 0
at 50 migrate live roam/track car1 cloud -> edge1
"""


def test_a_script_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "some.txt"
    file.write_text(SCRIPT)
    assert call("simulate", "--script", str(file)) == 0
    printed = capsys.readouterr().out
    assert "50  plan1 submitted: live, roam/track {car1} cloud -> edge1\n" in printed
    assert "\nrows in 20, rows out 20\nlost 0, repeated 0, out of order 0, state equal\n" in printed


def test_a_script_that_ends_badly_ends_with_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(retelling, "retell", lambda script: retelling.Retold("it went wrong\n", ("none lost: all",)))
    file = tmp_path / "some.txt"
    file.write_text(SCRIPT)
    assert call("simulate", "--script", str(file)) == 1
    assert capsys.readouterr().out == "it went wrong\n"


@pytest.mark.parametrize("text", ["site cloud\nboom\n", None])
def test_a_script_that_cannot_be_read_is_refused_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    file = tmp_path / "some.txt"
    if text is not None:
        file.write_text(text)
    assert call("simulate", "--script", str(file)) == 2
    said = capsys.readouterr().err
    assert (f"{file}, line 2: cannot read 'boom'" if text else f"cannot read {file}") in said
    assert "remedy:" in said


def test_the_simulated_demo_without_a_terminal_prints_lines_and_the_proof(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("demo", "--simulated") == 0
    printed = capsys.readouterr().out
    for phase in cars.Phase:
        assert printed.count(f"  {phase}: ") == 3  # to the edge, up after the car, down after the car
    facts = dict(line.rsplit(maxsplit=1) for line in printed.splitlines()[-6:])
    assert facts["rows in"] == facts["rows out"] == "1,000"
    assert [facts[name] for name in ("lost", "repeated", "out of order", "states that differ, of 10")] == ["0"] * 4


def test_the_simulated_demo_ends_with_one_if_the_stream_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = checkers.prove

    def prove(run: Simulation) -> Proof:
        results = run.routers[cars.CLOUD].store.results
        results.lose(results.end - 1)
        return honest(run)

    monkeypatch.setattr(checkers, "prove", prove)
    assert call("demo", "--simulated", "--fast") == 1
    assert "violation: none lost" in capsys.readouterr().out


@pytest.mark.parametrize(("holds", "code"), [(True, 0), (False, 1)])
def test_the_demo_on_spark_ends_with_one_if_the_proof_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, holds: bool, code: int
) -> None:
    asked: list[tuple[Path | None, Path | None, str]] = []

    def run_demo(console: Console, picture: Path | None, json_file: Path | None, runner: str) -> bool:
        asked.append((picture, json_file, runner))
        return holds

    monkeypatch.setattr(spark_demo, "run_demo", run_demo)
    assert call("demo", "--picture", str(tmp_path / "a.svg"), "--json", str(tmp_path / "a.json")) == code
    assert call("demo", "--continuous") == code
    assert asked == [
        (tmp_path / "a.svg", tmp_path / "a.json", "microbatch"),
        (Path("peregrine-demo.png"), None, "continuous"),
    ]


def test_ctrl_c_in_the_demo_on_spark_is_answered_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(spark_demo, "run_demo", interrupt)
    assert call("demo") == 130
    assert capsys.readouterr().err == f"{spark_demo.STOPPED}\n"


def test_the_demo_says_before_it_starts_that_it_cannot_write_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("demo", "--json", str(tmp_path / "nowhere" / "a.json")) == 2
    assert "there is no directory" in capsys.readouterr().err


def test_fast_is_for_the_simulator(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("demo", "--fast") == 2
    assert "remedy: add --simulated" in capsys.readouterr().err


def test_every_mechanism_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("mechanisms") == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line[:1].strip()}
    assert listed >= set(MECHANISMS)


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--version") == 0
    assert capsys.readouterr().out == f"peregrine {peregrine.__version__}\n"


@pytest.mark.parametrize("command", [(), ("simulate",), ("demo",), ("mechanisms",)])
def test_every_command_has_help(capsys: pytest.CaptureFixture[str], command: tuple[str, ...]) -> None:
    assert call(*command, "--help") == 0
    assert "Usage: peregrine" in capsys.readouterr().out


def test_help_imports_neither_arrow_nor_the_simulator() -> None:
    code = "import sys, peregrine.cli; print([m for m in ('pyarrow', 'numpy', 'peregrine.sim') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
