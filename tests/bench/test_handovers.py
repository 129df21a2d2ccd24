"""A hand-over is judged by a round trip and a trigger interval, with the seconds before it."""

import numpy as np
import pytest

from peregrine.bench.engine.handovers import HandOver, worst_share
from peregrine.errors import ConfigurationError
from peregrine.measure import Outputs

ROUND_TRIP_MS = 80.0
ONE = HandOver(calm_ms=(0, 2000), moved_ms=2000, settled_ms=5000, trigger_ms=100)


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


def test_a_row_of_the_hand_over_that_hangs_until_all_is_settled_counts() -> None:
    assert ONE.jitter_ms(outputs(1500, at_ms=5500)) == 1300, "it was made at 4000"


def test_what_was_made_when_all_had_settled_is_not_its_fault() -> None:
    assert ONE.jitter_ms(outputs(400, at_ms=5500)) == 0


def test_a_hand_over_without_results_is_no_hand_over_without_jitter() -> None:
    with pytest.raises(ConfigurationError, match="no result of the hand-over"):
        ONE.jitter_ms(outputs(380).between(0, 2000))


def test_the_worst_of_all_hand_overs_counts() -> None:
    other = HandOver((5000, 5500), 5500, 5900, 100)
    found = worst_share([other, ONE], outputs(380), outputs(290), ROUND_TRIP_MS)
    assert found == pytest.approx((1, 0.5)), "those who stayed were later, too"
    assert worst_share([], outputs(380), outputs(290), ROUND_TRIP_MS) is None
