"""Worlds for tests: a small railway, and random ones."""

from collections.abc import Iterable, Mapping
from random import Random

from peregrine.core.coordinator import Coordinator
from peregrine.core.keyspace import KeySet
from peregrine.core.operator import OpSpec
from peregrine.core.placement import Placement
from peregrine.core.reconfigure import Plan
from peregrine.core.topology import Link, Site, Topology
from peregrine.core.validity import FedKeys
from peregrine.errors import PlanError
from peregrine.plan.redeploy.changes import Changes
from peregrine.plan.redeploy.events import (
    LinkRemoved,
    LinkSet,
    SiteMoved,
    SiteRemoved,
    SiteSet,
    Station,
    TopologyEvent,
)
from peregrine.plan.redeploy.layout import Layout
from peregrine.plan.redeploy.planner import Planner, Scope
from peregrine.plan.redeploy.queue import TopologyQueue
from peregrine.plan.redeploy.validity import violations
from peregrine.plan.redeploy.world import World
from peregrine.types import OpId, PlaceId, SiteId, SourceId

GROUPS = 4
Owned = dict[OpId, dict[PlaceId, KeySet]]


def site(name: str) -> SiteId:
    return SiteId(name)


def keys(*names: str) -> KeySet:
    return KeySet.of_keys(GROUPS, names)


def planner_of(
    topology: Topology,
    specs: Iterable[OpSpec],
    sources: Mapping[str, tuple[str, FedKeys]],
    initial: Iterable[tuple[str, KeySet, str]] = (),
    slots: Mapping[SiteId, int | None] | None = None,
    scope: Scope = Scope.INCREMENTAL,
) -> Planner:
    changes = Changes()
    world = World.of(topology, changes, slots)
    layout = Layout(
        {spec.op: spec for spec in specs},
        world.main_place(world.root),
        changes,
        [(OpId(op), moved, PlaceId(place)) for op, moved, place in initial],
        {SourceId(source): SiteId(at) for source, (at, _) in sources.items()},
        {SourceId(source): feeds for source, (_, feeds) in sources.items()},
    )
    return Planner(world, layout, TopologyQueue(world.root), scope)


def owned(layout: Layout) -> Owned:
    return {op: {place: layout.keys_at(op, place) for place in layout.places(op)} for op in layout.operators}


def all_violations(planner: Planner) -> list[str]:
    return list(violations(planner.world, planner.layout, sorted(planner.layout.sites() | set(planner.world.stations))))


def carry_out(
    topology: Topology,
    planner: Planner,
    start: Owned,
    plans: Iterable[Plan],
    left_out: list[Plan] | None = None,
    reasons: tuple[str, ...] = ("could overtake each other",),
) -> Owned:
    """Let the coordinator of the core take the plans, all of them at once; where keys are when they have ended.

    A plan in which rows could overtake each other goes to `left_out`, as the manager leaves it out; or one that is
    refused for one of these other `reasons`.
    """
    layout = planner.layout
    initial = [(op, part, place) for op, parts in start.items() for place, part in parts.items()]
    home = topology.main_place(topology.root)
    placement = Placement(topology, layout.operators, [each for each in initial if each[2] != home])

    def producers(op: OpId, moved: KeySet) -> list[tuple[str, SiteId]]:
        return [(source, layout.feeding.site(source)) for source in layout.feeding.sources_of(op, moved)]

    coordinator = Coordinator(placement, layout.operators, producers)
    taken = []
    for plan in plans:
        try:
            coordinator.check(plan)
        except PlanError as error:
            if left_out is None or not any(text in error.what for text in reasons):
                raise
            left_out.append(plan)
        else:
            taken.append(plan)
    for plan in taken:
        for move in plan.moves():
            placement.move(move.op, move.keys, move.source, move.target)
    return {op: dict(placement.instances(op)) for op in layout.operators}


# --- random ones ---
# Drawn from a seed: Hypothesis alone prefers small worlds, in which hardly anything has to move.

NAMES = [SiteId(name) for name in ("root", "r1", "r2", "r3", "e1", "e2", "e3", "e4", "t1", "t2", "t3")]
LINKS = [Link(0.0), Link(1.0), Link(2.0), Link(5.0)]
SLOTS = [None, None, None, 0, 1, 3]


def random_planner(rng: Random, scope: Scope = Scope.INCREMENTAL) -> Planner:
    topology = _random_topology(rng)
    specs, sources = [], {}
    for app in ("x", "y", "z")[: rng.randint(1, 3)]:
        ops = [OpId(f"{app}/{nth}") for nth in range(rng.randint(1, 3))]
        for nth, op in enumerate(ops):
            feeds = tuple(ops[nth + 1 : nth + 1 + rng.randint(1, 2)])
            specs.append(OpSpec(op, GROUPS, stateless=rng.random() < 0.3, feeds=feeds))
        for nth in range(rng.randint(1, 4)):
            fed = [name for name in ("k1", "k2") if rng.random() < 0.3]
            feeds_keys: list[tuple[OpId, KeySet]] = [(ops[0], keys(f"own{nth}", *fed))]
            if rng.random() < 0.2:
                feeds_keys.append((rng.choice(ops), KeySet.of_groups(GROUPS, [rng.randrange(GROUPS)])))
            sources[f"{app}{nth}"] = (rng.choice(topology.sites), tuple(feeds_keys))
    slots = {name: rng.choice(SLOTS) for name in topology.sites[1:]}
    planner = planner_of(topology, specs, sources, (), slots, scope)
    _scatter(rng, planner)
    return planner


def _random_topology(rng: Random) -> Topology:
    edges: dict[frozenset[SiteId], tuple[SiteId, SiteId, Link]] = {}
    sites = [NAMES[0]]
    for name in NAMES[1:]:
        if rng.random() < 0.85:
            above = rng.choice(sites)
            edges[frozenset((name, above))] = (name, above, rng.choice(LINKS))
            sites.append(name)
    for _ in range(rng.randint(0, 5)):
        a, b = rng.choice(sites), rng.choice(sites)
        if a != b:
            edges.setdefault(frozenset((a, b)), (a, b, rng.choice(LINKS)))
    return Topology.from_graph(NAMES[0], edges.values())


def _scatter(rng: Random, planner: Planner) -> None:
    """Keys away from the root, as far as that is valid. Producers first: their consumers must stay above them."""
    layout, world = planner.layout, planner.world
    parts = [KeySet.everything(GROUPS), KeySet.of_groups(GROUPS, [0]), keys("k1"), *(keys(f"own{n}") for n in range(4))]
    for op in sorted(layout.operators, key=lambda each: (layout.rank[each], each)):
        for some in parts:
            lowest = world.meeting_point(layout.producers(op, some)) or rng.choice(sorted(world.cost))
            mark = layout.changes.mark()
            layout.assign(op, some, PlaceId(rng.choice([lowest, lowest, *world.ancestors(lowest)])))
            if rng.random() < 0.2 or all_violations(planner):
                layout.changes.undo_to(mark)
    layout.changes.keep()


class Teller:
    """Random events that fit what is there when they happen, with versions."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._version = 0

    def events(self, planner: Planner) -> list[TopologyEvent]:
        return [self._event(planner) for _ in range(self._rng.randint(1, 4))]

    def _event(self, planner: Planner) -> TopologyEvent:
        rng = self._rng
        self._version += 1
        site = rng.choice(NAMES[1:])
        other = rng.choice([name for name in NAMES if name != site])
        above = planner.world.parent.get(site, other)
        match rng.choice(["set", "remove", "link", "link", "unlink", "move", "move", "move"]):
            case "set":
                hosts = rng.choice([(), (), (), ("h1", "h2"), ("h2",)])
                return SiteSet(Station(Site(site, hosts), slots=rng.choice(SLOTS)), self._version)
            case "remove":
                return SiteRemoved(site, self._version)
            case "link":
                return LinkSet(site, other, rng.choice(LINKS), self._version)
            case "unlink":
                return LinkRemoved(site, above, self._version)
            case _:
                return SiteMoved(site, above, other, rng.choice(LINKS), self._version)
