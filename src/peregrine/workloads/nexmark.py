"""Nexmark's queries 5 to 8 with the plans and windows of Falcon (IV-A, Fig. 7).

Rows are those of `generate.nexmark`. All results are named RESULTS. They depend on event times alone, not on how the
rows of several senders are mixed; rows may be late by `delay_ms`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from peregrine import App, Avg, Count, CountTumbling, First, Max, Sliding, Tumbling
from peregrine.app.logic import Emit, Key, Moment
from peregrine.app.model import Stream
from peregrine.workloads.generate.nexmark import AUCTIONS, BIDS, PERSONS

RESULTS = "results"
MINUTE_MS, HOUR_MS, SECOND_MS = 60_000, 3_600_000, 1000

Senders = Iterable[str] | None


def q5(
    senders: Senders = None, *, size_ms: int = MINUTE_MS, slide_ms: int = SECOND_MS, delay_ms: int = 0, groups: int = 16
) -> App:
    """The auction with most bids in each sliding window, and how many: WIN COUNT by auction, then JOIN of all."""
    app = App("q5", groups)
    bids = _source(app, "bids", BIDS, "auction", senders, delay_ms)
    counts = bids.key_by("auction").window(Sliding(size_ms, slide_ms)).aggregate("win_count", count=Count())
    everything = counts.map("of_all", lambda each: (0, *each), f"market bigint, {counts.schema.ddl}")
    # Counts of one window have the same event time, just before its end: they meet in one window of a slide.
    hottest = everything.key_by("market").window(Tumbling(slide_ms))
    hottest.apply("join", _hottest, "window_end_ms bigint, auction bigint, count bigint").to(RESULTS)
    return app


def q6(senders: Senders = None, *, last: int = 10, delay_ms: int = 0, groups: int = 16) -> App:
    """The average price of every ten sales of a seller: WIN AVG, a tumbling window by count.

    An auction is sold when it has closed. Sales of a seller come from many auctions, so they are put in the order of
    event time before they are counted.
    """
    app = App("q6", groups)
    auctions = _source(app, "auctions", AUCTIONS, "auction", senders, delay_ms)
    bids = _source(app, "bids", BIDS, "auction", senders, delay_ms)
    sold = "seller bigint, auction bigint, price bigint, closed_ms bigint"
    sales = auctions.key_by("auction").connect("sales", Sales(), bids.key_by("auction"), schema=sold)
    ordered = sales.key_by("seller").window(Tumbling(1)).apply("in_order", _by_auction, sold)
    ten = ordered.key_by("seller").window(CountTumbling(last))
    ten.aggregate("win_avg", closed_ms=Max("closed_ms"), average=Avg("price")).to(RESULTS)
    return app


def q7(senders: Senders = None, *, size_ms: int = MINUTE_MS, delay_ms: int = 0, groups: int = 16) -> App:
    """The highest bid of each tumbling window: WIN MAX by auction, then JOIN of all."""
    app = App("q7", groups)
    bids = _source(app, "bids", BIDS, "auction", senders, delay_ms)
    best = bids.key_by("auction").window(Tumbling(size_ms)).reduce("win_max", _higher)
    everything = best.map("of_all", lambda each: (0, *each), f"market bigint, {best.schema.ddl}")
    highest = everything.key_by("market").window(Tumbling(size_ms))
    highest.apply("join", _highest, "window_end_ms bigint, auction bigint, price bigint, bidder bigint").to(RESULTS)
    return app


def q8(
    senders: Senders = None, *, size_ms: int = HOUR_MS, slide_ms: int = SECOND_MS, delay_ms: int = 0, groups: int = 16
) -> App:
    """Who registered and bid in the same sliding window: WIN1 FILTER, WIN2 FILTER, and JOIN by person."""
    app = App("q8", groups)
    window = Sliding(size_ms, slide_ms)
    persons = _source(app, "persons", PERSONS, "person", senders, delay_ms)
    bids = _source(app, "bids", BIDS, "bidder", senders, delay_ms)
    new = persons.key_by("person").window(window).aggregate("win1_filter", called=First("name"))
    busy = bids.key_by("bidder").window(window).aggregate("win2_filter", bids=Count())
    both = new.key_by("person").window_join(
        "join", busy.key_by("bidder"), Tumbling(slide_ms), _person, "window_end_ms bigint, person bigint, name string"
    )
    both.to(RESULTS)
    return app


APPS: Mapping[str, Callable[..., App]] = {"q5": q5, "q6": q6, "q7": q7, "q8": q8}


class Sales:
    """Input 0 are auctions, input 1 bids; the key is the auction. Emits what it was sold for once it has closed.

    State: [the auction's seller, reserve, start and end, or None; the best price so far; bids (time, price) that came
    before the auction].
    """

    event_time = True
    processing_time = False

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        auction, best, early = state if state is not None else [None, None, []]
        if at.input == 0:
            auction = [record.seller, record.reserve, record.at_ms, record.expires_ms]
        else:
            early.append([record.at_ms, record.price])
        if auction is None:
            return [None, None, early], []
        _, reserve, opened_ms, expires_ms = auction
        for time_ms, price in early:
            if opened_ms <= time_ms < expires_ms and price >= reserve:
                best = price if best is None else max(best, price)
        return [auction, best, []], []

    def on_time(self, key: Key, state: Any, at: Moment) -> tuple[Any, list[Emit]]:
        if state is None:
            return None, []
        auction, best, early = state
        if auction is None:
            # An auction opens before its bids: of one that is still unknown no row can come any more.
            early = [offer for offer in early if offer[0] >= at.watermark_ms]
            return ([None, None, early] if early else None), []
        seller, _, _, expires_ms = auction
        if expires_ms > at.watermark_ms:
            return state, []
        if best is None:
            return None, []
        sale = {"seller": seller, "auction": key[0], "price": best, "closed_ms": expires_ms}
        return None, [Emit(sale, expires_ms - 1)]

    def open_ends(self, state: Any) -> list[int]:
        return [state[0][3]] if state is not None and state[0] is not None else []


def _source(app: App, name: str, schema: str, key: str, senders: Senders, delay_ms: int) -> Stream:
    return app.source(name, schema, key=key, event_time="at_ms", delay=delay_ms, senders=senders)


def _hottest(key: Key, window: Any, counts: Iterable[Any]) -> list[dict[str, Any]]:
    best = min(counts, key=lambda each: (-each.count, each.auction))
    return [{"window_end_ms": best.window_end_ms, "auction": best.auction, "count": best.count}]


def _higher(a: Any, b: Any) -> Any:
    return a if (-a.price, a.bidder) <= (-b.price, b.bidder) else b


def _highest(key: Key, window: Any, bids: Iterable[Any]) -> list[dict[str, Any]]:
    best = min(bids, key=lambda each: (-each.price, each.auction, each.bidder))
    return [{"window_end_ms": window.end_ms, "auction": best.auction, "price": best.price, "bidder": best.bidder}]


def _by_auction(key: Key, window: Any, sales: Iterable[Any]) -> list[Any]:
    return sorted(sales, key=lambda each: each.auction)


def _person(new: Any, busy: Any) -> dict[str, Any]:
    return {"window_end_ms": new.window_end_ms, "person": new.person, "name": new.called}
