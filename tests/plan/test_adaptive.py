"""The default strategy decides as Spacker IV-C does, and its thresholds come from measurement."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peregrine.errors import ConfigurationError
from peregrine.plan.adaptive import Adaptive, best_count, decide
from peregrine.plan.calibration import DEFAULTS, Calibration, Costs, Goal, derived, from_json
from peregrine.plan.chunking import NChunks, all_at_once
from peregrine.plan.metrics import Inputs, Load, Metrics
from peregrine.plan.orders import RANDOM, hot_first
from peregrine.plan.replicas import Ratio, no_replicas
from peregrine.types import OpId, PlaceId

MUCH = Calibration(high_rows_per_s=1_000, high_skew=0.5, round_bytes=1e6, round_keys=1e4, low_access_ratio=0.3)


def inputs(rate: float, skew: float, key_bytes: float, keys: int, access: float, saved: float = 0.0) -> Inputs:
    return Inputs(rate, skew, key_bytes, keys, access, key_bytes * keys * (1 - saved))


@pytest.mark.parametrize(
    ("known", "functions"),
    [
        # The stock exchange of Spacker's table II: large state, many keys, few accesses, low rate.
        (inputs(500, 0.15, 1e4, 10_000, 0.027), (RANDOM, NChunks(101), Ratio(1 - 0.027))),
        # The phases of figure 7: little state; the whole key space, with its replicas; and the same, skewed and busy.
        (inputs(500, 0.0, 1e3, 250, 0.02), (RANDOM, all_at_once, no_replicas)),
        (inputs(500, 0.0, 1e4, 1_000, 0.02, saved=0.98), (RANDOM, all_at_once, Ratio(0.98))),
        (inputs(500, 0.0, 1e4, 1_000, 0.02, saved=0.8), (RANDOM, NChunks(3), Ratio(0.98))),
        (inputs(5_000, 1.0, 1e4, 1_000, 0.9), (hot_first, NChunks(11), no_replicas)),
        # Few keys with large state go one by one, and what is touched all the time is not replicated.
        (inputs(5_000, 0.1, 1e6, 10, 0.9), (RANDOM, NChunks(10), no_replicas)),
        (inputs(500, 2.0, 1e6, 10, 0.9), (RANDOM, NChunks(10), no_replicas)),
        # Many keys take their time even without state.
        (inputs(500, 0.0, 10, 50_000, 0.9), (RANDOM, NChunks(6), no_replicas)),
        # Large, but all of it travels within a round.
        (inputs(500, 0.0, 2e5, 2, 0.9), (RANDOM, all_at_once, no_replicas)),
        (Inputs(0, 0, 0, 0, 0, 0), (RANDOM, all_at_once, no_replicas)),
    ],
)
def test_the_five_inputs_decide(known: Inputs, functions: tuple[object, ...]) -> None:
    decision = decide(known, MUCH)
    made = decision.functions
    assert (made.prioritise, made.chunk, made.replicate) == functions
    assert len(decision.reasons) == 3


def test_where_no_row_waits_for_state_chunks_would_only_take_longer() -> None:
    decision = decide(inputs(500, 0.0, 1e6, 100, 0.9), MUCH, rows_wait=False)
    assert decision.functions.chunk is all_at_once
    assert "no row waits" in decision.reasons[1]


@given(st.floats(0, 50), st.floats(0.1, 10), st.floats(0.1, 10))
def test_no_other_number_of_chunks_is_much_better_on_the_goal(rounds: float, spike: float, completion: float) -> None:
    def cost(chunks: int) -> float:
        return spike * (1 + rounds / chunks) + completion * (chunks + rounds) / (1 + rounds)

    chosen = best_count(rounds, replace(MUCH, goal=Goal(spike, completion)))
    assert cost(chosen) <= 1.05 * min(cost(count) for count in range(1, 600))


def test_the_strategy_decides_by_the_keys_that_it_is_asked_about() -> None:
    place = PlaceId("cloud")
    loads = {f"key{i}": Load(10_000 / (i + 1), 10**6, 0.0, place) for i in range(200)}
    metrics = Metrics(OpId("app/op"), 16, loads, access_ratio=0.01, places=(place, PlaceId("edge")))
    adaptive, keys = Adaptive(MUCH), list(reversed(loads))
    assert adaptive.prioritise(keys, metrics) == list(loads)
    assert len(adaptive.chunk(keys, metrics)) == 200
    assert len(adaptive.replicate(keys, metrics)) == 198
    assert adaptive.chunk(keys[:5], metrics) == [[key] for key in keys[:5]]
    assert "hot-first" in adaptive.reasons(keys, metrics)[0]


@pytest.mark.parametrize(("there", "told"), [(0, "0 of these 20"), (5, "5 of these 20")])
def test_the_reasons_say_which_replicas_there_are_and_that_a_plan_makes_none(there: int, told: str) -> None:
    loads = {f"quiet{i}": Load(0.0, 10**6) for i in range(20)}
    keys = list(loads)
    metrics = Metrics(OpId("app/op"), 16, loads, replicated=frozenset(keys[:there]))
    said = Adaptive(MUCH).reasons(keys, metrics)[2]
    assert "worth their cost for 100% of the keys" in said
    assert f"{told} have one at the target, and this plan makes none" in said


def test_what_the_target_has_a_fresh_replica_of_need_not_be_cut() -> None:
    loads = {"busy": Load(1e6, 10**6), **{f"quiet{i}": Load(0.0, 10**6) for i in range(20)}}
    metrics = Metrics(OpId("app/op"), 16, loads)
    assert len(Adaptive(MUCH).chunk(list(loads), metrics)) == 21
    there = replace(metrics, replicated=frozenset(loads))
    assert there.inputs(list(loads)).carried_bytes == pytest.approx(10**6)
    assert len(Adaptive(MUCH).chunk(list(loads), there)) == 1


# --- thresholds ---


def test_thresholds_follow_from_what_was_measured() -> None:
    found = derived(Costs(round_ms=300, ms_per_mb=60, ms_per_key=0.5, rows_per_s=8_000, replica_overhead=1.0))
    assert (found.round_bytes, found.round_keys, found.high_rows_per_s) == (5e6, 600, 2_000)
    assert found.low_access_ratio == 0.5


def test_dear_replicas_are_for_keys_that_are_hardly_touched() -> None:
    ratios = [derived(Costs(replica_overhead=each)).low_access_ratio for each in (0.0, 0.1, 1.0, 10.0)]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[0] > 0.99 and ratios[-1] < 0.1
    assert derived(Costs(), Goal(overhead=0)).low_access_ratio == 1.0


def test_a_slow_machine_cuts_sooner() -> None:
    carried = inputs(500, 0.0, 1e6, 16, 0.9)
    fast, slow = (derived(Costs(ms_per_mb=each)) for each in (1.0, 100.0))
    assert decide(carried, fast).functions.chunk is all_at_once
    assert decide(carried, slow).functions.chunk == NChunks(best_count(slow.rounds(16e6, 16), slow))


@given(st.builds(Costs, round_ms=st.floats(1, 1e5), ms_per_mb=st.floats(0, 1e4), replica_overhead=st.floats(0, 100)))
def test_a_calibration_is_kept_as_json(costs: Costs) -> None:
    assert from_json(costs.to_json()) == costs
    much = derived(costs)
    assert 0 < much.low_access_ratio <= 1
    assert much.round_bytes > 0


@pytest.mark.parametrize("text", ["{", '{"round_ms": "long"}', '{"round_ms": 0}', '{"ms_per_mb": -1}'])
def test_a_calibration_that_cannot_be_true_says_so(text: str) -> None:
    with pytest.raises(ConfigurationError, match="peregrine calibrate"):
        from_json(text)


def test_the_defaults_are_those_of_the_costs_that_are_documented() -> None:
    assert derived(Costs()) == DEFAULTS
