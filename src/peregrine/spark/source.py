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

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from peregrine.errors import ProtocolError, TransportError, Unauthorized
from peregrine.net.protocol import SLICE_SCHEMA
from peregrine.spark.asking import Advanced, Asking, Committed, callers
from peregrine.spark.epochs import Epochs, Log
from peregrine.spark.registry import names
from peregrine.spark.served import CONTINUOUS, Served, served_by
from peregrine.spark.worker import client, freeze_heap, patiently
from peregrine.types import PlaceId

NAME = "peregrine-log"
KEY = "shard"  # of a state of Spark's: groups of all operators at all places
_SHARD = pa.field(KEY, pa.int32(), nullable=False)
ARROW = SLICE_SCHEMA.append(_SHARD)
_TYPES = (
    StringType(),
    StringType(),
    IntegerType(),
    LongType(),
    BinaryType(),
    BinaryType(),
    IntegerType(),
)
SCHEMA = StructType([StructField(name, kind, False) for name, kind in zip(ARROW.names, _TYPES, strict=True)])

EPOCH = -1  # stands for a group in what a continuous place has to read
EPOCHS = "#epochs"  # in an offset: counts the epochs that are not about rows
LEASE_S = 60.0  # without a task the process of a continuous host ends
EPOCH_WAIT_S, MIXED_WAIT_S = 0.2, 0.005  # when no epoch is due; where other places want batches
AWAY_S = 0.05
AT_ONCE_ROWS = 10_000  # so few are read from all logs at the same time; more would have to fit into memory

Offsets = dict[str, int]


class LogSource(DataSource):
    """Options: `served` (the file of places, spark/served.py), `token_file`, `start` (JSON {place: offset}, else 0),
    `max_rows` of a batch, which places that are behind share, `patience_s` with a router that is away, `shards`.
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
    continuous: bool = False  # the process of its host reads it


class Stretches(InputPartition):
    """What one task reads."""

    def __init__(self, stretches: list[Stretch]) -> None:
        self.stretches = stretches


class LogReader(DataSourceStreamReader):
    def __init__(self, options: Mapping[str, Any]) -> None:
        self._served = str(options["served"])
        self._token_file = str(options["token_file"])
        self._start: Offsets = json.loads(options.get("start", "{}"))
        self._max_rows = int(options.get("max_rows", 100_000))
        self._patience_s = float(options.get("patience_s", 60.0))
        self._shards = int(options.get("shards", 1))
        self._registry = str(options.get("registry", ""))
        self._epochs = Epochs(float(options.get("epoch_s", 30.0)), int(options.get("epoch_rows", 50_000)))
        self._away_since_s: dict[str, float] = {}
        self._asking: Asking | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get a copy, which asks nobody."""
        return {**self.__dict__, "_asking": None}

    def initialOffset(self) -> Offsets:
        return self._initial(served_by(self._served))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._max_rows)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """The end of the next batch; also tells the routers how far the last one came.

        A place that Spark's checkpoint does not know yet begins where a new query would; one that is no longer served
        keeps its offset. Of a continuous place the end is that of an epoch, if it is time for one.
        """
        freeze_heap()
        served = served_by(self._served)
        start = {**self._initial(served), **start}
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        latest = dict(start)
        continuous = self._epochs.places(served)
        ends, left = self._ends(served, start, can_wait=not continuous)
        logs = {place: Log(start[place], end, place in left) for place, end in ends.items() if place in continuous}
        wants_tasks = bool(continuous) and self._epochs.wants_tasks()
        is_due = self._epochs.is_due(logs, wants_tasks)
        behind = sum(end > start[place] for place, end in ends.items() if place not in continuous)
        share = None if max_rows is None else max(max_rows // max(behind, 1), 1)
        for place, end in ends.items():
            if place in continuous:
                end = end if is_due else start[place]
            elif share is not None and end - start[place] > share:
                # A batch ends between two entries, and only the log knows where that is.
                _, end = self._read_log(place, served[place].address, start[place], share)
            latest[place] = max(end, start[place])
        if wants_tasks:
            latest[EPOCHS] = start.get(EPOCHS, 0) + 1
        elif continuous and latest == start:  # rather than to be asked again at once
            time.sleep(EPOCH_WAIT_S if len(continuous) == len(served) else MIXED_WAIT_S)
        return latest

    def _initial(self, served: Mapping[PlaceId, Served]) -> Offsets:
        return {place: self._start.get(place, 0) for place in served}

    def _ends(
        self, served: Mapping[PlaceId, Served], start: Offsets, can_wait: bool
    ) -> tuple[dict[PlaceId, int], set[PlaceId]]:
        """Where the logs end that have something new, or may have; and those that no process follows."""
        routers: dict[str, dict[PlaceId, int]] = {}
        for place, each in served.items():
            routers.setdefault(each.address, {})[place] = start[place]
        if self._asking is None:
            self._asking = Asking(self._advance)
        ends, left = self._asking.advance(routers, can_wait)
        return ends, set(left)

    def _advance(self, address: str, committed: Committed, wait_s: float) -> Advanced:
        """A router that is away has nothing new: the others need not wait for it, unless it stays away."""
        try:
            found = client(address, self._token_file).advance(committed, wait_s)
        except Unauthorized:
            raise
        except TransportError:
            since_s = self._away_since_s.setdefault(address, time.monotonic())
            if time.monotonic() - since_s > self._patience_s:
                raise
            time.sleep(AWAY_S)
            return {}, []
        self._away_since_s.pop(address, None)
        return found

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        served = served_by(self._served)
        start = {**self._initial(served), **start}
        all_shards = start.get(EPOCHS) != end.get(EPOCHS)
        stretches = [
            Stretch(place, each.address, start[place], end.get(place, start[place]), each.runner == CONTINUOUS)
            for place, each in served.items()
            if start[place] < end.get(place, 0) or (all_shards and each.runner == CONTINUOUS)
        ]
        return [Stretches(stretches)] if stretches else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_heap()
        assert isinstance(partition, Stretches)
        stretches = [stretch for stretch in partition.stretches if not stretch.continuous]
        continuous = [stretch for stretch in partition.stretches if stretch.continuous]
        yield from map(self._epoch, continuous)
        if sum(each.end - each.start for each in stretches) > AT_ONCE_ROWS:
            for stretch in stretches:
                for table in self._read_stretch(stretch):
                    yield from self._sharded(table)
        elif stretches:
            reading = map if len(stretches) == 1 else callers().map
            read = reading(lambda each: list(self._read_stretch(each)), stretches)
            table = pa.concat_tables([table for tables in read for table in tables])
            yield from self._sharded(table)

    def _sharded(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        shard = pa.array(table.column("group").to_numpy() % self._shards, pa.int32())
        table = table.append_column(_SHARD, shard)
        yield from table.select(ARROW.names).combine_chunks().to_batches()

    def _epoch(self, stretch: Stretch) -> pa.RecordBatch:
        """For each shard of a place the word that it is to be taken; its rows do not come by Spark."""
        shards = [(op, shard) for op in names(self._registry) for shard in range(self._shards)]
        upto = np.array([stretch.start, stretch.end], np.int64).tobytes()
        columns = (
            *([stretch.place] * len(shards), [op for op, _ in shards], [EPOCH] * len(shards)),
            *([stretch.start] * len(shards), [upto] * len(shards), [b""] * len(shards), [at for _, at in shards]),
        )
        return pa.record_batch([pa.array(*of) for of in zip(columns, ARROW.types, strict=True)], ARROW)

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
