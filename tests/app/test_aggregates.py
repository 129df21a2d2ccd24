"""Every aggregate against pandas and statistics, over parts that are folded apart, kept by msgpack, and merged."""

import datetime
import pickle
import statistics
from decimal import Decimal
from typing import Any

import msgspec
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peregrine.app.accumulated import keep, kept
from peregrine.app.aggregates import (
    Aggregate,
    Avg,
    Collect,
    Count,
    CountDistinct,
    First,
    Fold,
    Last,
    Max,
    MaxBy,
    Min,
    MinBy,
    Sum,
)
from peregrine.app.logic import Moment
from peregrine.app.schema import Keying, schema_of
from peregrine.app.window_contents import Aggregated
from peregrine.app.window_logic import Reduce, RunningAggregate
from peregrine.errors import ConfigurationError, UnknownName

SCHEMA = schema_of(
    "k string, n bigint, x double, s string, b boolean, raw binary, at timestamp, day date, price decimal(10,2), "
    "place struct<x:int,at:timestamp>, tags array<string>"
)
KEYING = Keying(SCHEMA, ["k"])
TIMES = st.datetimes(datetime.datetime(2020, 1, 1), datetime.datetime(2030, 1, 1))
COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "n": st.integers(-5, 5),
    "x": st.floats(-1e6, 1e6, allow_nan=False),
    "s": st.text(max_size=2),
    "b": st.booleans(),
    "raw": st.binary(max_size=2),
    "at": TIMES,
    "day": st.dates(),
    "price": st.decimals(-1000, 1000, places=2),
}
RECORDS = st.lists(
    st.builds(SCHEMA.record, st.just("a"), *(st.none() | values for values in COLUMNS.values())), max_size=12
)


def through_msgpack(state: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(state))


def value_of(aggregate: Aggregate, records: list[Any], cuts: list[int]) -> Any:
    """Of records that are folded in parts. Accumulators go through msgpack whenever they can."""
    whole = aggregate.zero()
    for low, high in zip([0, *cuts], [*cuts, len(records)], strict=True):
        acc = aggregate.zero()
        for record in records[low:high]:
            acc = through_msgpack(aggregate.add(acc, record))
        before = msgspec.msgpack.encode(acc)
        whole = aggregate.merge(whole, acc)
        assert msgspec.msgpack.encode(acc) == before
        whole = through_msgpack(whole)
    return aggregate.result(whole)


@st.composite
def cut_records(draw: st.DrawFn) -> tuple[list[Any], list[int]]:
    records = draw(RECORDS)
    return records, sorted(draw(st.lists(st.integers(0, len(records)), max_size=3)))


@settings(max_examples=60)
@given(cut_records(), st.sampled_from(sorted(COLUMNS)))
def test_values_are_those_of_pandas(given: tuple[list[Any], list[int]], column: str) -> None:
    records, cuts = given
    there = [value for record in records if (value := getattr(record, column)) is not None]
    series = pd.Series(there, dtype=object)

    def of(aggregate: Aggregate) -> Any:
        return value_of(aggregate, records, cuts)

    assert of(Count()) == len(records)
    assert of(Count(column)) == series.count()
    assert of(CountDistinct(column)) == series.nunique()
    assert of(Collect(column)) == there
    assert of(Min(column)) == (series.min() if there else None)
    assert of(Max(column)) == (series.max() if there else None)
    assert of(First(column)) == (getattr(records[0], column) if records else None)
    assert of(Last(column)) == (getattr(records[-1], column) if records else None)
    assert of(First(column, ignore_nulls=True)) == (series.iloc[0] if there else None)
    assert of(Last(column, ignore_nulls=True)) == (series.iloc[-1] if there else None)


@settings(max_examples=60)
@given(cut_records(), st.sampled_from(["n", "x", "price"]))
def test_sums_and_means_are_those_of_pandas_and_statistics(given: tuple[list[Any], list[int]], column: str) -> None:
    records, cuts = given
    there = [value for record in records if (value := getattr(record, column)) is not None]
    total, mean = value_of(Sum(column), records, cuts), value_of(Avg(column), records, cuts)
    if not there:
        assert (total, mean) == (None, None)
    elif column == "price":
        assert (total, type(total)) == (sum(there), Decimal)
        assert float(mean) == pytest.approx(float(statistics.mean(there)))
    else:
        assert total == pytest.approx(pd.Series(there).sum(), abs=1e-6)
        assert mean == pytest.approx(statistics.fmean(there), abs=1e-6)


@settings(max_examples=60)
@given(cut_records(), st.sampled_from(sorted(COLUMNS)), st.sampled_from(sorted(COLUMNS)))
def test_values_by_another_column_are_those_of_pandas(given: tuple[list[Any], list[int]], of: str, by: str) -> None:
    records, cuts = given
    candidates = [(getattr(record, by), getattr(record, of)) for record in records if getattr(record, by) is not None]
    keys = pd.Series([key for key, _ in candidates], dtype=object)
    low, high = value_of(MinBy(of, by), records, cuts), value_of(MaxBy(of, by), records, cuts)
    if not candidates:
        assert (low, high) == (None, None)
    else:
        ranks = keys.map(lambda key: sorted(set(keys)).index(key))  # pandas finds no extremes among bytes and dates
        assert low == candidates[ranks.idxmin()][1]
        assert high == candidates[ranks.idxmax()][1]


@given(cut_records())
def test_a_fold_does_what_its_functions_say(given: tuple[list[Any], list[int]]) -> None:
    records, cuts = given

    def add(acc: dict[str, int], record: Any) -> dict[str, int]:
        acc[str(record.s)] = acc.get(str(record.s), 0) + 1
        return acc

    def merge(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
        for word, count in b.items():
            a[word] = a.get(word, 0) + count
        return a

    words = Fold({}, add, merge, "map<string,int>")
    most = Fold({}, add, merge, "int", result=lambda acc: max(acc.values(), default=None))
    counts = pd.Series([str(record.s) for record in records], dtype=object).value_counts()
    assert value_of(words, records, cuts) == counts.to_dict()
    assert value_of(most, records, cuts) == (counts.max() if len(counts) else None)
    assert words.zero() == {}, "what is folded does not change the zero"


@given(st.none() | st.one_of(*COLUMNS.values()))
def test_what_is_kept_comes_back(value: Any) -> None:
    found = kept(through_msgpack(keep(value)))
    assert (found, type(found)) == (value, type(value))


def test_columns_have_the_types_that_spark_gives_them() -> None:
    schema = schema_of("i int, n bigint, f float, p decimal(10,2), q decimal, wide decimal(38,10), s string")
    types = {
        Count(): "bigint",
        Count("s"): "bigint",
        Sum("i"): "bigint",
        Sum("n"): "bigint",
        Sum("f"): "double",
        Sum("p"): "decimal(20,2)",
        Sum("q"): "decimal(20,0)",
        Sum("wide"): "decimal(38,10)",
        Avg("i"): "double",
        Avg("p"): "decimal(14,6)",
        Min("s"): "string",
        Max("f"): "float",
        First("s"): "string",
        Last("p"): "decimal(10,2)",
        CountDistinct("s"): "bigint",
        Collect("i"): "array<int>",
        MaxBy("s", "n"): "string",
        MinBy("i", "s"): "int",
        Fold(0, max, max, "map<string, long>"): "map<string,bigint>",
    }
    assert {aggregate: aggregate.type(schema) for aggregate in types} == types


def test_wrong_columns_are_refused_by_name() -> None:
    with pytest.raises(UnknownName, match=r"avg\(speeed\).*'speeed'"):
        Avg("speeed").type(SCHEMA)
    with pytest.raises(ConfigurationError, match=r"sum\(s\) of a string"):
        Sum("s").type(SCHEMA)
    with pytest.raises(ConfigurationError, match=r"max\(tags\) of a array<string>"):
        Max("tags").type(SCHEMA)
    with pytest.raises(ConfigurationError, match=r"min_by\(s, place\)"):
        MinBy("s", "place").type(SCHEMA)
    with pytest.raises(ConfigurationError, match="unknown type"):
        Fold(0, max, max, "whatever")
    for aggregate in (Count("z"), First("z"), Collect("z"), CountDistinct("z"), MaxBy("z", "n"), MaxBy("n", "z")):
        with pytest.raises(UnknownName):
            aggregate.type(SCHEMA)


def test_a_sum_that_leaves_bigint_is_an_error() -> None:
    schema = schema_of("n bigint")
    total = Sum("n")
    acc = total.add(total.zero(), schema.record((1 << 63) - 1))
    with pytest.raises(ConfigurationError, match="does not fit a bigint"):
        total.add(acc, schema.record(1))
    assert Avg("n").result(Avg("n").add([float(1 << 63), 1], schema.record(1 << 62))) == 1.5 * (1 << 62)


def test_zero_is_one_value_whatever_its_sign_or_digits() -> None:
    schema = schema_of("x double, price decimal(10,2)")
    records = [schema.record(0.0, Decimal("0")), schema.record(-0.0, Decimal("0.00"))]
    assert value_of(CountDistinct("x"), records, []) == value_of(CountDistinct("price"), records, []) == 1


def test_a_running_aggregate_tells_with_each_record() -> None:
    logic = RunningAggregate(
        SCHEMA,
        KEYING,
        {"n": Sum("n"), "mean": Avg("price"), "at": Max("at"), "places": Collect("place"), "tags": First("tags")},
    )
    assert logic.output_ddl == (
        "k string, n bigint, mean decimal(14,6), at timestamp, "
        "places array<struct<x:int,at:timestamp>>, tags array<string>"
    )
    noon = datetime.datetime(2026, 1, 1, 12)
    rows: list[dict[str, Any]] = [
        {"k": "a", "n": 1, "price": Decimal("1.5"), "at": noon, "place": {"x": 1, "at": noon}, "tags": ["t"]},
        {"k": "a", "n": None, "price": Decimal("0.25"), "at": noon - datetime.timedelta(1)},
        {"k": "a", "n": 3, "price": Decimal("0.25"), "place": {"x": None, "at": None}},
    ]
    state, told = None, []
    for time_ms, row in enumerate(rows):
        state, emits = logic.on_record(("a",), state, SCHEMA.record_of(row), Moment(time_ms))
        state = through_msgpack(state)
        assert [(emit.time_ms, emit.output) for emit in emits] == [(time_ms, 0)]
        told.append(emits[0].record)
    assert [record.n for record in told] == [1, 1, 4]
    assert [str(record.mean) for record in told] == ["1.500000", "0.875000", "0.666667"]
    assert [record.at for record in told] == [noon] * 3
    assert [record.tags for record in told] == [["t"]] * 3
    assert [len(record.places) for record in told] == [1, 1, 2]
    assert (told[2].places[0].x, told[2].places[0].at, told[2].places[1].x) == (1, noon, None)


def test_reduce_makes_one_of_two_records() -> None:
    schema = schema_of("k string, x double")
    logic = pickle.loads(pickle.dumps(Reduce(schema, Keying(schema, ["k"]), lower)))
    state, told = None, []
    for time_ms, x in enumerate([3.5, 4.0, 1.0, None, 2.0]):
        state, emits = logic.on_record(("a",), state, schema.record("a", x), Moment(time_ms))
        state = through_msgpack(state)
        told += emits
    assert [(emit.record.x, emit.time_ms) for emit in told] == [(3.5, 0), (3.5, 1), (1.0, 2), (1.0, 3), (1.0, 4)]
    assert logic.output_ddl == "k string, x double"


def lower(a: Any, b: Any) -> dict[str, Any]:
    """Gives a dict: what functions return becomes a record."""
    return dict((a if b.x is None or a.x <= b.x else b).asDict())


def test_wrong_aggregations_are_refused() -> None:
    for aggregates, words in [
        ({}, "aggregation of nothing"),
        ({"n": Count}, "is not an aggregate"),
        ({"n": "speed"}, "is not an aggregate"),
        ({"k": Count()}, "two columns are named 'k'"),
        ({"n x": Count()}, "cannot be read|cannot be named"),
    ]:
        with pytest.raises(ConfigurationError, match=words):
            RunningAggregate(SCHEMA, KEYING, aggregates)  # type: ignore[arg-type]


def test_a_key_that_is_named_like_the_times_of_a_window_is_refused() -> None:
    schema = schema_of("window_end_ms bigint, n bigint")
    keying = Keying(schema, ["window_end_ms"])
    with pytest.raises(ConfigurationError, match="'window_end_ms'"):
        Aggregated(schema, keying, {"count": Count()}, timed=True)
    assert Aggregated(schema, keying, {"count": Count()}, timed=False).schema.types["window_end_ms"] == "bigint"
