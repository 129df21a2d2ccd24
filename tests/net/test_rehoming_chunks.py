"""Large state is on its way, chunk by chunk, while a site that the chunks pass changes its parent.

The tree, its devices and its manager are those of test_rehoming.py. Here a key's value is in chunks, at the place
that has it; the outputs are those of the ledger.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from real_sites import GROUPS, LEDGER, OP, OPERATORS, Cluster, HostLoop, Part, payload, until
from test_rehoming import CLOUD, EDGE, KEYS, PARENTS, REGION1, REGION2, SHOP, Tree, managed, rehomes

from peregrine import proof
from peregrine.control import questions
from peregrine.core.big_map import BigMap
from peregrine.core.coordinator import Status
from peregrine.core.host import Emission, apply
from peregrine.core.keyspace import KeySet
from peregrine.core.large import Sizes, Spill
from peregrine.core.operator import Marks, Out
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.rows import UNCHAINED, Row
from peregrine.core.slices import entries_of
from peregrine.core.state import canonical
from peregrine.net.chunk_collector import write_down
from peregrine.net.chunk_files import ChunkFiles
from peregrine.types import OpId, PlaceId, SiteId, SourceId, site_of

SIZES = Sizes(inline_bytes=1000, chunk_bytes=4000, bucket_bytes=4000)
LARGE = ("s0", "s1", "k1")  # a map, of which a batch loads what it touches
AT_LENGTH = ("s2",)  # one value, which is loaded and written whole
ENTRIES = 4000  # more than what the connections on the way have in their buffers
Start = Callable[..., Cluster]


@dataclass(frozen=True)
class Hoard:
    """The ledger, and some keys have so much beside it that they are in chunks. All rows of a key are in there."""

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        if value is None:
            old = {f"old{i}": f"{key}-{i}" * 10 for i in range(ENTRIES if key in LARGE + AT_LENGTH else 0)}
            value = {"ledger": {}, "hoard": BigMap(old) if key in LARGE else old}
        value["ledger"], outs = LEDGER.on_row(key, value["ledger"], row, marks)
        value["hoard"][f"row{row.seq}"] = row.payload
        return value, outs

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        return value, []

    def open_ends(self, value: Any) -> list[int]:
        return []


class SpillingHost(HostLoop):
    """Keeps large values in the chunk store of its site."""

    chunks: ChunkFiles

    def apply(self, op: OpId, group: int, before: bytes, slices: list[Part]) -> tuple[list[Emission], bytes]:
        spill = Spill(self.chunks, SIZES)
        applied = apply(Hoard(), before, entries_of(slices), spill=spill)
        write_down(self.chunks, self.place, op, group, slices[0][0], spill)
        return applied


@pytest.fixture
def tree(start: Start) -> Iterator[Tree]:
    """A large value is on its way for seconds, and a site can change its parent within one."""
    sites = (CLOUD, REGION1, REGION2, EDGE, SHOP)
    cluster = start(
        *sites, parents=PARENTS, hosts=False, latency_ms=30.0, bandwidth_mbps=1.0, snapshot_mb=0.05, keep_journal=True
    )
    for site in cluster.topology.sites:
        host = type("Host", (SpillingHost,), {"chunks": store(cluster, site)})
        cluster.hosts[PlaceId(site)] = host(PlaceId(site), lambda site=site: cluster.clients[site])
    with managed(cluster) as made:
        yield made


def store(cluster: Cluster, site: SiteId) -> ChunkFiles:
    return ChunkFiles(cluster.directory / site / "chunks", durable=False)


def begin(tree: Tree, source: SiteId, target: SiteId, *names: str) -> str:
    """Returns the plan's name when some of the chunks have come, and not all."""
    settle_rows(tree)
    before = kept(tree.cluster, target)
    plan = f"{source}-to-{target}"
    tree.driver.submit(Plan(plan, ((Move(OP, KeySet.of_keys(GROUPS, names), PlaceId(source), PlaceId(target)),),)))
    until(lambda: kept(tree.cluster, target) > before)
    assert waits_for_chunks(tree, target)
    return plan


def kept(cluster: Cluster, site: SiteId) -> int:
    return sum(1 for _ in store(cluster, site).directory.glob("??/*"))


def moved(tree: Tree, plan: str) -> bool:
    """Asked while rows flow."""
    tree.flow(1)
    return plan not in tree.driver.ask(questions.running)


def settle_rows(tree: Tree) -> None:
    """All that was sent has come out: the links are free for what is to move."""
    for device in tree.devices.values():
        assert device.flush(30)
    sent = sum(device.taken for device in tree.devices.values())
    until(lambda: tree.cluster.clients[CLOUD].status().results_end >= sent, 30)


def waits_for_chunks(tree: Tree, site: SiteId) -> bool:
    return any("waits for its chunks" in left for left in tree.cluster.clients[site].status().leftovers)


def has_arrived(tree: Tree) -> bool:
    """Is the site settled below its new parent, whatever else there is to do?"""
    return tree.parent() == REGION2 and not tree.driver.ask(rehomes)


def values(cluster: Cluster) -> dict[str, tuple[SiteId, Any]]:
    """Each key: where it is and its value. Loading it finds that no chunk of it is missing."""
    found: dict[str, tuple[SiteId, Any]] = {}
    for place, host in cluster.hosts.items():
        for state in host.states.values():
            for key, content in canonical(state, store(cluster, site_of(place))).items():
                assert key not in found, f"{key} is at {place} and at {found[key][0]}"
                found[key] = site_of(place), content[0]
    return found


def should_be() -> dict[str, Any]:
    """The values of all keys, as one host would have them after all rows."""
    sent = [
        Row(key, SourceId(source), seq, UNCHAINED, seq, 0, payload(key, seq))
        for source, names in KEYS.items()
        for seq, key in enumerate(names)
    ]
    _, states = proof.expected({spec.op: spec for spec in OPERATORS}, {OP: Hoard()}, {OP: sent})
    return {key: value for (_, key), value in states.items()}


def check(tree: Tree, plan: str, **at: SiteId) -> None:
    """Nothing is lost, repeated or out of order; every value is whole, and where it is to be."""
    assert tree.driver.wait(plan).outcome is Status.DONE
    tree.proves()
    found = values(tree.cluster)
    assert {key: value for key, (_, value) in found.items()} == should_be()
    assert {key: found[key][0] for key in at} == at
    for site in (CLOUD, SHOP, REGION1):  # nobody keeps chunks for somebody who has taken them
        assert not waits_for_chunks(tree, site)


@pytest.mark.parametrize(
    ("source", "target", "names", "last"),
    [
        (CLOUD, SHOP, ("s0", "s2"), SHOP),
        (SHOP, REGION1, ("s1",), REGION2),  # its device is below the new parent, so it follows, once more in chunks
    ],
    ids=["down", "up"],
)
def test_a_site_changes_its_parent_while_large_state_goes_by_it(
    tree: Tree, source: SiteId, target: SiteId, names: tuple[str, ...], last: SiteId
) -> None:
    tree.flow(300)
    plan = begin(tree, source, target, *names)
    tree.moves(REGION1, REGION2, 1)
    until(lambda: tree.is_on_its_way(REGION2), 30)
    assert waits_for_chunks(tree, target), "the site was to leave in the middle of it"
    tree.settle()
    assert tree.parent() == REGION2
    check(tree, plan, k1=REGION2, **dict.fromkeys(names, last))


@pytest.mark.parametrize(
    ("source", "target", "names"), [(CLOUD, SHOP, ("s0", "s2")), (SHOP, CLOUD, ("s1",))], ids=["down", "up"]
)
def test_large_state_that_has_come_half_the_way_goes_on_by_the_new_parent(
    tree: Tree, source: SiteId, target: SiteId, names: tuple[str, ...]
) -> None:
    """One end of the way is away until the site has arrived, and from then on the old parent: there is one way left."""
    tree.flow(300)
    plan = begin(tree, source, target, *names)
    tree.cluster.kill(SHOP)
    tree.moves(REGION1, REGION2, 1)
    until(lambda: has_arrived(tree), 30)
    tree.flow(100)
    tree.cluster.restart(SHOP)
    tree.cluster.kill(REGION1)
    assert waits_for_chunks(tree, target)
    until(lambda: moved(tree, plan), 30)
    tree.cluster.restart(REGION1)
    tree.settle()
    check(tree, plan, k1=REGION2, **dict.fromkeys(names, target))


def test_large_state_moves_into_a_site_whose_parent_changes_right_after(tree: Tree) -> None:
    tree.flow(300)
    plan = begin(tree, CLOUD, EDGE, "s0", "s2")
    until(lambda: moved(tree, plan), 30)
    tree.moves(REGION1, REGION2, 1)
    tree.settle()
    assert tree.parent() == REGION2
    check(tree, plan, s0=EDGE, s2=EDGE, k1=REGION2)
