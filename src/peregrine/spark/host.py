"""The host query: one Structured Streaming query that serves one or several places with any operators.

    logs of the places -> one partition -> by shard -> apply to each group -> nothing

A call of Spark's costs more than what it does for one group of a small place, so all groups of all operators at all
places are one state of Spark's, or as many as there are shards. The outputs of a batch leave it sideways: the function
hands them to the places' routers before its task ends (`handing.py`), so Spark commits states and offsets only after
the routers have them. A batch that fails or is repeated gives the same outputs under the same offsets, and the routers
drop what they have had.
"""

# pyspark is optional, also where types are checked.
# mypy: disable-error-code="import-not-found"

import json
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from peregrine.core.host import GroupEntry, Output
from peregrine.core.host import Part as RowsPart
from peregrine.core.large import SIZES, Sizes
from peregrine.core.messages import FromAnyHost
from peregrine.core.outgoing import outgoing
from peregrine.core.shard import Shard, Shards
from peregrine.core.slices import entries_of
from peregrine.core.state import CHUNK_BYTES
from peregrine.errors import ConfigurationError, MissingChunk
from peregrine.net.directory_format import check_format
from peregrine.spark.applying import Applier
from peregrine.spark.attaching import Attaching, NotHere
from peregrine.spark.handing import Handing
from peregrine.spark.served import fall_back, served_by
from peregrine.spark.source import EPOCH, KEY, LEASE_S, NAME, LogSource
from peregrine.spark.talk import Attach, Settings
from peregrine.spark.worker import client, freeze_heap, offer_all, patiently
from peregrine.types import OpId, PlaceId

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_ONE_TASK = "spark.sql.shuffle.partitions"
_STATE = StructType([StructField("state", BinaryType(), False)])
_NOTHING = StructType([StructField("nothing", LongType(), True)])
_SLICE = ("op", "group", "first_offset", "offsets", "body")
log = logging.getLogger(__name__)

Frames = Iterator[Any]  # of pandas
ShardFunction = Callable[[Any, Frames, GroupState], Frames]
Part = tuple[int, bytes, bytes]  # first offset, offsets, body of a slice
Slices = dict[int, list[Part]]  # by group
Told = list[FromAnyHost]  # outputs, as a router takes them


@dataclass(frozen=True)
class HostConfig:
    """What a host serves, and what it needs for that. All of it may change between two runs on one checkpoint."""

    served: Path  # which places, and where they are (spark/served.py)
    token_file: Path
    registry: Path
    checkpoint: Path
    start: Mapping[PlaceId, int] = field(default_factory=dict)  # where a place begins that the checkpoint does not know
    max_rows: int = 100_000  # of a batch: places that are behind share it
    trigger_ms: int = 0  # between the beginnings of two batches; 0: each begins when the one before it has ended
    patience_s: float = 60.0  # with a router that is away; then the query fails, and loses nothing
    chunk_bytes: int = CHUNK_BYTES
    shards: int = 1  # a batch writes all state of each shard that it touches; the number stays with a checkpoint
    chunks_durable: bool = True
    sizes: Sizes = SIZES  # from where on values and keys go there
    epoch_s: float = 30.0  # of continuous places: how often Spark commits what they have done
    epoch_rows: int = 50_000  # but for so many rows sooner
    python: str = ""  # for the processes of continuous places; else that of Spark's workers

    def applier(self) -> Applier:
        return Applier(str(self.served), str(self.registry), self.chunk_bytes, self.sizes, self.chunks_durable)

    def attaching(self) -> Attaching:
        """To the processes of its continuous places."""
        settings = Settings(
            str(self.served),
            str(self.token_file),
            str(self.registry),
            self.shards,
            self.chunk_bytes,
            self.sizes,
            self.chunks_durable,
            self.patience_s,
            LEASE_S,
            self.python,
        )
        return Attaching(str(self.checkpoint), settings)


def start(spark: "SparkSession", config: HostConfig) -> "StreamingQuery":
    """Start the query of a host, or go on from its checkpoint."""
    check_format(config.checkpoint, "host", has_begun="offsets", durable=config.chunks_durable)
    tasks = spark.conf.get(_ONE_TASK)
    if tasks != "1":  # all that a batch reads is one partition: a second task would have nothing
        raise ConfigurationError(f"{_ONE_TASK} = {tasks}, and a host is one task", "leave it at 1; add a host instead")
    spark.dataSource.register(LogSource)
    logs = spark.readStream.format(NAME).options(
        served=str(config.served),
        token_file=str(config.token_file),
        start=json.dumps(dict(config.start)),
        max_rows=str(config.max_rows),
        patience_s=str(config.patience_s),
        shards=str(config.shards),
        registry=str(config.registry),
        epoch_s=str(config.epoch_s),
        epoch_rows=str(config.epoch_rows),
    )
    applied = (
        logs.load()
        .coalesce(1)  # one task: no exchange between reading and applying
        .groupBy(KEY)
        .applyInPandasWithState(shard_function(config), _NOTHING, _STATE, "append", GroupStateTimeout.NoTimeout)
    )
    return (
        applied.writeStream.format("noop")
        .outputMode("append")
        .trigger(processingTime=f"{config.trigger_ms} milliseconds")
        .option("checkpointLocation", str(config.checkpoint))
        .queryName(f"host {', '.join(served_by(str(config.served)))}")
        .start()
    )


def shard_function(config: HostConfig) -> ShardFunction:
    """What Spark calls for each shard that has something to apply in a batch, or that is to be taken in an epoch."""
    served, token_file, patience_s = str(config.served), str(config.token_file), config.patience_s
    applier, attaching = config.applier(), config.attaching()

    def apply_all(place: PlaceId, op: OpId, shard: Shard, slices: Slices) -> Told:
        outputs: list[tuple[int, list[Output]]] = []
        for group, mine in sorted(slices.items()):
            entries = list(after(entries_of(mine), shard.upto))
            if not entries:
                continue
            applied = applier.apply(place, op, group, shard.groups.get(group, b""), entries)
            outputs.append((group, applied.outputs))
            shard.put(group, applied.after, applied.refs)
        return outgoing(place, op, outputs)

    def take(place: PlaceId, op: OpId, number: int, shard: Shard, slices: list[Part]) -> tuple[bool, Told]:
        """What a continuous host has made of the log; has anything changed, and what is to be told?"""
        ends = [np.frombuffer(offsets, np.int64)[-1] for _, offsets, _ in slices]
        first = min(start for start, _, _ in slices)
        held = Shard(max(shard.upto, first), shard.groups, shard.refs)
        end = int(max(ends))
        try:
            taken = attaching.take(Attach(place, op, number, held.upto, end), held)
        except NotHere as error:
            log.warning("place=%s goes on in micro-batches: %s", place, error)
            fall_back(config.served, place)
            told = apply_all(place, op, shard, logged(place, op, number, held.upto, end))
            shard.upto = max(held.upto, end)
            return True, told
        try:
            applier.keep(place, op, shard, taken)
        except MissingChunk:
            attaching.end()  # it has had this in memory for too long: the next one begins with what is committed
            raise
        shard.take_over(taken)
        return bool(taken.groups), []

    def logged(place: PlaceId, op: OpId, number: int, at: int, end: int) -> Slices:
        """What a shard has to apply of a stretch of its log."""
        router = client(served_by(served)[place].address, token_file)
        found: Slices = {}
        while at < end:
            table, at = patiently(partial(router.read_log, place, at, end - at), patience_s)
            for of, group, *part in zip(*(table.column(name).to_pylist() for name in _SLICE), strict=True):
                if of == op and group % config.shards == number:
                    found.setdefault(group, []).append(tuple(part))
        return found

    def offer(place: PlaceId, told: Told) -> None:
        router = client(served_by(served)[place].address, token_file)
        patiently(lambda: offer_all(router, told), patience_s)

    def apply_shard(key: Any, frames: Frames, state: GroupState) -> Frames:
        freeze_heap()
        shards = Shards(bytes(state.get[0]) if state.exists else b"")
        changed = False
        work = _by_place(frames)
        handing = Handing(side_by_side=len(work) > 1)
        for place, ops in sorted(work.items()):
            told: Told = []
            for op, slices in sorted(ops.items()):
                shard = shards.get(place, op)
                epochs = slices.pop(EPOCH, [])
                changed_here = bool(slices)
                if slices:
                    told += apply_all(place, op, shard, slices)
                if epochs:
                    has_changed, more = take(place, op, int(key[0]), shard, epochs)
                    changed_here |= has_changed
                    told += more
                if changed_here:
                    shards.put(place, op, shard)
                    changed = True
            if told:
                handing.hand(partial(offer, place, told))
        if changed and shards:
            state.update((shards.encode(),))
        elif changed and state.exists:
            state.remove()
        handing.wait()
        yield from ()

    return apply_shard


def after(entries: Iterator[tuple[int, GroupEntry]], upto: int) -> Iterator[tuple[int, GroupEntry]]:
    """Without what lies before `upto`: a continuous host, which served the shard before, has been ahead of Spark."""
    for offset, entry in entries:
        if offset >= upto:
            yield offset, entry
        elif isinstance(entry, RowsPart) and entry.offsets[-1] >= upto:
            first = bisect_left(entry.offsets, upto)
            yield entry.offsets[first], replace(entry, offsets=entry.offsets[first:], rows=entry.rows[first:])


def _by_place(frames: Frames) -> dict[PlaceId, dict[OpId, Slices]]:
    """Spark sorts by its key only, and hands over much in pieces: `entries_of` puts what a group has in order."""
    found: dict[PlaceId, dict[OpId, Slices]] = {}
    for frame in frames:
        columns = (frame[name].tolist() for name in ("place", *_SLICE))
        for place, op, group, *part in zip(*columns, strict=True):
            found.setdefault(place, {}).setdefault(op, {}).setdefault(group, []).append(tuple(part))
    return found


def states(spark: "SparkSession", checkpoint: Path) -> dict[tuple[PlaceId, OpId, int], bytes]:
    """The state of each group as the last committed batch left it, for tests and for looking."""
    rows = spark.read.format("statestore").load(str(checkpoint)).collect()
    return {
        (place, op, group): blob
        for row in rows
        for place, op, shard in Shards(bytes(_blob(row.value.asDict(True)))).items()
        for group, blob in shard.groups.items()
    }


def _blob(value: Mapping[str, Any]) -> bytes:
    """Spark wraps the state of a group in a struct of its own."""
    found: bytes = value["groupState"]["state"] if "groupState" in value else value["state"]
    return found
