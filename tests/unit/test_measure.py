"""The papers' metrics of a reconfiguration (Falcon IV, survey III-B)."""

from dataclasses import replace

import numpy as np
import pytest

from peregrine.core.coordinator import PlanEnded, Status
from peregrine.core.messages import Attached, Reached, Report
from peregrine.core.reconfigure import Plan
from peregrine.core.replication import StateMoved
from peregrine.errors import ConfigurationError
from peregrine.measure import Outputs, cost, covered_ms, disruption_ms, freeze_ms, peak_jitter_ms, phases, steady
from peregrine.sim import cars
from peregrine.sim.simulation import Simulation
from peregrine.types import MigrationId, SiteId, SourceId

TIMES = np.arange(0.0, 2000.0, 10.0)
EDGE, CLOUD = SiteId("edge"), SiteId("cloud")


def said(at_ms: float, step: str, migration: str = "half.0.0", bytes_moved: int = 0) -> tuple[float, object]:
    id = MigrationId(migration)
    if step in ("snapshot", "sent", "restored"):
        return at_ms, Reached(CLOUD, id, step)
    return at_ms, Report(EDGE, id, step, StateMoved(bytes_moved))


LIVE = [
    said(1010, "begun"),
    said(1050, "snapshot"),
    said(1100, "sent"),
    said(1150, "restored"),
    said(1250, "switched"),
    said(1400, "done", bytes_moved=74),
]


def latencies(peak: float = 0.0, first: int = 120, last: int = 125) -> np.ndarray:
    values = 50 + np.sin(np.arange(len(TIMES)))
    values[first:last] += peak
    return values


def test_disruption_is_where_the_latency_reaches_the_mean_plus_five_sigma() -> None:
    """Falcon IV: five outputs in a row are too late, 10 ms apart; the sixth is as usual again. The first of them was
    overdue since the last that came in time.
    """
    calm = steady(TIMES, latencies(), 1000)
    assert disruption_ms(TIMES, latencies(), calm, 1000) == 0
    assert disruption_ms(TIMES, latencies(peak=40), calm, 1000) == 10 + 50


def test_the_silence_before_a_late_output_is_a_disruption_from_when_the_output_was_overdue() -> None:
    """A restart: nothing for 300 ms, then everything that has waited at once, and on as usual."""
    calm = steady(TIMES, latencies(), 1000)
    spoken = (TIMES < 1200) | (TIMES >= 1500)
    times, values = TIMES[spoken], latencies()[spoken]
    values[times == 1500] = 350
    overdue_ms = 350 - calm.disrupted_from_ms
    assert disruption_ms(times, values, calm, 1000) == pytest.approx(overdue_ms + 10)
    assert disruption_ms(times, values, calm, 1400) == 110  # what was before it was asked for is not its fault


def test_two_disruptions_count_both_and_the_calm_between_them_does_not() -> None:
    values = latencies(peak=40)
    values[150:153] += 40
    calm = steady(TIMES, latencies(), 1000)
    assert disruption_ms(TIMES, values, calm, 1000) == 60 + 40


def test_a_disruption_that_does_not_end_counts_to_the_last_output() -> None:
    calm = steady(TIMES, latencies(), 1000)
    assert disruption_ms(TIMES, latencies(peak=40, last=200), calm, 1000) == TIMES[-1] - TIMES[119]


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


def test_two_results_of_one_moment_count_as_the_slower_one() -> None:
    """A batch that mixes late and punctual rows is late until the next batch, whatever the order of its rows."""
    calm = steady(TIMES, latencies(), 1000)
    times, values = np.repeat(TIMES, 2), np.repeat(latencies(peak=40), 2)
    for punctual in (0, 1):
        mixed = values.copy()
        mixed[punctual::2] = 50
        assert disruption_ms(times, mixed, calm, 1000) == 60


# --- the cost of a plan ---


def seen(peak: float = 40.0) -> Outputs:
    return Outputs(TIMES, latencies(peak))


CALM = steady(TIMES, latencies(), 1000)


def test_a_live_migration_has_all_figures_of_the_papers() -> None:
    found = cost("half", seen(), LIVE, CALM, requested_ms=1000)
    assert (found.requested_ms, found.ended_ms, found.duration_ms) == (1000, 1400, 400)
    assert found.disruption_ms == 60
    assert found.peak_jitter_ms == pytest.approx(40, abs=1.5)
    assert found.freeze_ms == 10
    assert found.state_movement_ms == 50  # survey III-B: from the first that is sent to the last that is there
    assert found.available_ms == 150  # ISQD 7.2.4: from the request to that
    assert found.bytes_moved == 74
    assert found.phases_ms == {"begin": 40, "snapshot": 50, "state": 50, "catch-up": 100, "switch": 150}


def test_the_request_is_the_first_word_of_a_router_if_nobody_else_knows_it() -> None:
    assert cost("half", seen(), LIVE, CALM).duration_ms == 1400 - 1010


def test_what_is_told_again_does_not_count_again() -> None:
    """Routers answer repeated commands, and a router that restarts tells some news twice."""
    again = [said(at_ms + 500, step, bytes_moved=74) for at_ms, step in ((1250, "switched"), (1400, "done"))]
    once, twice = (cost("half", seen(), timeline, CALM) for timeline in (LIVE, LIVE + again))
    assert once == twice


def test_the_phases_of_a_mechanism_that_switches_first_are_in_the_order_in_which_they_happened() -> None:
    steps = {"begun": 0.0, "switched": 0.0, "snapshot": 40.0, "sent": 60.0, "restored": 100.0, "done": 100.0}
    assert phases(steps) == [
        ("begin", 0, 0),
        ("switch", 0, 40),
        ("snapshot", 40, 60),
        ("state", 60, 100),
        ("catch-up", 100, 100),
    ]


def test_without_state_there_is_no_state_movement() -> None:
    drained = [said(1000, "begun"), said(1000, "switched"), said(1040, "done")]
    found = cost("half", seen(), drained, CALM)
    assert found.state_movement_ms is found.available_ms is None and found.bytes_moved == 0


def test_migrations_side_by_side_count_once_and_stages_one_after_the_other_add_up() -> None:
    beside = [(at_ms + 20, replaced("half.0.1", news)) for at_ms, news in LIVE]
    after = [(at_ms + 1000, replaced("half.1.0", news)) for at_ms, news in LIVE]
    assert cost("half", seen(), LIVE + beside, CALM).state_movement_ms == 70
    both = cost("half", seen(), LIVE + after, CALM)
    assert both.state_movement_ms == 100
    assert both.ended_ms == 2400
    assert both.bytes_moved == 2 * 74


def replaced(migration: str, news: object) -> object:
    assert isinstance(news, Report | Reached)
    return replace(news, migration=MigrationId(migration))


def test_the_manager_knows_best_how_much_was_moved() -> None:
    ended = PlanEnded(Plan("half", ()), Status.DONE, (), StateMoved(99))
    assert cost("half", seen(), [*LIVE, (1401, ended)], CALM).bytes_moved == 99


def test_other_plans_and_other_news_do_not_count() -> None:
    other = [(at_ms + 300, replaced("roam0-up.0.0", news)) for at_ms, news in LIVE]
    device = (1020.0, Attached(EDGE, SourceId("car1"), 0))
    assert cost("half", seen(), [device, *LIVE, *other], CALM) == cost("half", seen(), LIVE, CALM)


def test_what_the_next_reconfiguration_does_is_not_the_fault_of_this_one() -> None:
    late = Outputs(TIMES, latencies(peak=40, first=160, last=165))
    assert cost("half", late, LIVE, CALM).disruption_ms == 60
    assert cost("half", late, LIVE, CALM, until_ms=1500).disruption_ms == 0


def test_a_plan_that_has_not_ended_has_no_cost() -> None:
    for timeline in ([], LIVE[:-1], [*LIVE, said(1500, "begun", "half.1.0")]):
        with pytest.raises(ConfigurationError, match="does not tell the end of plan 'half'"):
            cost("half", seen(), timeline, CALM)


def test_stretches_that_overlap_are_covered_once() -> None:
    assert covered_ms([(0, 10), (5, 7), (8, 20), (30, 31)]) == 21
    assert covered_ms([]) == 0


def test_routers_tell_every_step_that_a_cost_is_made_of() -> None:
    """The same figures from the simulator: half of the keys move, then a car roams."""
    watch = cars.Watch(Simulation(cars.scenario()))
    timeline: list[tuple[float, object]] = []
    watch.run.watchers.append(lambda _, effect: timeline.append((watch.now_ms, effect)))
    watch.run.run()
    samples = [(each.at_ms, each.latency_ms) for each in watch.samples]
    outputs = Outputs(*(np.array(column) for column in zip(*samples, strict=True)))
    calm = steady(outputs.emitted_ms, outputs.latency_ms, cars.MOVE_AT_MS)
    for plan in ("to-the-edge", "roam0-up", "roam1-down"):
        found = cost(plan, outputs, timeline, calm)
        assert list(found.phases_ms) == ["begin", "snapshot", "state", "catch-up", "switch"]
        assert sum(found.phases_ms.values()) == pytest.approx(found.duration_ms)
        assert found.state_movement_ms == found.phases_ms["state"] >= 40  # one way over the link
        assert found.bytes_moved > 0
