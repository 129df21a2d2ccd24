"""Keys that hold as much state as wanted from their first row on: what has to travel is large, what a row does is not.

`hoard` as Falcon's Traffic Monitoring for its figure 12, `ring` as a window by count that keeps its tuples (figure 13),
`auctions` as the survey's variant of Nexmark's query 8, which joins persons with auctions of 1 KB (VI).

State in chunks is named by its content, and a place that had it once need not be sent it again. So that the next move
has all of it to send, a row with an epoch makes everything that its key holds anew.
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

VISITS = "key string, epoch bigint, at_ms bigint"
OFFERS = "key string, item string, epoch bigint, at_ms bigint"  # a person has no item
TOLD = "key string, count bigint"
BUNDLE = 64  # tuples that lie together: rows one after the other change the same entry
_STRIDE = 7919  # a prime that divides no number of keys in use

Senders = Iterable[str] | None


def hoard(senders: Senders = None, *, state_bytes: int = 1 << 20, entry_bytes: int = 1 << 10, groups: int = 4) -> App:
    """For each row how many rows its key has seen, in one small entry."""
    app = App("hoard", groups)
    visits = app.source("visits", VISITS, key="key", event_time="at_ms", senders=senders)
    visits.key_by("key").connect("hoard", Hoard(state_bytes, entry_bytes), schema=TOLD).to("results")
    return app


def ring(senders: Senders = None, *, last: int = 10, tuple_bytes: int = 128, groups: int = 4) -> App:
    """The last rows of a key, each as long as a tuple: every row takes the place of the oldest."""
    app = App("ring", groups)
    visits = app.source("visits", VISITS, key="key", event_time="at_ms", senders=senders)
    visits.key_by("key").connect(
        "ring", Ring(last * tuple_bytes, min(last, BUNDLE) * tuple_bytes, tuple_bytes), schema=TOLD
    ).to("results")
    return app


def auctions(
    senders: Senders = None, *, state_bytes: int = 1 << 20, entry_bytes: int = 1 << 10, groups: int = 4
) -> App:
    """A person is told how many auctions there are of the same key. All of them are kept, and new ones keep coming."""
    app = App("auctions", groups)
    offers = app.source("offers", OFFERS, key="key", event_time="at_ms", senders=senders)
    offers.key_by("key").connect("join", Auctions(state_bytes, entry_bytes), schema=TOLD).to("results")
    return app


@dataclass(frozen=True)
class Hoard(Timeless):
    """State: [rows of the key, its entries]. Of this map only what changed is written."""

    state_bytes: int
    entry_bytes: int

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        count, entries = state if state is not None else (0, None)
        if entries is None or record.epoch:
            entries = BigMap(self._entries(key[0], record.epoch))
        count, told = self._take(count, entries, record)
        return [count, entries], [Emit({"key": key[0], "count": count}, at.time_ms)] if told else []

    def _take(self, count: int, entries: BigMap, record: Any) -> tuple[int, bool]:
        """How many it are then, and whether anybody is told."""
        entries["last"] = count + 1
        return count + 1, True

    @property
    def _number(self) -> int:
        return max(self.state_bytes // self.entry_bytes, 1)

    def _entries(self, key: str, epoch: int) -> dict[str, bytes]:
        """The same bytes wherever they are made, and no two entries alike."""
        draw = np.random.default_rng([epoch, *key.encode()])
        drawn = draw.bytes(self._number * self.entry_bytes)
        return {f"e{i}": drawn[i * self.entry_bytes : (i + 1) * self.entry_bytes] for i in range(self._number)}


@dataclass(frozen=True)
class Ring(Hoard):
    tuple_bytes: int

    def _take(self, count: int, entries: BigMap, record: Any) -> tuple[int, bool]:
        bundle = self.entry_bytes // self.tuple_bytes
        slot = count % (self._number * bundle)
        name, begin = f"e{slot // bundle}", slot % bundle * self.tuple_bytes
        new = shake_128(str(count).encode()).digest(self.tuple_bytes)
        entries[name] = entries[name][:begin] + new + entries[name][begin + self.tuple_bytes :]
        return count + 1, True


class Auctions(Hoard):
    def _take(self, count: int, entries: BigMap, record: Any) -> tuple[int, bool]:
        if not record.item:
            return count, True
        name = f"m{count // BUNDLE}"
        entries[name] = entries.get(name, "") + record.item
        return count + 1, False


def renewal(source: str, key: str, epoch: int, at_ms: int) -> dict[str, Any]:
    """A row of one of the streams here."""
    record = {"key": key, "epoch": epoch, "at_ms": at_ms}
    return {**record, "item": ""} if source == "offers" else record


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
        "epoch": np.zeros(count, np.int64),
        "at_ms": event_times(sent, start_ms, 0, seed),
    }
    return table(columns, "visitor", sources, key % sources, sent)


def offers(
    count: int, seed: int = 0, *, first: int = 0, rate: int = 200, keys: int = 8, sources: int = 1, start_ms: int = 0
) -> pa.Table:
    """Auctions of 1 KB and persons take turns, and go through the keys."""
    numbers = stretch(first, count)
    sent = sent_us(numbers, rate)
    key = numbers // 2 % keys
    columns = {
        "key": np.array([f"k{n}" for n in range(keys)])[key],
        "item": [shake_128(str(n).encode()).hexdigest(512) if n % 2 == 0 else "" for n in numbers.tolist()],
        "epoch": np.zeros(count, np.int64),
        "at_ms": event_times(sent, start_ms, 0, seed),
    }
    return table(columns, "visitor", sources, key % sources, sent)
