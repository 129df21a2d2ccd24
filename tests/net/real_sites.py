"""Real router processes of a small tree (the first site over all others), with hosts that are loops in a thread."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from peregrine.core.host import Emission, apply
from peregrine.core.messages import Committed, Event, FromHost
from peregrine.core.operator import OpSpec
from peregrine.core.redeploying import Introduction
from peregrine.core.rehoming import Rehoming
from peregrine.core.rows import UNCHAINED, Row
from peregrine.core.slices import entries_of
from peregrine.core.topology import Link, Topology
from peregrine.errors import TransportError
from peregrine.net.client import RouterClient
from peregrine.net.device import Device
from peregrine.net.launch import RouterProcess
from peregrine.net.protocol import Detour, Neighbour
from peregrine.net.settings import RouterSettings, make_token, read_token
from peregrine.sim.operators import Ledger
from peregrine.types import OpId, PlaceId, SiteId, SourceId

GROUPS = 4
OP, SINK = OpId("app/count"), OpId("app/results")
OPERATORS = (OpSpec(OP, GROUPS, feeds=(SINK,)), OpSpec(SINK, GROUPS, sink=True))
LEDGER = Ledger(SINK)
Lines = dict[str, list[tuple[int, bytes]]]  # results of each source and key, in the order in which they landed


Part = tuple[int, bytes, bytes]  # of a slice: first offset, offsets, body


class Cluster:
    def __init__(
        self,
        directory: Path,
        sites: Iterable[str],
        latency_ms: float = 0.0,
        bandwidth_mbps: float | None = None,
        loss: float = 0.0,
        hosts: bool = True,
        parents: Mapping[str, str] | None = None,
        each: Callable[[SiteId], Mapping[str, Any]] = lambda site: {},
        token_file: Path | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are for all routers, `each` gives those of a site. Sites are below the first one, but for those
        with other `parents`.
        """
        directory.mkdir()
        root, *children = map(SiteId, sites)
        self.directory = directory
        above = {SiteId(child): SiteId(parent) for child, parent in (parents or {}).items()}
        link = Link(latency_ms, 100.0)
        self.topology = Topology.tree(root, {child: (above.get(child, root), link) for child in children})
        self.token_file = token_file or directory / "token"
        self.token = read_token(token_file) if token_file else make_token(self.token_file)
        self.addresses: dict[SiteId, str] = {}
        self.routers: dict[SiteId, RouterProcess] = {}
        self.clients: dict[SiteId, RouterClient] = {}
        self.hosts: dict[PlaceId, HostLoop] = {}
        self.devices: list[Device] = []
        self._met: set[tuple[SiteId, SiteId]] = set()  # neighbours since sites have changed their parents
        self.lost: set[frozenset[SiteId]] = set()  # links that are gone for good: nobody is told an address
        self.ways: Callable[[Rehoming], list[Introduction]] = lambda rehoming: []  # the manager's, for `introduce`
        self._feel = (latency_ms, bandwidth_mbps, loss)
        for site in self.topology.sites:
            more = {**settings, **each(site)}
            self._start(
                RouterSettings.of(site, self.topology, OPERATORS, directory / site, self.token_file, tick_ms=20, **more)
            )
        self.join()
        for site in self.topology.sites if hosts else ():
            self.hosts[PlaceId(site)] = HostLoop(PlaceId(site), lambda site=site: self.clients[site])  # type: ignore[misc]

    def _start(self, settings: RouterSettings) -> None:
        site = settings.site
        self.routers[site] = RouterProcess(settings, self.directory / f"{site}.json", self.directory / f"{site}.log")
        self.addresses[site] = self.routers[site].address
        self.clients[site] = self.routers[site].client(10.0)

    def join(self, cut: Mapping[str, str] | None = None) -> None:
        """Everybody learns where its neighbours are; `cut` names links (child: parent) that are broken."""
        for child in self.topology.sites:
            parent = self.topology.parent(child)
            if parent is not None:
                for near, far in ((child, parent), (parent, child)):
                    address = "" if child in (cut or {}) else self.addresses[far]
                    self.clients[near].tell_neighbours({far: Neighbour(address, *self._feel)})
        for near, far in self._met:
            if self.routers[near].alive:
                self.clients[near].tell_neighbours({far: Neighbour(self.addresses[far], *self._feel)})

    def kill(self, site: SiteId) -> None:
        self.routers[site].kill()

    def restart(self, site: SiteId) -> None:
        self._start(replace(self.routers[site].settings, port=0))
        self.join()

    def device(self, name: str, site: SiteId, **more: Any) -> Device:
        self.devices.append(Device(SourceId(name), self.addresses, site, self.token, **more))
        return self.devices[-1]

    def introduce(self, rehoming: Rehoming) -> None:
        """A site and its parent to be learn where the other listens."""
        if rehoming.target is not None:
            self._met |= {(rehoming.target, rehoming.site), (rehoming.site, rehoming.target)}
        for each in self.ways(rehoming):
            for near, far in ((each.upper, each.lower), (each.lower, each.upper)):
                by = None if each.by is None else Detour(each.by[0], self.addresses[each.by[0]], self.addresses[far])
                to = "" if {near, far} in self.lost else self.addresses[far]
                self.clients[near].tell_neighbours({far: Neighbour(to, *self._feel, by)})

    def lose(self, a: SiteId, b: SiteId) -> None:
        self.lost.add(frozenset((a, b)))
        for near, far in ((a, b), (b, a)):
            self.clients[near].tell_neighbours({far: Neighbour("")})

    def offer_all(self, event: Event) -> None:
        for client in self.clients.values():
            client.offer(event)

    def results(self) -> Lines:
        return lines_of(self.clients[self.topology.root])

    def close(self) -> None:
        for device in self.devices:
            device.close()
        for host in self.hosts.values():
            host.stop()
        for client in self.clients.values():
            client.close()
        for router in self.routers.values():
            if router.alive:
                router.kill()


class HostLoop:
    """What Spark does, in a few lines: apply, hand over, commit state and offset together, tell."""

    def __init__(self, place: PlaceId, client: Callable[[], RouterClient]) -> None:
        self.place = place
        self.states: dict[tuple[OpId, int], bytes] = {}
        self.committed = 0
        self.failed: BaseException | None = None
        self._client = client
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping:
                try:
                    if not self._batch():
                        time.sleep(0.005)
                except TransportError:
                    time.sleep(0.02)
        except BaseException as error:
            self.failed = error
            raise

    def _batch(self) -> bool:
        client = self._client()
        table, end = client.read_log(self.place, self.committed, 500)
        if end == self.committed:
            return False
        parts: dict[tuple[OpId, int], list[Part]] = {}
        for part in table.to_pylist():
            at = (OpId(part["op"]), part["group"])
            parts.setdefault(at, []).append((part["first_offset"], part["offsets"], part["body"]))
        states: dict[tuple[OpId, int], bytes] = {}
        for (op, group), slices in parts.items():
            emissions, states[op, group] = self.apply(op, group, self.states.get((op, group), b""), slices)
            if emissions:
                client.offer(FromHost(self.place, op, group, tuple(emissions)))
        self.states.update(states)
        self.committed = end
        client.offer(Committed(self.place, end))
        return True

    def apply(self, op: OpId, group: int, before: bytes, slices: list[Part]) -> tuple[list[Emission], bytes]:
        return apply(LEDGER, before, entries_of(slices))

    def stop(self) -> None:
        self._stopping = True
        self._thread.join(15)


def lines_of(client: RouterClient) -> Lines:
    lines: Lines = {}
    position = 0
    while True:
        table, end = client.read_results(position, 1000)
        for row in table.to_pylist():
            lines.setdefault(row["source"], []).append((row["seq"], row["payload"]))
        if end == position:
            return lines
        assert table.column("position").to_pylist() == list(range(position, end))
        position = end


def expected(source: str, keys: Iterable[str]) -> Lines:
    """What the ledger tells of rows with these keys, sent in this order by `fill`."""
    values: dict[str, Any] = {}
    lines: Lines = {}
    for seq, key in enumerate(keys):
        row = Row(key, SourceId(source), seq, UNCHAINED, seq, 0, payload(key, seq))
        values[key], outs = LEDGER.on_row(key, values.get(key), row, {})
        for out in outs:
            lines.setdefault(out.source, []).append((out.seq, out.payload))
    return lines


def fill(device: Device, keys: Iterable[str], first: int = 0) -> None:
    for seq, key in enumerate(keys, first):
        device.send(OP, key, payload(key, seq), time_ms=seq)


def payload(key: str, seq: int) -> bytes:
    return f"{key}#{seq}".encode()


def until(true: Callable[[], bool], timeout_s: float = 15.0) -> None:
    ends_at_s = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < ends_at_s, "it did not come true in time"
        time.sleep(0.01)
