"""Speeds that vehicles report for Traffic Monitoring (Falcon IV-A).

Reading n is a function of (seed, n), of vehicle n mod `vehicles`. A vehicle reports by way of one gate, so its readings
have one order. Each drives at a speed of its own, more or less: the averages of some are above the limit, of some below
it, and of those near to it now above and now below.
"""

import numpy as np
import pyarrow as pa

from peregrine.workloads.generate.draws import stretch, uniform
from peregrine.workloads.generate.sending import event_times, sent_us, table

READINGS = "vehicle string, speed double, at_ms bigint"

PREFIX = "gate"


def readings(
    count: int,
    seed: int = 0,
    *,
    first: int = 0,
    rate: int = 1500,
    vehicles: int = 10,
    sources: int = 1,
    disorder_ms: int = 0,
    start_ms: int = 0,
) -> pa.Table:
    """Readings `first` to `first + count`, `rate` a second: speeds in km/h, in quarters: their sums are exact."""
    numbers = stretch(first, count)
    vehicle = numbers % vehicles
    speed = 80 + 40 * uniform(seed, "cruise", vehicle) + 30 * (uniform(seed, "speed", numbers) - 0.5)
    sent = sent_us(numbers, rate)
    columns = {
        "vehicle": pa.array([f"car{n}" for n in range(vehicles)]).take(pa.array(vehicle)),
        "speed": np.round(speed * 4) / 4,
        "at_ms": event_times(sent, start_ms, disorder_ms, seed),
    }
    return table(columns, PREFIX, sources, vehicle % sources, sent)
