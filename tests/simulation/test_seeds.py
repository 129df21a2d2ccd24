"""Random runs with every mechanism and every kind of fault, each compared with a run in which nothing happened.

Fixed seeds, so that a change that breaks one is caught where it was made; and fresh ones, so that every run of the
suite looks somewhere new. A failure prints the command that replays it.
"""

import secrets

import pytest

from peregrine.core.mechanisms import MECHANISMS
from peregrine.sim.runner import run_seed
from peregrine.sim.scenario import Options

FIXED = 120
FRESH = 60
CHUNK = 10


def violations_of(seeds: range, options: Options) -> list[str]:
    flags = f" --mechanism {options.mechanism}" if options.mechanism else ""
    return [
        f"{violation}\n  replay: peregrine simulate --seed {seed} --explain{flags}"
        for seed in seeds
        for violation in run_seed(seed, options).violations
    ]


@pytest.mark.parametrize("start", range(0, FIXED, CHUNK))
def test_fixed_seeds_have_no_violation(start: int) -> None:
    assert not violations_of(range(start, start + CHUNK), Options())


@pytest.mark.parametrize("chunk", range(FRESH // CHUNK))
def test_fresh_seeds_have_no_violation(chunk: int) -> None:
    start = secrets.randbelow(10**9)
    assert not violations_of(range(start, start + CHUNK), Options())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_each_mechanism_by_itself_has_no_violation(mechanism: str) -> None:
    assert not violations_of(range(7000, 7006), Options(mechanism=mechanism))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_each_mechanism_is_really_exercised(mechanism: str) -> None:
    """A run in which nothing moves proves nothing: over a few seeds, each mechanism completes migrations."""
    moved = sum(run_seed(seed, Options(mechanism=mechanism)).migrations.get(mechanism, 0) for seed in range(7000, 7006))
    assert moved >= 5
