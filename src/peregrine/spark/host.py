"""The host query: one Structured Streaming query that serves one or several places with any operators.

    logs of the places -> one partition -> group by (place, op, group) -> apply -> nothing

The outputs of a batch leave it sideways: the function hands them to the place's router before it returns, so Spark
commits states and offsets only after the router has them. A batch that fails or is repeated gives the same outputs
under the same offsets, and the router drops what it has had.
"""

# pyspark is optional, also where types are checked.
# mypy: disable-error-code="import-not-found"

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from peregrine.core.large import SIZES, Sizes, Spill
from peregrine.core.messages import FromHost
from peregrine.core.slices import entries_of
from peregrine.core.state import CHUNK_BYTES
from peregrine.errors import ConfigurationError
from peregrine.net.chunk_collector import write_down
from peregrine.net.chunk_files import ChunkFiles
from peregrine.spark.guard import apply_guarded
from peregrine.spark.handover import hand_over
from peregrine.spark.registry import operator_of
from peregrine.spark.source import NAME, LogSource
from peregrine.spark.worker import PlaceAddress, client, freeze_heap
from peregrine.types import OpId, PlaceId

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_STATE = StructType([StructField("state", BinaryType(), False)])
_NOTHING = StructType([StructField("nothing", LongType(), True)])

Frames = Iterator[Any]  # of pandas
GroupFunction = Callable[[Any, Frames, GroupState], Frames]


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
    chunks: Mapping[PlaceId, Path] = field(default_factory=dict)  # the chunk store of each place's site, if it has one
    chunks_durable: bool = True
    sizes: Sizes = SIZES  # from where on values go there

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
    )
    applied = (
        logs.load()
        .coalesce(1)  # one task: no exchange between reading and applying
        .groupBy("place", "op", "group")
        .applyInPandasWithState(group_function(config), _NOTHING, _STATE, "append", GroupStateTimeout.NoTimeout)
    )
    return (
        applied.writeStream.format("noop")
        .outputMode("append")
        .option("checkpointLocation", str(config.checkpoint))
        .queryName("host " + ", ".join(place for place, _ in config.places))
        .start()
    )


def group_function(config: HostConfig) -> GroupFunction:
    """What Spark calls for each group that has something to apply in a batch."""
    addresses = dict(config.places)
    token_file, registry = str(config.token_file), str(config.registry)
    patience_s, chunk_bytes, sizes = config.patience_s, config.chunk_bytes, config.sizes
    stores = {place: ChunkFiles(path, config.chunks_durable) for place, path in config.chunks.items()}

    def apply_group(key: Any, parts: Frames, state: GroupState) -> Frames:
        freeze_heap()
        place, op, group = PlaceId(key[0]), OpId(key[1]), int(key[2])
        before: bytes = bytes(state.get[0]) if state.exists else b""
        slices = list(parts)
        entries = list(entries_of(_slices(slices)))
        chunks = stores.get(place)
        spill = None if chunks is None else Spill(chunks, sizes)
        emissions, after = apply_guarded(operator_of(registry, op), place, op, before, entries, chunk_bytes, spill)
        if chunks is not None and spill is not None:
            write_down(chunks, place, op, group, entries[0][0], spill)  # before anything can be committed
        # All of a group in one event: what has one offset must not come in two.
        outputs = FromHost(place, op, group, tuple(emissions)) if emissions else None
        of_parts = int(slices[0]["parts"].iloc[0])
        hand_over(client(addresses[place], token_file), place, of_parts, outputs, patience_s)
        if after:
            state.update((after,))
        elif state.exists:
            state.remove()
        yield from ()

    return apply_group


def _slices(parts: list[Any]) -> Iterator[tuple[int, bytes, bytes]]:
    """Spark sorts by group only, and hands a large group over in pieces: `entries_of` puts all of them in order."""
    for part in parts:
        yield from zip(part["first_offset"].tolist(), part["offsets"], part["body"], strict=True)


def states(spark: "SparkSession", checkpoint: Path) -> dict[tuple[PlaceId, OpId, int], bytes]:
    """The state of each group as the last committed batch left it, for tests and for looking."""
    rows = spark.read.format("statestore").load(str(checkpoint)).collect()
    return {
        (PlaceId(row.key.place), OpId(row.key.op), int(row.key["group"])): bytes(_blob(row.value.asDict(True)))
        for row in rows
    }


def _blob(value: Mapping[str, Any]) -> bytes:
    """Spark wraps the state of a group in a struct of its own."""
    found: bytes = value["groupState"]["state"] if "groupState" in value else value["state"]
    return found
