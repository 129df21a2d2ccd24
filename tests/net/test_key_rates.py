"""The rates of keys are read from the end of the logs of real routers, whatever of these was cut off."""

import time
from collections.abc import Callable

from real_sites import OP, Cluster, until

from peregrine.control.metering import rows_of
from peregrine.core.keyspace import KeySet
from peregrine.core.messages import Begin
from peregrine.core.migrate import Migration
from peregrine.types import MigrationId, OpId, PlaceId, SiteId

CLOUD, EDGE = SiteId("cloud"), SiteId("edge")
AT_CLOUD, AT_EDGE = PlaceId("cloud"), PlaceId("edge")
Start = Callable[..., Cluster]


def now_ms() -> float:
    return time.time() * 1000


def test_a_key_with_more_rows_has_the_higher_rate(start: Start) -> None:
    cluster = start("cloud", "edge")
    device = cluster.device("d", EDGE)
    for nth in range(3_000):
        device.send(OP, "hot" if nth % 3 else "cold", b"x", time_ms=nth)
    assert device.flush(20)
    until(lambda: cluster.clients[CLOUD].status().ends == {"cloud": 3_000}, 20)
    found = rows_of(cluster.clients, OP, [AT_CLOUD, AT_EDGE], now_ms())
    assert set(found.rows_per_s) == {"hot", "cold"}
    assert found.rows_per_s["hot"] == 2 * found.rows_per_s["cold"]
    assert found.last_row_ms["hot"] <= now_ms()
    assert rows_of(cluster.clients, OpId("app/other"), [AT_CLOUD], now_ms()).rows_per_s == {}
    long_ago = rows_of(cluster.clients, OP, [AT_CLOUD], now_ms() + 10 * 60_000)
    assert long_ago.rows_per_s == {}, "nobody has sent anything for ten minutes"


def test_what_is_left_of_a_log_that_was_cut_off_is_read(start: Start) -> None:
    cluster = start("cloud", snapshot_mb=0.25, results_keep_mb=0.25, host_lag_rows=2000)
    device = cluster.device("d", CLOUD)
    for nth in range(6_000):
        device.send(OP, f"k{nth % 3}", b"x" * 300, time_ms=nth)
    assert device.flush(20)
    until(lambda: cluster.clients[CLOUD].status().commits == {"cloud": 6_000}, 30)
    assert not list((cluster.directory / "cloud" / "hosts" / "cloud").glob(f"{0:020d}.*"))
    assert set(rows_of(cluster.clients, OP, [AT_CLOUD], now_ms()).rows_per_s) <= {"k0", "k1", "k2"}
    device.send(OP, "last", b"x", time_ms=6_000)
    assert device.flush(20)
    assert "last" in rows_of(cluster.clients, OP, [AT_CLOUD], now_ms()).rows_per_s


def test_rows_that_a_migration_copies_are_not_counted_twice(start: Start) -> None:
    cluster = start("cloud", "edge", hosts=False)
    keys = KeySet.of_keys(4, ["k"])
    migration = Migration(MigrationId("m.0.0"), OP, keys, AT_CLOUD, AT_EDGE, EDGE, "live", CLOUD, CLOUD)
    cluster.clients[EDGE].offer(Begin(migration))
    device = cluster.device("d", EDGE)
    for nth in range(10):
        device.send(OP, "k", b"x", time_ms=nth)
    assert device.flush(20)
    until(lambda: cluster.clients[CLOUD].status().ends["cloud"] > 10, 20)
    assert rows_of(cluster.clients, OP, [AT_EDGE], now_ms()).rows_per_s == {}
    assert set(rows_of(cluster.clients, OP, [AT_CLOUD], now_ms()).rows_per_s) == {"k"}
