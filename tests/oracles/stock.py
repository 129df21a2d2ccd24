"""What the stock exchange must give for whole tables `quotes` and `trades`, in pandas.

stock  (symbol, nth, price, average, spread): one for each trade, the nth (from 1) of its symbol. `average` is the
       average price of its trades so far, weighted by their sizes: the sum of price * size by the sum of sizes.
       `spread` is ask less bid of the last quote of the symbol before the trade, None if there was none. "Before" is
       the order in which the symbol's one source sends, that of `sent_us`; event times do not matter.
"""

import pandas as pd
import pyarrow as pa

Tables = dict[str, pa.Table]


def expected(app_name: str, tables: Tables) -> list[tuple]:
    return {"stock": trades_with_averages}[app_name](tables)


def trades_with_averages(tables: Tables) -> list[tuple]:
    quotes, trades = tables["quotes"].to_pandas(), tables["trades"].to_pandas()
    quotes["quoted"] = quotes["ask"] - quotes["bid"]
    found = pd.merge_asof(trades, quotes[["symbol", "sent_us", "quoted"]], on="sent_us", by="symbol")
    found["spent"] = found["price"] * found["size"]
    so_far = found.groupby("symbol")
    found["nth"] = so_far.cumcount() + 1
    found["average"] = so_far["spent"].cumsum() / so_far["size"].cumsum()
    return sorted(
        (row.symbol, int(row.nth), int(row.price), row.average, None if pd.isna(row.quoted) else int(row.quoted))
        for row in found.itertuples()
    )
