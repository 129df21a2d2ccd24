"""A hand-over is judged by a round trip and a trigger interval, with the seconds before it."""

import numpy as np
import pytest

from peregrine.bench.engine.handovers import HandOver, worst_share
from peregrine.measure import Outputs

ROUND_TRIP_MS = 80.0
ONE = HandOver(calm_ms=0, moved_ms=2000, settled_ms=5000, trigger_ms=100)


def outputs(peak_ms: float, at_ms: float = 3000) -> Outputs:
    emitted = np.arange(0, 6000, 10.0)
    latency = np.full(len(emitted), 200.0)
    latency[emitted == at_ms] = peak_ms
    return Outputs(emitted, latency)


def test_the_peak_counts_over_the_mean_of_the_calm_just_before() -> None:
    assert ONE.jitter_ms(outputs(380)) == 180
    assert ONE.share(outputs(380), ROUND_TRIP_MS) == 1, "a round trip of 80 ms and an interval of 100 ms"


def test_one_that_is_later_than_a_round_trip_and_an_interval_is_above_the_bound() -> None:
    assert ONE.share(outputs(399), ROUND_TRIP_MS) > 1


def test_what_is_late_before_the_hand_over_or_behind_it_is_not_its_fault() -> None:
    for at_ms in (5500, 5000):
        assert ONE.jitter_ms(outputs(900, at_ms)) == 0


def test_the_worst_of_all_hand_overs_counts() -> None:
    other = HandOver(5000, 5500, 5900, 100)
    assert worst_share([other, ONE], outputs(380), ROUND_TRIP_MS) == pytest.approx(1)
    assert worst_share([], outputs(380), ROUND_TRIP_MS) is None
