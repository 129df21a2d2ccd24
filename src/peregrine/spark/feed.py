"""Rows of any Spark stream or batch on their way into a site: what a task takes of them, and how a batch is handed on.

A micro-batch may be computed again, on other tasks and in another order, but of the same rows. So nothing here depends
on tasks: the batch is cut by key, into chunks that are the same whenever it is computed, and each chunk is one event
with one number. A router takes an event whole or not at all, and knows by the number what it has taken.
"""

# pyspark is optional, also where types are checked.
# mypy: disable-error-code="import-not-found"

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from peregrine.core.keyspace import hash_keys
from peregrine.core.messages import FromSource
from peregrine.core.rows import ROW_SCHEMA, UNCHAINED, Rows
from peregrine.errors import Busy, ConfigurationError
from peregrine.net.client import RouterClient
from peregrine.spark.guard import Failure, dead_letters_of
from peregrine.spark.worker import patiently
from peregrine.types import OpId, SourceId

CHUNK_ROWS = 50_000  # of an event; only a key that has more makes a larger one
ITEM_ROWS = 5_000  # of an entry in a log: hosts cut their batches between entries
NUMBER_BITS = 32  # of a row's number within its batch

TAKEN = pa.schema(
    [
        pa.field("key", pa.string()),
        pa.field("payload", pa.binary()),
        pa.field("time_ms", pa.int64(), nullable=False),
        pa.field("source", pa.string()),
        pa.field("created_ms", pa.int64(), nullable=False),
    ]
)
_WANTED: dict[str, tuple[type[DataType], ...]] = {
    "key": (StringType,),
    "payload": (StringType, BinaryType),
    "time_ms": (LongType, IntegerType, TimestampType, TimestampNTZType),
    "source": (StringType,),
}
_OPTIONAL = ("time_ms", "source")


def check_columns(schema: StructType) -> None:
    """Raises an error for rows that cannot become rows of an operator."""
    given = {field.name: field.dataType for field in schema.fields}
    wrong = [f"{name} is missing" for name in _WANTED if name not in given and name not in _OPTIONAL]
    wrong += [f"{name} is not understood" for name in given if name not in _WANTED]
    wrong += [
        f"{name} is {given[name].simpleString()}"
        for name, kinds in _WANTED.items()
        if name in given and not isinstance(given[name], kinds)
    ]
    if wrong:
        raise ConfigurationError(
            f"rows that cannot be fed: {', '.join(wrong)}",
            "select key (string), payload (string or binary; to_json(struct(...)) makes one of any columns), and, if"
            " you like, time_ms (bigint or timestamp) and source (string)",
        )


def take(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """The rows of a task, as `TAKEN` has them. What they lack is filled in, but for keys and payloads."""
    now_ms = time.time_ns() // 1_000_000
    parts = [_taken(batch, now_ms) for batch in batches]
    return pa.Table.from_batches(parts, TAKEN)


def _taken(batch: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    now = pa.repeat(pa.scalar(now_ms, pa.int64()), batch.num_rows)
    columns: dict[str, Any] = {"created_ms": now, "time_ms": now, "source": pa.nulls(batch.num_rows, pa.string())}
    for name in batch.schema.names:
        column = batch.column(name)
        if pa.types.is_timestamp(column.type):
            column = pc.cast(column, pa.timestamp("ms", column.type.tz), safe=False).view(pa.int64())
        columns[name] = pc.cast(column, TAKEN.field(name).type)
    columns["time_ms"] = pc.coalesce(columns["time_ms"], now)
    return pa.record_batch([columns[name] for name in TAKEN.names], schema=TAKEN)


def events(stream: str, number: int, op: OpId, taken: Sequence[pa.Table]) -> Iterator[FromSource]:
    """A batch of a stream as events: one for each chunk, so that each is taken once.

    Rows of a key are in one chunk, in the order of the tasks that are given and of the rows in them. The number of
    chunks follows from the number of rows, and belongs to the name of the source: it may differ from batch to batch.
    """
    rows = pa.concat_tables(taken).combine_chunks() if taken else TAKEN.empty_table()
    names = rows.column("key").to_pylist()
    hashes = hash_keys([name or "" for name in names])
    chunks = 1 << max(-(-len(rows) // CHUNK_ROWS) - 1, 0).bit_length()
    for chunk in range(chunks):
        mine = np.flatnonzero(hashes % np.uint64(chunks) == chunk)
        if len(mine):
            door = SourceId(stream if chunks == 1 else f"{stream}/{chunks}.{chunk}")
            numbers = _Numbers(number, chunk, chunks)
            yield FromSource(door, tuple(_items(stream, op, rows.take(pa.array(mine)), hashes[mine], numbers)))


class _Numbers:
    """Numbers of the rows of a chunk: no two rows of a stream have the same, and they increase."""

    def __init__(self, number: int, chunk: int, chunks: int) -> None:
        self._base = number << NUMBER_BITS
        self._next = chunk
        self._step = chunks

    def take(self, count: int) -> npt.NDArray[np.int64]:
        taken = self._base + np.arange(self._next, self._next + count * self._step, self._step, dtype=np.int64)
        self._next += count * self._step
        return taken

    @property
    def last(self) -> int:
        """What a router remembers of the whole chunk."""
        return self._base | ((1 << NUMBER_BITS) - 1)


def _items(
    stream: str, op: OpId, rows: pa.Table, hashes: npt.NDArray[np.uint64], numbers: _Numbers
) -> list[tuple[int, Rows]]:
    whole = pc.and_(pc.is_valid(rows.column("key")), pc.is_valid(rows.column("payload"))).to_numpy()
    items = [
        _rows(stream, op, rows.take(pa.array(part)), hashes[part], numbers)
        for part in _pieces(np.flatnonzero(whole), ITEM_ROWS)
    ]
    for index in np.flatnonzero(~whole).tolist():
        items.append(_refused(stream, op, rows.slice(index, 1), numbers))
    seq, item = items[-1]
    return [*items[:-1], (max(seq, numbers.last), item)]


def _rows(stream: str, op: OpId, rows: pa.Table, hashes: npt.NDArray[np.uint64], numbers: _Numbers) -> tuple[int, Rows]:
    seqs = numbers.take(len(rows))
    columns = {
        "key": rows.column("key"),
        "hash": pa.array(hashes),
        "source": pc.fill_null(rows.column("source"), stream),
        "seq": pa.array(seqs),
        "prev": pa.repeat(pa.scalar(UNCHAINED, pa.int64()), len(rows)),
        "time_ms": rows.column("time_ms"),
        "created_ms": rows.column("created_ms"),
        "payload": rows.column("payload"),
    }
    table = pa.table([columns[name] for name in ROW_SCHEMA.names], schema=ROW_SCHEMA)
    return int(seqs[-1]), Rows(op, table.combine_chunks().to_batches()[0])


def _refused(stream: str, op: OpId, row: pa.Table, numbers: _Numbers) -> tuple[int, Rows]:
    """A row without a key or a payload, as a dead letter: nobody deploys its operator (see guard.py)."""
    given = row.to_pylist()[0]
    reason = f"the {'key' if given['key'] is None else 'payload'} of a row is null"
    failure = Failure(op, given["key"] or "", stream, -1, reason, payload=given["payload"] or b"")
    letter = row.set_column(0, "key", pa.array([failure.key])).set_column(
        1, "payload", pa.array([msgspec.json.encode(failure)], pa.binary())
    )
    return _rows(stream, dead_letters_of(op), letter, hash_keys([failure.key]), numbers)


def _pieces(indexes: npt.NDArray[np.int64], size: int) -> Iterator[npt.NDArray[np.int64]]:
    for at in range(0, len(indexes), size):
        yield indexes[at : at + size]


def hand_over(router: RouterClient, batch: Iterable[FromSource], patience_s: float) -> None:
    """Returns when the router has all of it."""
    for event in batch:
        while not _taken_in(router, event, patience_s):
            pass  # back-pressure makes Spark wait, as it would a device


def _taken_in(router: RouterClient, event: FromSource, patience_s: float) -> bool:
    try:
        patiently(lambda: router.offer(event), patience_s)
        return True
    except Busy:
        return False
