"""Generators of Nexmark, Linear Road, the stock exchange and key count: seeds, stretches, skew."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from peregrine.errors import ConfigurationError
from peregrine.workloads.generate import key_count, linear_road, nexmark, stock

Tables = dict[str, pa.Table]
Make = Callable[..., Tables]

DDLS = {
    "persons": nexmark.PERSONS,
    "auctions": nexmark.AUCTIONS,
    "bids": nexmark.BIDS,
    "positions": linear_road.POSITIONS,
    "quotes": stock.QUOTES,
    "trades": stock.TRADES,
    "touches": key_count.TOUCHES,
}
ARROW = {"bigint": pa.int64(), "string": pa.string()}


def market(first: int, end: int, seed: int = 3, **parameters: object) -> Tables:
    """Stretches of a market are by time: here the number of a row is its millisecond."""
    settings = {"rate": 700, "open_every_ms": 40, "auction_ms": 300, "person_every_ms": 30} | parameters
    return nexmark.market(end - first, seed, from_ms=first, **settings)


def positions(first: int, end: int, seed: int = 3, **parameters: object) -> Tables:
    settings = {"cars": 90, "rate": 300} | parameters
    return {"positions": linear_road.positions(end - first, seed, first=first, **settings)}


def messages(first: int, end: int, seed: int = 3, **parameters: object) -> Tables:
    return stock.messages(end - first, seed, first=first, **({"symbols": 50, "rate": 7000} | parameters))


def touches(first: int, end: int, seed: int = 3, **parameters: object) -> Tables:
    settings = {"keys": 40, "access_ratio": 0.25, "period_ms": 700} | parameters
    return {"touches": key_count.touches(end - first, seed, first=first, **settings)}


ALL = pytest.mark.parametrize("make", [market, positions, messages, touches])


@ALL
def test_the_same_seed_gives_the_same_rows_and_another_seed_others(make: Make) -> None:
    assert make(0, 2000) == make(0, 2000)
    assert make(0, 2000) != make(0, 2000, seed=4)


@ALL
@pytest.mark.parametrize("disorder_ms", [0, 50])
def test_stretches_make_up_the_whole(make: Make, disorder_ms: int) -> None:
    cuts = [0, 1, 37, 950, 1999, 2000]
    parts = [make(first, end, disorder_ms=disorder_ms, sources=3) for first, end in pairwise(cuts)]
    for stream, whole in make(0, 2000, disorder_ms=disorder_ms, sources=3).items():
        assert pa.concat_tables([part[stream] for part in parts]).equals(whole)


@ALL
def test_columns_are_those_of_the_schema_and_then_who_sends_when(make: Make) -> None:
    for stream, table in make(0, 500).items():
        told = [(name, ARROW[kind]) for name, kind in (column.split() for column in DDLS[stream].split(", "))]
        assert [(field.name, field.type) for field in table.schema] == [
            *told,
            ("source", pa.string()),
            ("sent_us", pa.int64()),
        ]
        assert all(column.null_count == 0 for column in table.columns)


@ALL
def test_event_times_never_go_back_and_begin_at_the_start(make: Make) -> None:
    for table in make(0, 2000, start_ms=5000).values():
        times = table["at_ms"].to_numpy()
        assert (np.diff(times) >= 0).all()
        assert times[0] >= 5000
        assert np.array_equal(times, 5000 + table["sent_us"].to_numpy() // 1000)


@ALL
def test_disorder_is_bounded_and_there(make: Make) -> None:
    for stream, table in make(0, 2000, disorder_ms=80).items():
        times = table["at_ms"].to_numpy()
        behind = np.maximum.accumulate(times) - times
        assert 0 < behind.max() <= 80, stream
        assert times.min() >= 0


@ALL
def test_every_source_sends(make: Make) -> None:
    for table in make(0, 2000, sources=4).values():
        assert len(table["source"].unique()) == 4


@pytest.mark.parametrize(("make", "key"), [(positions, "segment"), (messages, "symbol"), (touches, "key")])
def test_all_rows_of_a_key_come_from_one_source(make: Make, key: str) -> None:
    rows = pa.concat_tables([table.select([key, "source"]) for table in make(0, 3000, sources=3).values()])
    of_keys = rows.group_by(key).aggregate([("source", "count_distinct")])
    assert of_keys["source_count_distinct"].unique().to_pylist() == [1]


def test_the_hot_item_gets_a_hundred_times_the_bids_of_a_cold_one() -> None:
    bids = nexmark.market(40_000, seed=1)["bids"]
    counts = np.bincount(bids["auction"].to_numpy())
    assert len(bids) == 60_000 and len(counts) == 10
    assert counts[0] / counts[1:].mean() == pytest.approx(nexmark.HOT_RATIO, rel=0.05)
    assert counts[1:].max() < 1.3 * counts[1:].min()


def test_without_a_hot_item_bids_are_spread_evenly() -> None:
    counts = np.bincount(nexmark.market(40_000, seed=1, hot_ratio=1)["bids"]["auction"].to_numpy())
    assert counts.max() < 1.1 * counts.min()


def test_bids_go_to_the_newest_auction_of_an_item_by_people_who_have_registered() -> None:
    tables = market(0, 4000, items=5, hot_ratio=2, people=6)
    bids = tables["bids"].to_pandas()
    newest = bids["at_ms"] // 40
    assert (bids["auction"] <= newest).all() and (bids["auction"] > newest - 5).all()
    registered = bids["at_ms"] // 30
    assert (bids["bidder"] <= registered).all() and (bids["bidder"] > registered - 6).all()
    opened = tables["auctions"].to_pandas().set_index("auction")
    assert (bids["at_ms"] >= opened["at_ms"].loc[bids["auction"]].to_numpy()).all()
    late = bids["at_ms"] >= opened["expires_ms"].loc[bids["auction"]].to_numpy()
    assert not late.any()  # five auctions, one each 40 ms: an auction of 300 ms outlives its turn
    assert set(opened["seller"]) == set(range(10))


@pytest.mark.parametrize(("make", "key"), [(messages, "symbol"), (touches, "key")])
@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0])
def test_keys_are_as_skewed_as_asked(make: Make, key: str, skew: float) -> None:
    parameters = {"access_ratio": 1.0} if make is touches else {}
    rows = pa.concat_tables([t.select([key]) for t in make(0, 200_000, skew=skew, **parameters).values()])
    counts = np.sort(pc.value_counts(rows[key].combine_chunks()).field("counts").to_numpy())[::-1]
    slope = -np.polyfit(np.log(np.arange(1, len(counts) + 1)), np.log(counts), 1)[0]
    assert slope == pytest.approx(skew, abs=0.05)


def test_millions_of_symbols_are_possible() -> None:
    drawn = stock.messages(100_000, symbols=5_000_000, skew=0.15)
    assert len(pa.concat_tables([t.select(["symbol"]) for t in drawn.values()])["symbol"].unique()) > 90_000


def test_the_access_ratio_says_which_share_of_keys_is_touched_in_a_period() -> None:
    rows = key_count.touches(30_000, keys=1000, rate=1000, access_ratio=0.02, period_ms=10_000).to_pandas()
    touched = [set(keys) for _, keys in rows.groupby(rows["at_ms"] // 10_000)["key"]]
    assert [len(keys) for keys in touched] == [20, 20, 20]
    assert len(set.union(*touched)) == 60


def test_cars_drive_as_fast_as_they_tell_and_stand_where_they_broke_down() -> None:
    reports = linear_road.positions(60 * 200, seed=2, cars=60, rate=60, segments=20, broken=0.3).to_pandas()
    road_feet = 20 * linear_road.SEGMENT_FEET
    stood = 0
    for _, car in reports.groupby("car"):
        assert (np.diff(car["at_ms"]) == 1000).all()
        feet = np.diff(car["position"]) % road_feet
        told = car["speed"].to_numpy()[1:] * linear_road.SEGMENT_FEET / 3600
        assert (np.abs(feet - told) <= 1).all()
        stood += (told == 0).sum()
    assert stood > 100
    assert (reports["segment"] == reports["position"] // linear_road.SEGMENT_FEET).all()
    assert reports["segment"].between(0, 19).all()


def test_the_jam_is_where_most_cars_are_and_where_they_are_slow() -> None:
    reports = linear_road.positions(50_000, cars=50_000, jammed=0.2).to_pandas()
    crowd = reports.groupby("segment")["car"].nunique()
    assert len(crowd) == linear_road.SEGMENTS
    assert set(crowd.nlargest(3).index) == {50, 51, 52}
    speeds = reports.groupby("segment")["speed"].mean()
    assert speeds[50] < 40 < speeds[10]


def test_a_rate_that_cannot_be_paced_is_refused() -> None:
    for rate in (0, 1_000_001):
        with pytest.raises(ConfigurationError, match="rate of"):
            key_count.touches(1, rate=rate)
