"""The query of a DataFrame operator at one place: a function from DataFrame to DataFrame, which Spark runs.

    log of the place -> batch -> typed columns -> the user's function -> outputs to the router

All that a batch puts out carries the offset of its last row and comes in one event. Spark repeats a batch that was not
committed with the same rows, so the router knows the whole of it again and drops it: each output counts once, also if
the function is not deterministic. Spark commits only after the router has the outputs.
"""

# pyspark is optional, also where types are checked.
# mypy: disable-error-code="import-not-found, import-untyped"

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.base import UnknownException

from peregrine.app.schema import Schema
from peregrine.app.shell import Target
from peregrine.core.messages import FromHost
from peregrine.errors import ConfigurationError
from peregrine.net.client import RouterClient
from peregrine.spark.guard import REASON_CHARACTERS
from peregrine.spark.served import Served, publish
from peregrine.spark.source import NAME, LogSource
from peregrine.spark.transform_batch import Batch, Refused
from peregrine.spark.typed_rows import HIDDEN, Reader, Writer
from peregrine.spark.worker import patiently
from peregrine.types import OpId, PlaceId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_DEAD = (Py4JError, ConnectionError, EOFError)  # what a call raises when the process of Spark has died


@dataclass(frozen=True)
class TransformConfig:
    op: OpId
    function: Callable[[Any], Any]
    input: Schema
    output: Schema
    targets: tuple[Target, ...]
    place: PlaceId
    router: RouterClient  # of the place's site
    token_file: Path
    checkpoint: Path
    max_rows: int = 20_000  # of a batch
    patience_s: float = 60.0  # with a router that is away

    def __post_init__(self) -> None:
        for name in HIDDEN:
            if name in self.input.types or name in self.output.types:
                raise ConfigurationError(
                    f"{self.op} has a column {name}: DataFrame operators have one of that name for themselves",
                    "rename it",
                )


def start(spark: "SparkSession", config: TransformConfig) -> "StreamingQuery":
    """Start the query, or go on from its checkpoint."""
    spark.dataSource.register(LogSource)
    served = config.checkpoint.with_name(f"{config.checkpoint.name}-served")
    served.parent.mkdir(parents=True, exist_ok=True)
    publish(served, {config.place: Served(config.router.address)})
    log = spark.readStream.format(NAME).options(
        served=str(served),
        token_file=str(config.token_file),
        max_rows=str(config.max_rows),
        patience_s=str(config.patience_s),
    )
    return (
        log.load()
        .writeStream.foreachBatch(batch_function(config))
        .option("checkpointLocation", str(config.checkpoint))
        .queryName(f"transform {config.place}")
        .start()
    )


def check(spark: "SparkSession", config: TransformConfig) -> None:
    """Raises an error for a function whose result cannot have the schema that it should have."""
    nothing = spark.createDataFrame([], Reader(config.input).struct)
    try:
        result = config.function(nothing)
    except Exception as error:
        if _is_spark_gone(error):
            raise
        return  # with rows it may do better: it is judged by them
    try:
        Writer(config.op, config.place, config.output, config.targets).select(result)
    except (PySparkException, AttributeError, TypeError) as error:
        raise ConfigurationError(
            f"the result of {config.op} does not have the schema ({config.output.ddl}): {_reason(error)}",
            "return a DataFrame with these columns",
        ) from error


def batch_function(config: TransformConfig) -> "Callable[[DataFrame, int], None]":
    """What Spark calls for each batch."""
    reader = Reader(config.input)
    writer = Writer(config.op, config.place, config.output, config.targets)

    def on_batch(frame: "DataFrame", number: int) -> None:
        spark = frame.sparkSession

        def run(table: pa.Table) -> pa.Table:
            return run_function(config.function, spark.createDataFrame(table), writer)

        slices = frame.select("first_offset", "offsets", "body").toArrow().to_pydict()
        emissions = Batch(config.op, config.place, reader, writer, run).apply(zip(*slices.values(), strict=True))
        if emissions:
            # In one event, and under one number: Spark repeats a batch as it was, and the router drops all of it.
            outputs = FromHost(config.place, config.op, 0, tuple(emissions))
            patiently(lambda: config.router.offer(outputs), config.patience_s)

    return on_batch


def run_function(function: Callable[[Any], Any], frame: "DataFrame", writer: Writer) -> pa.Table:
    """The function's result. What is not the user's fault fails the query instead, and is tried again."""
    try:
        return writer.select(function(frame)).toArrow()
    except Exception as error:
        if _is_spark_gone(error):
            raise
        raise Refused(_reason(error)) from error


def _is_spark_gone(error: Exception) -> bool:
    """Its process has died, or the query was stopped. Otherwise PySpark has an exception for it, or it is Python's."""
    if isinstance(error, PySparkException):
        return isinstance(error, UnknownException)
    return isinstance(error, _DEAD) or isinstance(error.__context__, Py4JError)


def _reason(error: Exception) -> str:
    """What was raised, without the stack of Spark's process; of a traceback from a worker its last line."""
    text = str(error).partition("JVM stacktrace:")[0].strip()
    if "Traceback (most recent call last):" in text:
        text = text.splitlines()[-1]
    return text if isinstance(error, PySparkException) else f"{type(error).__name__}: {text}"


class TransformQuery:
    """The query, as something that can be started again."""

    def __init__(self, session: "Callable[[], SparkSession]", config: TransformConfig) -> None:
        """`session` gives the one that runs, and waits for it if need be."""
        self.name = f"transform {config.place}"
        self._session = session
        self._config = config
        self._stopped = False
        spark = session()
        check(spark, config)
        self.query: StreamingQuery = start(spark, config)

    def failure(self) -> str | None:
        if self._stopped:
            return None
        try:
            if self.query.isActive:
                return None
        except _DEAD:
            return "the process of its Spark has ended"
        return str(self.query.exception() or "the query has ended")[:REASON_CHARACTERS]

    def restart(self) -> None:
        self.query = start(self._session(), self._config)
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True
        with suppress(*_DEAD):
            self.query.stop()
