"""The papers' metrics of a reconfiguration (Falcon IV, survey III-B)."""

import numpy as np
import pytest

from peregrine.errors import ConfigurationError
from peregrine.measure import disruption_ms, freeze_ms, peak_jitter_ms, steady

TIMES = np.arange(0.0, 2000.0, 10.0)


def latencies(peak: float = 0.0, first: int = 120, last: int = 125) -> np.ndarray:
    values = 50 + np.sin(np.arange(len(TIMES)))
    values[first:last] += peak
    return values


def test_disruption_is_where_the_latency_reaches_the_mean_plus_five_sigma() -> None:
    """Falcon IV: five outputs in a row are too late, 10 ms apart; the sixth is as usual again."""
    calm = steady(TIMES, latencies(), 1000)
    assert disruption_ms(TIMES, latencies(), calm, 1000) == 0
    assert disruption_ms(TIMES, latencies(peak=40), calm, 1000) == 50


def test_two_disruptions_count_both_and_the_calm_between_them_does_not() -> None:
    values = latencies(peak=40)
    values[150:153] += 40
    calm = steady(TIMES, latencies(), 1000)
    assert disruption_ms(TIMES, values, calm, 1000) == 50 + 30


def test_a_disruption_that_does_not_end_counts_to_the_last_output() -> None:
    calm = steady(TIMES, latencies(), 1000)
    assert disruption_ms(TIMES, latencies(peak=40, last=200), calm, 1000) == TIMES[-1] - TIMES[120]


def test_peak_jitter_is_the_peak_minus_the_steady_mean() -> None:
    """Falcon IV."""
    calm = steady(TIMES, latencies(), 1000)
    assert peak_jitter_ms(TIMES, latencies(peak=40), calm, 1000) == pytest.approx(40, abs=1.5)


def test_freeze_is_the_longest_silence_around_the_move() -> None:
    """Survey III-B: from the old host's stop to the new host's start."""
    gap = np.concatenate([TIMES[TIMES < 1200], TIMES[TIMES >= 1500]])
    assert freeze_ms(gap, 1100, 1600) == pytest.approx(310)
    assert freeze_ms(TIMES, 1100, 1600) == pytest.approx(10)


def test_without_a_steady_state_there_is_no_figure() -> None:
    with pytest.raises(ConfigurationError, match="no steady state"):
        steady(TIMES, latencies(), 5)
