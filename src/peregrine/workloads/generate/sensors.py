"""Observations of a building's environmental sensors, and the table that says where each sensor is (Shepherd VI-B).

Row n is a function of (seed, n). A sensor measures one quantity and sends by way of one gateway, which is the source,
so the rows of a sensor come in order. Some values are missing, some far off, and some observations are sent again.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from peregrine.workloads.generate.draws import Numbers, below, happens, skewed, stretch, uniform
from peregrine.workloads.generate.sending import event_times, sent_us, table

OBSERVATIONS = "sensor string, quantity string, observation bigint, value double, at_ms bigint"
PLACES = "sensor string, site string, floor int, unit string"

UNITS = {"temperature": "°C", "humidity": "%", "light": "lx", "dust": "µg/m³", "air": "ppm"}
QUANTITIES = tuple(UNITS)
# What a sensor that works can tell: both bounds are still possible values.
RANGES = {
    "temperature": (-12.5, 43.1),
    "humidity": (20.3, 69.1),
    "light": (0.0, 5153.0),
    "dust": (83.36, 3322.67),
    "air": (12.0, 49.0),
}

_LOW = np.array([RANGES[quantity][0] for quantity in QUANTITIES])
_HIGH = np.array([RANGES[quantity][1] for quantity in QUANTITIES])
_FARTHEST_REPEAT = 8


def observations(
    count: int,
    seed: int = 0,
    *,
    first: int = 0,
    rate: int = 1000,
    sensors: int = 100,
    gateways: int = 4,
    skew: float = 0.0,
    missing: float = 0.05,
    outliers: float = 0.03,
    repeats: float = 0.05,
    disorder_ms: int = 0,
    start_ms: int = 0,
) -> pa.Table:
    """Rows `first` to `first + count`, `rate` a second.

    The shares `missing`, `outliers` and `repeats` say how often a value is null, out of its range, and sent again.
    `skew` is the Zipf exponent of how much sensors send; without it they take turns.
    """
    numbers = stretch(first, count)
    # A repeat is another row's observation, under its own event time.
    back = (1 + below(_FARTHEST_REPEAT, seed, "back", numbers)) * sensors
    again = happens(repeats, seed, "repeat", numbers) & (numbers >= back)
    told = np.where(again, numbers - back, numbers)
    sensor = skewed(sensors, skew, seed, "sensor", told) if skew else told % sensors
    quantity = sensor % len(QUANTITIES)
    sent = sent_us(numbers, rate)
    columns = {
        "sensor": _pick(sensor_names(sensors), sensor),
        "quantity": _pick(QUANTITIES, quantity),
        "observation": told,
        "value": pa.array(_values(told, quantity, outliers, seed), mask=happens(missing, seed, "missing", told)),
        "at_ms": event_times(sent, start_ms, disorder_ms, seed),
    }
    return table(columns, "gateway", gateways, sensor % gateways, sent)


def places(sensors: int = 100, floors: int = 12, sites: int = 3) -> pa.Table:
    """Where each sensor is, and in which unit it measures."""
    numbers = np.arange(sensors, dtype=np.int64)
    return pa.table(
        {
            "sensor": sensor_names(sensors),
            "site": _pick([f"site{n}" for n in range(sites)], numbers % sites),
            "floor": pa.array(numbers // sites % floors, pa.int32()),
            "unit": _pick(tuple(UNITS.values()), numbers % len(QUANTITIES)),
        }
    )


def sensor_names(sensors: int) -> list[str]:
    return [f"{QUANTITIES[n % len(QUANTITIES)]}-{n}" for n in range(sensors)]


def _pick(values: Sequence[str], picks: Numbers) -> pa.Array:
    return pa.array(values).take(pa.array(picks))


def _values(told: Numbers, quantity: Numbers, outliers: float, seed: int) -> npt.NDArray[np.float64]:
    """In the middle of the range, drifting slowly; outliers lie outside of it by up to half its width."""
    low, high = _LOW[quantity], _HIGH[quantity]
    drift = 0.3 * np.sin(told / 5000.0) + 0.3 * (uniform(seed, "noise", told) - 0.5)
    inside = low + (high - low) * (0.5 + drift)
    off = (high - low) * (0.01 + 0.49 * uniform(seed, "off", told))
    outside = np.where(uniform(seed, "side", told) < 0.5, low - off, high + off)
    found: npt.NDArray[np.float64] = np.round(np.where(happens(outliers, seed, "outlier", told), outside, inside), 2)
    return found
