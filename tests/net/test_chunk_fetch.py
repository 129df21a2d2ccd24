"""Large state between real routers: chunks go hop by hop, and a migration goes on when they are here."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from real_sites import GROUPS, OP, SINK, Cluster, HostLoop, Part, fill, until

from peregrine.core.big_map import BigMap
from peregrine.core.chunks import chunk_name
from peregrine.core.host import Emission, apply
from peregrine.core.keyspace import KeySet
from peregrine.core.large import Sizes, Spill
from peregrine.core.messages import Begin, ChunksHere, Fetch
from peregrine.core.migrate import Migration
from peregrine.core.operator import Marks, Out
from peregrine.core.rows import Row
from peregrine.core.slices import entries_of
from peregrine.core.state import canonical, decode
from peregrine.errors import MissingChunk, PeregrineError, Unreachable
from peregrine.net.chunk_collector import referred_to, write_down
from peregrine.net.chunk_fetcher import ChunkFetcher, ChunkSource, Hop
from peregrine.net.chunk_files import ChunkFiles
from peregrine.net.protocol import Neighbour
from peregrine.types import MigrationId, OpId, PlaceId, SiteId

CLOUD, EDGE, FAR = SiteId("cloud"), SiteId("edge"), SiteId("far")
SIZES = Sizes(inline_bytes=1000, chunk_bytes=4000, bucket_bytes=4000)
Start = Callable[..., Cluster]


@dataclass(frozen=True)
class Archive:
    """Keeps every payload of a key, in a map and at length."""

    filler: int = 400

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        value = BigMap({f"old{i}": key * 50 for i in range(self.filler)}) if value is None else value
        value[f"row{row.seq}"] = row.payload
        return value, [Out(SINK, key, row.source, row.seq, row.time_ms, b"%d" % len(value))]

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        return value, []

    def open_ends(self, value: Any) -> list[int]:
        return []


class SpillingHost(HostLoop):
    """Keeps large values in the chunk store of its site."""

    operator = Archive()
    chunks: ChunkFiles

    def apply(self, op: OpId, group: int, before: bytes, slices: list[Part]) -> tuple[list[Emission], bytes]:
        spill = Spill(self.chunks, SIZES)
        applied = apply(self.operator, before, entries_of(slices), spill=spill)
        write_down(self.chunks, self.place, op, group, slices[0][0], spill)
        return applied


@pytest.fixture
def begin(start: Start) -> Iterator[Start]:
    def make(*sites: str, **more: Any) -> Cluster:
        cluster = start(*sites, hosts=False, **more)
        for site in cluster.topology.sites:
            host = type("Host", (SpillingHost,), {"chunks": store(cluster, site)})
            cluster.hosts[PlaceId(site)] = host(PlaceId(site), lambda site=site: cluster.clients[site])
        return cluster

    return make


def store(cluster: Cluster, site: SiteId) -> ChunkFiles:
    return ChunkFiles(cluster.directory / site / "chunks", durable=False)


def send(cluster: Cluster, device: Any, keys: Sequence[str], first: int = 0) -> None:
    fill(device, keys, first)
    assert device.flush(10)
    until(lambda: cluster.clients[CLOUD].status().results_end == first + len(keys))


def migration(mechanism: str = "live") -> Migration:
    keys = KeySet.of_keys(GROUPS, ["k1"])
    anchor = EDGE if mechanism == "live" else CLOUD
    return Migration(MigrationId("m"), OP, keys, PlaceId(CLOUD), PlaceId(EDGE), anchor, mechanism, CLOUD, CLOUD)


def ended(cluster: Cluster) -> bool:
    for host in cluster.hosts.values():
        assert host.failed is None
    statuses = [client.status() for client in cluster.clients.values()]
    return bool(cluster.hosts[PlaceId(EDGE)].states) and not any(each.leftovers for each in statuses)


def values(cluster: Cluster, site: SiteId) -> dict[str, Any]:
    states = cluster.hosts[PlaceId(site)].states.values()
    found = [canonical(state, store(cluster, site)) for state in states]
    return {key: dict(content[0]) for each in found for key, content in each.items()}


def check(cluster: Cluster, rows: int) -> None:
    """Everything that was sent is in the value, at the new place."""
    until(lambda: ended(cluster))
    assert list(values(cluster, EDGE)) == ["k1"] and list(values(cluster, CLOUD)) == ["k2"]
    (value,) = values(cluster, EDGE).values()
    sent = [seq for seq in range(rows) if seq % 2 == 1]
    assert {name for name in value if name.startswith("row")} == {f"row{seq}" for seq in sent}
    table, _ = cluster.clients[CLOUD].read_results(0)
    mine = [row["payload"] for row in table.to_pylist() if row["key"] == "k1"]
    assert mine == [b"%d" % (400 + i) for i in range(1, len(sent) + 1)]


KEYS = ["k2", "k1"] * 20


def test_the_value_of_a_key_is_fetched_and_nothing_else_changes(begin: Start) -> None:
    cluster = begin("cloud", "edge", latency_ms=5.0)
    device = cluster.device("d", EDGE)
    send(cluster, device, KEYS)
    journal_bytes = cluster.clients[EDGE].status().journal_bytes
    cluster.clients[EDGE].offer(Begin(migration()))
    until(lambda: ended(cluster))
    send(cluster, device, KEYS, len(KEYS))
    check(cluster, 2 * len(KEYS))
    grown = cluster.clients[EDGE].status().journal_bytes - journal_bytes
    size = sum(path.stat().st_size for path in store(cluster, EDGE).directory.glob("??/*"))
    assert size > 40_000 > grown  # the chunks have not gone through the journal


def test_rows_flow_while_chunks_are_on_their_way_and_a_router_that_dies_meanwhile_goes_on(begin: Start) -> None:
    cluster = begin("cloud", "edge", bandwidth_mbps=0.5)  # the chunks take more than a second
    device = cluster.device("d", EDGE)
    send(cluster, device, KEYS)
    cluster.clients[EDGE].offer(Begin(migration()))
    until(lambda: any("chunks" in left for left in cluster.clients[EDGE].status().leftovers))
    send(cluster, device, KEYS[:4], len(KEYS))
    assert not cluster.hosts[PlaceId(EDGE)].states
    cluster.kill(EDGE)
    cluster.restart(EDGE)
    assert any("chunks" in left for left in cluster.clients[EDGE].status().leftovers)
    cluster.kill(CLOUD)
    cluster.restart(CLOUD)
    check(cluster, len(KEYS) + 4)


def test_the_collector_removes_what_has_moved_and_nothing_that_moves(begin: Start) -> None:
    cluster = begin("cloud", "edge", chunk_grace_s=0.5, chunk_collect_s=0.05)
    device = cluster.device("d", EDGE)
    send(cluster, device, KEYS)
    cluster.clients[CLOUD].offer(Begin(migration("pause")))
    send(cluster, device, KEYS, len(KEYS))
    check(cluster, 2 * len(KEYS))
    send(cluster, device, ["k2", "k1", "k2"], 2 * len(KEYS))  # the next batches write down what they still need
    chunks = store(cluster, CLOUD)
    needed = referred_to(chunks)
    assert needed and not any("k1" in state for state in map(decode, cluster.hosts[PlaceId(CLOUD)].states.values()))
    until(lambda: {bytes.fromhex(path.name) for path in chunks.directory.glob("??/*")} == needed)
    assert values(cluster, EDGE) and values(cluster, CLOUD)


def test_chunks_of_a_far_site_come_by_way_of_the_routers_between(start: Start) -> None:
    cluster = start("cloud", "edge", "far", hosts=False)
    chunks = [b"%d" % i * 1000 for i in range(20)]
    names = [store(cluster, FAR).put(chunk) for chunk in chunks]
    assert list(cluster.clients[EDGE].chunks(FAR, names)) == chunks
    assert not store(cluster, EDGE).has(names[0]) and not store(cluster, CLOUD).has(names[0])


def test_a_chunk_that_a_site_does_not_have_is_told_as_what_it_is(start: Start) -> None:
    cluster = start("cloud", "edge", "far", hosts=False)
    with pytest.raises(MissingChunk, match=chunk_name(b"x").hex()):
        list(cluster.clients[EDGE].chunks(FAR, [chunk_name(b"x")]))
    for origin, name in (("nowhere", chunk_name(b"x")), (FAR, b"../../token")):
        with pytest.raises(PeregrineError):
            list(cluster.clients[EDGE].chunks(SiteId(origin), [name]))


class BreaksOnce(ChunkSource):
    """Gives three chunks of another directory; then the link breaks, and comes back."""

    def __init__(self, near: ChunkFiles, far: ChunkFiles) -> None:
        super().__init__(EDGE, near, lambda site, via: Hop(CLOUD, Neighbour("")), "")
        self.far = far
        self.asked: list[int] = []

    def read(self, origin: SiteId, names: Sequence[bytes], via: SiteId | None = None) -> Iterator[bytes]:
        self.asked.append(len(names))
        for i, name in enumerate(names):
            if i == 3 and len(self.asked) == 1:
                raise Unreachable("the link is broken", "wait")
            yield self.far.get(name)


def test_a_fetch_that_breaks_goes_on_from_what_has_come(tmp_path: Path) -> None:
    near, far = ChunkFiles(tmp_path / "near"), ChunkFiles(tmp_path / "far")
    names = [far.put(b"%d" % i * 10) for i in range(8)]
    near.put(b"0" * 10)
    wanted = [Fetch(5, tuple(names), CLOUD)]
    told: list[ChunksHere] = []

    def offer(here: ChunksHere) -> None:
        told.append(here)
        wanted.clear()

    source = BreaksOnce(near, far)
    fetcher = ChunkFetcher(source, lambda: list(wanted), offer)
    fetcher.start()
    until(lambda: bool(told))
    fetcher.stop()
    assert source.asked == [7, 4] and told == [ChunksHere(5, 70)]
    assert all(map(near.has, names))


def test_fetches_from_one_site_share_a_round_trip_and_each_is_told_when_it_is_whole(tmp_path: Path) -> None:
    near, far = ChunkFiles(tmp_path / "near"), ChunkFiles(tmp_path / "far")
    names = [far.put(b"%d" % i * 10) for i in range(10)]
    near.put(b"9" * 10)
    # The second wants what the first has asked for; the third needs nothing; the fourth comes behind them.
    shares = names[:3], names[2:5], names[9:], names[5:9]
    wanted = [Fetch(number, tuple(share), CLOUD) for number, share in enumerate(shares)]
    told: list[ChunksHere] = []

    def offer(here: ChunksHere) -> None:
        assert all(map(near.has, shares[here.fetch]))
        told.append(here)
        if len(told) == len(shares):
            wanted.clear()

    source = BreaksOnce(near, far)
    source.asked.append(0)  # it does not break
    fetcher = ChunkFetcher(source, lambda: list(wanted), offer)
    fetcher.start()
    until(lambda: not wanted)
    fetcher.stop()
    assert source.asked == [0, 9]
    assert told == [ChunksHere(0, 30), ChunksHere(1, 20), ChunksHere(2, 0), ChunksHere(3, 40)]
