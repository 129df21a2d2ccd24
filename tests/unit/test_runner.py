"""Seeds give the same run anywhere, and whatever a seed raises is a finding about that seed."""

import os
import pickle
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import pytest

from peregrine.errors import PeregrineError, ProtocolError
from peregrine.sim import runner
from peregrine.sim.runner import SeedResult, Totals, play, run_many, run_seed
from peregrine.sim.scenario import Options
from peregrine.sim.simulation import Simulation

SMALL = Options(sites=3, rows=40)
SEED = 11


def digest_elsewhere(hash_seed: str) -> str:
    code = (
        "from peregrine.sim.runner import run_seed\n"
        "from peregrine.sim.scenario import Options\n"
        f"print(run_seed({SEED}, Options(sites=3, rows=40)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


def test_a_seed_gives_the_same_run_in_every_process_and_for_every_hash_seed() -> None:
    here = run_seed(SEED, SMALL)
    assert digest_elsewhere("1") == digest_elsewhere("2") == f"{here}\n"


def test_different_seeds_have_different_digests() -> None:
    assert len({run_seed(seed, SMALL).digest for seed in range(3)}) == 3


def test_the_digest_covers_results_states_and_story() -> None:
    run = play(SEED, replace(SMALL, mechanism="drain")).run  # its application keeps a sum
    before = runner.digest(run)
    run.world.tell("something else")
    told = runner.digest(run)
    for host in run.hosts.values():
        host.states.clear()
    forgotten = runner.digest(run)
    for router in run.routers.values():
        router.store.results.lose(0)
    assert len({before, told, forgotten, runner.digest(run)}) == 4


def test_a_result_survives_pickling() -> None:
    result = run_seed(SEED, SMALL)
    assert pickle.loads(pickle.dumps(result)) == result


@pytest.mark.parametrize("error", [AssertionError("left"), ProtocolError("no such leg", "replay it"), KeyError(3)])
def test_an_error_in_a_run_is_a_violation_with_its_traceback(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def break_down(self: Simulation) -> Simulation:
        raise error

    monkeypatch.setattr(Simulation, "run", break_down)
    result = run_seed(SEED, SMALL)
    (violation,) = result.violations
    assert violation.startswith(f"raised {type(error).__name__}: ")
    assert "break_down" in violation


def test_a_scenario_that_cannot_be_drawn_is_a_violation_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(seed: int, options: Options) -> None:
        raise ValueError("no scenario")

    monkeypatch.setattr(runner, "draw", fail)
    assert run_seed(SEED, SMALL).violations[0].startswith("raised ValueError: no scenario")


def test_many_processes_find_what_one_finds() -> None:
    seeds = range(6)
    alone: list[SeedResult] = []
    shared: list[SeedResult] = []
    run_many(seeds, SMALL, 1, alone.append)
    run_many(seeds, SMALL, 2, shared.append)
    assert sorted(shared, key=lambda result: result.seed) == alone


def test_an_interrupt_reaches_the_caller_with_what_was_done_before() -> None:
    done: list[SeedResult] = []

    def interrupt(result: SeedResult) -> None:
        done.append(result)
        if len(done) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_many(range(400), SMALL, 2, interrupt)
    assert len(done) == 3


def test_a_killed_worker_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise BrokenProcessPool

    monkeypatch.setattr(runner, "_feed", die)
    with pytest.raises(PeregrineError, match="--processes 1"):
        run_many(range(100), SMALL, 2, lambda result: None)


def test_totals_do_not_depend_on_the_order_of_results() -> None:
    results = [run_seed(seed, SMALL) for seed in range(3)]
    one, other = Totals(), Totals()
    for result in results:
        one.add(result)
    for result in reversed(results):
        other.add(result)
    assert one == other
    assert one.runs == 3 and one.rows == sum(result.rows for result in results)
