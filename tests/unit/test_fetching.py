"""State that is in chunks: it waits where it goes, and its chunks stay where it came from until they are taken."""

from dataclasses import replace
from typing import Any

import pytest

from harness import AT_CLOUD, AT_EDGE1, CLOUD, EDGE1, OP, REGION, SINK, Batch, Net, keys, migration
from peregrine.core.chunks import MemoryChunks
from peregrine.core.host import apply, by_group
from peregrine.core.large import Sizes, Spill
from peregrine.core.messages import ChunksHere, Committed, Effect, Fetch, FromHost, KeepReplicas, StopReplicas
from peregrine.core.migrate import Migration
from peregrine.core.replication import StateMoved
from peregrine.core.router import Router
from peregrine.core.rows import length
from peregrine.core.state import canonical
from peregrine.sim.operators import Ledger
from peregrine.types import PlaceId, SiteId, site_of

SMALL = Sizes(inline_bytes=40, chunk_bytes=32, bucket_bytes=64)


class ChunkNet(Net):
    """Hosts whose large values go to the chunk store of their site. A fetch waits until the test lets it go on."""

    def __init__(self, **more: Any) -> None:
        self.chunks = {site: MemoryChunks() for site in (CLOUD, REGION, EDGE1, SiteId("edge2"))}
        self.wanted: list[tuple[SiteId, Fetch]] = []
        super().__init__(**more)

    def compute(self, place: PlaceId, max_rows: int = 1 << 30) -> Batch | None:
        entries = self.logs[place].read(self.committed[place], max_rows)
        if not entries:
            return None
        states, handovers = {}, []
        for (op, group), part in by_group(entries, {op: each.groups for op, each in self.specs.items()}).items():
            spill = Spill(self.chunks[site_of(place)], SMALL)
            before = self.states[place].get((op, group), b"")
            emissions, states[op, group] = apply(self.operators[op], before, part, spill=spill)
            if emissions:
                handovers.append(FromHost(place, op, group, tuple(emissions)))
        return Batch(place, entries[-1][0] + length(entries[-1][1]), tuple(handovers), states)

    def _perform(self, site: SiteId, effect: Effect) -> None:
        if isinstance(effect, Fetch):
            self.wanted.append((site, effect))
        super()._perform(site, effect)

    def fetch(self, count: int = 1) -> int:
        """The next fetches are done; returns the bytes that had to move."""
        moved = 0
        for site, fetch in [self.wanted.pop(0) for _ in range(count)]:
            lacking = [name for name in fetch.names if not self.chunks[site].has(name)]
            data = [self.chunks[fetch.origin].get(name) for name in lacking]
            for chunk in data:
                self.chunks[site].put(chunk)
            moved += sum(map(len, data))
            self.step(site, ChunksHere(fetch.number, sum(map(len, data))))
        return moved

    def value(self, place: PlaceId, key: str = "car1") -> object:
        found = [canonical(blob, self.chunks[site_of(place)]) for blob in self.states[place].values()]
        return next((state[key] for state in found if key in state), None)

    def pinned(self, site: SiteId) -> set[bytes]:
        return self.routers[site].pinned()


def net_with_state(big: bool = False) -> ChunkNet:
    net = ChunkNet(operators={OP: Ledger(SINK, big=big)}, owners=[(keys("car1"), AT_CLOUD)])
    net.send(EDGE1, "car1", "car1")
    net.settle()
    return net


def down(mechanism: str) -> Migration:
    anchor = EDGE1 if mechanism == "live" else CLOUD
    return migration(keys("car1"), AT_CLOUD, AT_EDGE1, anchor, mechanism)


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("mechanism", ["live", "pause", "static-dynamic", "on-demand", "restart", "progressive"])
def test_a_migration_goes_on_when_the_chunks_are_here(mechanism: str, big: bool) -> None:
    net, reference = net_with_state(big), net_with_state(big)
    net.begin(down(mechanism))
    net.settle()
    assert net.wanted and not net.routers[EDGE1].commits  # nothing has entered the new place's log
    for each in (net, reference):
        each.send(EDGE1, "car1", "car1")
        each.settle()
    if mechanism == "live":
        assert net.landed("car1") == [0, 1, 2, 3]  # the old place works on, however long the fetch takes
    while net.wanted:
        net.fetch()
        net.settle()
    assert net.statuses()[-1] == "done" and net.leftovers() == []
    assert net.value(AT_EDGE1) == reference.value(AT_CLOUD) and net.value(AT_CLOUD) is None
    assert net.lines == reference.lines


def test_chunks_stay_where_they_came_from_until_they_are_taken() -> None:
    net = net_with_state()
    net.begin(down("pause"))
    net.settle()
    ((site, fetch),) = net.wanted
    assert (site, fetch.origin) == (EDGE1, CLOUD)
    assert net.value(AT_CLOUD) is None  # its host has dropped it
    assert net.pinned(CLOUD) == net.pinned(EDGE1) == set(fetch.names) == set(net.chunks[CLOUD].chunks)
    net.fetch()
    assert net.pinned(CLOUD) == set(fetch.names)
    net.settle(hosts=False)
    assert net.pinned(CLOUD) == set()


def test_chunks_stay_where_they_go_until_a_host_has_committed_them() -> None:
    net = net_with_state()
    net.begin(down("pause"))
    net.settle()
    names = set(net.wanted[0][1].names)
    net.fetch()
    net.settle(hosts=False)
    batch = net.compute(AT_EDGE1)
    assert batch is not None
    net.hand_over(batch)
    assert net.pinned(EDGE1) == names
    net.step(EDGE1, Committed(AT_EDGE1, 0))  # of something before it
    assert net.pinned(EDGE1) == names
    net.commit(batch)
    assert net.pinned(EDGE1) == set()


def test_what_was_fetched_is_counted_as_moved() -> None:
    net = net_with_state()
    net.begin(down("pause"))
    net.settle()
    fetched = net.fetch()
    net.settle()
    moved = net.reports[-1].moved
    assert fetched == sum(map(len, net.chunks[CLOUD].chunks.values())) > 50
    assert moved.bytes_moved - fetched in range(1, 60)  # the books of the key
    assert replace(moved, bytes_moved=0) == StateMoved(transfer=1)


def test_an_abort_gives_up_what_is_being_fetched() -> None:
    net = net_with_state()
    net.begin(down("live"))
    net.settle()
    net.abort(down("live"))
    net.settle()
    assert net.statuses() == ["begun", "aborted"] and net.leftovers() == []
    assert net.pinned(CLOUD) == net.pinned(EDGE1) == set()
    assert net.routers[EDGE1].fetches() == []
    net.step(EDGE1, ChunksHere(net.wanted[0][1].number, 0))  # it was already under way
    net.settle()
    assert net.value(AT_EDGE1) is None and net.value(AT_CLOUD) is not None


def test_state_that_comes_after_an_abort_is_not_fetched() -> None:
    net = net_with_state()
    net.begin(down("live"))
    net.drain(EDGE1, REGION)
    net.drain(REGION, CLOUD)
    net.abort(down("live"))
    net.settle()
    assert net.wanted == [] and net.statuses()[-1] == "aborted"
    assert net.pinned(CLOUD) == set() and net.leftovers() == []


def test_a_router_that_comes_back_wants_what_has_not_come() -> None:
    """Replay gives the same fetches under the same numbers; told of one again, it does nothing."""
    net = net_with_state()
    net.begin(down("live"))
    net.settle()
    again = Router(net.configs[EDGE1])
    for event in net.journals[EDGE1]:
        again.step(event)
    assert again.fetches() == [fetch for _, fetch in net.wanted]
    assert again.pinned() == net.pinned(EDGE1) != set()
    number = net.wanted[0][1].number
    net.fetch()
    assert net.step(EDGE1, ChunksHere(number, 5)) == []


def test_a_refresh_of_a_replica_fetches_only_what_has_changed() -> None:
    """Spacker III-B, with values that are in chunks."""
    net = net_with_state(big=True)
    net.step(CLOUD, KeepReplicas(OP, keys("car1"), AT_CLOUD, AT_EDGE1, 1))
    net.tick(100)
    net.settle()
    first = len(net.wanted[0][1].names)
    net.fetch()
    net.settle()
    net.tick(200)
    net.settle()
    assert net.wanted == []  # nothing has changed
    net.send(EDGE1, "car1")
    net.settle()
    net.tick(300)
    net.settle()
    assert 1 <= len(net.wanted[0][1].names) < first
    assert net.pinned(EDGE1) >= set(net.chunks[EDGE1].chunks)  # a replica keeps its chunks


def test_a_migration_does_not_wait_for_a_refresh_that_it_can_do_without() -> None:
    """What the refresh brings when the key lives here already is of no use to anybody, and is given up."""
    net, reference = net_with_state(big=True), net_with_state(big=True)
    net.step(CLOUD, KeepReplicas(OP, keys("car1"), AT_CLOUD, AT_EDGE1, 1))
    net.tick(100)
    net.settle()
    for each in (net, reference):
        each.send(EDGE1, "car1")
        each.settle()
    net.begin(down("replica"))
    net.settle()
    assert len(net.wanted) == 2
    net.wanted.reverse()
    net.fetch()
    net.settle()
    assert net.statuses()[-1] == "done"
    assert net.value(AT_EDGE1) == reference.value(AT_CLOUD)
    net.fetch()
    net.settle()
    assert net.pinned(EDGE1) == net.pinned(CLOUD) == set()


def test_chunks_of_replicas_that_are_stopped_may_be_collected() -> None:
    net = net_with_state(big=True)
    net.step(CLOUD, KeepReplicas(OP, keys("car1"), AT_CLOUD, AT_EDGE1, 1))
    net.tick(100)
    net.settle()
    net.fetch()
    net.settle()
    assert net.pinned(EDGE1) == set(net.chunks[EDGE1].chunks) != set()
    net.step(CLOUD, StopReplicas(OP, keys("car1"), AT_CLOUD, AT_EDGE1))
    net.settle()
    assert net.pinned(EDGE1) == net.pinned(CLOUD) == set()


def test_a_store_fetches_what_is_donated_and_the_target_fetches_it_from_there() -> None:
    """Survey IV-D: the old place may be gone before the new one collects."""
    net = ChunkNet(operators={OP: Ledger(SINK)}, owners=[(keys("car1"), AT_EDGE1)])
    net.send(EDGE1, "car1", "car1")
    net.settle()
    net.begin(migration(keys("car1"), AT_EDGE1, PlaceId("region"), EDGE1, "indirect"))
    net.settle()
    assert [(site, fetch.origin) for site, fetch in net.wanted] == [(CLOUD, EDGE1)]
    net.fetch()
    net.settle()
    assert net.pinned(EDGE1) == set() != net.pinned(CLOUD)
    net.chunks[EDGE1].keep_only(set())
    assert [(site, fetch.origin) for site, fetch in net.wanted] == [(REGION, CLOUD)]
    net.fetch()
    net.settle()
    assert net.statuses()[-1] == "done" and net.leftovers() == [] and net.pinned(CLOUD) == set()
    assert net.value(PlaceId("region")) is not None
