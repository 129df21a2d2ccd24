"""The logs of one or several places as a stream of Spark: the data source `peregrine-log`.

A row of the stream is a slice of a log (`core/slices.py`): what one group has to apply of one entry. A position of the
stream is {place: offset}. The reader lives in one process for as long as its query does; all places are read by one
task, because each one more costs more than what it reads.

Spark asks for the latest offset of a batch only after it has committed the batch before: the `start` that it gives is
what is durably applied. So this is where the routers are told, without a listener and without waiting for more rows.
"""

# pyspark is optional, also where types are checked.
# mypy: disable-error-code="import-not-found", allow-subclassing-any

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from peregrine.errors import ProtocolError, TransportError, Unauthorized
from peregrine.spark.worker import PlaceAddress, client, freeze_heap, patiently
from peregrine.types import PlaceId

NAME = "peregrine-log"
COLUMNS = ("place", "op", "group", "first_offset", "offsets", "body", "shard")
_TYPES = (StringType(), StringType(), IntegerType(), LongType(), BinaryType(), BinaryType(), IntegerType())
SCHEMA = StructType([StructField(name, kind, False) for name, kind in zip(COLUMNS, _TYPES, strict=True)])

WAIT_S = 0.1  # for rows, in one call: cheaper than to be asked again and again
AWAY_S = 0.05

Offsets = dict[str, int]


class LogSource(DataSource):
    """Options: `places` (JSON [[place, address], ...]), `token_file`, `start` (JSON {place: offset}, else 0),
    `max_rows` of a batch for each place, `patience_s` with a router that is away, `shards`.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> "LogReader":
        return LogReader(dict(self.options))


class Stretch(NamedTuple):
    """Whole entries of one log."""

    place: PlaceId
    address: str
    start: int
    end: int


class Stretches(InputPartition):
    """What one task reads."""

    def __init__(self, stretches: list[Stretch]) -> None:
        self.stretches = stretches


class LogReader(DataSourceStreamReader):
    def __init__(self, options: Mapping[str, Any]) -> None:
        self._places = [PlaceAddress(PlaceId(place), address) for place, address in json.loads(options["places"])]
        self._token_file = str(options["token_file"])
        self._start: Offsets = json.loads(options.get("start", "{}"))
        self._max_rows = int(options.get("max_rows", 100_000))
        self._patience_s = float(options.get("patience_s", 60.0))
        self._shards = int(options.get("shards", 1))
        self._away_since_s: dict[str, float] = {}

    def initialOffset(self) -> Offsets:
        return {place: self._start.get(place, 0) for place, _ in self._places}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._max_rows)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """The end of the next batch; also tells the routers how far the last one came.

        A place that Spark's checkpoint does not know yet begins where a new query would; one that is no longer served
        keeps its offset.
        """
        freeze_heap()
        start = {**self.initialOffset(), **start}
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        latest = dict(start)
        routers = {address for _, address in self._places}
        for address in routers:
            committed = {place: start[place] for place, at in self._places if at == address}
            for place, end in self._advance(address, committed, WAIT_S if len(routers) == 1 else 0.0).items():
                if max_rows is not None and end - start[place] > max_rows:
                    # A batch ends between two entries, and only the log knows where that is.
                    _, end = self._read_log(PlaceId(place), address, start[place], max_rows)
                latest[place] = max(end, start[place])
        return latest

    def _advance(self, address: str, committed: dict[PlaceId, int], wait_s: float) -> dict[str, int]:
        """A router that is away has nothing new: the others need not wait for it, unless it stays away."""
        try:
            ends = client(address, self._token_file).advance(committed, wait_s)
        except Unauthorized:
            raise
        except TransportError:
            since_s = self._away_since_s.setdefault(address, time.monotonic())
            if time.monotonic() - since_s > self._patience_s:
                raise
            time.sleep(AWAY_S)
            return {}
        self._away_since_s.pop(address, None)
        return ends

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        start = {**self.initialOffset(), **start}
        stretches = [
            Stretch(place, address, start[place], end[place])
            for place, address in self._places
            if start[place] < end.get(place, 0)
        ]
        return [Stretches(stretches)] if stretches else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_heap()
        assert isinstance(partition, Stretches)
        for stretch in partition.stretches:
            for table in self._read_stretch(stretch):
                shard = pa.array(table.column("group").to_numpy() % self._shards, pa.int32())
                sharded = table.append_column(pa.field("shard", pa.int32(), nullable=False), shard)
                yield from sharded.select(COLUMNS).combine_chunks().to_batches()

    def _read_stretch(self, stretch: Stretch) -> Iterator[pa.Table]:
        at = stretch.start
        while at < stretch.end:
            table, after = self._read_log(stretch.place, stretch.address, at, stretch.end - at)
            _check(stretch, at, table, after)
            yield table
            at = after

    def _read_log(self, place: PlaceId, address: str, offset: int, max_rows: int) -> tuple[pa.Table, int]:
        router = client(address, self._token_file)
        return patiently(lambda: router.read_log(place, offset, max_rows), self._patience_s)


def _check(stretch: Stretch, at: int, table: pa.Table, after: int) -> None:
    """Rows that are missing must stop a host: it would commit states that never saw them."""
    first = min(table.column("first_offset").to_pylist(), default=None)
    if first != at or not at < after <= stretch.end:
        raise ProtocolError(
            f"the log of {stretch.place} was to give offsets {at} to {stretch.end} and gave {first} to {after}",
            "the router lost or cut off what this host has not applied: start the host from a newer checkpoint,"
            " or restore the router's directory",
        )
