"""A planned migration becomes stages of the core in which every key moves exactly once."""

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peregrine.core.keyspace import KeySet, group_of, stable_hash
from peregrine.core.reconfigure import Move
from peregrine.core.replication import Retrieval
from peregrine.errors import PlanError
from peregrine.plan.adaptive import strategy_of
from peregrine.plan.metrics import Load, Metrics
from peregrine.plan.migration_plan import planned
from peregrine.types import OpId, PlaceId

OP, GROUPS = OpId("app/op"), 8
CLOUD, EDGE, REGION = PlaceId("cloud"), PlaceId("edge"), PlaceId("region")
KEYS = st.sets(st.text("abcdef", min_size=1, max_size=2), max_size=20)
KEYSETS = st.builds(
    lambda plus, minus, whole: (
        (KeySet.of_groups(GROUPS, whole) | KeySet.of_keys(GROUPS, plus)) - KeySet.of_keys(GROUPS, minus)
    ),
    KEYS,
    KEYS,
    st.sets(st.integers(0, GROUPS - 1)),
).filter(bool)
STRATEGIES = st.sampled_from(["adaptive", "hot-first, chunks:3", "random:3, chunks:100", "by-arrival, bytes:10"])


def metrics_of(keys: set[str]) -> Metrics:
    return Metrics(OP, GROUPS, {key: Load(float(len(key)), stable_hash(key) % 20, 1.0, CLOUD) for key in keys})


@given(KEYSETS, KEYS, STRATEGIES, st.sampled_from([0, 5, 1000]))
def test_every_key_moves_exactly_once_also_those_that_nobody_has_seen(
    keys: KeySet, known: set[str], strategy: str, most_keys: int
) -> None:
    plan = planned([Move(OP, keys, CLOUD, EDGE)], strategy_of(strategy), metrics_of(known), most_keys=most_keys)
    stages = plan.to_core("p").stages
    moved = [move.keys for stage in stages for move in stage]
    assert reduce(KeySet.__or__, moved) == keys
    assert all(a.isdisjoint(b) for i, a in enumerate(moved) for b in moved[:i])
    assert len(stages) == len(plan.chunks)
    for chunk in plan.chunks:
        for each in chunk.units:
            inside = KeySet.of_groups(GROUPS, [each.unit]) & keys if isinstance(each.unit, int) else None
            assert each.unit in chunk.keys if inside is None else inside <= chunk.keys


@given(KEYSETS, KEYS)
def test_moves_from_several_places_stay_with_their_places(keys: KeySet, mine: set[str]) -> None:
    ours = KeySet.of_keys(GROUPS, mine) & keys
    moves = [m for m in (Move(OP, ours, CLOUD, EDGE), Move(OP, keys - ours, REGION, EDGE)) if m.keys]
    plan = planned(moves, strategy_of("hot-first, chunks:3"), metrics_of(mine)).to_core("p")
    for source, wanted in ((CLOUD, ours), (REGION, keys - ours)):
        moved = [m.keys for m in plan.moves() if m.source == source]
        assert reduce(KeySet.__or__, moved, KeySet.nothing(GROUPS)) == wanted


def test_an_order_of_chunks_is_the_order_of_stages() -> None:
    metrics = Metrics(OP, GROUPS, {"cold": Load(1), "hot": Load(9), "warm": Load(5)})
    everything = KeySet.everything(GROUPS)
    plan = planned([Move(OP, everything, CLOUD, EDGE)], strategy_of("hot-first, chunks:3"), metrics)
    first, second, last = (stage[0].keys for stage in plan.to_core("p").stages)
    assert plan.order == ["hot", "warm", "cold"]
    assert first == KeySet.of_keys(GROUPS, ["hot"])
    assert second == KeySet.of_keys(GROUPS, ["warm"])
    assert last == everything - first - second


def test_chunks_of_keys_of_which_none_is_more_urgent_lie_together() -> None:
    names = [f"k{n}" for n in range(80)]
    moves = [Move(OP, KeySet.of_keys(GROUPS, names), CLOUD, EDGE)]
    plan = planned(moves, strategy_of("hot-first, chunks:8"), Metrics(OP, GROUPS, dict.fromkeys(names, Load(1.0))))
    order = [(group_of(stable_hash(str(unit)), GROUPS), stable_hash(str(unit))) for unit in plan.order]
    assert order == sorted(order)
    assert sum(len(chunk.keys.touched_groups()) for chunk in plan.chunks) < 2 * GROUPS


def test_all_at_once_leaves_the_key_set_as_it_was() -> None:
    keys = KeySet.of_groups(GROUPS, [1, 2])
    plan = planned([Move(OP, keys, CLOUD, EDGE)], strategy_of("all-at-once"), metrics_of({"a", "b", "c"}))
    assert [stage[0].keys for stage in plan.to_core("p").stages] == [keys]


def test_a_key_with_a_replica_at_the_target_is_reloaded() -> None:
    keys = KeySet.of_keys(GROUPS, ["a", "b", "c"])
    replicas = {"a": [EDGE], "b": [REGION], group_of(stable_hash("c"), GROUPS): [EDGE]}
    plan = planned([Move(OP, keys, CLOUD, EDGE)], strategy_of("all-at-once"), metrics_of({"a", "b", "c"}), replicas)
    found = {each.unit: each.retrieval for each in plan.chunks[0].units}
    assert found["a"] is found["c"] is Retrieval.RELOAD
    shares_the_group = group_of(stable_hash("b"), GROUPS) == group_of(stable_hash("c"), GROUPS)
    assert found["b"] is (Retrieval.RELOAD if shares_the_group else Retrieval.TRANSFER)
    assert plan.to_core("p").mechanism == "replica"


def test_what_a_strategy_amounts_to_is_a_mechanism_of_spackers() -> None:
    move, metrics = Move(OP, KeySet.of_keys(GROUPS, ["a", "b"]), CLOUD, EDGE), metrics_of(set())
    assert planned([move], strategy_of("all-at-once"), metrics).to_core("p").mechanism == "pause"
    assert planned([move], strategy_of("chunks:2"), metrics).to_core("p").mechanism == "progressive"
    assert planned([move], strategy_of("chunks:2"), metrics).to_core("p", "live").mechanism == "live"


def test_moves_to_two_targets_are_two_plans() -> None:
    keys = KeySet.of_keys(GROUPS, ["a"])
    with pytest.raises(PlanError):
        planned(
            [Move(OP, keys, CLOUD, EDGE), Move(OP, keys, CLOUD, REGION)], strategy_of("adaptive"), metrics_of(set())
        )
