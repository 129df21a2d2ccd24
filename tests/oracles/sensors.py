"""What must come out of the sensors' observations: a batch computation that knows no operator.

The contract of the operators. Rows of a sensor are taken in the order of the table `observations`; all state is the
sensor's own:
  R  a value that is below the low or above the high bound of its quantity is dropped; a missing value (null) passes
  B  a Bloom filter of `bits` bits drops observations that the sensor has perhaps sent before. The item is the decimal
     text of `observation`; its blake2b digest of 16 bytes gives two little-endian numbers a (first 8 bytes) and b (last
     8 bytes, its lowest bit set); the item's bits are (a + i * b) mod `bits` for i = 0 .. `hashes` - 1, in unlimited
     integers. If all of them are set, the row is dropped; else they are set. When `capacity` items have been added, the
     filter is emptied before the next item that is added, and it is looked up in the full one: old observations are
     forgotten. False positives are dropped like repeats: they are part of the semantics
  I  a row without a value gets the mean of the sensor's last `recent` good values (those of rows that came here with
     one; predictions are none): the exactly rounded sum (math.fsum) divided by their number, rounded to 3 digits.
     Such a row is marked `predicted`. If there is no good value yet, the row is dropped
  A  site, floor and unit of the sensor are added from the table `places`; a sensor that is not in it is dropped

Result "annotated": (sensor, observation, value, predicted, site, floor, unit).
"""

import math
from collections import deque
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
import pandas as pd

from peregrine.workloads.generate.sensors import RANGES

COLUMNS = {"annotated": ("sensor", "observation", "value", "predicted", "site", "floor", "unit")}


def expected(
    result: str,
    tables: Mapping[str, Any],
    *,
    ranges: Mapping[str, tuple[float, float]] = RANGES,
    bits: int = 2048,
    hashes: int = 3,
    capacity: int = 256,
    recent: int = 5,
) -> list[tuple[Any, ...]]:
    rows = tables["observations"].to_pandas()
    bounds = pd.DataFrame(ranges, index=["low", "high"]).T
    rows = rows.join(bounds, on="quantity")
    rows = rows[rows["value"].isna() | ((rows["value"] >= rows["low"]) & (rows["value"] <= rows["high"]))]
    kept = [
        _interpolated(_unrepeated(of_sensor, bits, hashes, capacity), recent) for _, of_sensor in rows.groupby("sensor")
    ]
    found = pd.concat(kept).merge(tables["places"].to_pandas(), on="sensor", how="inner")
    return sorted(map(tuple, found[list(COLUMNS[result])].astype(object).values.tolist()))


def places_in_filter(observation: int, bits: int, hashes: int) -> list[int]:
    digest = blake2b(str(observation).encode(), digest_size=16).digest()
    a, b = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little") | 1
    return [(a + i * b) % bits for i in range(hashes)]


def _unrepeated(rows: pd.DataFrame, bits: int, hashes: int, capacity: int) -> pd.DataFrame:
    seen, added, new = np.zeros(bits, bool), 0, []
    for observation in rows["observation"].tolist():
        places = places_in_filter(observation, bits, hashes)
        new.append(not seen[places].all())
        if new[-1]:
            if added == capacity:
                seen[:], added = False, 0
            seen[places] = True
            added += 1
    return rows[new]


def _interpolated(rows: pd.DataFrame, recent: int) -> pd.DataFrame:
    good: deque[float] = deque(maxlen=recent)
    values: list[float | None] = []
    for value in rows["value"].tolist():
        if math.isnan(value):
            values.append(round(math.fsum(good) / len(good), 3) if good else None)
        else:
            good.append(value)
            values.append(value)
    told = rows.assign(value=pd.Series(values, rows.index, dtype=float), predicted=rows["value"].isna())
    return told[told["value"].notna()]
