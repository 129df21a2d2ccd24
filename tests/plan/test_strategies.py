"""Spacker's three functions: orders are permutations, chunks cut them, replicas respect their number and stay put."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peregrine.core.keyspace import KeySet
from peregrine.core.reconfigure import Move
from peregrine.errors import ConfigurationError, PeregrineError, PlanError, UnknownName
from peregrine.plan.adaptive import Adaptive, strategy_of
from peregrine.plan.chunking import BySize, ByTime, Chunks, NChunks, Pace
from peregrine.plan.metrics import Load, Metrics, Unit
from peregrine.plan.migration_plan import planned
from peregrine.plan.orders import Shuffled, by_arrival, hot_first
from peregrine.plan.replicas import ConsistentHashing, Ratio, Ring
from peregrine.plan.strategy import Fixed, Strategy, chunks_of, order_of, replicas_of
from peregrine.types import OpId, PlaceId

DOCS = Path(__file__).parents[2] / "docs"
PLACES = tuple(PlaceId(name) for name in ("cloud", "edge1", "edge2", "edge3"))
LOAD = st.builds(
    Load,
    rows_per_s=st.floats(0, 1e5),
    state_bytes=st.integers(0, 10**8),
    last_row_ms=st.none() | st.floats(0, 1e12),
    place=st.sampled_from(PLACES),
)
METRICS = st.dictionaries(st.text(min_size=1, max_size=4), LOAD, max_size=40).map(
    lambda loads: Metrics(OpId("app/op"), 16, loads, places=PLACES)
)
NAMES = ["hot-first", "by-arrival", "random", "random:7"]
CHUNKS = ["all-at-once", "chunks:1", "chunks:3", "chunks:1000", "bytes:1", "bytes:50000000", "ms:1", "ms:5000"]
STRATEGIES = st.one_of(
    st.just("adaptive"), st.tuples(st.sampled_from(NAMES), st.sampled_from(CHUNKS)).map(lambda both: ", ".join(both))
).map(strategy_of)


@given(METRICS, STRATEGIES)
def test_every_key_is_in_exactly_one_chunk_in_the_order_that_was_chosen(metrics: Metrics, strategy: Strategy) -> None:
    units = sorted(metrics.loads, key=str)
    order = order_of(strategy, units, metrics)
    chunks = chunks_of(strategy, order, metrics)
    assert sorted(order, key=str) == units
    assert [unit for chunk in chunks for unit in chunk] == order
    assert all(chunks)


@given(METRICS, st.floats(0, 1), st.integers(1, 4))
def test_a_ratio_of_replicas_is_respected_and_none_is_where_its_key_lives(
    metrics: Metrics, share: float, count: int
) -> None:
    found = replicas_of(Fixed(replicate=Ratio(share, count)), list(metrics.loads), metrics)
    assert len(found) == round(share * len(metrics.loads))
    for unit, places in found.items():
        assert len(set(places)) == len(places) == min(count, len(PLACES) - 1)
        assert metrics.load(unit).place not in places


@given(st.sets(st.text(max_size=5), min_size=1, max_size=50), st.sets(st.text("abc", min_size=1), min_size=2))
def test_a_place_that_is_added_to_the_ring_takes_keys_and_moves_no_others(keys: set[str], names: set[str]) -> None:
    places = [PlaceId(name) for name in sorted(names)]
    before, after = Ring(places[:-1]), Ring(places)
    for key in keys:
        (was,), (now,) = before.places(key, 1), after.places(key, 1)
        assert now in (was, places[-1])


def test_the_ring_gives_each_place_about_its_share() -> None:
    ring = Ring(PLACES)
    shares = [ring.places(f"key{i}", 1)[0] for i in range(4_000)]
    assert all(600 < shares.count(place) < 1_500 for place in PLACES)


def metrics_of(**loads: Load) -> Metrics:
    return Metrics(OpId("app/op"), 16, loads, places=PLACES)


def test_hot_keys_go_first() -> None:
    metrics = metrics_of(a=Load(1), b=Load(3), c=Load(2))
    assert hot_first(["a", "b", "c", "unknown"], metrics) == ["b", "c", "a", "unknown"]


def test_by_arrival_the_key_whose_row_is_due_goes_first() -> None:
    metrics = metrics_of(slow=Load(0.1, last_row_ms=5_000), quick=Load(10, last_row_ms=9_000), still=Load(5))
    assert by_arrival(["still", "slow", "quick"], metrics) == ["quick", "slow", "still"]


def test_a_seed_gives_the_same_order_every_time_and_another_seed_another() -> None:
    keys = [f"key{i}" for i in range(20)]
    assert Shuffled(1)(keys, metrics_of()) == Shuffled(1)(list(reversed(keys)), metrics_of())
    assert Shuffled(1)(keys, metrics_of()) != Shuffled(2)(keys, metrics_of())


def test_chunks_hold_no_more_bytes_than_they_may() -> None:
    metrics = metrics_of(a=Load(state_bytes=6), b=Load(state_bytes=5), c=Load(state_bytes=5), d=Load(state_bytes=50))
    assert BySize(10)(["a", "b", "c", "d"], metrics) == [["a"], ["b", "c"], ["d"]]


def test_chunks_take_no_longer_than_they_may() -> None:
    pace = Pace(round_ms=100, ms_per_mb=10, ms_per_key=0)
    metrics = metrics_of(a=Load(state_bytes=5_000_000), b=Load(state_bytes=5_000_000), c=Load(state_bytes=100))
    assert ByTime(160, pace)(["a", "b", "c"], metrics) == [["a"], ["b", "c"]]
    assert ByTime(50, pace)(["a", "b"], metrics) == [["a"], ["b"]]  # a round alone takes longer: as short as it can be


def test_chunks_are_as_many_as_wanted_and_even() -> None:
    assert [len(chunk) for chunk in NChunks(3)(list("abcdefgh"), metrics_of())] == [2, 3, 3]


# --- named by users ---


class Backwards:
    def prioritise(self, keys: Sequence[Unit], metrics: Metrics) -> Sequence[Unit]:
        return list(reversed(keys))

    def chunk(self, order: Sequence[Unit], metrics: Metrics) -> Chunks:
        return [order[:1], order[1:]]

    def replicate(self, keyspace: Sequence[Unit], metrics: Metrics) -> dict[Unit, list[PlaceId]]:
        return {keyspace[0]: [PLACES[1]]}


def test_a_strategy_of_the_users_is_loaded_by_its_import_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = f"{tmp_path}/mine_for_a_test.py"
    with open(path, "w") as module:
        module.write("from peregrine.plan.strategy import Fixed\nclass Mine(Fixed): ...\nlacking = object()\n")
        module.write("class Needy:\n    def __init__(self, more): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert type(strategy_of("mine_for_a_test:Mine")).__name__ == "Mine"
    for wrong, says in [
        ("no_such_module:Mine", "cannot be imported"),
        ("mine_for_a_test:Absent", "has no 'Absent'"),
        ("mine_for_a_test:lacking", "lacks prioritise, chunk, replicate"),
        ("mine_for_a_test:Needy", "cannot be made"),
    ]:
        with pytest.raises(ConfigurationError) as error:
            strategy_of(wrong)
        assert says in error.value.what
        assert error.value.remedy


def test_the_strategy_that_the_guide_shows_is_loaded_and_obeyed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (shown,) = re.findall(r"```python\n(.*?)```", (DOCS / "planning.md").read_text("utf-8"), re.DOTALL)
    (tmp_path / "my_strategies.py").write_text(shown)
    monkeypatch.syspath_prepend(str(tmp_path))
    metrics = Metrics(OpId("app/op"), 16, {key: Load(1.0, size) for key, size in (("a", 30), ("b", 10), ("c", 20))})
    move = Move(OpId("app/op"), KeySet.of_keys(16, ["a", "b", "c"]), PLACES[0], PLACES[1])
    plan = planned([move], strategy_of("my_strategies:SmallestFirst"), metrics)
    assert [[each.unit for each in chunk.units] for chunk in plan.chunks] == [["b"], ["c"], ["a"]]
    assert plan.mechanism == "progressive"
    sys.modules.pop("my_strategies")


def test_a_strategy_itself_may_be_given() -> None:
    mine = Backwards()
    assert strategy_of(mine) is mine
    assert order_of(mine, ["a", "b"], metrics_of()) == ["b", "a"]
    assert chunks_of(mine, ["a", "b", "c"], metrics_of()) == [["a"], ["b", "c"]]
    assert isinstance(strategy_of("adaptive"), Adaptive)


@pytest.mark.parametrize(
    "text", ["coldest", "chunks", "chunks:0", "chunks:x", "hot-first:3", "hot-first, random", "ratio:2", "", "ms:0"]
)
def test_a_name_that_cannot_be_read_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        strategy_of(text)
    assert error.value.remedy


def test_strategies_that_lose_keys_or_invent_them_are_refused() -> None:
    units: list[Unit] = ["a", "b"]
    for wrong in (lambda keys, metrics: keys[:1], lambda keys, metrics: [*keys, "c"], lambda keys, metrics: keys * 2):
        with pytest.raises(PlanError):
            order_of(Fixed(prioritise=wrong), units, metrics_of())
        with pytest.raises(PlanError):
            chunks_of(Fixed(chunk=lambda keys, metrics, wrong=wrong: [wrong(keys, metrics)]), units, metrics_of())
    for replicas in ({"c": [PLACES[0]]}, {"a": [PlaceId("moon")]}):
        with pytest.raises(PeregrineError):
            replicas_of(Fixed(replicate=lambda keys, metrics, r=replicas: r), units, metrics_of())


def test_wrong_numbers_are_refused() -> None:
    for wrong in (lambda: NChunks(0), lambda: BySize(0), lambda: Ratio(1.5), lambda: ConsistentHashing(0)):
        with pytest.raises(ConfigurationError):
            wrong()
    with pytest.raises(UnknownName):
        strategy_of("warm-first")
