"""Cells on Spark: a deployment, rows that flow, a reconfiguration, and what it cost.

Cells may share a deployment: then what moved is moved back in between, live, which nobody measures. Each cell is held
against the calm just before it. The proof is of the whole run, so every cell of it has the same.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from peregrine import Link, Topology, measure, run
from peregrine.app.compile import Compiled, compile_app
from peregrine.bench.engine import hoard, moving, traffic
from peregrine.bench.engine.applications import APPLICATIONS, Application
from peregrine.bench.engine.definition import Cell, Setting
from peregrine.bench.engine.flow import Feed, Flow
from peregrine.bench.engine.measured import Forecast, Measured, pause_ms
from peregrine.bench.engine.reference import prove
from peregrine.bench.spark import stream
from peregrine.bench.spark.stream import now_ms
from peregrine.control.running import At, Running
from peregrine.control.watch import Watch
from peregrine.core.keyspace import KeySet
from peregrine.core.reconfigure import Move
from peregrine.errors import PeregrineError
from peregrine.plan.predict import Prediction
from peregrine.proof import Proof
from peregrine.types import OpId, PlaceId, SiteId

log = logging.getLogger(__name__)

CLOUD = SiteId("cloud")
# 1 GiB hop by hop, over three links of 200 Mbit/s, takes 140 s on a machine that has nothing else to do.
PATIENCE_S = 400.0
IN_VAIN_S = 20.0  # for a deployment in which something failed
REPLICAS_S = 1.5
REPLICA_BYTES_PER_S = 25e6  # that are made and sent, about
AGAIN_S = 0.3  # between a move back and the next calm
SAMPLE_S = 2.0  # of rows after the preloaded ones: the keys that come in it are those that there are


def run_cells(cells: list[Cell]) -> list[Measured]:
    """In one deployment, one after the other, up to the first that fails: they differ in how they move, and in nothing
    else.
    """
    setting = cells[0].setting
    application = APPLICATIONS[setting.app]
    began_s = time.monotonic()
    feed = Feed(application, setting)
    compiled = compile_app(application.app(feed.devices, setting.parameters))
    ops = [OpId(f"{compiled.name}/{each}") for each in application.operators]
    specs = [compiled.specs[op] for op in ops]
    fit = [each for each in cells if not moving.unfit(each.setting.mechanism, specs)]
    done: list[Measured] = []
    if fit:
        watch = Watch({})
        with _deployed(application, compiled, feed, ops, watch) as bench:
            found, done = _one_after_the_other(bench, fit)
            try:
                bench.flow.stop()
                bench.running.finish(IN_VAIN_S if done else PATIENCE_S)
                proof = prove(compiled, bench.flow.sent, bench.running)
                on_links = traffic.state_bytes(bench.running.deployment, [each.stretch for each in found])
            except PeregrineError as error:
                return [*(Measured(each.cell, trouble=error.what, failed=True) for each in found), *done]
        seconds = (time.monotonic() - began_s) / (len(found) + len(done))
        more = zip(found, on_links, strict=True)
        done = [*(each.measured(watch, application.felt, proof, moved, seconds) for each, moved in more), *done]
    for each in cells:
        if why := moving.unfit(each.setting.mechanism, specs):
            done.append(Measured(each, trouble=f"does not apply: {why}"))
    return done


def _one_after_the_other(bench: "_Bench", cells: list[Cell]) -> tuple[list["_Found"], list[Measured]]:
    """What was found, and the one that failed."""
    found: list[_Found] = []
    for cell in cells:
        try:
            found.append(bench.cell(cell, last=cell is cells[-1]))
        except PeregrineError as error:
            return found, [Measured(cell, trouble=error.what, failed=True)]
    return found, []


@dataclass(frozen=True)
class _Found:
    cell: Cell
    plan: str
    calm_ms: float
    requested_ms: float
    until_ms: float
    trigger_ms: float | None
    forecast: Forecast | None
    stretch: tuple[traffic.Positions, traffic.Positions]
    moved: KeySet  # of the first operator that moves: others of the same application have the same keys

    def measured(self, watch: Watch, felt: bool, proof: Proof, on_links: int | None, seconds: float) -> Measured:
        """`felt`: as the keys that moved felt it, by Falcon's definitions; else as all results did."""
        try:
            cost, outputs = self.cost(watch, felt)
        except PeregrineError as error:  # the other cells of the run may be fine
            return Measured(self.cell, trouble=error.what, failed=True)
        seen = outputs.between(self.calm_ms, self.until_ms)
        return Measured(
            self.cell,
            cost,
            seen,
            self.trigger_ms,
            on_links,
            proof,
            self.forecast,
            seconds,
        )

    def cost(self, watch: Watch, felt: bool) -> tuple[measure.Cost, measure.Outputs]:
        outputs = watch.outputs(_named(watch, self.moved)) if felt else watch.outputs()
        steady = outputs.steady(self.calm_ms, self.requested_ms)
        return measure.cost(self.plan, outputs, watch.timeline, steady, self.requested_ms, self.until_ms), outputs


def _named(watch: Watch, keys: KeySet) -> set[str]:
    """Those of the keys of which there are results."""
    chunks = [chunk for each in list(watch.arrived) for chunk in each.keys.chunks]
    return {key for key in pa.chunked_array(chunks, pa.string()).unique().to_pylist() if key in keys}


class _Bench:
    """A deployment in which rows flow."""

    def __init__(self, running: Running, flow: Flow, seen: dict[OpId, list[str]], feed: Feed, watch: Watch) -> None:
        self.running = running
        self._watch = watch
        self.flow = flow
        self._seen = seen
        self._feed = feed
        self._plans = self._epochs = 0

    def cell(self, cell: Cell, last: bool) -> _Found:
        setting = cell.setting
        source, target = PlaceId(CLOUD), PlaceId(_edge(setting.edges))
        moved = [self._moving(setting, op, keys) for op, keys in self._seen.items()]
        begin = traffic.positions(self.running.deployment)
        if setting.planned:
            replicas = sum(map(len, self.running.planner.replicate(moved[0].spec.op, setting.strategy).values()))
        else:
            replicas = self._keep_replicas(moved)
        if replicas:  # they are part of the calm once they are there
            time.sleep(REPLICAS_S + replicas * self._key_bytes(setting) / REPLICA_BYTES_PER_S)
        calm_ms = now_ms()
        time.sleep(setting.calm_s)
        self.flow.check()
        trigger_ms = self._trigger_ms(calm_ms)
        said: Prediction | None = None
        lessons = self.running.planner.predictor.lessons if setting.planned else 0
        if setting.planned:
            plan, requested_ms, said = self._planned(setting, moved[0], source, target)
        else:
            requested_ms = now_ms()
            plan = self._submit(moving.mechanism_of(setting, moved), self._chunks(setting, moved))
        self._wait(plan)
        time.sleep(setting.settle_s)
        until_ms = now_ms()
        end = traffic.positions(self.running.deployment)
        if not last:
            for each in moved:  # those of what has moved are gone already; other edges have some as well
                self.running.planner.replicas.keep(each.spec.op, {})
            self._wait(self._submit("live", self._chunks(setting, moved, back=True)))
            self._renew()
            self.flow.warm_up(AGAIN_S)
        forecast = Forecast(said.duration_ms, said.bytes_moved, lessons, said.pause_ms) if said is not None else None
        keys = moving.key_set(moved[0].spec, moved[0].units)
        found = _Found(cell, plan, calm_ms, requested_ms, until_ms, trigger_ms, forecast, (begin, end), keys)
        if said is not None:
            cost = found.cost(self._watch, self._feed.application.felt)[0]
            self.running.planner.learn_pause(said, pause_ms(cost))
        return found

    def _chunks(self, setting: Setting, moved: list[moving.Moving], back: bool = False) -> list[moving.Chunk]:
        """There, or back again: at once, but for what does not fit into a batch."""
        if back and not setting.chunk_keys:
            moved = [replace(each, chunks=[each.units]) for each in moved]
        if setting.hosts is not None:
            hosts = [setting.hosts[-1], setting.hosts[0]] if back else setting.hosts
            return moving.rescale(moved, _hosts(setting.hosts), hosts)
        path = _path(setting, setting.edges)
        legs = pairwise(path) if setting.way == "hop by hop" and not back else [(path[0], path[-1])]
        return [chunk for leg in legs for chunk in moving.between(moved, *(leg[::-1] if back else leg))]

    def _renew(self) -> None:
        """What the target still has of the last cell must be of no use to the next."""
        if not (stream := self._feed.application.renewed_by):
            return
        self._epochs += 1
        (keys,) = self._seen.values()
        for key in dict.fromkeys(keys):
            record = hoard.renewal(stream, key, self._epochs, int(now_ms()))
            self.flow.send((self._feed.devices[-1], stream, record))

    def _trigger_ms(self, from_ms: float) -> float | None:
        """None if a batch takes longer than the calm."""
        try:
            return stream.trigger_ms(self.running.deployment.host.query, from_ms)
        except PeregrineError:
            return None

    def _planned(
        self, setting: Setting, moved: moving.Moving, source: PlaceId, target: PlaceId
    ) -> tuple[str, float, Prediction]:
        planner = self.running.planner
        move = Move(moved.spec.op, moving.key_set(moved.spec, moved.units), source, target)
        preview = planner.plan([move], setting.strategy, setting.mechanism)
        log.info("%s", preview.describe())
        requested_ms = now_ms()
        under_way = preview.start()
        return under_way.id, requested_ms, under_way.wait(PATIENCE_S).predicted

    def _moving(self, setting: Setting, op: OpId, keys: list[str]) -> moving.Moving:
        application = self._feed.application
        by = "groups" if setting.hosts is not None else setting.by or application.by
        edges = [PlaceId(_edge(nth)) for nth in range(1, setting.edges + 1)]
        places = edges if setting.hosts is None else _hosts(setting.hosts)
        return moving.moving(setting, by, self.running.deployment.specs[op], keys, self._key_bytes(setting), places)

    def _key_bytes(self, setting: Setting) -> int:
        application = self._feed.application
        return application.key_bytes({**application.parameters, **setting.parameters})

    def _submit(self, mechanism: str, chunks: list[moving.Chunk]) -> str:
        self._plans += 1
        plan = moving.plan(f"move{self._plans}", mechanism, chunks)
        self.running.deployment.submit(plan)
        return plan.id

    def _wait(self, plan: str) -> None:
        ended = self.running.deployment.wait(plan, PATIENCE_S)
        if ended.outcome != "done":
            raise PeregrineError(f"the plan {plan} has {ended.outcome}", "see the routers' logs")

    def _keep_replicas(self, moved: list[moving.Moving]) -> int:
        """Returns how many there will be."""
        for each in moved:
            self.running.planner.replicas.keep(each.spec.op, each.replicas)
        return sum(len(units) for each in moved for units in each.replicas.values())


@contextmanager
def _deployed(
    application: Application, compiled: Compiled, feed: Feed, ops: list[OpId], watch: Watch
) -> Iterator[_Bench]:
    setting = feed.setting
    seen: dict[OpId, list[str]] = {op: [] for op in ops}
    sites = [_edge(nth) for nth in range(1, setting.edges + 1)][-len(feed.devices) :]
    elsewhere: dict[str, dict[str, list[str]]] = {}
    for device, op, key in feed.first(compiled, SAMPLE_S):
        if op not in seen:
            continue
        site = sites[feed.devices.index(device)]
        if setting.hosts is None and site != sites[-1]:
            elsewhere.setdefault(op, {}).setdefault(site, []).append(key)  # they are where their devices are
        else:
            seen[OpId(op)].append(key)
    at: At = {op: {site: sorted(set(keys)) for site, keys in found.items()} for op, found in elsewhere.items()}
    app = application.app(feed.devices, setting.parameters)
    started = _started(setting, compiled, ops) if setting.hosts is not None else at
    settings: dict[str, Any] = {"watch": watch.on_news, "keep_journal": True, **setting.hosting}
    with run(app, topology=_topology(setting), at=started, **settings) as running:
        flow = Flow(running, feed, sites if setting.hosts is None else [CLOUD])
        flow.start(watch)
        try:
            flow.warm_up(setting.warm_s)
            yield _Bench(running, flow, seen, feed, watch)
        finally:
            flow.close()


def _topology(setting: Setting) -> Topology:
    if setting.hosts is not None:
        return Topology.tree(CLOUD, {}, {CLOUD: [place.partition("/")[2] for place in _hosts(setting.hosts)]})
    link = Link(setting.round_trip_ms / 2 / (setting.levels - 1), setting.bandwidth_mbps)
    ways = (pairwise(_path(setting, nth)) for nth in range(1, setting.edges + 1))
    return Topology.tree(CLOUD, {SiteId(below): (SiteId(above), link) for way in ways for above, below in way})


def _path(setting: Setting, edge: int) -> list[PlaceId]:
    """From the cloud to an edge: each has sites of its own on its way."""
    between = [PlaceId(f"above{level}-{edge}") for level in range(setting.levels - 2, 0, -1)]
    return [PlaceId(CLOUD), *between, PlaceId(_edge(edge))]


def _edge(nth: int) -> str:
    return f"edge{nth}"


def _hosts(hosts: Iterable[int]) -> list[PlaceId]:
    return [PlaceId(f"{CLOUD}/h{nth}") for nth in range(max(hosts))]


def _started(setting: Setting, compiled: Compiled, ops: list[OpId]) -> At:
    """Groups dealt out to the hosts that there are in the beginning."""
    assert setting.hosts is not None
    first, places = setting.hosts[0], _hosts(setting.hosts)
    return {
        op: {
            places[host]: moving.key_set(
                compiled.specs[op],
                [group for group in range(compiled.specs[op].groups) if moving.host_of(group, first) == host],
            )
            for host in range(first)
        }
        for op in ops
    }
