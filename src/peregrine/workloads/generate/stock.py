"""A stock exchange: quotes (what is bid and asked) and trades, of millions of symbols if wanted (Spacker V-A, Table I).

Message n, a quote or a trade, is a function of (seed, n); its symbol is drawn by Zipf's law. Every symbol has one feed,
which sends its quotes and its trades, so the messages about a symbol have one order. Prices are in cents.
"""

import pyarrow as pa
import pyarrow.compute as pc

from peregrine.workloads.generate.draws import below, happens, skewed, stretch
from peregrine.workloads.generate.sending import event_times, sent_us, table

QUOTES = "symbol string, bid bigint, ask bigint, at_ms bigint"
TRADES = "symbol string, price bigint, size bigint, at_ms bigint"

PREFIX = "feed"


def messages(
    count: int,
    seed: int = 0,
    *,
    first: int = 0,
    rate: int = 40_000,
    symbols: int = 1_000_000,
    skew: float = 0.15,
    trades: float = 0.4,
    sources: int = 1,
    disorder_ms: int = 0,
    start_ms: int = 0,
) -> dict[str, pa.Table]:
    """The tables quotes and trades of the messages `first` to `first + count`; the share `trades` of them is trades."""
    numbers = stretch(first, count)
    is_trade = happens(trades, seed, "trade", numbers)
    told = {}
    for stream, chosen in (("quotes", numbers[~is_trade]), ("trades", numbers[is_trade])):
        symbol = skewed(symbols, skew, seed, "symbol", chosen)
        sent = sent_us(chosen, rate)
        price = 1000 + below(50_000, seed, "level", symbol) + below(201, seed, "move", chosen)
        columns = {"symbol": pc.binary_join_element_wise("S", pa.array(symbol).cast(pa.string()), "")}
        if stream == "quotes":
            columns |= {"bid": price, "ask": price + 1 + below(20, seed, "spread", chosen)}
        else:
            columns |= {"price": price, "size": 100 * (1 + below(50, seed, "size", chosen))}
        columns["at_ms"] = event_times(sent, start_ms, disorder_ms, seed)
        told[stream] = table(columns, PREFIX, sources, symbol % sources, sent)
    return told
