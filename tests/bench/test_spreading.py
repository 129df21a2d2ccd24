"""What those feel who read results while an operator comes to one more edge."""

import numpy as np

from peregrine.app.compile import compile_app
from peregrine.bench.engine.applications import APPLICATIONS
from peregrine.bench.engine.definition import Setting
from peregrine.bench.engine.flow import Feed
from peregrine.bench.engine.spreading import feels, keys_of, longest_gap_ms
from peregrine.measure import Outputs

CALM = np.arange(0, 1000, 10.0)


def test_the_longest_time_without_a_result_counts_also_at_the_end() -> None:
    assert longest_gap_ms(CALM, 0, 1000) == 10
    assert longest_gap_ms(CALM, 0, 1300) == 310
    assert longest_gap_ms(np.array([]), 100, 400) == 300


def test_down_is_what_is_longer_without_results_than_the_calm() -> None:
    emitted = np.concatenate([CALM, 1000 + CALM[CALM < 200], 1500 + CALM[CALM < 500]])
    found = feels(Outputs(emitted, np.full(len(emitted), 50.0)), 0, 1000, 2000, agreed_ms=100)
    assert found.downtime_ms == 300
    assert (found.late, found.recovery_ms) == (0, 0)


def test_late_results_are_counted_from_the_request_on_and_recovery_ends_with_the_last() -> None:
    emitted = np.array([500.0, 1100, 1200, 1300, 1700])
    latency = np.array([900.0, 900, 50, 900, 900])
    found = feels(Outputs(emitted, latency), 0, 1000, 2000, agreed_ms=100)
    assert (found.late, found.recovery_ms) == (3, 600)


def test_each_device_has_keys_of_its_own() -> None:
    for name in ("tweets", "sensors"):
        setting = Setting(app=name, edges=3, rows_per_s=300)
        feed = Feed(APPLICATIONS[name], setting)
        found = keys_of(feed, compile_app(APPLICATIONS[name].app(feed.devices, {})))
        assert sorted(found) == sorted(feed.devices) and len(found) == 3
        one, two, three = found.values()
        assert one and one.isdisjoint(two) and two.isdisjoint(three) and three.isdisjoint(one)
