from itertools import islice

from peregrine.app.compile import compile_app
from peregrine.bench.engine.applications import APPLICATIONS
from peregrine.bench.engine.definition import Setting
from peregrine.bench.engine.flow import Feed

TM = APPLICATIONS["tm"]


def test_rows_are_due_at_a_steady_rate_and_their_event_time_is_that_of_sending() -> None:
    records = list(islice(Feed(TM, Setting(rows_per_s=10)).records(5000), 25))
    assert [due for due, _ in records] == [n * 100_000 for n in range(25)]
    assert [record["at_ms"] for _, (_, _, record) in records] == [5000 + n * 100 for n in range(25)]


def test_preloaded_rows_are_due_at_once_and_older() -> None:
    records = list(islice(Feed(TM, Setting(rows_per_s=10, preload_rows=15)).records(5000), 17))
    assert [due for due, _ in records] == [0] * 16 + [100_000]
    assert [record["at_ms"] for _, (_, _, record) in records][:16:15] == [3500, 5000]


def test_two_streams_of_a_device_are_mixed_by_when_they_are_sent() -> None:
    records = list(islice(Feed(APPLICATIONS["q6"], Setting(rows_per_s=100)).records(0), 200))
    assert {source for _, (_, source, _) in records} == {"auctions", "bids"}
    assert [due for due, _ in records] == sorted(due for due, _ in records)


def test_there_is_a_device_at_each_edge_or_as_many_as_are_asked_for() -> None:
    assert Feed(TM, Setting(edges=3)).devices == ["gate0", "gate1", "gate2"]
    assert Feed(TM, Setting(edges=3, devices=1)).devices == ["gate0"]


def test_the_keys_of_the_first_seconds_are_known_beforehand() -> None:
    feed = Feed(TM, Setting(rows_per_s=100, edges=2, feed={"vehicles": 4}))
    seen = set(feed.first(compile_app(TM.app(feed.devices, {})), 1.0))
    assert seen == {(f"gate{n % 2}", "tm_app/mov_avg", f"car{n}") for n in range(4)}
