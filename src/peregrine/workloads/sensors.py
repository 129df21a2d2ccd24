"""ETL of a building's sensors (Shepherd VI-B): range filter, Bloom filter, interpolation, annotation.

    R in its range?  ->  B sent before?  ->  I predict what is missing  ->  A add site, floor and unit

R and A have no state. B keeps a Bloom filter for each sensor, I its last good values. `tests/oracles/sensors.py` says
exactly what comes out, false positives included.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from math import fsum
from typing import Any

import pyarrow as pa

from peregrine import App
from peregrine.app.logic import Emit, Key, Moment, Timeless
from peregrine.workloads.generate.sensors import OBSERVATIONS, PLACES, RANGES
from peregrine.workloads.generate.sensors import places as generated_places

INTERPOLATED = "sensor string, observation bigint, value double, predicted boolean, at_ms bigint"


def sensors(
    senders: Iterable[str] | None = None,
    *,
    places: pa.Table | None = None,
    ranges: Mapping[str, tuple[float, float]] = RANGES,
    bits: int = 2048,
    hashes: int = 3,
    capacity: int = 256,
    recent: int = 5,
    groups: int = 16,
) -> App:
    """Result: `annotated`. A Bloom filter has `bits` bits and takes `capacity` observations, then it is emptied; a
    missing value is the mean of the `recent` last ones.
    """
    app = App("sensors", groups)
    known = app.table("places", PLACES, (generated_places() if places is None else places).to_pylist(), key="sensor")
    (
        app.source("observations", OBSERVATIONS, key="sensor", event_time="at_ms", senders=senders)
        .filter("in_range", _within(dict(ranges)))
        .key_by("sensor")
        .connect("unrepeated", BloomFilter(bits, hashes, capacity), schema=OBSERVATIONS)
        .key_by("sensor")
        .connect("interpolated", Interpolation(recent), schema=INTERPOLATED)
        .lookup("annotate", known, on="sensor")
        .to("annotated")
    )
    return app


APPS: Mapping[str, Callable[..., App]] = {"sensors": sensors}


def _within(ranges: dict[str, tuple[float, float]]) -> Callable[[Any], bool]:
    def within(row: Any) -> bool:
        low, high = ranges[row.quantity]
        return row.value is None or low <= row.value <= high

    return within


@dataclass(frozen=True)
class BloomFilter(Timeless):
    """Drops observations that the sensor has perhaps sent before. State: the bits, and how many were added."""

    bits: int
    hashes: int
    capacity: int

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        bits, added = state or (bytes(-(-self.bits // 8)), 0)
        places = self._places(record.observation)
        if all(bits[place >> 3] >> (place & 7) & 1 for place in places):
            return [bits, added], []
        if added == self.capacity:
            bits, added = bytes(len(bits)), 0
        changed = bytearray(bits)
        for place in places:
            changed[place >> 3] |= 1 << (place & 7)
        return [bytes(changed), added + 1], [Emit(record, at.time_ms)]

    def _places(self, observation: int) -> list[int]:
        """Two hashes in place of many (Kirsch and Mitzenmacher, 2006)."""
        digest = blake2b(b"%d" % observation, digest_size=16).digest()
        first, step = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little") | 1
        return [(first + nth * step) % self.bits for nth in range(self.hashes)]


@dataclass(frozen=True)
class Interpolation(Timeless):
    """Gives an observation without a value the mean of the sensor's last good ones, which are the state."""

    recent: int

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        good = state or []
        predicted = record.value is None
        if not predicted:
            good = [*good, record.value][-self.recent :]
        elif not good:
            return None, []
        value = round(fsum(good) / len(good), 3) if predicted else record.value
        told = {"sensor": record.sensor, "observation": record.observation, "value": value, "predicted": predicted}
        return good, [Emit({**told, "at_ms": record.at_ms}, at.time_ms)]
