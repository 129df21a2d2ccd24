"""Who sends a row, and when: the two columns behind those of a stream's schema.

`source` is the device that sends the row, `sent_us` the microsecond from the start in which it does. Rows of a table
are in the order of sending. Tables of one generator are merged by a stable sort on `sent_us`: then each device sends
the rows of all of its streams in their order.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from peregrine.errors import ConfigurationError
from peregrine.workloads.generate.draws import Numbers, disordered

MAX_RATE = 1_000_000  # rows a second: a microsecond tells the rows of a stream apart


def sent_us(numbers: Numbers, rate: int) -> Numbers:
    """When the rows of a steady stream of `rate` rows a second are sent."""
    if not 0 < rate <= MAX_RATE:
        raise ConfigurationError(f"a rate of {rate} rows a second", f"choose one from 1 to {MAX_RATE:,}")
    return numbers * 1_000_000 // rate


def numbers_between(from_ms: int, until_ms: int, rate: int) -> Numbers:
    """The numbers of the rows that such a stream sends in [from_ms, until_ms)."""
    first, end = (-(-time_ms * rate // 1000) for time_ms in (from_ms, until_ms))
    return np.arange(first, end, dtype=np.int64)


def event_times(sent: Numbers, start_ms: int, disorder_ms: int, seed: int) -> Numbers:
    """Of rows sent at these microseconds: the time of sending, or up to `disorder_ms` earlier."""
    return disordered(start_ms + sent // 1000, start_ms, disorder_ms, seed, sent)


def table(columns: Mapping[str, Any], prefix: str, sources: int, source: Numbers, sent: Numbers) -> pa.Table:
    """The columns and the two of this module; devices are called prefix0, prefix1 and so on."""
    devices = pa.array([f"{prefix}{n}" for n in range(sources)]).take(pa.array(source))
    arrays = {name: pa.array(column) for name, column in columns.items()}
    return pa.table({**arrays, "source": devices, "sent_us": pa.array(sent)})
