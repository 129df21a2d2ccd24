"""The plain query that Peregrine is measured against: what one writes with PySpark alone for Traffic Monitoring.

    Python source -> group by vehicle -> transformWithState (row by row) -> Python sink

Spark's own settings, with RocksDB, which transformWithState asks for, and as many shuffle partitions as cores: with the
200 of the default each batch would start 200 tasks. Rows have columns and come and go as Arrow. The source makes them
itself, so there is no transport in it. A result counts as emitted when a task has it, before the batch is committed.
Each of these favours this query.
"""

# pyspark is optional, also where types are checked.
# mypy: disable-error-code="import-not-found", allow-subclassing-any

import os
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import StructType

from peregrine.errors import ConfigurationError
from peregrine.spark.quiet import quieten
from peregrine.spark.session import find_java, put_aside
from peregrine.workloads import road

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
READINGS = "vehicle string, seq bigint, created_ms bigint, speed double"
RESULTS = "vehicle string, seq bigint, created_ms bigint, average double, alert boolean"
MANIFEST = "committed"


@dataclass(frozen=True)
class PlainConfig:
    keys: int
    checkpoint: Path
    results: Path
    rows: int = 1 << 62  # in all
    rows_per_s: float = 0.0  # 0: as fast as it goes
    max_rows: int = 100_000  # of a batch
    began_ms: int = 0  # when the first row is created


def open_plain_session(cores: int = 2) -> "SparkSession":
    from pyspark.sql import SparkSession

    if find_spec("google") is None or find_spec("google.protobuf") is None:
        raise ConfigurationError(
            "protobuf is not installed, and transformWithState needs it", "pip install 'peregrine-spark[spark]'"
        )
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("plain")
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.sql.shuffle.partitions", str(cores))
    )
    spark = put_aside(builder, parent=Path(tempfile.gettempdir())).getOrCreate()  # where Spark puts things by itself
    quieten(spark)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def start(spark: "SparkSession", config: PlainConfig, once: bool = False) -> "StreamingQuery":
    """Start the query, or go on from its checkpoint; `once`: until it has what is there now."""
    config.results.mkdir(parents=True, exist_ok=True)
    spark.dataSource.register(RoadSource)
    spark.dataSource.register(FileSink)
    options = {name: str(value) for name, value in asdict(config).items()}
    averages = (
        spark.readStream.format(RoadSource.name())
        .options(**options)
        .load()
        .groupBy("vehicle")
        .transformWithState(Average(), RESULTS, "append", "None")
    )
    writer = (
        averages.writeStream.format(FileSink.name())
        .outputMode("append")
        .option("checkpointLocation", str(config.checkpoint))
        .option("results", str(config.results))
    )
    return (writer.trigger(availableNow=True) if once else writer).start()


def repartition(spark: "SparkSession", config: PlainConfig, partitions: int) -> None:
    """Give the state of a query that does not run another number of partitions. Not yet public in Spark 4.3."""
    spark._streamingCheckpointManager.repartition(str(config.checkpoint), partitions)


class Average(StatefulProcessor):
    """The running average of a vehicle, and whether it is above the limit."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("average", "count bigint, average double")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        count, average = self._state.get() or (0, 0.0)
        for row in rows:
            count, average = count + 1, average + (row.speed - average) / (count + 1)
            told = round(average, 6)
            yield Row(vehicle=key[0], seq=row.seq, created_ms=row.created_ms, average=told, alert=told > road.LIMIT)
        self._state.update((count, average))


class RoadSource(DataSource):
    """Makes the readings: so many in a second by the clock, or as many as a batch may have."""

    @classmethod
    def name(cls) -> str:
        return "plain-road"

    def schema(self) -> str:
        return READINGS

    def streamReader(self, schema: StructType) -> "RoadReader":
        return RoadReader(self.options)


class Stretch(InputPartition):
    def __init__(self, first: int, end: int) -> None:
        self.first = first
        self.end = end


class RoadReader(DataSourceStreamReader):
    def __init__(self, options: Any) -> None:
        self._keys = int(options["keys"])
        self._rows = int(options["rows"])
        self._rows_per_s = float(options["rows_per_s"])
        self._max_rows = int(options["max_rows"])
        self._began_ms = int(options["began_ms"])

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        first = start["row"]
        end = min(self._rows, first + self._max_rows)
        if self._rows_per_s:
            due = int((time.time() * 1000 - self._began_ms) * self._rows_per_s / 1000)
            end = min(end, max(first, due))
        return {"row": end}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [Stretch(start["row"], end["row"])] if end["row"] > start["row"] else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Stretch)
        numbers = np.arange(partition.first, partition.end, dtype=np.int64)
        names = pa.array([f"car{n}" for n in range(self._keys)])
        per_ms = self._rows_per_s / 1000
        created = self._began_ms + (numbers / per_ms if per_ms else np.zeros(len(numbers)))
        yield pa.record_batch(
            {
                "vehicle": names.take(pa.array(numbers % self._keys)),
                "seq": numbers,
                "created_ms": created.astype(np.int64),
                "speed": road.speeds(numbers),
            }
        )


class FileSink(DataSource):
    """Writes results of each task to a file, and names the files of committed batches in a list."""

    @classmethod
    def name(cls) -> str:
        return "plain-files"

    def streamWriter(self, schema: StructType, overwrite: bool) -> "FileWriter":
        return FileWriter(str(self.options["results"]))


@dataclass
class Written(WriterCommitMessage):
    name: str


class FileWriter(DataSourceStreamArrowWriter):
    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        batches = []
        for batch in iterator:
            emitted = np.full(batch.num_rows, time.time_ns() // 1_000_000, np.int64)
            batches.append(batch.append_column("emitted_ms", pa.array(emitted)))
        name = uuid.uuid4().hex if batches else ""
        if batches:
            with pa.OSFile(str(self._directory / name), "wb") as file, pa.ipc.new_file(file, batches[0].schema) as out:
                for batch in batches:
                    out.write_batch(batch)
        return Written(name)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        names = [message.name for message in messages if isinstance(message, Written) and message.name]
        with open(self._directory / MANIFEST, "a") as manifest:
            manifest.write(" ".join([str(batchId), *names]) + "\n")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass  # a file that the list does not name was never written


def committed(results: Path) -> pa.Table:
    """The results of all committed batches in order, with `emitted_ms`."""
    batches: dict[int, list[str]] = {}
    for line in (results / MANIFEST).read_text().splitlines():
        number, *names = line.split()
        batches[int(number)] = names  # a batch that was committed twice counts once
    tables = []
    for _, names in sorted(batches.items()):
        for name in names:
            with pa.memory_map(str(results / name)) as file:
                tables.append(pa.ipc.open_file(file).read_all())
    return pa.concat_tables(tables)
