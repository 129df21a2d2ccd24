"""What a month costs, by where the work is done."""

import pytest

from peregrine.bench.engine.renting import ACTIVE, CLOUD, EDGE, at_hour, per_month


def test_a_machine_is_rented_all_the_time_and_the_edge_by_the_hour() -> None:
    assert per_month(0, 0) == pytest.approx(30 * 24 * 0.17)
    assert per_month(0, 24) == pytest.approx(30 * 24 * 0.17 * 1.4)
    assert per_month(1e9, 0) - per_month(0, 0) == pytest.approx(30 * 0.01)


def test_hourly_goes_to_the_edge_when_there_is_much_to_send() -> None:
    assert [at_hour("hourly", active, 10) for active in range(6)] == [CLOUD, CLOUD, EDGE, EDGE, EDGE, EDGE]
    assert {at_hour("cloud", active, 10) for active in range(6)} == {CLOUD}
    assert {at_hour("edge", active, 10) for active in range(6)} == {EDGE}


def test_hourly_is_never_dearer_than_both() -> None:
    """With bytes as the rule expects them."""

    def cost(way: str, frames_per_s: float) -> float:
        sites = [at_hour(way, active, frames_per_s) for active in ACTIVE]
        hour = frames_per_s * 3600 * 130_000
        sent = sum(active * hour * (0.2 if site == EDGE else 1) for active, site in zip(ACTIVE, sites, strict=True))
        return per_month(sent, sites.count(EDGE))

    for frames_per_s in (1, 4, 10, 20):
        assert cost("hourly", frames_per_s) <= min(cost("cloud", frames_per_s), cost("edge", frames_per_s)) + 1e-9
    assert cost("hourly", 10) < min(cost("cloud", 10), cost("edge", 10))
