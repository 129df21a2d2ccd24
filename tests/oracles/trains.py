"""What must come out of the trains' passenger counters: a batch computation that knows no operator.

The contract of the operators. Rows of a train are taken in the order of the table `passengers`:

  "occupancy"  one result for each row: (train, coach, at_ms, occupancy), the passengers in that coach after the row:
               all that boarded so far less all that alighted
  "stops"      session windows of (train, station) by event time: rows that follow each other in event time by
               `gap_ms` or less are one session, as in Spark's session_window.
               (train, station, start_ms, end_ms, boarding, alighting): from the first row's time to the last one's plus
               `gap_ms`, not included; the sums over all coaches. Every session is closed in the end
  "transfers"  a train arrives where its row has another station than its row before (its first row is an arrival, too).
               The arrival has the row's time and the passengers in the whole train before this row. Arrivals of empty
               trains do not count. At the stations `transfers`, each arrival of S41 is joined with each arrival of
               S42 at the same station whose time is at most `within_ms` earlier or later, both ends included:
               (station, train of S41, train of S42, its time, the other's time, occupancy of S41, occupancy of S42)

No row is late: the watermark waits for the disorder of the sources.
"""

from collections.abc import Collection, Mapping
from typing import Any

import pandas as pd

from peregrine.workloads.generate.trains import TRANSFERS

# Of the application's results; those of the oracle are in the same order.
COLUMNS = {
    "occupancy": ("train", "coach", "at_ms", "occupancy"),
    "stops": ("train", "station", "window_start_ms", "window_end_ms", "boarding", "alighting"),
    "transfers": (
        *("station", "clockwise", "against", "clockwise_ms", "against_ms"),
        *("clockwise_occupancy", "against_occupancy"),
    ),
}


def expected(
    result: str,
    tables: Mapping[str, Any],
    *,
    gap_ms: int = 20_000,
    within_ms: int = 60_000,
    transfers: Collection[str] = TRANSFERS,
) -> list[tuple[Any, ...]]:
    rows = tables["passengers"].to_pandas()
    if result == "occupancy":
        found = _occupancy(rows)
    elif result == "stops":
        found = _stops(rows, gap_ms)
    elif result == "transfers":
        found = _transfers(rows[["train", "line", "station", "boarding", "alighting", "at_ms"]], within_ms, transfers)
    else:
        raise ValueError(f"no result {result!r} of trains")
    return sorted(map(tuple, found.astype(object).values.tolist()))


def _occupancy(rows: pd.DataFrame) -> pd.DataFrame:
    change = rows["boarding"] - rows["alighting"]
    return rows.assign(occupancy=change.groupby([rows["train"], rows["coach"]]).cumsum())[
        ["train", "coach", "at_ms", "occupancy"]
    ]


def _stops(rows: pd.DataFrame, gap_ms: int) -> pd.DataFrame:
    rows = rows.sort_values("at_ms", kind="stable")
    keys = ["train", "station"]
    begins = ~(rows.groupby(keys)["at_ms"].diff() <= gap_ms)
    session = begins.groupby([rows["train"], rows["station"]]).cumsum().rename("session")
    found = rows.groupby([*keys, session]).agg(
        start_ms=("at_ms", "min"),
        end_ms=("at_ms", "max"),
        boarding=("boarding", "sum"),
        alighting=("alighting", "sum"),
    )
    found["end_ms"] += gap_ms
    return found.reset_index()[[*keys, "start_ms", "end_ms", "boarding", "alighting"]]


def _transfers(rows: pd.DataFrame, within_ms: int, transfers: Collection[str]) -> pd.DataFrame:
    change = rows["boarding"] - rows["alighting"]
    arrives = rows["station"] != rows.groupby("train")["station"].shift()
    rows = rows.assign(occupancy=change.groupby(rows["train"]).cumsum() - change)
    arrivals = rows[arrives & (rows["occupancy"] > 0) & rows["station"].isin(list(transfers))]
    clockwise, against = (arrivals[arrivals["line"] == line] for line in ("S41", "S42"))
    pairs = clockwise.merge(against, on="station", suffixes=("_41", "_42"))
    pairs = pairs[(pairs["at_ms_41"] - pairs["at_ms_42"]).abs() <= within_ms]
    return pairs[["station", "train_41", "train_42", "at_ms_41", "at_ms_42", "occupancy_41", "occupancy_42"]]
