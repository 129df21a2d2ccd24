"""The host query: one Structured Streaming query that serves one or several places with any operators.

    logs of the places -> one partition -> by (place, op, shard) -> apply to each group -> nothing

A call of Spark's costs more than what it does for one group of a small place, so all groups of an operator are one
state of Spark's, or as many as there are shards. The outputs of a batch leave it sideways: the function hands them to
the place's router before it returns, so Spark commits states and offsets only after the router has them. A batch that
fails or is repeated gives the same outputs under the same offsets, and the router drops what it has had.
"""

# pyspark is optional, also where types are checked.
# mypy: disable-error-code="import-not-found"

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from peregrine.core.large import SIZES, Sizes, Spill
from peregrine.core.messages import FromHost
from peregrine.core.slices import entries_of
from peregrine.core.state import CHUNK_BYTES
from peregrine.errors import ConfigurationError, PeregrineError
from peregrine.net.chunk_collector import write_down
from peregrine.net.chunk_files import ChunkFiles
from peregrine.net.client import RouterClient
from peregrine.spark.guard import apply_guarded
from peregrine.spark.registry import operator_of
from peregrine.spark.source import NAME, LogSource
from peregrine.spark.worker import PlaceAddress, client, freeze_heap, pages, patiently
from peregrine.types import OpId, PlaceId

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_STATE = StructType([StructField("state", BinaryType(), False)])
_NOTHING = StructType([StructField("nothing", LongType(), True)])

Frames = Iterator[Any]  # of pandas
ShardFunction = Callable[[Any, Frames, GroupState], Frames]
Part = tuple[int, bytes, bytes]  # first offset, offsets, body of a slice


@dataclass(frozen=True)
class HostConfig:
    """What a host serves, and what it needs for that. All of it may change between two runs on one checkpoint."""

    places: Sequence[PlaceAddress]
    token_file: Path
    registry: Path
    checkpoint: Path
    start: Mapping[PlaceId, int] = field(default_factory=dict)  # where a place begins that the checkpoint does not know
    max_rows: int = 100_000  # of each place in a batch
    patience_s: float = 60.0  # with a router that is away; then the query fails, and loses nothing
    chunk_bytes: int = CHUNK_BYTES
    shards: int = 1  # a batch writes all state of each shard that it touches; the number stays with a checkpoint
    chunks: Mapping[PlaceId, Path] = field(default_factory=dict)  # the chunk store of each place's site, if it has one
    chunks_durable: bool = True
    sizes: Sizes = SIZES  # from where on values and keys go there

    def __post_init__(self) -> None:
        names = [place for place, _ in self.places]
        if not names or len(set(names)) < len(names):
            raise ConfigurationError(f"a host of the places {names}", "give at least one place, and each of them once")


def start(spark: "SparkSession", config: HostConfig) -> "StreamingQuery":
    """Start the query of a host, or go on from its checkpoint."""
    spark.dataSource.register(LogSource)
    logs = spark.readStream.format(NAME).options(
        places=json.dumps([list(each) for each in config.places]),
        token_file=str(config.token_file),
        start=json.dumps(dict(config.start)),
        max_rows=str(config.max_rows),
        patience_s=str(config.patience_s),
        shards=str(config.shards),
    )
    applied = (
        logs.load()
        .coalesce(1)  # one task: no exchange between reading and applying
        .groupBy("place", "op", "shard")
        .applyInPandasWithState(shard_function(config), _NOTHING, _STATE, "append", GroupStateTimeout.NoTimeout)
    )
    return (
        applied.writeStream.format("noop")
        .outputMode("append")
        .option("checkpointLocation", str(config.checkpoint))
        .queryName("host " + ", ".join(place for place, _ in config.places))
        .start()
    )


def shard_function(config: HostConfig) -> ShardFunction:
    """What Spark calls for each shard that has something to apply in a batch."""
    addresses = dict(config.places)
    token_file, registry = str(config.token_file), str(config.registry)
    patience_s, chunk_bytes, sizes = config.patience_s, config.chunk_bytes, config.sizes
    stores = {place: ChunkFiles(path, config.chunks_durable) for place, path in config.chunks.items()}

    def apply_group(
        place: PlaceId, op: OpId, group: int, before: bytes, slices: list[Part]
    ) -> tuple[FromHost | None, bytes]:
        entries = list(entries_of(slices))
        chunks = stores.get(place)
        spill = None if chunks is None else Spill(chunks, sizes, pages=pages())
        emissions, after = apply_guarded(operator_of(registry, op), place, op, before, entries, chunk_bytes, spill)
        if chunks is not None and spill is not None:
            write_down(chunks, place, op, group, entries[0][0], spill)  # before anything can be committed
        # All of a group in one event: what has one offset must not come in two.
        return FromHost(place, op, group, tuple(emissions)) if emissions else None, after

    def apply_shard(key: Any, frames: Frames, state: GroupState) -> Frames:
        freeze_heap()
        place, op = PlaceId(key[0]), OpId(key[1])
        groups = _groups_of(bytes(state.get[0])) if state.exists else {}
        outputs: list[FromHost] = []
        for group, slices in sorted(_by_group(frames).items()):
            output, after = apply_group(place, op, group, groups.pop(group, b""), slices)
            if output is not None:
                outputs.append(output)
            if after:
                groups[group] = after
        if outputs:
            router = client(addresses[place], token_file)
            patiently(lambda: _offer(router, outputs), patience_s)
        if groups:
            state.update((msgspec.msgpack.encode(groups),))
        elif state.exists:
            state.remove()
        yield from ()

    return apply_shard


def _groups_of(shard: bytes) -> dict[int, bytes]:
    return msgspec.msgpack.decode(shard, type=dict[int, bytes])


def _by_group(frames: Frames) -> dict[int, list[Part]]:
    """Spark sorts by its key only, and hands over much in pieces: `entries_of` puts what a group has in order."""
    found: dict[int, list[Part]] = {}
    for frame in frames:
        columns = (frame[name].tolist() for name in ("group", "first_offset", "offsets", "body"))
        for group, *part in zip(*columns, strict=True):
            found.setdefault(group, []).append(tuple(part))
    return found


def _offer(router: RouterClient, outputs: list[FromHost]) -> None:
    for answer in router.offer_all(outputs):
        if isinstance(answer, PeregrineError):
            raise answer


def states(spark: "SparkSession", checkpoint: Path) -> dict[tuple[PlaceId, OpId, int], bytes]:
    """The state of each group as the last committed batch left it, for tests and for looking."""
    rows = spark.read.format("statestore").load(str(checkpoint)).collect()
    return {
        (PlaceId(row.key.place), OpId(row.key.op), group): blob
        for row in rows
        for group, blob in _groups_of(bytes(_blob(row.value.asDict(True)))).items()
    }


def _blob(value: Mapping[str, Any]) -> bytes:
    """Spark wraps the state of a group in a struct of its own."""
    found: bytes = value["groupState"]["state"] if "groupState" in value else value["state"]
    return found
