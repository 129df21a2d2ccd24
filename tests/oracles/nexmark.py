"""What Nexmark's queries must give for a whole table of rows, in pandas. Windows as in oracles/windows.py.

q5  (window_end_ms, auction, count): the auction with most bids in each sliding window. Ties: the smallest auction.
q6  (seller, closed_ms, average): the prices of every ten (`last`) sales of a seller, averaged: a tumbling window by
    count; closed_ms is when the last of them was. What is sold: the highest bid of an auction made in
    [at_ms, expires_ms) of the auction, if it reaches the reserve. A sale takes place at expires_ms. A seller's sales
    are in the order of (expires_ms, auction), whatever the order in which rows arrive. The last sales, if fewer than
    ten, give nothing.
q7  (window_end_ms, auction, price, bidder): the highest bid in each tumbling window. Ties: the smallest auction, then
    the smallest bidder.
q8  (window_end_ms, person, name): who registered and bid in the same sliding window; once, however many bids.

`until_ms`: event time has come so far, so only windows and auctions that end then or earlier count. None: all do.
"""

import pyarrow as pa

from oracles.windows import as_tuples, in_windows

Tables = dict[str, pa.Table]


def expected(app_name: str, tables: Tables, **parameters: int | None) -> list[tuple]:
    queries = {"q5": hottest, "q6": average_prices, "q7": highest, "q8": newcomers}
    return queries[app_name](tables, **parameters)


def hottest(tables: Tables, size_ms: int = 60_000, slide_ms: int = 1000, until_ms: int | None = None) -> list[tuple]:
    bids = in_windows(tables["bids"].select(["auction", "at_ms"]).to_pandas(), size_ms, slide_ms, until_ms)
    counts = bids.groupby(["window_end_ms", "auction"]).size().reset_index(name="count")
    counts = counts.sort_values(["window_end_ms", "count", "auction"], ascending=[True, False, True])
    return as_tuples(counts.drop_duplicates("window_end_ms"))


def average_prices(tables: Tables, last: int = 10, until_ms: int | None = None) -> list[tuple]:
    auctions, bids = tables["auctions"].to_pandas(), tables["bids"].to_pandas()
    offers = bids.merge(auctions, on="auction", suffixes=("", "_open"))
    offers = offers[(offers["at_ms"] >= offers["at_ms_open"]) & (offers["at_ms"] < offers["expires_ms"])]
    offers = offers[offers["price"] >= offers["reserve"]]
    if until_ms is not None:
        offers = offers[offers["expires_ms"] <= until_ms]
    sales = offers.groupby(["seller", "expires_ms", "auction"])["price"].max().reset_index()
    sales = sales.sort_values(["seller", "expires_ms", "auction"])
    sales["nth"] = sales.groupby("seller").cumcount() // last
    ten = sales.groupby(["seller", "nth"]).agg(
        closed_ms=("expires_ms", "max"), total=("price", "sum"), number=("price", "size")
    )
    ten = ten[ten["number"] == last].reset_index()
    ten["average"] = ten["total"] / last
    return as_tuples(ten[["seller", "closed_ms", "average"]])


def highest(tables: Tables, size_ms: int = 60_000, until_ms: int | None = None) -> list[tuple]:
    bids = in_windows(tables["bids"].to_pandas(), size_ms, size_ms, until_ms)
    bids = bids.sort_values(["window_end_ms", "price", "auction", "bidder"], ascending=[True, False, True, True])
    return as_tuples(bids.drop_duplicates("window_end_ms")[["window_end_ms", "auction", "price", "bidder"]])


def newcomers(
    tables: Tables, size_ms: int = 3_600_000, slide_ms: int = 1000, until_ms: int | None = None
) -> list[tuple]:
    persons = tables["persons"].select(["person", "name", "at_ms"]).to_pandas()
    bids = tables["bids"].select(["bidder", "at_ms"]).to_pandas().rename(columns={"bidder": "person"})
    joined = in_windows(persons, size_ms, slide_ms, until_ms)[["window_end_ms", "person", "name"]]
    busy = in_windows(bids, size_ms, slide_ms, until_ms)[["window_end_ms", "person"]].drop_duplicates()
    return as_tuples(joined.merge(busy, on=["window_end_ms", "person"]).drop_duplicates())
