"""The key-count micro-benchmark: rows that each touch one key and one slot of its state (Spacker V-A, Table I).

Row n is a function of (seed, n). In each period only the share `access_ratio` of the keys is touched, in the next one
the keys that follow them; so it says how much of the state changes while something goes on. A key has one source.
"""

import pyarrow as pa

from peregrine.workloads.generate.draws import below, skewed, stretch
from peregrine.workloads.generate.sending import event_times, sent_us, table

TOUCHES = "key bigint, slot bigint, at_ms bigint"

KEYS = 1 << 15
PREFIX = "counter"


def touches(
    count: int,
    seed: int = 0,
    *,
    first: int = 0,
    rate: int = 1500,
    keys: int = KEYS,
    skew: float = 0.0,
    access_ratio: float = 0.02,
    period_ms: int = 10_000,
    slots: int = 16,
    sources: int = 1,
    disorder_ms: int = 0,
    start_ms: int = 0,
) -> pa.Table:
    """Rows `first` to `first + count`, `rate` a second. `skew` is Zipf's, among the keys of a period."""
    numbers = stretch(first, count)
    sent = sent_us(numbers, rate)
    awake = min(max(round(keys * access_ratio), 1), keys)
    key = (skewed(awake, skew, seed, "key", numbers) + sent // (period_ms * 1000) * awake) % keys
    columns = {
        "key": key,
        "slot": below(slots, seed, "slot", numbers),
        "at_ms": event_times(sent, start_ms, disorder_ms, seed),
    }
    return table(columns, PREFIX, sources, key % sources, sent)
