"""Ten thousand edges, a million keys, sources that roam: the real core, in virtual time, on one processor.

Routers, legs, mobility, coordinator and the hosts' `apply` are those of every other run. Around them is less than in
other runs (`sim/scale_machines.py`), because nothing crashes and no link breaks.

Every key is explicit and owned at an edge; its rows are processed there, and each gives one result, which travels
through the region to the cloud. Some sources drive to another edge, and their keys follow: up to where the paths meet,
and, once the source has stayed, down (Falcon III-F).
"""

import gc
import math
import random
import resource
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

from peregrine.core.attachments import Attachments
from peregrine.core.coordinator import PlanEnded, Status, ToRouter
from peregrine.core.keyspace import KeySet
from peregrine.core.manager import Manager, ManagerEvent
from peregrine.core.messages import Attached, Deliver, Effect, Report, SetOwner, Stray, Tick
from peregrine.core.placement import Placement
from peregrine.core.state import decode
from peregrine.core.topology import Link, Topology
from peregrine.errors import ConfigurationError
from peregrine.sim.network import SimLink
from peregrine.sim.scale_machines import GROUPS, SPECS, TRACK, Device, SimDevice, SimSite
from peregrine.sim.scale_report import Audit, Cost, Latency, ScaleReport, Traffic
from peregrine.sim.world import World
from peregrine.types import OpId, PlaceId, SiteId, SourceId, site_of

CLOUD = SiteId("cloud")
EDGE_LINK = Link(latency_ms=5.0, bandwidth_mbps=100.0)
REGION_LINK = Link(latency_ms=20.0, bandwidth_mbps=1000.0)

KEYS_PER_EDGE = 100  # unless their number is given
MOBILE_KEYS = 4
EDGES_PER_MOBILE = 10  # one source that roams for so many edges
MOVES_AGAIN = 0.3  # of the sources that roam: some of them while their keys are still following
TICK_MS = 100.0
DWELL_MS = 500
PATIENCE_MS = 30_000.0

Progress = Callable[[float, str], None]


def run_scale(
    edges: int, keys: int | None = None, seconds: float = 4.0, seed: int = 0, progress: Progress | None = None
) -> ScaleReport:
    """Simulate `seconds` of rows, then go on until all is at rest. One seed, one report (but for what it cost)."""
    keys = KEYS_PER_EDGE * edges if keys is None else keys
    started = perf_counter()
    collecting = gc.isenabled()
    gc.disable()  # millions of objects, and nearly all of them stay: there is little to find among them
    try:
        run = Run(draw(edges, keys, seconds, seed), progress or (lambda fraction, news: None))
        setup_s = perf_counter() - started
        run.go()
        report = run.report()
    finally:
        if collecting:
            gc.enable()
    wall_s = perf_counter() - started
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cost = Cost(round(setup_s, 2), round(wall_s, 2), round(report.events / (wall_s - setup_s)), round(peak_mb))
    return replace(report, cost=cost)


@dataclass(frozen=True, slots=True)
class Layout:
    seed: int
    duration_ms: float
    topology: Topology
    keys_of: dict[SiteId, tuple[str, ...]]
    devices: tuple[Device, ...]


def draw(edges: int, keys: int, seconds: float, seed: int) -> Layout:
    """About as many regions as edges in a region; one source that stays at each edge, and some that do not."""
    if edges < 2 or keys < 2 * edges or seconds < 1:
        raise ConfigurationError(
            f"{edges} edges with {keys} keys for {seconds} s",
            "give 2 edges or more, 2 keys or more for each, and 1 s or more",
        )
    rng = random.Random(f"scale:{seed}")
    regions = [SiteId(f"r{i}") for i in range(max(round(math.sqrt(edges)), 1))]
    names = [SiteId(f"e{i}") for i in range(edges)]
    parents = dict.fromkeys(regions, (CLOUD, REGION_LINK))
    parents |= {name: (regions[i % len(regions)], EDGE_LINK) for i, name in enumerate(names)}
    topology = Topology.tree(CLOUD, parents)
    keys_of = {
        name: tuple(f"k{key}" for key in range(i * keys // edges, (i + 1) * keys // edges))
        for i, name in enumerate(names)
    }
    devices = []
    drives = set(rng.sample(names, max(edges // EDGES_PER_MOBILE, 2)))
    for name in names:
        mine = keys_of[name]
        if name in drives:
            taken = min(MOBILE_KEYS, len(mine) // 2)
            moves = tuple(_drive(rng, topology, name, names, seconds * 1000))
            devices.append(Device(SourceId(f"car-{name}"), name, mine[:taken], True, moves))
            mine = mine[taken:]
        devices.append(Device(SourceId(f"box-{name}"), name, mine))
    return Layout(seed, seconds * 1000, topology, keys_of, tuple(devices))


def _drive(
    rng: random.Random, topology: Topology, home: SiteId, edges: Sequence[SiteId], duration_ms: float
) -> Iterable[tuple[float, SiteId]]:
    """To a neighbour or far away, in the first half of the run; some go back or on a little later."""
    at_ms = rng.uniform(0.05, 0.5) * duration_ms
    site = _elsewhere(rng, topology, home, edges)
    yield at_ms, site
    if rng.random() < MOVES_AGAIN:
        yield at_ms + rng.uniform(200, 1200), home if rng.random() < 0.5 else _elsewhere(rng, topology, site, edges)


def _elsewhere(rng: random.Random, topology: Topology, here: SiteId, edges: Sequence[SiteId]) -> SiteId:
    region = topology.parent(here)
    assert region is not None
    near = [site for site in topology.children(region) if site != here]
    if near and rng.random() < 0.5:
        return rng.choice(near)
    return rng.choice([site for site in rng.sample(edges, 2) if site != here])


class Run:
    """The machines of a layout in one world."""

    def __init__(self, layout: Layout, progress: Progress) -> None:
        self.layout = layout
        self.world = World(layout.seed)
        self.audit = Audit()
        self.legs_up = self.legs_down = self.cancelled = self.bytes_moved = self.moves = 0
        self._topology = layout.topology
        self._progress = progress
        self._progress(0.0, "setting up")
        self._sites = {
            site: SimSite(self.world, site, layout.topology, self._observe) for site in layout.topology.sites
        }
        self._join()
        self._manager = self._place_keys()
        self._sources = [SimDevice(self.world, device, self._sites, self.audit) for device in layout.devices]

    def _join(self) -> None:
        for site, near in self._sites.items():
            parent = self._topology.parent(site)
            if parent is not None:
                far, link = self._sites[parent], self._topology.link(site)
                near.links[parent] = SimLink(self.world, near, far, link, wire=False)
                far.links[site] = SimLink(self.world, far, near, link, wire=False)
                near.links[parent].begin()
                far.links[site].begin()

    def _place_keys(self) -> Manager:
        """Each edge owns its keys; it, its region, the cloud and the manager know."""
        placement = Placement(self._topology, SPECS)
        attachments = Attachments()
        source_of: dict[str, SourceId] = {}
        for edge, keys in self.layout.keys_of.items():
            key_set, place = KeySet.of_keys(GROUPS, keys), self._topology.main_place(edge)
            placement.move(TRACK, key_set, PlaceId(CLOUD), place)
            for site in (edge, *self._topology.ancestors(edge)):
                self._sites[site].machine.step(SetOwner(TRACK, key_set, place))
        for device in self.layout.devices:
            attachments.attach(device.id, device.site)
            source_of.update((key, device.id) for key in device.keys)

        def producers(op: OpId, keys: KeySet) -> Iterable[tuple[str, SiteId]]:
            for source in sorted({source_of[key] for key in keys.plus}):
                at = attachments.at(source)
                if at is not None:
                    yield source, at

        return Manager(placement, SPECS, attachments, producers, dwell_ms=DWELL_MS)

    # --- what happens ---

    def go(self) -> None:
        world, duration_ms = self.world, self.layout.duration_ms
        for source in self._sources:
            world.after(world.rng.randrange(source.every_ms), partial(self._produce, source))
            for at_ms, site in source.device.moves:
                world.after(at_ms, partial(self._drive, source, site))
        world.every(TICK_MS, self._tick)
        while not self._at_rest and world.now_ms < duration_ms + PATIENCE_MS:
            world.run_next()

    _at_rest = False

    def _tick(self) -> bool:
        world, now = self.world, Tick(int(self.world.now_ms))
        news = f"{self.audit.results_out:,} results, {self.legs_up + self.legs_down:,} migrations"
        self._progress(min(world.now_ms / self.layout.duration_ms, 1.0), news)
        self._at_rest = world.now_ms > self.layout.duration_ms and not self._unfinished()
        for site in self._sites.values():
            site.tick(now)
        self._tell_manager(now)
        return not self._at_rest

    def _unfinished(self) -> list[str]:
        """What is still under way, cheapest first."""
        machine = self._manager
        found = [f"{len(trips)} keys are following" for trips in (machine.mobility.trips,) if trips]
        found += [f"plan {plan}" for plan in machine.coordinator.running]
        found += [f"rows of {source.device.id}" for source in self._sources if source.machine.backlog_rows]
        if not found:
            found = [f"{site}: {what}" for site, each in self._sites.items() for what in each.unfinished()]
        return found

    def _produce(self, source: SimDevice) -> None:
        if self.world.now_ms < self.layout.duration_ms:
            source.produce(int(self.world.now_ms))
            self.world.after(source.every_ms, partial(self._produce, source))

    def _drive(self, source: SimDevice, site: SiteId) -> None:
        if source.machine.site != site:
            self.moves += 1
            source.move(site)
            for key in source.device.keys:
                self.audit.left(key, self.world.now_ms)

    def _observe(self, site: SiteId, effect: Effect) -> None:
        if isinstance(effect, Deliver):
            self.audit.delivered(effect.rows, self.world.now_ms)
        elif isinstance(effect, Report | Stray | Attached):
            self.world.after(self._to_cloud_ms(site), partial(self._tell_manager, effect))

    def _tell_manager(self, news: ManagerEvent) -> None:
        for effect in self._manager.step(news):
            if isinstance(effect, ToRouter):
                site = self._sites[effect.site]
                self.world.after(self._to_cloud_ms(effect.site), partial(site.tell, effect.command))
            elif isinstance(effect, PlanEnded):
                self._count(effect)

    def _count(self, ended: PlanEnded) -> None:
        self.bytes_moved += ended.state.bytes_moved
        if ended.outcome is not Status.DONE:
            self.cancelled += 1
            return
        for moved in ended.moved:
            if self._topology.is_at_or_above(site_of(moved.target), site_of(moved.source)):
                self.legs_up += 1
            else:
                self.legs_down += 1
                for key in moved.keys.plus:
                    self.audit.settled(key, self.world.now_ms)

    def _to_cloud_ms(self, site: SiteId) -> float:
        return self._topology.latency_ms(site, CLOUD) + 0.5

    # --- what is to be said ---

    def report(self) -> ScaleReport:
        layout, audit, topology = self.layout, self.audit, self._topology
        for site in self._sites.values():
            site.machine.check()
        regions = topology.children(CLOUD)
        mobile = sum(device.mobile for device in layout.devices)
        return ScaleReport(
            edges=len(layout.keys_of),
            regions=len(regions),
            sites=len(topology.sites),
            keys=sum(map(len, layout.keys_of.values())),
            sources=len(layout.devices),
            mobile_sources=mobile,
            virtual_s=round(self.world.now_ms / 1000, 3),
            rows_in=audit.rows_in,
            keys_with_rows=len(audit.rows_of),
            results_out=audit.results_out,
            lost=audit.lost,
            repeated=audit.repeated,
            out_of_order=audit.out_of_order,
            wrong_states=self._wrong_states(),
            unfinished=tuple(self._unfinished()),
            steady=Latency.of(audit.steady_ms),
            in_motion=Latency.of(audit.in_motion_ms),
            edge_up=self._traffic((edge, topology.parent(edge)) for edge in layout.keys_of),
            edge_down=self._traffic((topology.parent(edge), edge) for edge in layout.keys_of),
            region_up=self._traffic((region, CLOUD) for region in regions),
            region_down=self._traffic((CLOUD, region) for region in regions),
            legs_up=self.legs_up,
            legs_down=self.legs_down,
            cancelled=self.cancelled,
            state_bytes_moved=self.bytes_moved,
            sources_moved=self.moves,
            events=self.world.events,
            cost=Cost(0.0, 0.0, 0.0, 0.0),
        )

    def _traffic(self, links: Iterable[tuple[SiteId | None, SiteId | None]]) -> Traffic:
        return Traffic.of([self._sites[near].links[far].bytes_sent for near, far in links if near and far])

    def _wrong_states(self) -> int:
        """Keys whose state has not seen each of their rows, or is not at the one place where it should be."""
        owner = self._manager.coordinator.placement.owner
        found: dict[str, int] = {}
        misplaced = 0
        for site, each in self._sites.items():
            for (op, _), state in each.states.items():
                for key, kept in decode(state).items():
                    misplaced += key in found or site_of(owner(op, key)) != site
                    found[key] = kept.value
        return misplaced + self.audit.wrong_counts(found)
