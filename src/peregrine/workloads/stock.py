"""Stock exchange (Spacker V-A): the average price of each symbol's trades, and how far bid and ask were apart.

Rows are those of `generate.stock`. A small state for each of very many keys, of which few are touched at a time.
Messages about a symbol must come from one sender, in order.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from peregrine import App
from peregrine.app.logic import Emit, Key, Moment, Timeless
from peregrine.workloads.generate.stock import QUOTES, TRADES

RESULTS = "results"


def stock(senders: Iterable[str] | None = None, *, groups: int = 16) -> App:
    """Each trade with the average price so far, weighted by size, and the spread of the last quote before it."""
    app = App("stock", groups)
    quotes = app.source("quotes", QUOTES, key="symbol", event_time="at_ms", senders=senders)
    trades = app.source("trades", TRADES, key="symbol", event_time="at_ms", senders=senders)
    told = "symbol string, nth bigint, price bigint, average double, spread bigint"
    quotes.key_by("symbol").connect("exchange", Exchange(), trades.key_by("symbol"), schema=told).to(RESULTS)
    return app


APPS: Mapping[str, Callable[..., App]] = {"stock": stock}


class Exchange(Timeless):
    """Input 0 are quotes, input 1 trades. State: [trades, sum of price * size, sum of sizes, last spread]."""

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        nth, spent, size, spread = state or (0, 0, 0, None)
        if at.input == 0:
            return [nth, spent, size, record.ask - record.bid], []
        nth, spent, size = nth + 1, spent + record.price * record.size, size + record.size
        told = {"symbol": key[0], "nth": nth, "price": record.price, "average": spent / size, "spread": spread}
        return [nth, spent, size, spread], [Emit(told, at.time_ms)]
