"""`format("peregrine")`: results of an application as a stream or table of Spark, and any stream or batch into a site.

    register(spark)
    results = spark.readStream.format("peregrine").option("address", root).option("token_file", file).load()
    rows.writeStream.format("peregrine").option("address", edge).option("token_file", file).option("op", "tm/mov_avg")
        .option("checkpointLocation", directory).start()

`address` is that of a router, with TLS as net/tls.py writes it; results are at the root. `patience_s` is for a router
that is away.

Reading: `op` (a sink; all of them if it is not given), `start` (a position, 0), `max_rows` of a micro-batch,
`partition_rows` of a task. Columns are those of `results.SCHEMA`, or those of a schema that is given: what is not in
the header of a result is taken out of its payload, which is then JSON.

Writing: rows with key, payload, and optionally time_ms and source become rows of the operator `op`, once each. `source`
names the stream (default `spark`). A stream is known by the id in its checkpoint: started again from it, it goes on. A
batch that has an option `batch` (a number that increases) may be written again after a failure, as often as needed.
"""

# pyspark is optional, also where types are checked.
# mypy: disable-error-code="import-not-found", allow-subclassing-any

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from peregrine.core.messages import Attach
from peregrine.errors import ConfigurationError, UnknownName
from peregrine.spark import feed
from peregrine.spark.results import SCHEMA, ResultsLog, ResultsReader, ResultsStream
from peregrine.spark.worker import client, patiently
from peregrine.types import OpId, SourceId

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "peregrine"
_QUERY_ID = "sql.streaming.queryId"  # Spark gives it to every task of a stream; it is in the checkpoint


def register(spark: "SparkSession") -> None:
    spark.dataSource.register(PeregrineFormat)


class PeregrineFormat(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return ResultsReader(_results(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ResultsStream(_results(self.options), schema, _number(self.options, "max_rows", 100_000, 1))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchFeed(_target(self.options, schema, overwrite), _batch_name(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return StreamFeed(_target(self.options, schema, overwrite))


@dataclass(frozen=True)
class Target:
    """The site that is fed, and what becomes of the rows there."""

    address: str
    token_file: str
    op: OpId
    source: str
    patience_s: float


@dataclass
class Taken(WriterCommitMessage):
    """The rows of one task. They travel to the driver: nothing reaches a router before all tasks have ended."""

    partition: int
    query_id: str | None
    rows: bytes

    def table(self) -> pa.Table:
        return pa.ipc.open_stream(self.rows).read_all()


class StreamFeed(DataSourceStreamArrowWriter):
    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Taken:
        return _take(iterator)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        if messages:  # else there was no task, and so there are no rows
            _hand_over(self._target, f"{self._target.source}@{messages[0].query_id}", batchId, messages)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        """Nothing has reached a router yet."""


class BatchFeed(DataSourceArrowWriter):
    def __init__(self, target: Target, batch: tuple[str, int]) -> None:
        self._target = target
        self._batch = batch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Taken:
        return _take(iterator)

    def commit(self, messages: Sequence[Any]) -> None:
        _hand_over(self._target, *self._batch, messages)

    def abort(self, messages: Sequence[Any]) -> None:
        """Nothing has reached a router yet."""


def _take(batches: Iterator[pa.RecordBatch]) -> Taken:
    table = feed.take(batches)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as out:
        out.write_table(table)
    task = TaskContext.get()
    assert task is not None, "rows are written in tasks"
    return Taken(task.partitionId(), task.getLocalProperty(_QUERY_ID), sink.getvalue().to_pybytes())


def _hand_over(target: Target, stream: str, number: int, messages: Sequence[Taken]) -> None:
    _announce(target)
    taken = [message.table() for message in sorted(messages, key=lambda message: message.partition)]
    batch = feed.events(stream, number, target.op, taken)
    feed.hand_over(client(target.address, target.token_file), batch, target.patience_s)


@lru_cache(maxsize=256)
def _announce(target: Target) -> None:
    """Tells the manager where the stream is: plans are checked against it."""
    router = client(target.address, target.token_file)
    patiently(lambda: router.offer(Attach(SourceId(target.source))), target.patience_s)


# --- options ---


def _results(options: Mapping[str, str]) -> ResultsLog:
    return ResultsLog(
        _needed(options, "address"),
        _needed(options, "token_file"),
        options.get("op"),
        _number(options, "start", 0),
        _number(options, "partition_rows", 100_000, 1),
        _number(options, "patience_s", 60),
    )


def _target(options: Mapping[str, str], schema: StructType, overwrite: bool) -> Target:
    if overwrite:
        raise ConfigurationError(
            "rows that were fed cannot be overwritten", 'use mode("append"), of a stream outputMode("append")'
        )
    feed.check_columns(schema)
    target = Target(
        _needed(options, "address"),
        _needed(options, "token_file"),
        OpId(_needed(options, "op")),
        options.get("source", "spark"),
        _number(options, "patience_s", 60),
    )
    _check_operator(target)
    return target


@lru_cache(maxsize=256)
def _check_operator(target: Target) -> None:
    """A name that the site does not know would make every row a dead letter."""
    router = client(target.address, target.token_file)
    known = patiently(router.status, target.patience_s).operators
    if target.op not in known:
        raise UnknownName("operator", target.op, known)


def _batch_name(options: Mapping[str, str]) -> tuple[str, int]:
    source = options.get("source", "spark")
    if "batch" in options:
        return f"{source}#batches", _number(options, "batch", 0)
    return f"{source}+{uuid.uuid4().hex}", 0


def _needed(options: Mapping[str, str], name: str) -> str:
    if name not in options:
        raise ConfigurationError(f'format("{NAME}") without the option {name}', f'.option("{name}", ...)')
    return options[name]


def _number(options: Mapping[str, str], name: str, default: int, least: int = 0) -> int:
    given = options.get(name, str(default))
    if not given.isdecimal() or int(given) < least:
        raise ConfigurationError(f"option {name} is {given!r}", f"give a whole number, at least {least}")
    return int(given)
