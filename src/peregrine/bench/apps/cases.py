"""Every application with the rows that it is given: Falcon's 10 keys, 1,500 rows a second and 3 senders where it has
them, and windows of which some close in a run of half a minute of event time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from peregrine import App
from peregrine.bench.apps.feed import Tables
from peregrine.workloads import cameras, key_count, linear_road, nexmark, sensors, stock, tm, trains, tweets
from peregrine.workloads.generate import cameras as frames_of
from peregrine.workloads.generate import key_count as touches_of
from peregrine.workloads.generate import linear_road as positions_of
from peregrine.workloads.generate import nexmark as market_of
from peregrine.workloads.generate import sensors as observations_of
from peregrine.workloads.generate import stock as messages_of
from peregrine.workloads.generate import tm as readings_of
from peregrine.workloads.generate import trains as passengers_of
from peregrine.workloads.generate import tweets as tweets_of

RATE, KEYS, SENDERS = 1500, 10, 3


@dataclass(frozen=True)
class Case:
    build: Callable[..., App]
    tables: Callable[[int], Tables]  # of so many records, more or less
    parameters: Mapping[str, Any] = field(default_factory=dict)
    fewer: int = 1  # records are so heavy that so many times fewer do
    said: str = ""

    def app(self, senders: list[str]) -> App:
        return self.build(senders, **self.parameters)


def readings(rows: int) -> Tables:
    return {"readings": readings_of.readings(rows, rate=RATE, vehicles=KEYS, sources=SENDERS)}


def _market(*streams: str, **settings: Any) -> Callable[[int], Tables]:
    def tables(rows: int) -> Tables:
        made = market_of.market(rows * 1000 // RATE, rate=RATE, items=KEYS, sources=SENDERS, **settings)
        return {stream: made[stream] for stream in streams}

    return tables


def _positions(rows: int) -> Tables:
    return {"positions": positions_of.positions(rows, rate=RATE, cars=300, segments=KEYS, broken=0.05, sources=SENDERS)}


CASES: Mapping[str, Case] = {
    "tm_app": Case(tm.app, readings, said="10 vehicles"),
    "tweets": Case(tweets.tweets, lambda rows: {"tweets": tweets_of.tweets(rows)}, said="1,000 users, 4 feeds"),
    "sensors": Case(
        sensors.sensors, lambda rows: {"observations": observations_of.observations(rows)}, said="100 sensors"
    ),
    "trains": Case(
        trains.trains,
        lambda rows: {"passengers": passengers_of.passengers(rows)},
        fewer=20,
        said="40 trains that send, 4 rows/s",
    ),
    "cameras": Case(
        cameras.cameras,
        lambda rows: {"frames": frames_of.frames(rows)},
        {"dataframe": False},
        60,
        "5 cameras, a plain function",
    ),
    "q5": Case(nexmark.q5, _market("bids"), said="60 s every second"),
    "q6": Case(
        nexmark.q6,
        _market("auctions", "bids", open_every_ms=100, auction_ms=900, sellers=2),
        said="10 sales, 10 auctions open",
    ),
    "q7": Case(nexmark.q7, _market("bids"), {"size_ms": 5000}, said="5 s, 10 auctions"),
    "q8": Case(nexmark.q8, _market("persons", "bids"), {"size_ms": 10_000}, said="10 s every second"),
    "toll": Case(linear_road.toll, _positions, said="60 s every second, 300 cars"),
    "accident": Case(linear_road.accident, _positions, said="10 segments, 300 cars"),
    "stock": Case(
        stock.stock,
        lambda rows: messages_of.messages(rows, symbols=10_000, sources=SENDERS),
        said="10,000 symbols, 40,000 rows/s",
    ),
    "key_count": Case(
        key_count.key_count,
        lambda rows: {"touches": touches_of.touches(rows, sources=SENDERS)},
        {"state_bytes": 4096},
        said="655 keys of 4 KB at a time",
    ),
}
