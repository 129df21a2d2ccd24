"""How fast a router routes: the lookup of a batch's hashes and the split of the batch by route.

The rule: what is timed is the whole step from an Arrow batch to one Arrow batch per destination, payload included.
Rows draw evenly from the keys that have rules, and every fifth row has a key that no rule names; so only the number of
rules differs between the cases. Reading and writing logs is measured elsewhere.
"""

from time import perf_counter

import numpy as np
import pyarrow as pa

from peregrine.core.keyspace import KeySet, hash_keys
from peregrine.core.rules import RuleTable, split
from peregrine.types import OpId

GROUPS = 128
OP = OpId("bench/op")
ROUTES = ("local", "child1", "child2", "child3")
RULE_COUNTS = (10, 1_000, 100_000)
PAYLOAD_BYTES = 100
SMALL_BATCH_ROWS = 500


def run(rows: int = 100_000) -> dict[str, object]:
    """Rows per second for each number of rules, and by how much a row costs more with many rules than with some."""
    result: dict[str, object] = {"rows": rows}
    cases = [(rules_for(count), batch_for(count, rows)) for count in RULE_COUNTS]
    best_s = _best_s(cases)
    for count, seconds in zip(RULE_COUNTS, best_s, strict=True):
        result[f"rows_per_s_{count}_keys"] = round(rows / seconds)
    result["cost_ratio_1000_to_100000"] = round(best_s[2] / best_s[1], 3)
    (small_s,) = _best_s([(rules_for(1_000), batch_for(1_000, SMALL_BATCH_ROWS))], repetitions=200)
    result["rows_per_s_small_batches"] = round(SMALL_BATCH_ROWS / small_s)
    return result


def rules_for(count: int) -> RuleTable[str]:
    """A table with `count` explicit keys spread over the routes; all other keys go to the parent."""
    table = RuleTable("parent")
    table.add_op(OP, GROUPS)
    for i, route in enumerate(ROUTES):
        table.assign(OP, KeySet.of_keys(GROUPS, _names("key", count)[i :: len(ROUTES)]), route)
    return table


def batch_for(count: int, rows: int) -> pa.RecordBatch:
    """Rows of which four fifths have one of the `count` keys, in an order that looks random and is always the same."""
    names = _names("key", count)
    unknown = _names("unknown", max(1, count // 4))
    random = np.random.default_rng(7)
    picks = random.integers(0, len(names), rows)
    strays = random.integers(0, len(unknown), rows)
    is_stray = random.random(rows) < 0.2
    keys = [unknown[stray] if out else names[pick] for pick, stray, out in zip(picks, strays, is_stray, strict=True)]
    numbers = np.arange(rows, dtype=np.int64)
    return pa.record_batch(
        {
            "key": pa.array(keys, pa.string()),
            "hash": pa.array(hash_keys(keys), pa.uint64()),
            "source": pa.array([f"source{n % 50}" for n in range(rows)], pa.string()),
            "seq": pa.array(numbers, pa.int64()),
            "prev": pa.array(numbers - 1, pa.int64()),
            "time_ms": pa.array(numbers * 10, pa.int64()),
            "created_ms": pa.array(numbers * 10 + 3, pa.int64()),
            "payload": pa.array([random.bytes(PAYLOAD_BYTES) for _ in range(rows)], pa.binary()),
        }
    )


def route_batch(table: RuleTable[str], batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
    """The step that is measured."""
    return split(batch, table.lookup(OP, batch.column("hash").to_numpy(zero_copy_only=True)))


def _best_s(cases: list[tuple[RuleTable[str], pa.RecordBatch]], repetitions: int = 15) -> list[float]:
    """The shortest time of each case. The cases take turns, so that a busy moment of the machine hits all alike."""
    best = [float("inf")] * len(cases)
    for repetition in range(repetitions + 2):
        for i, (table, batch) in enumerate(cases):
            start = perf_counter()
            parts = route_batch(table, batch)
            seconds = perf_counter() - start
            assert sum(part.num_rows for _, part in parts) == batch.num_rows
            if repetition >= 2:  # the first rounds warm up caches and the allocator
                best[i] = min(best[i], seconds)
    return best


def _names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{i:06d}" for i in range(count)]


if __name__ == "__main__":
    for name, value in run().items():
        print(f"{name} = {value}")
