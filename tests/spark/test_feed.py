"""How a batch of Spark is handed to a site, without a session: what a router makes of it, also when it comes again."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from harness import CLOUD, OP, SINK, sink, spec
from peregrine.core.intake import RouterConfig
from peregrine.core.messages import DeadLetter, Deliver, FromSource
from peregrine.core.router import Router
from peregrine.core.rows import Row, rows_of
from peregrine.core.topology import Topology
from peregrine.errors import ConfigurationError
from peregrine.spark.guard import dead_letters_of

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install --editable '.[spark]'")
from pyspark.sql.types import StructType

from peregrine.spark import feed, results

STREAM = "spark@1"


class Site:
    """A router whose sink is fed, so that what is taken can be seen at once."""

    def __init__(self) -> None:
        self.router = Router(RouterConfig(CLOUD, Topology.tree(CLOUD), {OP: spec(), SINK: sink()}))
        self.rows: list[Row] = []
        self.dead: list[DeadLetter] = []

    def take(self, event: FromSource) -> None:
        for effect in self.router.step(event):
            if isinstance(effect, Deliver):
                self.rows += rows_of(effect.rows.batch)
            elif isinstance(effect, DeadLetter):
                self.dead.append(effect)


def task(*rows: tuple[str | None, str | None]) -> pa.Table:
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    return feed.take([pa.record_batch(columns, names=["key", "payload"])])


def numbered(count: int, first: int = 0) -> list[tuple[str, str]]:
    return [(f"k{i % 13}", f"{i:04}") for i in range(first, first + count)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "CHUNK_ROWS", 10)
    monkeypatch.setattr(feed, "ITEM_ROWS", 4)


@pytest.mark.parametrize("taken_before", range(5))
def test_a_batch_that_is_computed_again_on_other_tasks_enters_once(taken_before: int) -> None:
    """The router had some of its chunks, or all, when the query died."""
    given, site = numbered(40), Site()
    first = list(feed.events(STREAM, 3, SINK, [task(*given[:25]), task(*given[25:])]))
    assert len(first) == 4
    for event in first[:taken_before]:
        site.take(event)
    backwards = [task(*given[at : at + 10]) for at in (30, 20, 10, 0)]
    for event in feed.events(STREAM, 3, SINK, backwards):
        site.take(event)
    assert sorted((row.key, row.payload.decode()) for row in site.rows) == sorted(given)
    assert len({(row.source, row.seq) for row in site.rows}) == 40
    for event in feed.events(STREAM, 4, SINK, [task(*numbered(5, 40))]):
        site.take(event)
    assert len(site.rows) == 45


def test_rows_of_a_key_keep_the_order_of_tasks_and_of_rows() -> None:
    site = Site()
    for number, size in enumerate((3, 40, 17)):  # one chunk, four chunks, two
        given = numbered(size, 100 * number)
        for event in feed.events(STREAM, number, SINK, [task(*given[:2]), task(*given[2:])]):
            site.take(event)
    for key in {row.key for row in site.rows}:
        mine = [row for row in site.rows if row.key == key]
        assert [row.payload for row in mine] == sorted(row.payload for row in mine)
        assert [row.seq for row in mine] == sorted(row.seq for row in mine)
    assert {row.source for row in site.rows} == {STREAM}


def test_a_row_without_key_or_payload_is_a_dead_letter_and_the_others_go_on() -> None:
    site = Site()
    for event in feed.events(STREAM, 0, SINK, [task(("a", "1"), (None, "2"), ("b", None), ("a", "3"))]):
        site.take(event)
    assert [(row.key, row.payload) for row in site.rows] == [("a", b"1"), ("a", b"3")]
    letters = [row for letter in site.dead for row in rows_of(letter.rows.batch)]  # type: ignore[union-attr]
    assert {letter.rows.op for letter in site.dead} == {dead_letters_of(SINK)}
    reasons = [msgspec.json.decode(letter.payload)["reason"] for letter in letters]
    assert reasons == ["the key of a row is null", "the payload of a row is null"]


def test_an_empty_batch_and_a_task_without_rows_are_nothing() -> None:
    assert list(feed.events(STREAM, 0, SINK, [])) == []
    assert list(feed.events(STREAM, 0, SINK, [feed.take([])])) == []


def test_time_and_source_of_a_row_are_taken_where_they_are_given() -> None:
    batch = pa.record_batch(
        [
            pa.array(["a", "b"]),
            pa.array([b"1", b"2"]),
            pa.array([1_700_000_000_123_456, None], pa.timestamp("us", "UTC")),
            pa.array(["car1", None]),
        ],
        names=["key", "payload", "time_ms", "source"],
    )
    site = Site()
    for event in feed.events(STREAM, 0, SINK, [feed.take([batch])]):
        site.take(event)
    one, other = site.rows
    assert (one.time_ms, one.source) == (1_700_000_000_123, "car1")
    assert (other.time_ms, other.source) == (other.created_ms, STREAM)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("key string", "payload is missing"),
        ("key int, payload string", "key is int"),
        ("key string, payload string, speed double", "speed is not understood"),
        ("key string, payload string, time_ms string", "time_ms is string"),
    ],
)
def test_rows_that_cannot_be_fed_are_refused_with_what_is_wrong(columns: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        feed.check_columns(schema(columns))


def test_columns_come_out_of_the_payload_and_what_does_not_fit_is_null() -> None:
    payloads = [b'{"speed": 1.5, "at": {"x": 1}}', b'{"speed": "fast"}', b"not json", b"[1]", b"\xff"]
    batch = pa.record_batch([pa.array(["a"] * 5), pa.array(payloads)], names=["key", "payload"])
    found = results.shaped(batch, schema("speed double, at struct<x: bigint>, key string, payload string"))
    assert found.column("speed").to_pylist() == [1.5, None, None, None, None]
    assert found.column("at").to_pylist() == [{"x": 1}, None, None, None, None]
    assert found.column("payload").to_pylist()[3:] == ["[1]", "\ufffd"]


@pytest.mark.parametrize("columns", ["seq int", "payload int", "day date", "speed double not null", "d decimal(3,1)"])
def test_a_schema_that_results_cannot_have_is_refused(columns: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read as"):
        results.check_schema(schema(columns))


def schema(columns: str) -> Any:
    """A few types of Spark's DDL; reading all of it would need a session."""
    from pyspark.sql import types

    kinds: dict[str, Any] = {
        "string": types.StringType(),
        "int": types.IntegerType(),
        "double": types.DoubleType(),
        "date": types.DateType(),
        "decimal(3,1)": types.DecimalType(3, 1),
        "struct<x: bigint>": StructType([types.StructField("x", types.LongType())]),
    }
    fields = []
    for column in columns.split(", "):
        name, _, kind = column.partition(" ")
        nullable = not kind.endswith(" not null")
        fields.append(types.StructField(name, kinds[kind.removesuffix(" not null")], nullable))
    return StructType(fields)
