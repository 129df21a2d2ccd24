"""What Linear Road's two queries must give for a whole table `positions`, in pandas. Windows as in oracles/windows.py.

toll      (window_end_ms, segment, average, cars, toll): of each segment and sliding window with reports. `average` is
          the sum of all reported speeds by their number, `cars` how many different cars reported. The toll is 2 *
          (cars - cars_limit) ** 2 if average < speed_limit and cars > cars_limit, else 0.
accident  (segment, at_ms, car, cars): a report by which a car stands. Key is the segment: a segment knows the reports
          made on it, in their order, and nothing else. A car stands if its last `reports` reports here, this one
          included, have the same position; every further report from there tells it again (a sliding window by count,
          slide 1). Between two of them lies at most `stay_ms`: after a longer silence a car counts as gone, and comes
          anew. `cars` is the sorted tuple of all cars here at that moment: those with a report here up to this one,
          at most `stay_ms` before it. So a car that left is on the list for `stay_ms` after its last report here,
          because nobody tells a segment of reports elsewhere. Event times of a segment's reports must not go back.

`until_ms` is for toll: only windows that end then or earlier.
"""

import pyarrow as pa

from oracles.windows import as_tuples, in_windows

Tables = dict[str, pa.Table]


def expected(app_name: str, tables: Tables, **parameters: float | None) -> list[tuple]:
    return {"toll": tolls, "accident": accidents}[app_name](tables, **parameters)


def tolls(
    tables: Tables,
    size_ms: int = 60_000,
    slide_ms: int = 1000,
    speed_limit: float = 40,
    cars_limit: int = 50,
    until_ms: int | None = None,
) -> list[tuple]:
    reports = in_windows(tables["positions"].to_pandas(), size_ms, slide_ms, until_ms)
    found = reports.groupby(["window_end_ms", "segment"]).agg(
        total=("speed", "sum"), number=("speed", "size"), cars=("car", "nunique")
    )
    found["average"] = found["total"] / found["number"]
    charged = (found["average"] < speed_limit) & (found["cars"] > cars_limit)
    found["toll"] = (2 * (found["cars"] - cars_limit) ** 2).where(charged, 0)
    return as_tuples(found.reset_index()[["window_end_ms", "segment", "average", "cars", "toll"]])


def accidents(tables: Tables, reports: int = 10, stay_ms: int = 90_000) -> list[tuple]:
    found: list[tuple] = []
    for segment, here in tables["positions"].to_pandas().groupby("segment"):
        assert here["at_ms"].is_monotonic_increasing, f"the reports of segment {segment} are not in order"
        before = here.groupby("car")[["position", "at_ms"]].shift()
        moved = (here["position"] != before["position"]) | (here["at_ms"] - before["at_ms"] > stay_ms)
        stop = moved.groupby(here["car"]).cumsum()  # the number of the place where a car is, among its places
        stands = here.groupby([here["car"], stop]).cumcount() + 1 >= reports
        for row in here[stands].itertuples():
            seen = here.loc[: row.Index]
            cars = seen.loc[seen["at_ms"] >= row.at_ms - stay_ms, "car"]
            found.append((int(segment), int(row.at_ms), int(row.car), tuple(sorted(map(int, cars.unique())))))
    return sorted(found)
