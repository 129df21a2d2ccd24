"""Random runs with every mechanism and every kind of fault, each compared with a run in which nothing happened.

Fixed seeds, those that have found something, and fresh ones, so that every change looks somewhere new. A failure prints
the command that replays it.
"""

import pytest

from peregrine.core.mechanisms import MECHANISMS
from peregrine.sim.runner import SeedResult, run_seed
from peregrine.sim.scenario import Options
from seeds import fresh

FIXED = 120
FRESH = 60
CHUNK = 10


def without_violation(seeds: range, options: Options) -> list[SeedResult]:
    flags = f" --mechanism {options.mechanism}" if options.mechanism else ""
    found = [run_seed(seed, options) for seed in seeds]
    assert not [
        f"{violation}\n  replay: peregrine simulate --seed {each.seed} --explain{flags}"
        for each in found
        for violation in each.violations
    ]
    return found


@pytest.mark.parametrize("start", range(0, FIXED, CHUNK))
def test_fixed_seeds_have_no_violation(start: int) -> None:
    without_violation(range(start, start + CHUNK), Options())


@pytest.mark.parametrize("chunk", range(FRESH // CHUNK))
def test_fresh_seeds_have_no_violation(chunk: int) -> None:
    start = fresh("seeds") + chunk * CHUNK
    without_violation(range(start, start + CHUNK), Options())


@pytest.mark.parametrize(
    "seed",
    [
        # Outputs through the gate of the root came 0.7 s later than those behind them through the gate at home.
        504369231,
    ],
)
def test_seeds_that_have_found_something_have_no_violation(seed: int) -> None:
    without_violation(range(seed, seed + 1), Options())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_each_mechanism_by_itself_is_really_exercised_and_has_no_violation(mechanism: str) -> None:
    """A run in which nothing moves proves nothing: over a few seeds, each mechanism completes migrations."""
    found = without_violation(range(7000, 7006), Options(mechanism=mechanism))
    assert sum(each.migrations.get(mechanism, 0) for each in found) >= 5
