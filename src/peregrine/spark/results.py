"""The results of an application as a stream or a table of Spark: the reading half of `format("peregrine")`.

A position of the stream is a position of the router's log of results, between two of its records. Only the log knows
where records begin, so it is asked: for any position it answers with the records that begin there or later.
"""

# pyspark is optional, also where types are checked.
# mypy: disable-error-code="import-not-found", allow-subclassing-any

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    LongType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
)

from peregrine.errors import ConfigurationError
from peregrine.spark.worker import client, freeze_heap, patiently

_LONG, _TEXT = LongType(), StringType()
HEADER: dict[str, DataType] = {
    "op": _TEXT,
    "key": _TEXT,
    "source": _TEXT,
    "seq": _LONG,
    "time_ms": _LONG,
    "created_ms": _LONG,
    "position": _LONG,
}
PAYLOAD = "payload"
SCHEMA = StructType([StructField(name, kind, False) for name, kind in HEADER.items()] + [StructField(PAYLOAD, _TEXT)])

Position = dict[str, int]


@dataclass(frozen=True)
class ResultsLog:
    """Where results are, and which of them are wanted."""

    address: str
    token_file: str
    op: str | None  # a sink; None: all of them
    start: int
    partition_rows: int
    patience_s: float

    def end(self) -> int:
        return patiently(client(self.address, self.token_file).status, self.patience_s).results_end

    def read(self, position: int, max_rows: int) -> tuple[pa.Table, int]:
        router = client(self.address, self.token_file)
        return patiently(lambda: router.read_results(position, max_rows), self.patience_s)

    def boundary(self, position: int, end: int) -> int:
        """Where the first record begins that begins at `position` or later."""
        if position >= end:
            return end
        table, _ = self.read(position, 1)
        return min(int(table.column("position")[0].as_py()), end) if len(table) else end

    def parts(self, start: int, end: int) -> list[InputPartition]:
        """Stretches of about `partition_rows` rows that together are [start, end): both lie between records."""
        bounds = {self.boundary(at, end) for at in range(start + self.partition_rows, end, self.partition_rows)}
        edges = sorted({start, end, *bounds})
        return [Stretch(*edge) for edge in pairwise(edges)]


class Stretch(InputPartition):
    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end


class ResultsReader(DataSourceReader):
    """All results that are there when the query is planned."""

    def __init__(self, log: ResultsLog, schema: StructType) -> None:
        check_schema(schema)
        self._log = log
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return self._log.parts(self._log.start, max(self._log.end(), self._log.start))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark asks for a partition also where there are no rows.
        return read_stretch(self._log, self._schema, partition) if isinstance(partition, Stretch) else iter(())


class ResultsStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, log: ResultsLog, schema: StructType, max_rows: int) -> None:
        check_schema(schema)
        self._log = log
        self._schema = schema
        self._max_rows = max_rows
        self._last: int | None = None  # of a query that wants only what is there when it starts

    def initialOffset(self) -> Position:
        return {"position": self._log.start}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        if self._last is None:
            self._last = self._log.end()

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:
        freeze_heap()
        at, end = start["position"], self._log.end() if self._last is None else self._last
        if isinstance(limit, ReadMaxRows) and end - at > limit.max_rows:
            end = self._log.boundary(at + limit.max_rows, end)
        return {"position": max(end, at)}

    def partitions(self, start: Position, end: Position) -> list[InputPartition]:
        return self._log.parts(start["position"], end["position"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Stretch)
        return read_stretch(self._log, self._schema, partition)


def read_stretch(log: ResultsLog, schema: StructType, stretch: Stretch) -> Iterator[pa.RecordBatch]:
    freeze_heap()
    at = stretch.start
    while at < stretch.end:
        table, after = log.read(at, stretch.end - at)
        if after <= at:
            break
        wanted = pc.less(table.column("position"), stretch.end)
        if log.op is not None:
            wanted = pc.and_(wanted, pc.equal(table.column("op"), log.op))
        for batch in table.filter(wanted).combine_chunks().to_batches():
            yield shaped(batch, schema)
        at = after


# --- columns ---


def check_schema(schema: StructType) -> None:
    """Raises an error for columns that cannot be had from a result."""
    for field in schema.fields:
        name, kind = field.name, field.dataType
        if name in HEADER:
            fits = kind == HEADER[name]
        elif name == PAYLOAD:
            fits = isinstance(kind, StringType | BinaryType)
        else:
            fits = field.nullable and _from_json(kind)
        if not fits:
            raise ConfigurationError(
                f"column {name} cannot be read as {kind.simpleString()}{'' if field.nullable else ' not null'}",
                f"{', '.join(HEADER)} have fixed types, payload is string or binary, and what comes out of the payload"
                " is nullable and of types that JSON has; for others read payload and apply from_json",
            )


def _from_json(kind: DataType) -> bool:
    match kind:
        case StructType():
            return all(_from_json(field.dataType) for field in kind.fields)
        case ArrayType():
            return _from_json(kind.elementType)
        case MapType():
            return isinstance(kind.keyType, StringType) and _from_json(kind.valueType)
        case _:
            return isinstance(kind, StringType | BooleanType | NumericType) and kind.typeName() != "decimal"


def shaped(batch: pa.RecordBatch, schema: StructType) -> pa.RecordBatch:
    """The columns that were asked for. What a payload does not have, or has with another type, is null."""
    objects: list[Mapping[str, Any]] = []
    if any(field.name not in HEADER and field.name != PAYLOAD for field in schema.fields):
        objects = [_object(payload) for payload in batch.column(PAYLOAD).to_pylist()]
    wanted: pa.Schema = to_arrow_schema(schema, timezone="UTC")  # with what is nullable: Spark insists on it
    columns: list[pa.Array] = []
    for field, kind in zip(schema.fields, wanted.types, strict=True):
        if field.name in HEADER:
            columns.append(batch.column(field.name))
        elif field.name == PAYLOAD:
            payload = batch.column(PAYLOAD)
            columns.append(payload if isinstance(field.dataType, BinaryType) else _text(payload))
        else:
            values = [found.get(field.name) for found in objects]
            columns.append(_typed(values, kind))
    return pa.record_batch(columns, schema=wanted)


def _object(payload: bytes) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _typed(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.concat_arrays([_typed_or_null(value, kind) for value in values])


def _typed_or_null(value: Any, kind: pa.DataType) -> pa.Array:
    try:
        return pa.array([value], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.nulls(1, kind)


def _text(payload: pa.Array) -> pa.Array:
    try:
        return pc.cast(payload, pa.string())
    except pa.ArrowInvalid:  # not UTF-8: one strange payload must not stop a stream
        return pa.array([each.decode(errors="replace") for each in payload.to_pylist()], pa.string())
