"""The applications that experiments can name, with the rows that they are given and the operators that move.

Operators that move are those that devices feed: what is behind them must stay above them (Falcon III-B). Where Falcon
moves a later one of a chain of ours, the description of the experiment says so.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from peregrine import App
from peregrine.bench.engine import hoard, scores
from peregrine.errors import ConfigurationError
from peregrine.workloads import cameras, key_count, linear_road, nexmark, sensors, stock, tm, tweets
from peregrine.workloads.generate import cameras as frames_of
from peregrine.workloads.generate import key_count as touches_of
from peregrine.workloads.generate import linear_road as positions_of
from peregrine.workloads.generate import nexmark as market_of
from peregrine.workloads.generate import sensors as observations_of
from peregrine.workloads.generate import stock as messages_of
from peregrine.workloads.generate import tm as readings_of
from peregrine.workloads.generate import tweets as tweets_of

Tables = Mapping[str, pa.Table]
SLICE_MS = 1000
SMALL_BYTES = 100


@dataclass(frozen=True)
class Application:
    build: Callable[..., App]
    rows: Callable[..., Any]  # a generator of peregrine.workloads.generate
    streams: tuple[str, ...]  # sources that get rows
    operators: tuple[str, ...]  # that move
    parameters: Mapping[str, Any] = field(default_factory=dict)
    feed: Mapping[str, Any] = field(default_factory=dict)
    by: str = "keys"
    felt: bool = True  # results have the keys of what moves: then the cost is what these keys feel, else what all do
    said: str = ""
    renewed_by: str = ""  # the stream of which a row makes the state of its key anew (engine/hoard.py)
    key_bytes: Callable[[Mapping[str, Any]], int] = lambda parameters: SMALL_BYTES  # of a key's state, about

    def app(self, senders: list[str], parameters: Mapping[str, Any]) -> App:
        return self.build(senders, **{**self.parameters, **parameters})

    def slice(self, nth: int, rate: int, sources: int, start_ms: int, feed: Mapping[str, Any]) -> Tables:
        """The rows of second `nth`."""
        settings = {**self.feed, **feed, "rate": rate, "sources": sources, "start_ms": start_ms}
        if self.rows is market_of.market:
            made: Tables = self.rows(SLICE_MS, from_ms=nth * SLICE_MS, **settings)
            return {stream: made[stream] for stream in self.streams}
        count = rate * SLICE_MS // 1000
        found = self.rows(count, first=nth * count, **settings)
        return found if isinstance(found, dict) else {self.streams[0]: found}

    def check(self, parameters: Mapping[str, Any], feed: Mapping[str, Any], file: str) -> None:
        for given, taken, kind in ((parameters, self.build, "parameter"), (feed, self.rows, "feed")):
            known = [
                name for name, each in inspect.signature(taken).parameters.items() if each.kind is each.KEYWORD_ONLY
            ]
            for name in given:
                if name not in known:
                    raise ConfigurationError(
                        f"{file}: {taken.__name__} has no {kind} {name!r}", f"it has {', '.join(known)}"
                    )


def _posts(
    count: int, *, first: int = 0, rate: int = 1000, sources: int = 1, users: int = 200, start_ms: int = 0
) -> pa.Table:
    return tweets_of.tweets(count, first=first, rate=rate, regions=sources, users=users, start_ms=start_ms)


def _frames(count: int, *, first: int = 0, rate: int = 50, sources: int = 5, start_ms: int = 0) -> pa.Table:
    return frames_of.frames(count, first=first, rate=rate, cameras=sources, start_ms=start_ms)


def _observations(
    count: int, *, first: int = 0, rate: int = 1000, sources: int = 1, sensors: int = 40, start_ms: int = 0
) -> pa.Table:
    return observations_of.observations(
        count, first=first, rate=rate, gateways=sources, sensors=sensors, start_ms=start_ms
    )


APPLICATIONS: Mapping[str, Application] = {
    "tm": Application(tm.app, readings_of.readings, ("readings",), ("mov_avg",), said="Traffic Monitoring"),
    "q5": Application(
        nexmark.q5,
        market_of.market,
        ("bids",),
        ("win_count",),
        {"size_ms": 10_000, "slide_ms": 500},
        felt=False,
        said="Nexmark Q5",
    ),
    "q6": Application(
        nexmark.q6,
        market_of.market,
        ("auctions", "bids"),
        ("sales",),
        {"last": 10},
        {"open_every_ms": 20, "auction_ms": 180, "sellers": 10},
        by="groups",
        felt=False,
        said="Nexmark Q6",
    ),
    "q7": Application(
        nexmark.q7, market_of.market, ("bids",), ("win_max",), {"size_ms": 500}, felt=False, said="Nexmark Q7"
    ),
    "q8": Application(
        nexmark.q8,
        market_of.market,
        ("persons", "bids"),
        ("win1_filter", "win2_filter"),
        {"size_ms": 10_000, "slide_ms": 500},
        by="groups",
        said="Nexmark Q8",
    ),
    "toll": Application(
        linear_road.toll,
        positions_of.positions,
        ("positions",),
        ("spd_avg", "car_count"),
        {"size_ms": 10_000, "slide_ms": 500},
        {"cars": 3000, "segments": 10},
        said="Linear Road, tolls",
    ),
    "accident": Application(
        linear_road.accident,
        positions_of.positions,
        ("positions",),
        ("acc_det",),
        {},
        {"cars": 300, "segments": 10, "broken": 0.1},
        said="Linear Road, accidents",
    ),
    "stock": Application(
        stock.stock, messages_of.messages, ("quotes", "trades"), ("exchange",), feed={"symbols": 10_000}, by="groups"
    ),
    "key_count": Application(
        key_count.key_count,
        touches_of.touches,
        ("touches",),
        ("count",),
        {"state_bytes": 4096},
        {"keys": 1024, "access_ratio": 0.25},
        key_bytes=lambda parameters: int(parameters["state_bytes"]),
    ),
    "hoard": Application(
        hoard.hoard,
        hoard.visits,
        ("visits",),
        ("hoard",),
        {"state_bytes": 1 << 20},
        said="keys with large state",
        renewed_by="visits",
        key_bytes=lambda parameters: int(parameters["state_bytes"]),
    ),
    "ring": Application(
        hoard.ring,
        hoard.visits,
        ("visits",),
        ("ring",),
        {"last": 10, "tuple_bytes": 128},
        said="windows by count that keep their tuples",
        renewed_by="visits",
        key_bytes=lambda parameters: int(parameters["last"]) * int(parameters["tuple_bytes"]),
    ),
    "scores": Application(
        scores.scores, scores.texts, ("texts",), ("score",), felt=False, said="texts, scored by a DataFrame operator"
    ),
    "tweets": Application(tweets.tweets, _posts, ("tweets",), ("parse",), felt=False, said="sentiment of tweets"),
    "cameras": Application(
        cameras.cameras,
        _frames,
        ("frames",),
        ("moving",),
        {"dataframe": False},
        felt=False,
        said="objects in frames of street cameras",
    ),
    "sensors": Application(
        sensors.sensors,
        _observations,
        ("observations",),
        ("in_range", "unrepeated"),
        felt=False,
        said="ETL of a building's sensors",
    ),
    "auctions": Application(
        hoard.auctions,
        hoard.offers,
        ("offers",),
        ("join",),
        {"state_bytes": 1 << 20},
        said="the survey's variant of Nexmark Q8",
        renewed_by="offers",
        key_bytes=lambda parameters: int(parameters["state_bytes"]),
    ),
}
