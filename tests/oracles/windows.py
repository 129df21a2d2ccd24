"""Windows of a batch: every row once for each window that holds it. Used by oracles alone, written for them.

A window is [start, end) in event time; starts are the multiples of the slide, also negative ones. A window without rows
does not exist. No row is late: what comes at any place in a table counts.
"""

import pandas as pd


def in_windows(rows: pd.DataFrame, size_ms: int, slide_ms: int, until_ms: int | None = None) -> pd.DataFrame:
    """Adds `window_end_ms`. With `until_ms`, only windows that end then or earlier."""
    last_start = rows["at_ms"] // slide_ms * slide_ms
    copies = []
    for back in range(0, size_ms, slide_ms):
        start = last_start - back
        holds = start + size_ms > rows["at_ms"]
        copies.append(rows[holds].assign(window_end_ms=start[holds] + size_ms))
    found = pd.concat(copies)
    return found if until_ms is None else found[found["window_end_ms"] <= until_ms]


def as_tuples(rows: pd.DataFrame) -> list[tuple]:
    """Sorted, in plain Python values."""
    return sorted(tuple(row) for row in rows.astype(object).values.tolist())
