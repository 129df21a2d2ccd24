"""Nexmark, Linear Road, the stock exchange and key count, each with rows that make an oracle's answer interesting.

A case is run anywhere: build its application, send its tables (each device its rows, in the order of `sent_us`), and
compare the records named RESULTS, as sorted tuples, with what the oracle expects.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from oracles import key_count as key_count_oracle
from oracles import linear_road as linear_road_oracle
from oracles import nexmark as nexmark_oracle
from oracles import stock as stock_oracle
from peregrine import App
from peregrine.workloads import key_count, linear_road, nexmark, stock
from peregrine.workloads.generate import key_count as touches_of
from peregrine.workloads.generate import linear_road as positions_of
from peregrine.workloads.generate import nexmark as market_of
from peregrine.workloads.generate import stock as messages_of

RESULTS = "results"

Tables = dict[str, pa.Table]
Sent = tuple[str, dict[str, Any], int]  # (stream, record, when it was sent in ms)


@dataclass(frozen=True)
class Case:
    """`parameters` mean the same to the application and to the oracle, `building` is for the application alone."""

    query: str
    build: Callable[..., App]
    oracle: Callable[..., list[tuple]]
    rows: Callable[[], Tables]
    parameters: dict[str, Any] = field(default_factory=dict)
    building: dict[str, Any] = field(default_factory=dict)
    in_event_time: bool = True  # results are those of windows; the oracle knows `until_ms`

    def app(self, senders: list[str] | None = None, groups: int = 4) -> App:
        return self.build(senders, groups=groups, **self.parameters, **self.building)

    def tables(self) -> Tables:
        """Those that the application takes."""
        return self.rows()

    def expected(self, tables: Tables, **more: Any) -> list[tuple]:
        return self.oracle(self.query, tables, **self.parameters, **more)


def market(*streams: str, **settings: Any) -> Callable[[], Tables]:
    def rows() -> Tables:
        made = market_of.market(15_000, 7, **({"rate": 60, "items": 5, "hot_ratio": 1.3, "sources": 3} | settings))
        return {stream: made[stream] for stream in streams}

    return rows


def positions(**settings: Any) -> Callable[[], Tables]:
    def rows() -> Tables:
        base = {"rate": 80, "cars": 80, "segments": 9, "jammed": 0.5, "broken": 0.2, "sources": 3}
        return {"positions": positions_of.positions(80 * 40, 7, **(base | settings))}

    return rows


def touches() -> Tables:
    settings = {"keys": 60, "rate": 300, "skew": 0.7, "access_ratio": 0.3, "period_ms": 1000, "sources": 3}
    return {"touches": touches_of.touches(1500, 7, **settings)}


AUCTIONS = {"open_every_ms": 70, "auction_ms": 320, "person_every_ms": 400, "sellers": 4}
SLIDING = {"size_ms": 4000, "slide_ms": 1000}

CASES = {
    "q5": Case("q5", nexmark.q5, nexmark_oracle.expected, market("bids"), SLIDING),
    "q5_disorder": Case(
        "q5", nexmark.q5, nexmark_oracle.expected, market("bids", disorder_ms=700), SLIDING, {"delay_ms": 700}
    ),
    "q6": Case("q6", nexmark.q6, nexmark_oracle.expected, market("auctions", "bids", **AUCTIONS), {"last": 10}),
    "q6_disorder": Case(
        "q6",
        nexmark.q6,
        nexmark_oracle.expected,
        market("auctions", "bids", **AUCTIONS, disorder_ms=150),
        {"last": 3},
        {"delay_ms": 150},
    ),
    "q7": Case("q7", nexmark.q7, nexmark_oracle.expected, market("bids"), {"size_ms": 1000}),
    "q8": Case("q8", nexmark.q8, nexmark_oracle.expected, market("persons", "bids", **AUCTIONS), SLIDING),
    "toll": Case(
        "toll",
        linear_road.toll,
        linear_road_oracle.expected,
        positions(disorder_ms=300),
        {"size_ms": 6000, "slide_ms": 2000, "speed_limit": 40, "cars_limit": 8},
        {"delay_ms": 300},
    ),
    "accident": Case(
        "accident",
        linear_road.accident,
        linear_road_oracle.expected,
        positions(),
        {"reports": 10, "stay_ms": 2500},
        in_event_time=False,
    ),
    "stock": Case(
        "stock",
        stock.stock,
        stock_oracle.expected,
        lambda: messages_of.messages(2500, 7, rate=500, symbols=200, skew=0.8, sources=3),
        in_event_time=False,
    ),
    "key_count": Case(
        "key_count",
        key_count.key_count,
        key_count_oracle.expected,
        touches,
        building={"state_bytes": 32_000, "slots": 16},
        in_event_time=False,
    ),
}


def senders(tables: Tables) -> list[str]:
    return sorted({sender for table in tables.values() for sender in table["source"].unique().to_pylist()})


def rows_of(tables: Tables, sender: str) -> Iterator[Sent]:
    """What a device sends, in its order: the columns of the streams' schemas."""
    sent = []
    for stream, table in tables.items():
        for row in table.to_pylist():
            if row.pop("source") == sender:
                sent.append((row.pop("sent_us"), stream, row))
    for sent_us, stream, row in sorted(sent, key=lambda each: each[0]):
        yield stream, row, sent_us // 1000


def as_tuples(records: list[Any]) -> list[tuple]:
    """Results as oracles have them."""
    return sorted(tuple(tuple(each) if isinstance(each, list) else each for each in record) for record in records)
