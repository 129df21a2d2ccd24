"""A live migration with 10 KiB to 100 MiB of state for a key: what travels grows with the state, the jitter does not.

Two of ten keys are large, one of them moves. Each row changes one small entry of its key's map, so a batch has to write
one piece of each large key, however large it is. At the end every large map is read whole, where it is then.
"""

import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import shake_128
from typing import Any

import msgspec

from peregrine import proof
from peregrine.bench.spark import stream
from peregrine.bench.spark.experiment import Experiment, Found, Scale, proved
from peregrine.bench.spark.figures import Figure, at_most, ratio
from peregrine.bench.spark.moves import cost_as_dict, flat_jitter, steady_as_dict
from peregrine.bench.spark.stream import CLOUD, EDGE, Stream, Workload
from peregrine.core.big_map import BigMap
from peregrine.core.keyspace import KeySet
from peregrine.core.operator import Marks, OpSpec, Out
from peregrine.core.rows import UNCHAINED, Row
from peregrine.proof import Lines
from peregrine.types import OpId, PlaceId
from peregrine.workloads import road

OP, SINK = OpId("large/hoard"), OpId("large/results")
GROUPS, KEYS = 4, 10
MOVES, STAYS = "k0", "k5"
ENTRY_BYTES = 1 << 10
SIZES = {"10 KiB": 10 << 10, "1 MiB": 1 << 20, "10 MiB": 10 << 20, "100 MiB": 100 << 20}
COUNT, AUDIT = "count", b"audit"


@dataclass(frozen=True)
class Hoard:
    """A map of `large_bytes` for some keys, made when the first row of a key comes; tells the number of its rows."""

    large_bytes: int

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        if value is None:
            value = BigMap(entries_of(key, self.large_bytes))
        value[COUNT] = value.get(COUNT, 0) + 1
        told = _told(value[COUNT], _checksum(value) if row.payload == AUDIT else None)
        return value, [Out(SINK, key, row.source, row.seq, row.time_ms, told)]

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        return value, []

    def open_ends(self, value: Any) -> list[int]:
        return []


def entries_of(key: str, large_bytes: int) -> dict[str, bytes]:
    """What a large key holds: the same bytes wherever and whenever it is made, and no two entries alike."""
    if key not in (MOVES, STAYS):
        return {}
    return {
        f"e{i}": shake_128(f"{key} {i}".encode()).digest(ENTRY_BYTES) for i in range(max(large_bytes // ENTRY_BYTES, 1))
    }


def _checksum(entries: Mapping[str, Any]) -> int:
    """Of everything but the counter, in any order."""
    return sum(zlib.crc32(f"{name} ".encode() + held) for name, held in entries.items() if name != COUNT)


def _told(count: int, checksum: int | None) -> bytes:
    return msgspec.json.encode([count, checksum])


def workload(large_bytes: int, skip: frozenset[str] = frozenset()) -> Workload:
    """`skip`: keys that get a row only in the beginning."""
    often = [f"k{i}" for i in range(KEYS) if f"k{i}" not in skip]

    def row(number: int) -> Row:
        key = f"k{number}" if number < KEYS else often[number % len(often)]
        return Row(key, road.SOURCE, number, UNCHAINED, 0, 0, b"")

    specs = {OP: OpSpec(OP, GROUPS, feeds=(SINK,)), SINK: OpSpec(SINK, 1, sink=True)}
    return Workload(specs, {OP: Hoard(large_bytes)}, OP, row)


# --- moves ---


def live(scale: Scale) -> Found:
    sizes: dict[str, Any] = {}
    proofs: dict[str, Any] = {}
    stream.heat(scale.pick(10, 5))
    for name in SIZES if not scale.quick else ("10 KiB", "10 MiB"):
        with stream.running(workload(SIZES[name]), [EDGE], at=EDGE) as flow:
            flow.warm_up(KEYS, scale.pick(8, 6))
            sizes[name] = _move(flow, scale)
            proofs[name] = proved(_prove(flow, SIZES[name]))
    return {"sizes": sizes, "proofs": proofs}


def _move(flow: Stream, scale: Scale) -> dict[str, Any]:
    calm_ms, before = stream.now_ms(), _chunks(flow)
    time.sleep(scale.pick(8, 5))
    written = sum(size for name, size in _chunks(flow).items() if name not in before)
    batches = len(stream.progress(flow.query, calm_ms))
    flow.move("large", KeySet.of_keys(GROUPS, [MOVES]), CLOUD, EDGE)
    flow.wait("large")
    time.sleep(3)
    until_ms = stream.now_ms()
    trigger_ms = stream.trigger_ms(flow.query, calm_ms)
    flow.pause()
    for key in (MOVES, STAYS):
        flow.send_row(Row(key, road.SOURCE, flow.sent, UNCHAINED, 0, 0, AUDIT))
    flow.drain()
    cost = flow.cost("large", calm_ms, until_ms)
    return {
        **cost_as_dict(cost),
        "trigger_ms": trigger_ms,
        "steady": steady_as_dict(cost.calm),
        "written_bytes_per_batch": written / max(batches, 1),
    }


def _chunks(flow: Stream) -> dict[str, int]:
    """The chunks of the cloud, with their sizes."""
    found = {}
    for path in flow.up.chunks(PlaceId(CLOUD)).glob("??/*"):
        try:
            found[path.name] = path.stat().st_size
        except FileNotFoundError:
            continue  # collected meanwhile
    return found


def _prove(flow: Stream, large_bytes: int) -> proof.Proof:
    """By the counts, and by the checksum of what each large key holds in the end."""
    should: Lines = {}
    rows = [flow.workload.row(n) for n in range(flow.sent - 2)]
    last = [Row(key, road.SOURCE, flow.sent - 2 + i, UNCHAINED, 0, 0, AUDIT) for i, key in enumerate((MOVES, STAYS))]
    for row in [*rows, *last]:
        line = should.setdefault((SINK, row.key, row.source), [])
        checksum = _checksum(entries_of(row.key, large_bytes)) if row.payload == AUDIT else None
        line.append((row.seq, _told(len(line) + 1, checksum)))
    return proof.prove(flow.sent, flow.lines(), should, {}, {})


# --- a large key that nobody touches ---


def untouched(scale: Scale) -> Found:
    """The time of a batch beside a key of 100 MiB, and beside one with nothing."""
    triggers: dict[str, float] = {}
    proofs: dict[str, Any] = {}
    stream.heat(scale.pick(10, 5))
    for name, size in (("nothing", 0), ("100 MiB", SIZES["100 MiB"])):
        with stream.running(workload(size, skip=frozenset({MOVES, STAYS}))) as flow:
            flow.warm_up(KEYS, scale.pick(8, 6))
            from_ms = stream.now_ms()
            time.sleep(scale.pick(12, 5))
            triggers[name] = stream.trigger_ms(flow.query, from_ms)
            flow.drain()
            proofs[name] = proved(proof.prove(flow.sent, flow.lines(), _counts(flow), {}, {}))
    return {"trigger_ms": triggers, "proofs": proofs}


def _counts(flow: Stream) -> Lines:
    should: Lines = {}
    for row in (flow.workload.row(n) for n in range(flow.sent)):
        line = should.setdefault((SINK, row.key, row.source), [])
        line.append((row.seq, _told(len(line) + 1, None)))
    return should


def figures(found: Mapping[str, Found]) -> list[Figure]:
    sizes: Mapping[str, Mapping[str, Any]] = found["live"]["sizes"]
    triggers: Mapping[str, float] = found["untouched"]["trigger_ms"]
    largest = list(sizes)[-1]
    return [
        flat_jitter(f"10 KiB to {largest} for each key", sizes.values()),
        Figure(
            "batch beside an untouched key of 100 MiB / of nothing",
            ratio(triggers["100 MiB"], triggers["nothing"]),
            "x",
            at_most(1.1),
            f"{triggers['100 MiB']:.1f} / {triggers['nothing']:.1f} ms",
        ),
        Figure(
            f"written by a batch that touches {largest} / its state",
            ratio(sizes[largest]["written_bytes_per_batch"], 2 * SIZES[largest]),
            "x",
            at_most(0.05),
            f"{sizes[largest]['written_bytes_per_batch']:,.0f} bytes; one entry of each of two large keys changes",
        ),
        *(
            Figure(
                f"live with {name}",
                each["duration_ms"],
                "ms",
                note=f"steady mean / p99 {each['steady']['mean_ms']:,.0f} / {each['steady']['p99_ms']:,.0f} ms,"
                f" jitter {each['jitter_ms']:,.0f} ms, {each['bytes_moved']:,} bytes",
            )
            for name, each in sizes.items()
        ),
    ]


EXPERIMENT = Experiment("state", __doc__.partition("\n")[0], {"live": live, "untouched": untouched}, figures)
