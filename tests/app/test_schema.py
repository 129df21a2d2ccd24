"""Schemas, records and keys: what Spark's types and values become, and back."""

import copy
import datetime as dt
import pickle
import warnings
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql import types as spark

from peregrine.app.schema import Keying, Record, schema_of
from peregrine.app.times import duration_ms
from peregrine.errors import ConfigurationError, UnknownName

SCALARS = {
    "string": (spark.StringType(), st.text()),
    "bigint": (spark.LongType(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "int": (spark.IntegerType(), st.integers(-(1 << 31), (1 << 31) - 1)),
    "smallint": (spark.ShortType(), st.integers(-(1 << 15), (1 << 15) - 1)),
    "tinyint": (spark.ByteType(), st.integers(-128, 127)),
    "double": (spark.DoubleType(), st.floats(allow_nan=False, allow_infinity=False)),
    "float": (spark.FloatType(), st.floats(allow_nan=False, allow_infinity=False, width=32)),
    "boolean": (spark.BooleanType(), st.booleans()),
    "binary": (spark.BinaryType(), st.binary()),
    "timestamp": (spark.TimestampType(), st.datetimes()),
    "timestamp_ntz": (spark.TimestampNTZType(), st.datetimes()),
    "date": (spark.DateType(), st.dates()),
    "decimal(10,2)": (spark.DecimalType(10, 2), st.decimals(-1000, 1000, places=2)),
    "decimal(10,0)": (spark.DecimalType(), st.decimals(-1000, 1000, places=0)),
}
Typed = tuple[str, spark.DataType, st.SearchStrategy[Any]]  # as DDL, as PySpark says it, and its values
scalar_types: st.SearchStrategy[Typed] = st.sampled_from([(name, *rest) for name, rest in SCALARS.items()])
map_keys: st.SearchStrategy[Typed] = st.sampled_from(
    [(name, *SCALARS[name]) for name in ("string", "bigint", "int", "date")]
)


def array_of(of: Typed) -> Typed:
    return f"array<{of[0]}>", spark.ArrayType(of[1]), st.lists(st.none() | of[2], max_size=3)


def map_of(key: Typed, value: Typed) -> Typed:
    values = st.dictionaries(key[2], st.none() | value[2], max_size=3)
    return f"map<{key[0]},{value[0]}>", spark.MapType(key[1], value[1]), values


def struct_of(fields: list[Typed]) -> Typed:
    named = {f"f{number}": field for number, field in enumerate(fields)}
    return (
        "struct<" + ",".join(f"{name}:{field[0]}" for name, field in named.items()) + ">",
        spark.StructType([spark.StructField(name, field[1]) for name, field in named.items()]),
        st.fixed_dictionaries({name: st.none() | field[2] for name, field in named.items()}),
    )


typed = st.recursive(
    scalar_types,
    lambda inner: (
        inner.map(array_of)
        | st.tuples(map_keys, inner).map(lambda both: map_of(*both))
        | st.lists(inner, min_size=1, max_size=3).map(struct_of)
    ),
    max_leaves=4,
)
columns = st.lists(typed, min_size=1, max_size=4).map(struct_of)


def as_rows(value: Any) -> Any:
    """Dicts with names of fields as PySpark's Rows."""
    if isinstance(value, list):
        return [as_rows(each) for each in value]
    if isinstance(value, dict):
        return Row(**{name: as_rows(each) for name, each in value.items()})
    return value


@given(columns)
def test_a_struct_type_and_its_ddl_are_one_schema(struct: Typed) -> None:
    simple, type_, _ = struct
    assert isinstance(type_, spark.StructType) and type_.simpleString() == simple
    ddl = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in type_)
    assert schema_of(type_) is schema_of(simple) is schema_of(ddl)
    assert schema_of(type_).ddl == ddl
    assert schema_of(type_).names == tuple(type_.names)


@given(columns, st.data())
def test_values_of_all_types_survive_the_wire(struct: Typed, data: st.DataObject) -> None:
    schema, values = schema_of(struct[0]), data.draw(struct[2])
    record = schema.record_of(values)
    assert record.asDict(recursive=True) == values
    assert schema.decode(schema.encode(record)) == record
    assert schema.record_of(record) is record
    assert schema.record_of(tuple(record)) == schema.record_of(record.asDict()) == record
    assert schema.decode(schema.encode(values)) == record


@given(st.lists(scalar_types, min_size=1, max_size=3).map(struct_of), st.data())
def test_rows_of_pyspark_become_records_also_inside_of_others(struct: Typed, data: st.DataObject) -> None:
    outer = struct_of([struct, array_of(struct)])
    values = data.draw(outer[2])
    assert schema_of(outer[0]).record_of(as_rows(values)) == schema_of(outer[0]).record_of(values)


def test_ddl_is_read_as_spark_writes_it() -> None:
    told = {
        "a INT, B String": "a int, B string",
        "a: int, b: struct<x int, y: string not null>": "a int, b struct<x:int,y:string>",
        "a int NOT NULL COMMENT 'it''s, for one', b long": "a int, b bigint",
        "`a` decimal, b dec(4), c numeric(5, 1)": "a decimal(10,0), b decimal(4,0), c decimal(5,1)",
        "a varchar(10), b char(2), c real, d short, e byte, f integer": (
            "a string, b string, c float, d smallint, e tinyint, f int"
        ),
        "struct<a:timestamp_ltz>": "a timestamp",
        "struct int, array string": "struct int, array string",
    }
    assert {given: schema_of(given).ddl for given in told} == told


@pytest.mark.parametrize(
    ("ddl", "told"),
    [
        ("", "a schema without columns"),
        ("a", "cannot be read at 'the end'"),
        ("a string b int", "cannot be read at 'b'"),
        ("a array<int", "cannot be read at 'the end'"),
        ("a array<int>>", "cannot be read at '>'"),
        ("a-b int", "cannot be read at '-b int'"),
        ("struct<a:int> b", "cannot be read at 'b'"),
        ("a int not nothing", "cannot be read at 'not'"),
        ("a interval", "unknown type 'interval'"),
        ("a decimal(x,y)", r"decimal\(x,y\) is no type"),
        ("a decimal(1,2,3)", r"decimal\(1,2,3\) is no type"),
        ("a map<array<int>,int>", "the keys of a map cannot be array<int>"),
        ("a int, a string", "two columns are named 'a'"),
        ("`a b` int", "a column cannot be named 'a b'"),
        ("asDict int", "a column cannot be named 'asDict'"),
        ("__a int", "a column cannot be named '__a'"),
        ("a struct<x:int,x:int>", "two columns are named 'x'"),
        ("a struct<`x-y`:int>", "a column cannot be named 'x-y'"),
        ("a array<struct<__x:int>>", "a column cannot be named '__x'"),
    ],
)
def test_what_is_no_schema_is_refused_with_its_place(ddl: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        schema_of(ddl)
    with pytest.raises(ConfigurationError, match="is not a schema"):
        schema_of(3)


EVERYTHING = schema_of(
    "i int, d double, f float, b boolean, s string, y binary, t timestamp, day date, m decimal(10,2), "
    "numbers array<double>, names map<int,string>, times array<timestamp>"
)
NOON = dt.datetime(2024, 5, 6, 12, 0, 0, 123456)


@pytest.mark.parametrize(
    ("column", "given_value", "expected"),
    [
        ("i", np.int64(3), 3),
        ("i", np.uint8(3), 3),
        ("i", float("nan"), None),
        ("i", pd.NA, None),
        ("d", np.float64(1.5), 1.5),
        ("d", 1, 1.0),
        ("f", np.float32(1.5), 1.5),
        ("b", np.bool_(True), True),
        ("s", np.str_("x"), "x"),
        ("y", np.bytes_(b"\xff"), b"\xff"),
        ("y", bytearray(b"\x00"), b"\x00"),
        ("t", pd.Timestamp(NOON), NOON),
        ("t", pd.Timestamp("2024-05-06T12:00:00.123456789"), NOON),
        ("t", np.datetime64("2024-05-06T12:00:00.123456789"), NOON),
        ("t", np.datetime64("2024-05-06T12:00:00.123456"), NOON),
        ("t", pd.NaT, None),
        ("t", NOON.replace(tzinfo=dt.UTC), NOON),
        ("t", NOON.replace(tzinfo=dt.timezone(dt.timedelta(hours=2))), NOON - dt.timedelta(hours=2)),
        ("t", "2024-05-06T14:00:00.123456+02:00", NOON),
        ("day", np.datetime64("2024-05-06"), NOON.date()),
        ("m", 2, Decimal(2)),
        ("m", 1.5, Decimal("1.5")),
        ("m", np.float64(1.5), Decimal("1.5")),
        ("numbers", np.array([1.0, 2.0]), [1.0, 2.0]),
        ("numbers", pd.Series([1.0, 2.0]), [1.0, 2.0]),
        ("numbers", (1, 2), [1.0, 2.0]),
        ("names", {np.int64(1): "a"}, {1: "a"}),
        ("times", np.array(["2024-05-06T12:00:00.123456"], "datetime64[ns]"), [NOON]),
        ("times", pd.Series([NOON, None]), [NOON, None]),
        ("times", [NOON.replace(tzinfo=dt.UTC), None], [NOON, None]),
    ],
)
def test_values_of_numpy_pandas_and_other_zones_become_plain_ones(column: str, given_value: Any, expected: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        record = EVERYTHING.record_of({column: given_value})
    assert record[column] == expected
    again = EVERYTHING.decode(EVERYTHING.encode(record))
    assert again[column] == expected and type(again[column]) is type(expected)


def test_what_json_cannot_say_becomes_null() -> None:
    for value in (float("nan"), float("inf"), -float("inf")):
        assert EVERYTHING.decode(EVERYTHING.encode({"d": value, "numbers": [1.0, value]})) == EVERYTHING.record(
            d=None, numbers=[1.0, None]
        )


def test_timestamps_from_json_are_naive_and_in_utc() -> None:
    schema = schema_of("t timestamp, inner struct<ts:array<timestamp>>, by map<string,timestamp_ntz>")
    found = schema.decode(
        b'{"t": "2024-05-06T12:00:00.123456Z", "inner": {"ts": ["2024-05-06T14:00:00.123456+02:00", null]},'
        b' "by": {"a": "2024-05-06T12:00:00.123456"}}'
    )
    assert found.t == NOON and found.inner.ts == [NOON, None] and found.by == {"a": NOON}


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"i": "3"}, msgspec.ValidationError),
        ({"i": 3.5}, msgspec.ValidationError),
        ({"i": True}, msgspec.ValidationError),
        ({"s": 1}, msgspec.ValidationError),
        ({"t": 5}, msgspec.ValidationError),
        ({"other": 1, "another": 2}, ValueError),
        ((1, 2), ValueError),
        (3, TypeError),
        ("text", TypeError),
    ],
)
def test_what_is_no_record_is_refused(values: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        EVERYTHING.record_of(values)


def test_a_record_can_be_used_like_a_row() -> None:
    schema = schema_of("vehicle string, at struct<x:int>")
    record, row = schema.record_of(("car", {"x": 1})), Row(vehicle="car", at=Row(x=1))
    assert record.vehicle == record["vehicle"] == record[0] == row[0]
    assert record.at.x == row.at.x and record[-1].x == row[-1].x
    assert len(record) == len(row) == 2 and "vehicle" in record and "car" not in record
    assert record.asDict(recursive=True) == row.asDict(recursive=True)
    assert next(iter(record)) == next(iter(row)) and isinstance(record.asDict()["at"], Record)
    with pytest.raises(KeyError):
        record["speed"]
    with pytest.raises(AttributeError):
        record.speed  # noqa: B018


def test_json_may_lack_columns_and_have_others() -> None:
    assert schema_of("a int, b string").decode(b'{"a": 1, "c": [1]}') == schema_of("a int, b string").record(a=1)
    with pytest.raises(msgspec.ValidationError):
        schema_of("a int").decode(b'{"a": "1"}')


def test_records_move_between_schemas_with_the_same_columns() -> None:
    one, other = schema_of("k string, at struct<x:int>"), schema_of("at struct<x:int>, k string, n int")
    assert other.record_of(one.record_of(("a", {"x": 1}))) == other.record_of({"k": "a", "at": {"x": 1}})


def test_a_schema_is_one_object_also_behind_pickle() -> None:
    schema = schema_of("a int, b struct<x:date>")
    assert pickle.loads(pickle.dumps(schema)) is schema is copy.deepcopy(schema)
    assert repr(schema) == "schema_of('a int, b struct<x:date>')"


def test_an_unknown_column_is_told_with_those_that_exist() -> None:
    with pytest.raises(UnknownName, match=r"column \(of a key\) 'c'\n.*a, b"):
        Keying(schema_of("a int, b int"), ["c"])


KEYS = schema_of("s string, n bigint, small int, flag boolean, day date, other string, speed double")
KEY_VALUES = {name: SCALARS[KEYS.types[name]][1] for name in KEYS.names if name != "speed"}
keyings = st.lists(st.sampled_from(sorted(KEY_VALUES)), min_size=1, max_size=3, unique=True).map(
    lambda names: Keying(KEYS, names)
)


@given(keyings, st.data())
def test_a_key_has_one_text_and_comes_back_from_it(keying: Keying, data: st.DataObject) -> None:
    def record() -> Any:
        return KEYS.record_of({name: data.draw(KEY_VALUES[name]) for name in keying.columns})

    one, other = record(), record()
    text = keying.text(one)
    values = tuple(one[name] for name in keying.columns)
    assert keying.values(text) == values and type(text) is str
    assert (keying.text(other) == text) == (tuple(other[name] for name in keying.columns) == values)
    assert keying.text_of(values if len(values) > 1 else values[0]) == text
    again = pickle.loads(pickle.dumps(keying))
    assert again.text(one) == text and again.values(text) == values


def test_a_single_text_column_is_the_key_itself() -> None:
    assert Keying(KEYS, ["s"]).text(KEYS.record(s='"a"')) == '"a"'
    assert type(Keying(KEYS, ["s"]).text(KEYS.record_of({"s": np.str_("a")}))) is str
    assert Keying(KEYS, ["n"]).text(KEYS.record(n=5)) == "5"
    assert Keying(KEYS, ["s", "n"]).text(KEYS.record(s="a", n=5)) == '["a",5]'


def test_a_key_as_a_user_names_it_is_of_the_columns_types() -> None:
    assert Keying(KEYS, ["n"]).text_of(np.int64(5)) == "5"
    assert Keying(KEYS, ["day"]).text_of(dt.date(2024, 5, 6)) == '"2024-05-06"'
    for columns_, key in ((["n"], "5"), (["n"], None), (["s", "n"], ("a", "b")), (["s", "n"], "a"), (["n"], (1, 2))):
        with pytest.raises(ConfigurationError, match="is not a key of"):
            Keying(KEYS, columns_).text_of(key)


def test_keys_are_of_types_that_are_exact_and_never_null() -> None:
    with pytest.raises(ConfigurationError, match="speed double cannot be part of a key"):
        Keying(KEYS, ["speed"])
    with pytest.raises(ConfigurationError, match="a key without columns"):
        Keying(KEYS, [])
    for columns_ in (["s"], ["n"], ["s", "n"]):
        with pytest.raises(ValueError, match="null"):
            Keying(KEYS, columns_).text(KEYS.record(s=None, n=None))


@pytest.mark.parametrize(
    ("length", "ms"),
    [
        ("1 minute 30 seconds", 90_000),
        ("  10 Seconds ", 10_000),
        ("250ms", 250),
        ("1.5 s", 1500),
        ("2 hours", 7_200_000),
        ("1 day", 86_400_000),
        ("0 seconds", 0),
        ("-5 seconds", -5000),
        ("- 1 minute 30 seconds", -90_000),
        (dt.timedelta(seconds=2), 2000),
        (-3, -3),
    ],
)
def test_lengths_of_time_are_milliseconds(length: Any, ms: int) -> None:
    assert duration_ms(length) == ms


@pytest.mark.parametrize(
    "length", ["", " ", "10", "seconds", "10 parsecs", "1 minute and", "--1 s", "1 s -1 s", 1.5, None, True]
)
def test_what_is_no_length_of_time_is_refused(length: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not a length of time"):
        duration_ms(length)
