"""What is read off a log and a state store: rates, the five inputs of Spacker IV-C, units by group."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peregrine.core.keyspace import group_of, stable_hash
from peregrine.plan.metrics import NOTHING_SEEN, Load, Metrics, measured, seen, zipf_exponent
from peregrine.types import OpId, PlaceId

OP, CLOUD = OpId("app/op"), PlaceId("cloud")


@pytest.mark.parametrize("exponent", [0.0, 0.15, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_zipf_distribution_is_found(exponent: float) -> None:
    rates = [1000 * rank**-exponent for rank in range(1, 2001)]
    assert zipf_exponent(rates) == pytest.approx(exponent, abs=1e-6)


def test_the_exponent_is_found_in_rows_that_were_drawn() -> None:
    draw = np.random.default_rng(5)
    shares = np.arange(1, 101) ** -1.0
    counts = draw.multinomial(5_000, shares / shares.sum())
    assert zipf_exponent(counts.tolist()) == pytest.approx(1.0, abs=0.1)


def test_one_key_alone_is_not_skewed() -> None:
    assert zipf_exponent([3.0]) == 0.0
    assert zipf_exponent([]) == 0.0
    assert zipf_exponent([5.0, 0.0, 0.0]) == 0.0


def test_rates_come_from_the_rows_within_the_window() -> None:
    times_ms = np.array([0.0, 8_000, 8_500, 9_000, 9_500, 10_000])
    found = seen(["old", "a", "b", "a", "a", "a"], times_ms, window_ms=2_000)
    assert found.rows_per_s == {"a": 2.0, "b": 0.5}
    assert found.last_row_ms == {"a": 10_000.0, "b": 8_500.0}
    assert found.keys_per_s == 2.0  # a and b in the first second, a in the second one and at its end


def test_rows_that_reach_back_less_than_the_window_count_over_what_they_cover() -> None:
    assert seen(["a"] * 11, np.arange(11) * 100.0, window_ms=60_000).rows_per_s == {"a": 11.0}


def test_without_rows_nothing_is_seen() -> None:
    assert seen([], np.empty(0), 1_000) == NOTHING_SEEN
    assert NOTHING_SEEN.access_ratio(0) == 0.0


def test_keys_are_known_by_their_rows_or_by_their_state() -> None:
    rows = seen(["a", "a"], np.array([0.0, 1_000.0]), 10_000)
    metrics = measured(OP, 8, rows, {"b": 7}, lambda key: CLOUD)
    assert metrics.load("a") == Load(2.0, 0, 1_000.0, CLOUD)
    assert metrics.load("b") == Load(0.0, 7, None, CLOUD)
    assert metrics.load("never seen") == Load()
    inputs = metrics.inputs(["a", "b"])
    assert (inputs.rows_per_s, inputs.key_bytes, inputs.keys, inputs.access_ratio) == (2.0, 3.5, 2, 1.0)


@given(st.dictionaries(st.text(max_size=4), st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=30))
def test_by_group_nothing_is_lost(given: dict[str, tuple[int, int]]) -> None:
    metrics = Metrics(OP, 4, {key: Load(float(rate), size) for key, (rate, size) in given.items()})
    grouped = metrics.by_group()
    assert set(grouped.loads) == {group_of(stable_hash(key), 4) for key in given}
    assert grouped.total(grouped.loads).keys == len(given)
    assert grouped.total(grouped.loads).state_bytes == sum(size for _, size in given.values())
    assert grouped.total(grouped.loads).rows_per_s == sum(rate for rate, _ in given.values())
