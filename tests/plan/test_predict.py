"""Predictions follow the tables of mechanisms, and after a few migrations the machine."""

from statistics import median

import numpy as np
import pytest

from peregrine.core.keyspace import KeySet
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.migrate import Role
from peregrine.core.reconfigure import Move
from peregrine.core.topology import Link, Topology
from peregrine.errors import ConfigurationError
from peregrine.plan.adaptive import strategy_of
from peregrine.plan.metrics import Load, Metrics
from peregrine.plan.migration_plan import MigrationPlan, planned
from peregrine.plan.paths import Way, path_of, rows_wait
from peregrine.plan.predict import WORK, Conditions, Outcome, Predictor, from_json
from peregrine.types import OpId, PlaceId, SiteId

OP, GROUPS = OpId("app/op"), 8
CLOUD, EDGE = SiteId("cloud"), SiteId("edge")
TOPOLOGY = Topology.tree(CLOUD, {EDGE: (CLOUD, Link(40.0, 80.0))})
NOW = Conditions(turn_ms=100)
KEYS = KeySet.of_keys(GROUPS, ["a", "b"])
DOWN, UP = Move(OP, KEYS, PlaceId("cloud"), PlaceId("edge")), Move(OP, KEYS, PlaceId("edge"), PlaceId("cloud"))


def plan(key_bytes: int = 1_000, keys: int = 2, strategy: str = "all-at-once", rate: float = 1.0) -> MigrationPlan:
    loads = {f"key{i}": Load(rate, key_bytes) for i in range(keys)}
    move = Move(OP, KeySet.of_keys(GROUPS, list(loads)), PlaceId("cloud"), PlaceId("edge"))
    return planned([move], strategy_of(strategy), Metrics(OP, GROUPS, loads))


def test_the_path_of_live_is_falcons_phases() -> None:
    """III-E. Down, the anchor is the new place's router: R to S, state back, T to S, its last word to the gate (beside
    S) and on to D; the hosts take a snapshot, catch up and drop."""
    path = path_of(MECHANISMS["live"], Way(TOPOLOGY, DOWN).latency_ms)
    assert (path.duration.link_ms, path.duration.turns, path.duration.whole) == (4 * 40, 3, 1)
    assert path.pause.parts() == (0, 0, 0, 0, 0)


def test_in_a_pause_rows_wait_for_a_round_trip_a_turn_and_the_state() -> None:
    path = path_of(MECHANISMS["pause"], Way(TOPOLOGY, DOWN).latency_ms)
    assert path.duration == path.pause
    assert (path.pause.link_ms, path.pause.turns, path.pause.whole) == (80, 1, 1)
    up = path_of(MECHANISMS["pause"], Way(TOPOLOGY, UP).latency_ms)
    assert up.pause.link_ms == 0  # state travels beside the rows


def test_upwards_the_gate_waits_for_the_longer_way_of_the_old_place() -> None:
    assert path_of(MECHANISMS["live"], Way(TOPOLOGY, UP).latency_ms).pause.link_ms == 0
    sideways = Topology.tree(CLOUD, {EDGE: (CLOUD, Link(40.0)), SiteId("near"): (CLOUD, Link(1.0))})
    move = Move(OP, KEYS, PlaceId("edge"), PlaceId("near"))
    way = Way(sideways, move)
    assert way.site(Role.ANCHOR) == "near"
    assert way.site(Role.GATE) == CLOUD
    # T takes 41 ms to the edge and its word 40 ms back; what the new place emits is at the gate after 1 ms.
    assert path_of(MECHANISMS["live"], way.latency_ms).pause.link_ms == 80


def test_rows_wait_for_state_where_the_old_place_stops_before_the_new_one_has_it() -> None:
    waiting = {name for name, mechanism in MECHANISMS.items() if rows_wait(mechanism)}
    assert {"pause", "progressive", "replica", "restart"} <= waiting
    assert waiting.isdisjoint({"live", "live-unordered", "drain", "window-recreation"})


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_has_a_prediction(name: str) -> None:
    found = Predictor().predict(plan(10**6), TOPOLOGY, NOW, name)
    assert found.duration_ms > 0
    assert 0 <= found.pause_ms <= found.duration_ms
    assert (found.bytes_moved > 0) == (name not in ("drain", "window-recreation"))


def test_what_the_survey_says_of_mechanisms_holds_for_predictions() -> None:
    large = plan(5 * 10**6, keys=8)
    said = {name: Predictor().predict(large, TOPOLOGY, NOW, name) for name in MECHANISMS}
    chunked = Predictor().predict(plan(5 * 10**6, keys=8, strategy="chunks:4"), TOPOLOGY, NOW, "progressive")
    assert said["live"].pause_ms < said["static-dynamic"].pause_ms < said["pause"].pause_ms
    assert chunked.pause_ms < said["pause"].pause_ms
    assert chunked.duration_ms > said["pause"].duration_ms
    assert said["indirect"].duration_ms > said["pause"].duration_ms


def test_a_narrow_link_shows() -> None:
    wide = Topology.tree(CLOUD, {EDGE: (CLOUD, Link(40.0, float("inf")))})
    narrow, free = (Predictor().predict(plan(10**6), where, NOW, "pause") for where in (TOPOLOGY, wide))
    assert narrow.duration_ms - free.duration_ms == pytest.approx(2 * 8e6 / 80e6 * 1000)


def test_replicas_save_what_has_not_changed() -> None:
    loads = {"busy": Load(1e6, 1_000), "quiet": Load(0.0, 1_000), "alone": Load(0.0, 10)}
    move = Move(OP, KeySet.of_keys(GROUPS, list(loads)), PlaceId("cloud"), PlaceId("edge"))
    made = planned(
        [move], strategy_of("all-at-once"), Metrics(OP, GROUPS, loads), {"busy": ["edge"], "quiet": ["edge"]}
    )
    assert made.mechanism == "replica"
    assert Predictor().predict(made, TOPOLOGY, NOW).bytes_moved == pytest.approx(1_010)


# --- learning ---


class Machine:
    """The truth that nobody knows: other coefficients, a secret of each mechanism, and noise."""

    def __init__(self, seed: int, noise: float = 0.15) -> None:
        self.draw = np.random.default_rng(seed)
        self.noise = noise
        spread = np.array([0.8, 0.1, 0.5, 0.1, 0.8, 0.8, 0.0])
        self.coefficients = np.array([default for default, _ in WORK.values()]) * np.exp(self.draw.normal(0, spread))
        self.secrets = {name: float(np.exp(self.draw.normal(0, 0.4))) for name in MECHANISMS}
        self.byte_secret = float(np.exp(self.draw.normal(0, 0.5)))

    def run(self, work: tuple[float, ...], table: tuple[float, float], mechanism: str) -> Outcome:
        duration = float(self.coefficients @ np.array(work)) * self.secrets[mechanism]
        noisy = duration * float(np.exp(self.draw.normal(0, self.noise)))
        return Outcome(noisy, table[0] * self.byte_secret * float(np.exp(self.draw.normal(0, 0.05))), table[1] * 1.5)


def some_plan(draw: np.random.Generator) -> MigrationPlan:
    strategy = ("all-at-once", "chunks:3")[int(draw.integers(2))]
    return plan(int(10 ** draw.uniform(2, 6)), int(draw.integers(2, 40)), strategy)


def errors_after(lessons: int, seed: int, mechanisms: list[str]) -> tuple[list[float], list[float], list[float]]:
    machine, predictor = Machine(seed), Predictor()
    found: tuple[list[float], list[float], list[float]] = ([], [], [])
    for nth in range(lessons + 10):
        mechanism = mechanisms[nth % len(mechanisms)]
        said = predictor.predict(some_plan(machine.draw), TOPOLOGY, NOW, mechanism)
        came = machine.run(said.work, said.table, mechanism)
        if nth < lessons:
            predictor = predictor.learnt(said, came)
        else:
            found[0].append(abs(said.duration_ms / came.duration_ms - 1))
            found[1].append(abs(said.bytes_moved / came.bytes_moved - 1))
            if came.pause_ms:
                found[2].append(abs(said.pause_ms / came.pause_ms - 1))
    return found


@pytest.mark.parametrize("mechanisms", [["live"], ["pause"], ["live", "pause"]], ids=" ".join)
def test_after_five_migrations_the_median_error_is_below_a_quarter(mechanisms: list[str]) -> None:
    lessons = 5 * len(mechanisms)
    many = [errors_after(lessons, seed, mechanisms) for seed in range(40)]
    durations, moved = (median(error for each in many for error in each[i]) for i in range(2))
    assert durations < 0.25
    assert moved < 0.25
    if "pause" in mechanisms:
        assert median(error for each in many for error in each[2]) < 0.25
    untaught = [errors_after(0, seed, mechanisms) for seed in range(40)]
    assert median(error for each in untaught for error in each[0]) > durations


def test_what_was_never_varied_stays_near_its_default() -> None:
    predictor = Predictor()
    for _ in range(30):
        said = predictor.predict(plan(0), TOPOLOGY, NOW, "live")
        predictor = predictor.learnt(said, Outcome(3_000, 0))
    values = dict(zip(WORK, predictor.coefficients.values, strict=True))
    assert values["megabytes"] == WORK["megabytes"][0]
    assert predictor.predict(plan(0), TOPOLOGY, NOW, "live").duration_ms == pytest.approx(3_000, rel=0.1)


def test_a_machine_that_becomes_slower_is_noticed() -> None:
    predictor = Predictor()
    for came_ms in [500.0] * 10 + [2_000.0] * 10:
        said = predictor.predict(plan(), TOPOLOGY, NOW, "live")
        predictor = predictor.learnt(said, Outcome(came_ms, 2_000))
    assert predictor.predict(plan(), TOPOLOGY, NOW, "live").duration_ms == pytest.approx(2_000, rel=0.25)


def test_one_strange_migration_does_not_spoil_what_is_known() -> None:
    predictor = Predictor()
    for came in [Outcome(700, 2_000)] * 5 + [Outcome(60_000, 0)] + [Outcome(700, 2_000)] * 2:
        predictor = predictor.learnt(predictor.predict(plan(), TOPOLOGY, NOW, "live"), came)
    said = predictor.predict(plan(), TOPOLOGY, NOW, "live")
    assert said.duration_ms == pytest.approx(700, rel=0.5)
    assert said.bytes_moved == pytest.approx(2_000, rel=0.5)


def test_a_pause_that_nobody_measured_teaches_nothing() -> None:
    said = Predictor().predict(plan(), TOPOLOGY, NOW, "pause")
    assert Predictor().learnt(said, Outcome(1_000, 10)).pauses == Predictor().pauses
    assert Predictor().learnt(said, Outcome(1_000, 10, 900)).pauses != Predictor().pauses


def test_what_was_learnt_is_kept_as_json() -> None:
    said = Predictor().predict(plan(), TOPOLOGY, NOW, "live")
    wiser = Predictor().learnt(said, Outcome(1_234, 5_678, 90))
    assert from_json(wiser.to_json()) == wiser
    with pytest.raises(ConfigurationError):
        from_json("{")


def test_a_pace_for_chunks_says_what_a_prediction_says() -> None:
    predictor = Predictor()
    pace = predictor.pace(plan(), TOPOLOGY, NOW, "pause")
    whole = plan(10**6, keys=3)
    said = predictor.predict(whole, TOPOLOGY, NOW, "pause").duration_ms
    assert pace.round_ms + pace.of(whole.chunks[0].load) == pytest.approx(said)
