"""Keys that hold as much state as wanted from their first row on, of which each row changes one small entry.

As Falcon's Traffic Monitoring for its figure 12, and the survey's join: what has to travel is large, what a row has to
do is not.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import shake_128
from typing import Any

import numpy as np
import pyarrow as pa

from peregrine import App
from peregrine.app.logic import Emit, Key, Moment, Timeless
from peregrine.core.big_map import BigMap
from peregrine.workloads.generate.draws import stretch
from peregrine.workloads.generate.sending import event_times, sent_us, table

VISITS = "key string, at_ms bigint"
ENTRY_BYTES = 1 << 10


def hoard(
    senders: Iterable[str] | None = None, *, state_bytes: int = 1 << 20, large_keys: int = 10, groups: int = 4
) -> App:
    """For each row how many rows its key has seen. The first `large_keys` keys hold `state_bytes` each."""
    app = App("hoard", groups)
    visits = app.source("visits", VISITS, key="key", event_time="at_ms", senders=senders)
    visits.key_by("key").connect("hoard", Hoard(state_bytes, large_keys), schema="key string, count bigint").to(
        "results"
    )
    return app


@dataclass(frozen=True)
class Hoard(Timeless):
    """State: [rows of the key, its entries]. Of this map only what changed is written."""

    state_bytes: int
    large_keys: int

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        count, entries = state if state is not None else (0, BigMap(self._entries(key[0])))
        entries["last"] = count + 1
        return [count + 1, entries], [Emit({"key": key[0], "count": count + 1}, at.time_ms)]

    def _entries(self, key: str) -> dict[str, bytes]:
        """The same bytes wherever they are made, and no two entries alike."""
        if int(key.removeprefix("k")) >= self.large_keys:
            return {}
        number = max(self.state_bytes // ENTRY_BYTES, 1)
        return {f"e{i}": shake_128(f"{key} {i}".encode()).digest(ENTRY_BYTES) for i in range(number)}


def visits(
    count: int, seed: int = 0, *, first: int = 0, rate: int = 1500, keys: int = 10, sources: int = 1, start_ms: int = 0
) -> pa.Table:
    """Row n is of key n mod `keys`."""
    numbers = stretch(first, count)
    sent = sent_us(numbers, rate)
    key = numbers % keys
    columns = {
        "key": np.array([f"k{n}" for n in range(keys)])[key],
        "at_ms": event_times(sent, start_ms, 0, seed),
    }
    return table(columns, "visitor", sources, key % sources, sent)
