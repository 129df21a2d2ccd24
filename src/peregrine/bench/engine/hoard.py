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
from peregrine.workloads.generate.draws import skewed, stretch
from peregrine.workloads.generate.sending import event_times, sent_us, table

VISITS = "key string, at_ms bigint"
_STRIDE = 7919  # a prime that divides no number of keys in use


def hoard(
    senders: Iterable[str] | None = None, *, state_bytes: int = 1 << 20, entry_bytes: int = 1 << 10, groups: int = 4
) -> App:
    """For each row how many rows its key has seen. Every key holds `state_bytes`."""
    app = App("hoard", groups)
    visits = app.source("visits", VISITS, key="key", event_time="at_ms", senders=senders)
    told = visits.key_by("key").connect("hoard", Hoard(state_bytes, entry_bytes), schema="key string, count bigint")
    told.to("results")
    return app


@dataclass(frozen=True)
class Hoard(Timeless):
    """State: [rows of the key, its entries]. Of this map only what changed is written."""

    state_bytes: int
    entry_bytes: int

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        count, entries = state if state is not None else (0, BigMap(self._entries(key[0])))
        entries["last"] = count + 1
        return [count + 1, entries], [Emit({"key": key[0], "count": count + 1}, at.time_ms)]

    def _entries(self, key: str) -> dict[str, bytes]:
        """The same bytes wherever they are made, and no two entries alike."""
        number = max(self.state_bytes // self.entry_bytes, 1)
        return {f"e{i}": shake_128(f"{key} {i}".encode()).digest(self.entry_bytes) for i in range(number)}


def visits(
    count: int,
    seed: int = 0,
    *,
    first: int = 0,
    rate: int = 1500,
    keys: int = 10,
    access_ratio: float = 1.0,
    skew: float = 0.0,
    sources: int = 1,
    start_ms: int = 0,
) -> pa.Table:
    """The first row of each key in turn, then rows of the share `access_ratio` of the keys, by Zipf's law of `skew`."""
    numbers = stretch(first, count)
    sent = sent_us(numbers, rate)
    awake = max(round(keys * access_ratio), 1)
    drawn = skewed(awake, skew, seed, "key", numbers) if skew else numbers % awake
    # Which keys are touched, and how often, has nothing to do with which of them comes first.
    key = np.where(numbers < keys, numbers, drawn * _STRIDE % keys)
    columns = {
        "key": np.array([f"k{n}" for n in range(keys)])[key],
        "at_ms": event_times(sent, start_ms, 0, seed),
    }
    return table(columns, "visitor", sources, key % sources, sent)
