"""Nexmark's market: persons register, auctions open and close, bids come in (Falcon IV-A; Tucker et al., 2002).

Every row is a function of the seed and its number. Auction a, of item a mod `items`, opens at a * open_every_ms.
Bids go to the newest auction of an item. The first item is the hot one: it gets `hot_ratio` times as many bids as any
other. With open_every_ms=0 there are the auctions 0 to items - 1 and no more.
"""

import numpy as np
import pyarrow as pa

from peregrine.workloads.generate.draws import Numbers, below, stretch, uniform
from peregrine.workloads.generate.sending import event_times, numbers_between, sent_us, table

PERSONS = "person bigint, name string, city string, at_ms bigint"
AUCTIONS = "auction bigint, seller bigint, category bigint, reserve bigint, expires_ms bigint, at_ms bigint"
BIDS = "auction bigint, bidder bigint, price bigint, at_ms bigint"

HOT_RATIO = 100
PREFIX = "market"

_FIRST = ("Ada", "Bela", "Carl", "Dora", "Emil", "Fay", "Gus", "Hana", "Ivo", "Jana", "Kai")
_LAST = ("Abel", "Brun", "Cruz", "Dorn", "Egli", "Falk", "Gray", "Hall", "Imre")
_NAMES = pa.array([f"{first} {last}" for first in _FIRST for last in _LAST])
_CITIES = pa.array(["Lima", "Oslo", "Kobe", "Bern", "Cork", "Graz", "Pune"])
_CATEGORIES = 5


def market(
    duration_ms: int,
    seed: int = 0,
    *,
    from_ms: int = 0,
    rate: int = 1500,
    items: int = 10,
    hot_ratio: float = HOT_RATIO,
    open_every_ms: int = 0,
    auction_ms: int = 60_000,
    person_every_ms: int = 1000,
    people: int = 10,
    sellers: int = 10,
    sources: int = 1,
    disorder_ms: int = 0,
    start_ms: int = 0,
) -> dict[str, pa.Table]:
    """The tables persons, auctions and bids of the stretch [from_ms, from_ms + duration_ms) of the market.

    `rate` bids a second are made by the `people` who registered last. An auction takes `auction_ms`; if it ends before
    the next one of its item begins, some bids come too late. The first `sellers` persons sell.
    """
    until_ms = from_ms + duration_ms
    persons = _every(person_every_ms, from_ms, until_ms)
    auctions = _every(open_every_ms, from_ms, until_ms) if open_every_ms else stretch(0, items if from_ms == 0 else 0)
    bids = numbers_between(from_ms, until_ms, rate)
    registered, opened, bid = persons * person_every_ms * 1000, auctions * open_every_ms * 1000, sent_us(bids, rate)
    opened_ms = event_times(opened, start_ms, disorder_ms, seed)
    columns = {
        "persons": {
            "person": persons,
            "name": _NAMES.take(pa.array(persons % len(_NAMES))),
            "city": _CITIES.take(pa.array(below(len(_CITIES), seed, "city", persons))),
            "at_ms": event_times(registered, start_ms, disorder_ms, seed),
        },
        "auctions": {
            "auction": auctions,
            "seller": below(sellers, seed, "seller", auctions),
            "category": below(_CATEGORIES, seed, "category", auctions),
            "reserve": 100 + below(4000, seed, "reserve", auctions),
            "expires_ms": opened_ms + auction_ms,
            "at_ms": opened_ms,
        },
        "bids": {
            "auction": _auctions_of(_items_of(bids, seed, items, hot_ratio), bid // 1000, items, open_every_ms),
            "bidder": np.maximum(bid // 1000 // person_every_ms - below(people, seed, "bidder", bids), 0),
            "price": 100 + below(9_900, seed, "price", bids),
            "at_ms": event_times(bid, start_ms, disorder_ms, seed),
        },
    }
    numbers = {"persons": (persons, registered), "auctions": (auctions, opened), "bids": (bids, bid)}
    return {
        stream: table(columns[stream], PREFIX, sources, number % sources, sent)
        for stream, (number, sent) in numbers.items()
    }


def _every(gap_ms: int, from_ms: int, until_ms: int) -> Numbers:
    return np.arange(-(-from_ms // gap_ms), -(-until_ms // gap_ms), dtype=np.int64)


def _items_of(bids: Numbers, seed: int, items: int, hot_ratio: float) -> Numbers:
    """Item 0 with a weight of `hot_ratio`, every other one with a weight of 1."""
    drawn = uniform(seed, "item", bids) * (hot_ratio + items - 1)
    chosen: Numbers = np.maximum(np.floor(drawn - hot_ratio) + 1, 0).astype(np.int64)
    return chosen


def _auctions_of(items_bid_for: Numbers, time_ms: Numbers, items: int, open_every_ms: int) -> Numbers:
    """The newest auction of an item at that time, or the newest of all if there was none yet."""
    if open_every_ms == 0:
        return items_bid_for
    newest = time_ms // open_every_ms
    found = newest - (newest - items_bid_for) % items
    return np.where(found < 0, newest, found)
