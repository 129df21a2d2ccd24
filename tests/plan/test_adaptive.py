"""The default strategy decides as Spacker IV-C does, and its thresholds come from measurement."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peregrine.errors import ConfigurationError
from peregrine.plan.adaptive import Adaptive, decide
from peregrine.plan.calibration import NEVER, Calibration, Goal, Measured, crossover, derived, from_json
from peregrine.plan.chunking import NChunks, all_at_once
from peregrine.plan.metrics import Inputs, Load, Metrics
from peregrine.plan.orders import RANDOM, hot_first
from peregrine.plan.replicas import Ratio, no_replicas
from peregrine.types import OpId, PlaceId

MUCH = Calibration(
    high_rows_per_s=1_000, high_skew=0.5, large_key_bytes=1e5, many_keys=100, low_access_ratio=0.1, round_bytes=1e6
)
FEW, MANY = NChunks(MUCH.less_chunks), NChunks(MUCH.more_chunks)


@pytest.mark.parametrize(
    ("inputs", "functions"),
    [
        # The stock exchange of Spacker's table II: large state, many keys, few accesses, low rate.
        (Inputs(500, 0.15, 1e6, 10_000, 0.027), (RANDOM, FEW, Ratio(0.5))),
        # The phases of figure 7: few keys with little state; the whole key space; and the same, skewed and busy.
        (Inputs(500, 0.0, 1e3, 50, 0.02), (RANDOM, all_at_once, no_replicas)),
        (Inputs(500, 0.0, 1e6, 1_024, 0.02), (RANDOM, FEW, Ratio(0.5))),
        (Inputs(5_000, 1.0, 1e6, 1_024, 0.02), (hot_first, FEW, Ratio(0.5))),
        # Few keys with large state go one by one, and what is touched all the time is not replicated.
        (Inputs(5_000, 0.1, 1e6, 10, 0.9), (RANDOM, MANY, no_replicas)),
        (Inputs(500, 2.0, 1e6, 10, 0.9), (RANDOM, MANY, no_replicas)),
        # Large, but all of it travels within a round.
        (Inputs(500, 0.0, 2e5, 2, 0.9), (RANDOM, all_at_once, no_replicas)),
    ],
)
def test_the_five_inputs_decide(inputs: Inputs, functions: tuple[object, ...]) -> None:
    decision = decide(inputs, MUCH)
    made = decision.functions
    assert (made.prioritise, made.chunk, made.replicate) == functions
    assert len(decision.reasons) == 3


def test_the_strategy_decides_by_the_keys_that_it_is_asked_about() -> None:
    place = PlaceId("cloud")
    loads = {f"key{i}": Load(10_000 / (i + 1), 10**6, 0.0, place) for i in range(200)}
    metrics = Metrics(OpId("app/op"), 16, loads, access_ratio=0.01, places=(place, PlaceId("edge")))
    adaptive, keys = Adaptive(MUCH), list(reversed(loads))
    assert adaptive.prioritise(keys, metrics) == list(loads)
    assert len(adaptive.chunk(keys, metrics)) == MUCH.less_chunks
    assert len(adaptive.replicate(keys, metrics)) == 100
    assert adaptive.chunk(keys[:5], metrics) == [[key] for key in keys[:5]]
    assert "hot-first" in adaptive.reasons(keys, metrics)[0]


# --- thresholds ---


def test_a_threshold_is_where_the_other_choice_becomes_the_better_one() -> None:
    assert crossover([(10, 1.0, 2.0), (1_000, 2.0, 1.0)]) == pytest.approx(100)
    assert crossover([(10, 1.0, 1.1), (1_000, 2.0, 1.0)]) == pytest.approx(10 * 100 ** (0.0953 / 0.7884), rel=1e-3)
    assert crossover([(10, 2.0, 1.0), (1_000, 2.0, 1.0)]) == 10
    assert crossover([(10, 1.0, 2.0)]) == NEVER
    assert crossover([(1, 2.0, 1.0), (2, 1.0, 2.0), (4, 2.0, 1.0)]) == pytest.approx(2 * 2**0.5)
    assert crossover([(0, 1.0, 2.0), (1, 2.0, 1.0)]) == 1
    assert crossover([]) is None


def truth(key_bytes: float, chunks: int) -> tuple[float, float]:
    """A round takes 100 ms and a byte 1e-5 ms; a spike is what one chunk takes."""
    each = 100 + key_bytes * 50 / chunks * 1e-5
    return each, each * chunks


def test_thresholds_follow_from_measured_points() -> None:
    points = []
    for key_bytes in (1e3, 1e4, 1e5, 1e6, 1e7):
        for choice, chunks in (("all-at-once", 1), ("chunks", 4)):
            points.append(Measured("key_bytes", key_bytes, choice, *truth(key_bytes, chunks)))
    found = derived(points, Goal(spike=2, completion=1, overhead=0))
    assert 1e4 < found.large_key_bytes < 1e7
    assert found.many_keys == Calibration().many_keys  # nobody has measured it
    hasty = derived(points, Goal(spike=0, completion=1, overhead=0))
    assert hasty.large_key_bytes == NEVER


def test_a_measurement_of_something_else_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        derived([Measured("weather", 1, "random", 1, 1)])


@given(st.builds(Calibration, high_rows_per_s=st.floats(0, NEVER), many_keys=st.floats(0, 1e9)))
def test_a_calibration_is_kept_as_json(much: Calibration) -> None:
    assert from_json(much.to_json()) == much


def test_a_calibration_that_cannot_be_read_says_so() -> None:
    for text in ("{", '{"many_keys": "many"}'):
        with pytest.raises(ConfigurationError):
            from_json(text)
