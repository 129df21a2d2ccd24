"""What a router keeps is bounded: logs by what others have committed, results and dead letters by the settings."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from real_sites import OP, OPERATORS, Cluster, until

from peregrine.core.messages import FromSource
from peregrine.core.rows import UNCHAINED, Row, Rows, batch_of
from peregrine.core.topology import Topology
from peregrine.errors import ProtocolError
from peregrine.log.record_log import RecordLog
from peregrine.net.settings import RouterSettings
from peregrine.net.stepper import Stepper
from peregrine.net.store import Store
from peregrine.types import OpId, PlaceId, SiteId, SourceId

CLOUD, EDGE = SiteId("cloud"), SiteId("edge")
SINK, NOBODY = OPERATORS[1].op, OpId("app/nobody")
Start = Callable[..., Cluster]
Keep = Callable[..., Stepper]


def size_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def test_a_directory_stays_small_when_many_times_a_snapshot_flows_through_it(start: Start) -> None:
    cluster = start("cloud", "edge", snapshot_mb=0.25, results_keep_mb=0.25, host_lag_rows=2000)
    device = cluster.device("d", EDGE)
    sizes: list[int] = []
    for seq in range(20_000):
        device.send(OP, f"k{seq % 7}", b"x" * 300, time_ms=seq)
        if seq % 1000 == 0:  # how much waits for a slow host is another matter
            until(lambda seq=seq: cluster.clients[CLOUD].status().commits.get("cloud", 0) >= seq - 3000, 30)  # type: ignore[misc]
            sizes += [size_bytes(cluster.directory / site) for site in cluster.addresses]
    assert device.flush(20)
    until(lambda: cluster.clients[CLOUD].status().commits == {"cloud": 20_000}, 30)
    sizes += [size_bytes(cluster.directory / site) for site in cluster.addresses]
    # The rows alone are 6 MB: in each journal, in the edge's out-log, in the cloud's host log.
    assert max(sizes) < 4 << 20
    with pytest.raises(ProtocolError, match=r"position 0 of cloud .*begins at"):
        cluster.clients[CLOUD].read_log(PlaceId(CLOUD), 0)


def test_a_reader_that_asks_for_results_that_are_gone_is_told_where_they_begin(start: Start) -> None:
    cluster = start("cloud", snapshot_mb=0.1, results_keep_rows=500)
    device = cluster.device("d", CLOUD)
    for seq in range(4000):
        device.send(OP, "k", b"x" * 300, time_ms=seq)
    client = cluster.clients[CLOUD]
    until(lambda: client.status().results_end == 4000)
    until(lambda: not list((cluster.directory / "cloud" / "results").glob(f"{0:020d}.*")))
    with pytest.raises(ProtocolError, match="position 0 of results was asked for, which begins at") as caught:
        client.read_results(0)
    begin = int(caught.value.what.split()[-1])
    assert 0 < begin <= 3500
    table, end = client.read_results(begin)
    assert end == 4000 and table.column("position").to_pylist() == list(range(begin, end))


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Keep]:
    opened: list[Stepper] = []

    def open_with(**settings: object) -> Stepper:
        given = RouterSettings.of(
            CLOUD,
            Topology.tree(CLOUD),
            OPERATORS,
            tmp_path / "router",
            tmp_path / "token",
            tick_ms=3_600_000,
            **settings,
        )
        opened.append(Stepper(given, Store(given), lambda error: None))
        opened[-1].start()
        return opened[-1]

    yield open_with
    for stepper in opened:
        stepper.stop()
        stepper.store.close()


def land(stepper: Stepper, op: OpId, count: int) -> None:
    """`count` batches of ten rows, about 4 KB each."""
    for nth in range(count):
        rows = [Row("k", SourceId("s"), 10 * nth + i, UNCHAINED, 0, 0, b"x" * 350) for i in range(10)]
        stepper.offer(FromSource(SourceId("s"), ((10 * nth + 9, Rows(op, batch_of(rows))),)))


def test_without_a_limit_everything_stays(keep: Keep) -> None:
    stepper = keep(snapshot_mb=0.1)
    land(stepper, SINK, 100)
    stepper.ask(stepper.snapshot)
    assert stepper.store.results.first == 0 and stepper.store.results.end == 1000


def by_rows(log: RecordLog) -> bool:
    return 0 < log.first <= log.end - (300 if log.directory.name == "results" else 30)


def by_size(log: RecordLog) -> bool:
    return log.first > 0 and 64 << 10 < log.size_bytes <= 200 << 10


@pytest.mark.parametrize("op", [SINK, NOBODY])
@pytest.mark.parametrize(("limit", "is_bounded"), [("rows", by_rows), ("mb", by_size)])
def test_results_and_dead_letters_are_cut_at_a_snapshot(
    keep: Keep, op: OpId, limit: str, is_bounded: Callable[[RecordLog], bool]
) -> None:
    keeps = {"rows": 300 if op == SINK else 30, "mb": 200 / 1024}
    stepper = keep(snapshot_mb=0.25, **{f"results_keep_{limit}": keeps[limit]})
    log = stepper.store.results if op == SINK else stepper.store.dead
    land(stepper, op, 150)
    stepper.ask(stepper.snapshot)
    assert log.end == (1500 if op == SINK else 150)  # 600 KB
    assert is_bounded(log)
    assert log.read(log.first)[0][0] == log.first
