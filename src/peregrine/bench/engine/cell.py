"""Cells on Spark: a deployment, rows that flow, a reconfiguration, and what it cost.

Cells may share a deployment: then what moved is moved back in between, live, which nobody measures. Each cell is held
against the calm just before it. The proof is of the whole run, so every cell of it has the same.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from peregrine import Link, Topology, measure, run
from peregrine.app.compile import Compiled, compile_app
from peregrine.bench.engine import moving, traffic
from peregrine.bench.engine.applications import APPLICATIONS, Application
from peregrine.bench.engine.definition import Cell, Setting
from peregrine.bench.engine.flow import Feed, Flow
from peregrine.bench.engine.measured import Forecast, Measured
from peregrine.bench.engine.reference import prove
from peregrine.bench.spark import stream
from peregrine.bench.spark.stream import now_ms
from peregrine.control.running import At, Running
from peregrine.control.watch import Watch
from peregrine.core.keyspace import KeySet
from peregrine.core.messages import KeepReplicas
from peregrine.core.reconfigure import Move
from peregrine.errors import PeregrineError
from peregrine.proof import Proof
from peregrine.types import OpId, PlaceId, SiteId

CLOUD = SiteId("cloud")
PATIENCE_S = 180.0
AGAIN_S = 1.0  # between a move back and the next calm
SAMPLE_S = 2.0  # of rows after the preloaded ones: the keys that come in it are those that there are


def run_cells(cells: list[Cell]) -> list[Measured]:
    """In one deployment: they differ in how they move, and in nothing else."""
    setting = cells[0].setting
    application = APPLICATIONS[setting.app]
    began_s = time.monotonic()
    feed = Feed(application, setting)
    compiled = compile_app(application.app(feed.devices, setting.parameters))
    ops = [OpId(f"{compiled.name}/{each}") for each in application.operators]
    fit = [each for each in cells if not moving.unfit(each.setting.mechanism, [compiled.specs[op] for op in ops])]
    done: list[Measured] = []
    if fit:
        watch = Watch({})
        with _deployed(application, compiled, feed, ops, watch) as bench:
            found = [bench.cell(each, last=each is fit[-1]) for each in fit]
            bench.flow.stop()
            bench.running.finish(PATIENCE_S)
            proof = prove(compiled, bench.flow.sent, bench.running)
            on_links = traffic.state_bytes(bench.running.deployment) if len(fit) == 1 else None
        seconds = (time.monotonic() - began_s) / len(fit)
        done = [each.measured(watch, application.felt, proof, on_links, seconds) for each in found]
    for each in cells:
        if each not in fit:
            why = moving.unfit(each.setting.mechanism, [compiled.specs[op] for op in ops])
            done.append(Measured(each, trouble=f"does not apply: {why}"))
    return done


@dataclass(frozen=True)
class _Found:
    cell: Cell
    plan: str
    calm_ms: float
    requested_ms: float
    until_ms: float
    trigger_ms: float | None
    forecast: Forecast | None
    moved: KeySet  # of the first operator that moves: others of the same application have the same keys

    def measured(self, watch: Watch, felt: bool, proof: Proof, on_links: int | None, seconds: float) -> Measured:
        """`felt`: as the keys that moved felt it, by Falcon's definitions; else as all results did."""
        outputs = watch.outputs(_named(watch, self.moved)) if felt else watch.outputs()
        calm = outputs.between(self.calm_ms, self.requested_ms)
        try:
            steady = measure.steady(calm.emitted_ms, calm.latency_ms, float("inf"))
            cost = measure.cost(self.plan, outputs, watch.timeline, steady, self.requested_ms, self.until_ms)
        except PeregrineError as error:  # the other cells of the run may be fine
            return Measured(self.cell, trouble=error.what, failed=True)
        seen = outputs.between(self.calm_ms, self.until_ms)
        return Measured(self.cell, cost, seen, self.trigger_ms, on_links, proof, self.forecast, seconds)


def _named(watch: Watch, keys: KeySet) -> set[str]:
    """Those of the keys of which there are results."""
    return {key for each in watch.arrived for key in each.keys.unique().to_pylist() if key in keys}


class _Bench:
    """A deployment in which rows flow."""

    def __init__(self, running: Running, flow: Flow, seen: dict[OpId, list[str]], feed: Feed) -> None:
        self.running = running
        self.flow = flow
        self._seen = seen
        self._feed = feed
        self._plans = 0

    def cell(self, cell: Cell, last: bool) -> _Found:
        setting = cell.setting
        source, target = PlaceId(CLOUD), PlaceId(_edge(setting.edges))
        moved = [self._moving(setting, op, keys) for op, keys in self._seen.items()]
        self._keep_replicas(moved)
        calm_ms = now_ms()
        time.sleep(setting.calm_s)
        self.flow.check()
        trigger_ms = self._trigger_ms(calm_ms)
        forecast: Forecast | None = None
        if setting.planned:
            plan, requested_ms, forecast = self._planned(setting, moved[0], source, target)
        else:
            if setting.hosts is None:
                chunks = moving.between(moved, source, target)
            else:
                chunks = moving.rescale(moved, _hosts(setting.hosts), setting.hosts)
            requested_ms = now_ms()
            plan = self._submit(moving.mechanism_of(setting, moved), chunks)
        if setting.mechanism == "restart":
            self.running.deployment.host.query.stop()  # who supervises the hosts starts it again
        self._wait(plan)
        time.sleep(setting.settle_s)
        until_ms = now_ms()
        if not last:
            self._wait(self._submit("live", moving.between(moved, target, source)))
            self.flow.warm_up(AGAIN_S)
        keys = moving.key_set(moved[0].spec, moved[0].units)
        return _Found(cell, plan, calm_ms, requested_ms, until_ms, trigger_ms, forecast, keys)

    def _trigger_ms(self, from_ms: float) -> float | None:
        """None if a batch takes longer than the calm."""
        try:
            return stream.trigger_ms(self.running.deployment.host.query, from_ms)
        except PeregrineError:
            return None

    def _planned(
        self, setting: Setting, moved: moving.Moving, source: PlaceId, target: PlaceId
    ) -> tuple[str, float, Forecast]:
        planner = self.running.planner
        move = Move(moved.spec.op, moving.key_set(moved.spec, moved.units), source, target)
        preview = planner.plan([move], setting.strategy, setting.mechanism)
        lessons = planner.predictor.lessons
        requested_ms = now_ms()
        under_way = preview.start()
        said = under_way.wait(PATIENCE_S).predicted
        return under_way.id, requested_ms, Forecast(said.duration_ms, said.bytes_moved, lessons)

    def _moving(self, setting: Setting, op: OpId, keys: list[str]) -> moving.Moving:
        application = self._feed.application
        by = "groups" if setting.hosts is not None else setting.by or application.by
        edges = [PlaceId(_edge(nth)) for nth in range(1, setting.edges + 1)] if setting.hosts is None else []
        key_bytes = application.key_bytes({**application.parameters, **setting.parameters})
        return moving.moving(setting, by, self.running.deployment.specs[op], keys, key_bytes, edges)

    def _submit(self, mechanism: str, chunks: list[moving.Chunk]) -> str:
        self._plans += 1
        plan = moving.plan(f"move{self._plans}", mechanism, chunks)
        self.running.deployment.submit(plan)
        return plan.id

    def _wait(self, plan: str) -> None:
        ended = self.running.deployment.wait(plan, PATIENCE_S)
        if ended.outcome != "done":
            raise PeregrineError(f"the plan {plan} has {ended.outcome}", "see the routers' logs")

    def _keep_replicas(self, moved: list[moving.Moving]) -> None:
        root = self.running.deployment.clients[CLOUD]
        for each in moved:
            for edge, units in each.replicas.items():
                root.offer(KeepReplicas(each.spec.op, moving.key_set(each.spec, units), PlaceId(CLOUD), edge))


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
    with run(app, topology=_topology(setting), at=started, watch=watch.on_news, keep_journal=True) as running:
        flow = Flow(running, feed, sites if setting.hosts is None else [CLOUD])
        flow.start(watch)
        try:
            flow.warm_up(setting.warm_s)
            yield _Bench(running, flow, seen, feed)
        finally:
            flow.close()


def _topology(setting: Setting) -> Topology:
    if setting.hosts is not None:
        return Topology.tree(CLOUD, {}, {CLOUD: [place.partition("/")[2] for place in _hosts(setting.hosts)]})
    link = Link(setting.round_trip_ms / 2, setting.bandwidth_mbps)
    return Topology.tree(CLOUD, {SiteId(_edge(nth)): (CLOUD, link) for nth in range(1, setting.edges + 1)})


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
