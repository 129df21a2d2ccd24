"""What Traffic Monitoring must give for a whole table `readings`, in pandas.

"results"  (vehicle, average, alert): one for each reading. `average` is that of the vehicle's speeds so far, this one
           included, in millionths; `alert` says that it is above the limit. Readings of a vehicle are in the order in
           which its one source sends them, which is that of the table.
"""

from collections.abc import Mapping
from typing import Any

COLUMNS = {"results": ("vehicle", "average", "alert")}


def expected(result: str, tables: Mapping[str, Any], *, limit: float = 100.0) -> list[tuple[Any, ...]]:
    rows = tables["readings"].to_pandas()
    so_far = rows.groupby("vehicle")["speed"]
    averages = so_far.cumsum() / (so_far.cumcount() + 1)
    rows["average"] = [round(each, 6) for each in averages]  # NumPy's is not exact between two millionths
    rows["alert"] = rows["average"] > limit
    return sorted(map(tuple, rows[list(COLUMNS[result])].astype(object).values.tolist()))
