"""A run as data, drawn from a seed: topology, applications, what sources send, and everything that goes wrong.

The reference run is the same scenario without what goes wrong and without what is reconfigured.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce

from peregrine.core.chain import chained, deployed, in_order
from peregrine.core.keyspace import KeySet
from peregrine.core.large import SIZES, Sizes
from peregrine.core.operator import Operator, OpSpec
from peregrine.core.source import Reading
from peregrine.core.topology import Link, Topology
from peregrine.sim.changes import Change, draw_changes
from peregrine.sim.operators import Clean, Ledger, Tally, Tumbling
from peregrine.sim.written import draw_written, readings
from peregrine.types import OpId, PlaceId, SiteId, SourceId

WINDOW_MS = 200
STAGE_MS = 50  # a window of the first of several operators; each is twice as long as those before it
END_OF_TIME_MS = 1 << 40


@dataclass(frozen=True)
class Options:
    mechanism: str | None = None
    sites: int | None = None
    faults: bool = True
    rows: int = 160
    app: str | None = None  # this application and no other
    topology_changes: bool = False  # sites and links come, go and change
    continuous: bool = False  # most hosts apply rows one by one, and commit them later


@dataclass(frozen=True)
class Fault:
    at_ms: float
    kind: str  # router, host, manager, source, link, slow
    target: str
    for_ms: float


@dataclass(frozen=True)
class Beat:
    """A source says how far its event time has come."""

    op: OpId
    keys: KeySet
    time_ms: int


@dataclass(frozen=True)
class SourceScript:
    id: SourceId
    site: SiteId
    roaming: bool
    sends: tuple[tuple[float, Reading | Beat], ...]
    moves: tuple[tuple[float, SiteId], ...] = ()


@dataclass(frozen=True)
class Scenario:
    seed: int
    topology: Topology
    specs: Mapping[OpId, OpSpec]
    operators: Mapping[OpId, Operator]
    initial: tuple[tuple[OpId, KeySet, PlaceId], ...]
    sources: tuple[SourceScript, ...]
    keys_of: Mapping[OpId, tuple[str, ...]]
    feeds: Mapping[SourceId, tuple[tuple[OpId, KeySet], ...]]  # what each source produces
    reconfigure_at_ms: tuple[float, ...] = ()
    mechanisms: tuple[str, ...] = ("live",)
    faults: tuple[Fault, ...] = ()
    dwell_ms: int = 300
    host_lag_rows: int = 100_000
    chunk_bytes: int = 24
    sizes: Sizes = SIZES
    ordered: bool = True
    lossless: bool = True
    continuous: frozenset[PlaceId] = frozenset()  # places whose hosts apply rows as they come
    spare: tuple[SiteId, ...] = ()  # sites that are not there at first
    changes: tuple[Change, ...] = ()

    def reference(self) -> "Scenario":
        calm = tuple(replace(source, moves=()) for source in self.sources)
        return replace(self, sources=calm, reconfigure_at_ms=(), faults=(), changes=(), continuous=frozenset())


ORDERED = (
    "live",
    "live",
    "pause",
    "progressive",
    "on-demand",
    "replica",
    "static-dynamic",
    "window-recreation",
    "drain",
    "indirect",
    "restart",
)


def draw(seed: int, options: Options) -> Scenario:
    rng = random.Random(f"scenario:{seed}")
    lossy = random.Random(f"lossy:{seed}")
    loss = lossy.choice((0.0, 0.0, 0.0, 0.1)) if options.faults else 0.0
    changing = random.Random(f"changing:{seed}")
    if options.topology_changes:
        topology = _deep_topology(changing, options.sites, loss)
    else:
        topology = _topology(rng, options.sites, loss)
    mechanisms = (options.mechanism,) if options.mechanism else _flavour(rng)
    ordered = "live-unordered" not in mechanisms
    lossless = "shed" not in mechanisms
    staged = random.Random(f"staged:{seed}")
    apps = [app if app != "win" or not ordered or staged.random() < 0.4 else "staged" for app in _apps(rng, mechanisms)]
    written = random.Random(f"written:{seed}")
    apps = ["written" if app in ("win", "staged") and ordered and written.random() < 0.4 else app for app in apps]
    apps = [options.app] if options.app else apps
    duration_ms = rng.uniform(800, 2500)
    builder = _Builder(rng, staged, topology, duration_ms, max(options.rows // len(apps), 10))
    for app in apps:
        builder.add(app, ordered, lossless)
    faults = _faults(rng, builder, duration_ms) if options.faults else ()
    large = random.Random(f"large:{seed}")
    pressed = random.Random(f"pressed:{seed}")
    scenario = Scenario(
        seed=seed,
        topology=topology,
        specs=builder.specs,
        operators=_with_maps(large, builder.operators) if lossless else builder.operators,
        initial=tuple(builder.initial),
        sources=tuple(builder.sources),
        keys_of=builder.keys_of,
        feeds=builder.feeds,
        reconfigure_at_ms=tuple(sorted(rng.uniform(50, duration_ms) for _ in range(rng.randint(2, 6)))),
        mechanisms=mechanisms,
        faults=faults,
        dwell_ms=rng.choice((50, 150, 400)),
        host_lag_rows=min(rng.choice((20, 100, 100_000)), pressed.choice((2, 5, 100_000, 100_000, 100_000, 100_000))),
        sizes=large.choice((SIZES, Sizes(48, 24, 64, 100), Sizes(120, 40, 200, 60))),
        ordered=ordered,
        lossless=lossless,
        continuous=frozenset(_continuous(seed, topology)) if options.continuous else frozenset(),
    )
    return _with_changes(changing, scenario, duration_ms, options) if options.topology_changes else scenario


def _continuous(seed: int, topology: Topology) -> Iterator[PlaceId]:
    rng = random.Random(f"continuous:{seed}")
    for site in topology.sites:
        yield from (place for place in topology.places(site) if rng.random() < 0.7)


def _with_changes(rng: random.Random, scenario: Scenario, duration_ms: float, options: Options) -> Scenario:
    """Sites and links come, go and change; keys and sources move, and things fail, at about the same times."""
    spare = tuple(SiteId(f"n{i}") for i in range(1, rng.randint(1, 3)))
    changes = draw_changes(rng, scenario.topology, spare, duration_ms)
    times = sorted({change.at_ms for change in changes}) or [duration_ms / 2]
    sites = scenario.topology.sites

    def near(before_ms: float, after_ms: float) -> float:
        return max(rng.choice(times) + rng.uniform(-before_ms, after_ms), 10.0)

    plans = sorted([*scenario.reconfigure_at_ms, *(near(120.0, 60.0) for _ in range(2 * len(times)))])
    sources = tuple(
        replace(
            script, moves=(*script.moves, *((near(60.0, 120.0), rng.choice(sites)) for _ in range(rng.randint(0, 2))))
        )
        if script.moves
        else script
        for script in scenario.sources
    )
    faults = [
        Fault(
            near(30.0, 150.0), rng.choice(("router", "link", "link")), rng.choice(sites[1:]), rng.choice((5, 50, 200))
        )
        for _ in range(rng.randint(0, len(times)) if options.faults and len(sites) > 1 else 0)
    ]
    return replace(
        scenario,
        sources=sources,
        reconfigure_at_ms=tuple(plans),
        # Not before the routers know where keys are: a deployment that is not complete has not begun.
        faults=tuple(
            sorted(
                (replace(fault, at_ms=max(fault.at_ms, 10.0)) for fault in (*scenario.faults, *faults)),
                key=lambda fault: fault.at_ms,
            )
        ),
        spare=spare,
        changes=changes,
    )


def _with_maps(rng: random.Random, operators: Mapping[OpId, Operator]) -> Mapping[OpId, Operator]:
    """Some ledgers keep their value in a map that spills bucket by bucket."""
    return {
        op: replace(operator, big=True) if isinstance(operator, Ledger) and rng.random() < 0.4 else operator
        for op, operator in operators.items()
    }


def _flavour(rng: random.Random) -> tuple[str, ...]:
    flavour = rng.random()
    if flavour < 0.08:
        return ("live", "live-unordered")
    if flavour < 0.16:
        return ("shed", "pause")
    return tuple(rng.choice(ORDERED) for _ in range(3))


def _apps(rng: random.Random, mechanisms: tuple[str, ...]) -> list[str]:
    apps = []
    if "window-recreation" in mechanisms:
        apps.append("win")
    if "drain" in mechanisms:
        apps.append("plain")
    others = [app for app in ("roam", "plain", "plain", "win") if app not in apps]
    if "shed" in mechanisms:
        others = ["roam"]
    if not apps or rng.random() < 0.6:
        apps.append(rng.choice(others))
    return apps


def _topology(rng: random.Random, sites: int | None, loss: float) -> Topology:
    count = sites or rng.randint(2, 6)
    names = [SiteId("cloud")] + [SiteId(f"s{i}") for i in range(1, count)]
    parents = {}
    for i, name in enumerate(names[1:], start=1):
        parent = names[0] if i == 1 or rng.random() < 0.6 else names[rng.randint(1, i - 1)]
        parents[name] = (parent, Link(rng.choice((2.0, 10.0, 40.0)), rng.choice((1.0, 10.0, 100.0)), loss=loss))
    hosts = {name: ("h1", "h2") for name in names if rng.random() < 0.25}
    return Topology.tree(names[0], parents, hosts)


def _deep_topology(rng: random.Random, sites: int | None, loss: float) -> Topology:
    """Of two to four levels, so that there are branches."""
    count = sites or rng.randint(4, 9)
    levels = rng.randint(2, 4)
    names = [SiteId("cloud")] + [SiteId(f"s{i}") for i in range(1, count)]
    depth = {names[0]: 0}
    parents = {}
    for name in names[1:]:
        parent = rng.choice([each for each in depth if depth[each] < levels])
        depth[name] = depth[parent] + 1
        parents[name] = (parent, Link(rng.choice((2.0, 10.0, 40.0)), rng.choice((10.0, 100.0)), loss=loss))
    hosts = {name: ("h1", "h2") for name in names if rng.random() < 0.15}
    return Topology.tree(names[0], parents, hosts)


class _Builder:
    def __init__(
        self, rng: random.Random, staged: random.Random, topology: Topology, duration_ms: float, rows: int
    ) -> None:
        self.rng = rng
        self.staged = staged  # for what came later: other draws stay as they were
        self.topology = topology
        self.duration_ms = duration_ms
        self.rows = rows
        self.specs: dict[OpId, OpSpec] = {}
        self.operators: dict[OpId, Operator] = {}
        self.initial: list[tuple[OpId, KeySet, PlaceId]] = []
        self.sources: list[SourceScript] = []
        self.keys_of: dict[OpId, tuple[str, ...]] = {}
        self.feeds: dict[SourceId, tuple[tuple[OpId, KeySet], ...]] = {}
        self.homes: dict[SourceId, tuple[OpId, KeySet]] = {}  # keys that only one roaming source feeds

    def add(self, app: str, ordered: bool, lossless: bool) -> None:
        if app == "written":
            self._add_written(app)
            return
        sink = OpId(f"{app}/results")
        groups = self.rng.choice((2, 4, 8))
        self.specs[sink] = OpSpec(sink, groups, sink=True)
        match app:
            case "roam":
                track, area = OpId("roam/track"), OpId("roam/area")
                if lossless:
                    self._op(OpSpec(track, groups, roaming=True, feeds=(area,)), Ledger(area, _area, running=ordered))
                    self._op(OpSpec(area, groups, feeds=(sink,)), Ledger(sink) if ordered else Tally(sink))
                else:
                    self._op(OpSpec(track, groups, roaming=True, feeds=(sink,)), Ledger(sink))
                self._sources(app, track, keys=self.rng.randint(3, 8), sources=self.rng.randint(1, 4), roaming=True)
                self.keys_of[area] = tuple(sorted({_area(key) for key in self.keys_of[track]}))
            case "plain":
                clean, total = OpId("plain/clean"), OpId("plain/sum")
                self._op(OpSpec(clean, groups, stateless=True, feeds=(total,)), Clean(total))
                self._op(OpSpec(total, groups, feeds=(sink,)), Ledger(sink) if ordered else Tally(sink))
                self._sources(app, clean, keys=self.rng.randint(2, 6), sources=self.rng.randint(1, 4), roaming=False)
                self.keys_of[total] = self.keys_of[clean]
            case "win":
                count = OpId("win/count")
                sources = self._sources(app, count, self.rng.randint(2, 5), self.rng.randint(1, 3), roaming=False)
                windows = Tumbling(sink, count, WINDOW_MS, lambda key: sources[key])
                self._op(OpSpec(count, groups, windowed=True, feeds=(sink,)), windows)
            case "staged":
                self._add_stages(app, sink)
                return
        self._deploy(app)

    def _add_stages(self, app: str, sink: OpId) -> None:
        """Windows over windows, keyed differently: all but the first hear only clocks that are passed on to them."""
        rng = self.staged
        names = [OpId(f"{app}/{name}") for name in ("count", "area", "all")[: rng.choice((2, 2, 3))]]
        groups = [self.specs[sink].groups, *(rng.choice((1, 2, 4)) for _ in names[1:])]
        keys_count = rng.randint(3, 24)  # with many keys, some come late
        sources_of = self._sources(app, names[0], keys_count, rng.choice((1, 2, 3, 3)), roaming=False)
        heard = tuple(script.id for script in self.sources if script.id.startswith(app))
        top = reduce(self.topology.lca, [script.site for script in self.sources if script.id in heard])
        keys = self.keys_of[names[0]]
        for i, op in enumerate(names):
            last = i == len(names) - 1
            to, clocks_to = (sink, ()) if last else (names[i + 1], ((names[i + 1], groups[i + 1]),))
            size_ms = STAGE_MS << i
            windows = Tumbling(
                to,
                op,
                size_ms,
                sources_of.__getitem__ if i == 0 else partial(_whatever, heard),
                (_area, _everywhere, str)[i] if not last else str,
                time_from_rows=i == 0,
                clocks_to=clocks_to,
                delay_ms=0 if last else rng.choice((0, size_ms)),
            )
            self._op(OpSpec(op, groups[i], windowed=True, feeds=(to,)), windows)
            self.keys_of[op] = keys
            keys = tuple(sorted({windows.rekey(key) for key in keys}))
            heard = tuple(SourceId(f"{op}/{source}") for source in heard)
            top = self._place_above(op, top)

    def _add_written(self, app: str) -> None:
        """What users write; hosts run it as they do on Spark."""
        rng, groups = self.staged, self.staged.choice((2, 4, 8))
        senders = [SourceId(f"{app}-s{i}") for i in range(rng.choice((1, 1, 2, 3)))]
        written = draw_written(rng, app, senders, groups)
        specs, ingress = deployed(written.compiled.specs), written.ingress
        cars = [f"{app}-k{i}" for i in range(rng.randint(len(senders), 12))]
        for op in in_order(specs):
            self.specs[op] = replace(specs[op], ticks=rng.random() < 0.15)
            self.keys_of[op] = tuple(cars)
        for op, operator in chained(written.compiled.specs, written.compiled.operators).items():
            self.operators[op] = operator
            if op.endswith("/area"):
                self.keys_of[op] = tuple(sorted(set(map(_area, cars))))
        for nth, sender in enumerate(senders):
            mine = [car for i, car in enumerate(cars) if i % len(senders) == nth or rng.random() < 0.2]
            until_ms = self.duration_ms * rng.choice((0.2, 0.5, 1.0))
            sends: list[tuple[float, Reading | Beat]] = []
            for t in sorted(rng.uniform(0, until_ms) for _ in range(self.rows // len(senders))):
                car = rng.choice(mine[: 1 + int(len(mine) * t / until_ms)])
                sends += [(t, reading) for reading in readings(rng, written, sender, car, _area(car), int(t))]
                if rng.random() < 0.4:
                    sends += [(t, Beat(op, KeySet.everything(groups), int(t))) for op, groups in ingress.clocked]
            sends += [
                (until_ms + 1, Beat(op, KeySet.everything(groups), END_OF_TIME_MS)) for op, groups in ingress.clocked
            ]
            self.sources.append(SourceScript(sender, rng.choice(self.topology.sites), False, tuple(sends)))
            self.feeds[sender] = tuple((target.op, KeySet.of_keys(groups, mine)) for target in ingress.targets)
        top = reduce(self.topology.lca, [script.site for script in self.sources if script.id in senders])
        for op in in_order(specs):
            if not specs[op].sink:
                top = self._place_above(op, top)

    def _place_above(self, op: OpId, producers: SiteId) -> SiteId:
        """At or above all of its producers; gives where."""
        rng = self.staged
        if rng.random() >= 0.7:
            return self.topology.root
        site = rng.choice([producers, *self.topology.ancestors(producers)])
        self.initial.append((op, KeySet.everything(self.specs[op].groups), rng.choice(self.topology.places(site))))
        return site

    def _op(self, spec: OpSpec, operator: Operator) -> None:
        spec = replace(spec, ticks=self.rng.random() < 0.15)
        self.specs[spec.op] = spec
        self.operators[spec.op] = operator

    def _sources(self, app: str, op: OpId, keys: int, sources: int, roaming: bool) -> dict[str, tuple[str, ...]]:
        """Sources with their keys; some keys have several sources. Returns the sources of each key."""
        rng = self.rng
        names = [f"{app}-k{i}" for i in range(keys)]
        self.keys_of[op] = tuple(names)
        groups = self.specs[OpId(f"{app}/results")].groups
        sources_of: dict[str, tuple[str, ...]] = dict.fromkeys(names, ())
        sources = min(sources, keys)
        for s in range(sources):
            source = SourceId(f"{app}-s{s}")
            mine = [name for i, name in enumerate(names) if i % sources == s or rng.random() < 0.2]
            for name in mine:
                sources_of[name] += (source,)
            site = rng.choice(self.topology.sites)
            self.feeds[source] = ((op, KeySet.of_keys(groups, mine)),)
            told = KeySet.everything(groups) if app == "staged" else KeySet.of_keys(groups, mine)
            sends = self._sends(op, told, mine, self.rows // sources, app == "win")
            if app == "staged":
                sends = self._staged_sends(op, told, mine, self.rows // sources)
            moves: tuple[tuple[float, SiteId], ...] = ()
            if roaming and rng.random() < 0.8:
                at = sorted(rng.uniform(50, self.duration_ms) for _ in range(rng.randint(1, 4)))
                moves = tuple((t, rng.choice(self.topology.sites)) for t in at)
                self.homes[source] = (
                    op,
                    KeySet.of_keys(groups, [name for name in mine if sources_of[name] == (source,)]),
                )
            self.sources.append(SourceScript(source, site, roaming, sends, moves))
        return sources_of

    def _sends(
        self, op: OpId, keyset: KeySet, mine: list[str], rows: int, beats: bool
    ) -> tuple[tuple[float, Reading | Beat], ...]:
        rng = self.rng
        times = sorted(rng.uniform(0, self.duration_ms) for _ in range(rows))
        if rng.random() < 0.3:  # a burst
            start = rng.uniform(0, self.duration_ms)
            times = sorted(start + t / 50 if rng.random() < 0.4 else t for t in times)
        sends: list[tuple[float, Reading | Beat]] = []
        for i, t in enumerate(times):
            reading = Reading(op, rng.choice(mine), int(t), int(t), b"%d" % rng.randrange(1_000_000))
            sends.append((t, reading))
            if beats and i % 5 == 4:
                sends.append((t, Beat(op, keyset, int(t))))
        if beats:
            sends.append((max([self.duration_ms, *times]) + 1, Beat(op, keyset, END_OF_TIME_MS)))
        return tuple(sends)

    def _staged_sends(
        self, op: OpId, keyset: KeySet, mine: list[str], rows: int
    ) -> tuple[tuple[float, Reading | Beat], ...]:
        """Keys come one after the other, and some sources have said their last word when others begin with a key."""
        rng = self.staged
        until_ms = self.duration_ms * rng.choice((0.2, 0.5, 1.0))
        sends: list[tuple[float, Reading | Beat]] = []
        for t in sorted(rng.uniform(0, until_ms) for _ in range(rows)):
            key = rng.choice(mine[: 1 + int(len(mine) * t / until_ms)])
            sends.append((t, Reading(op, key, int(t), int(t), b"%d" % rng.randrange(1_000_000))))
            if rng.random() < 0.4:
                sends.append((t, Beat(op, keyset, int(t))))
        return (*sends, (until_ms + 1, Beat(op, keyset, END_OF_TIME_MS)))

    def _deploy(self, app: str) -> None:
        """Some groups start below the root, at or above all of their producers."""
        rng, topology = self.rng, self.topology
        if self.homes and rng.random() < 0.7:  # keys start where their sources are, and will have to follow them
            for script in self.sources:
                op, keys = self.homes.get(script.id, (None, None))
                place = topology.main_place(script.site)
                if op and keys and place != topology.main_place(topology.root):
                    self.initial.append((op, keys, place))
            self.homes.clear()
            return
        for op, spec in self.specs.items():
            if spec.sink or not op.startswith(app) or spec.feeds == () or rng.random() < 0.4:
                continue
            feeding = [self.specs[fed] for fed in spec.feeds]
            sites = [s.site for s in self.sources if any(fed == op for fed, _ in self.feeds[s.id])]
            if not sites or (not all(fed.sink for fed in feeding) and rng.random() < 0.5):
                continue
            top = sites[0]
            for site in sites[1:]:
                top = topology.lca(top, site)
            place = rng.choice(topology.places(top))
            groups = rng.sample(range(spec.groups), rng.randint(1, spec.groups))
            if place != topology.main_place(topology.root):
                self.initial.append((op, KeySet.of_groups(spec.groups, groups), place))


def _faults(rng: random.Random, builder: _Builder, duration_ms: float) -> tuple[Fault, ...]:
    sites = builder.topology.sites
    links = [site for site in sites if site != builder.topology.root]
    places = [place for site in sites for place in builder.topology.places(site)]
    faults = []
    for _ in range(rng.randint(0, 6)):
        kind = rng.choice(("router", "router", "host", "host", "manager", "source", "link", "slow"))
        targets = {
            "router": sites,
            "host": places,
            "manager": ["manager"],
            "source": [s.id for s in builder.sources],
            "link": links or sites,
            "slow": places,
        }[kind]
        if kind == "link" and not links:
            continue
        faults.append(
            Fault(rng.uniform(0, duration_ms * 1.2), kind, str(rng.choice(targets)), rng.choice((5, 50, 400)))
        )
    return tuple(sorted(faults, key=lambda fault: fault.at_ms))


def _everywhere(key: str) -> str:
    return "everywhere"


def _whatever(sources: tuple[str, ...], key: str) -> tuple[str, ...]:
    return sources


def _area(key: str) -> str:
    return f"area{int(key.rpartition('k')[2]) % 2}"
