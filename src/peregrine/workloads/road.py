"""Readings of Traffic Monitoring as a function of their number: anybody can make any stretch of them, at any speed.

Reading n is of vehicle n mod keys. So two systems can be given the same rows without one having to ask the other, and
what must come out of any number of them is known beforehand.
"""

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from peregrine.core.keyspace import hash_keys
from peregrine.core.rows import ROW_SCHEMA, UNCHAINED, Row
from peregrine.proof import Lines
from peregrine.types import SourceId
from peregrine.workloads import tm

SOURCE = SourceId("road")
LIMIT = 100.0

Numbers = npt.NDArray[np.int64]
Speeds = npt.NDArray[np.float64]

_encode = msgspec.json.encode


def vehicle(number: int, keys: int) -> str:
    return f"car{number % keys}"


def speeds(numbers: Numbers) -> Speeds:
    """Between 40 and 140, in hundredths, without a pattern that an average would hide."""
    found: Speeds = (4000 + numbers * 7919 % 10007) / 100
    return found


def speed(number: int) -> float:
    return (4000 + number * 7919 % 10007) / 100


def payload(number: int, keys: int) -> bytes:
    return _encode({"vehicle": vehicle(number, keys), "speed": speed(number)})


def row(number: int, keys: int) -> Row:
    return Row(vehicle(number, keys), SOURCE, number, UNCHAINED, 0, 0, payload(number, keys))


def batch(first: int, end: int, keys: int, now_ms: int) -> pa.RecordBatch:
    """Rows as devices send them, made by the column: for logs that are to be filled fast."""
    numbers = np.arange(first, end, dtype=np.int64)
    names = [f"car{n}" for n in range(keys)] if keys <= end - first else [f"car{n % keys}" for n in range(first, end)]
    picks = numbers % keys if keys <= end - first else np.arange(end - first)
    now = np.full(end - first, now_ms, np.int64)
    columns: list[Any] = [
        pa.array(names, pa.string()).take(pa.array(picks)),
        hash_keys(names)[picks],
        [SOURCE] * (end - first),
        numbers,
        np.full(end - first, UNCHAINED, np.int64),
        now,
        now,
        [payload(n, keys) for n in range(first, end)],
    ]
    return pa.record_batch(
        [
            column if isinstance(column, pa.Array) else pa.array(column, field.type)
            for column, field in zip(columns, ROW_SCHEMA, strict=True)
        ],
        schema=ROW_SCHEMA,
    )


def told(average: float, alert: bool) -> bytes:
    """What an application tells of a reading: the average of its vehicle so far, and whether that is too fast."""
    return _encode({"average": average, "alert": alert})


def line(car: str) -> tuple[str, str, str]:
    return tm.RESULTS, car, f"{SOURCE}>{car}"


def results(rows: int, keys: int) -> Lines:
    """What must come out of the first `rows` readings."""
    found: Lines = {line(vehicle(key, keys)): [] for key in range(min(keys, rows))}
    lines = list(found.values())
    averages = np.zeros(keys)
    for nth, first in enumerate(range(0, rows, keys)):
        numbers = np.arange(first, min(first + keys, rows), dtype=np.int64)
        mine = averages[: len(numbers)]
        mine += (speeds(numbers) - mine) / (nth + 1)
        for key, (number, average) in enumerate(zip(numbers.tolist(), mine.tolist(), strict=True)):
            average = round(average, 6)
            lines[key].append((number, told(average, average > LIMIT)))
    return found
