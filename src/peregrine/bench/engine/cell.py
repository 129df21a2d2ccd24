"""Cells on Spark: a deployment, rows that flow, a reconfiguration, and what it cost.

Cells may share a deployment: then what moved is moved back in between, live, which nobody measures. Each cell is held
against the calm just before it. The proof is of the whole run, so every cell of it has the same.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from peregrine import Link, Topology, measure, run
from peregrine.app.compile import Compiled, compile_app
from peregrine.bench.engine import moving, traffic
from peregrine.bench.engine.applications import APPLICATIONS, Application
from peregrine.bench.engine.definition import Cell, Setting
from peregrine.bench.engine.flow import Feed, Flow
from peregrine.bench.engine.reference import prove
from peregrine.bench.spark import stream
from peregrine.bench.spark.stream import now_ms
from peregrine.control.running import At, Running
from peregrine.control.watch import Watch
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.messages import KeepReplicas
from peregrine.core.reconfigure import Plan
from peregrine.errors import PeregrineError
from peregrine.proof import Proof
from peregrine.types import OpId, PlaceId, SiteId

CLOUD = SiteId("cloud")
PATIENCE_S = 180.0
SAMPLE_S = 2.0  # of rows after the preloaded ones: the keys that come in it are those that there are


@dataclass(frozen=True)
class Measured:
    """What one cell found. `trouble` says why it found nothing: the mechanism does not apply, or the run failed."""

    cell: Cell
    cost: measure.Cost | None = None
    outputs: measure.Outputs | None = None  # from the calm on
    trigger_ms: float | None = None
    bytes_on_links: int | None = None  # of the whole run; None if other cells were part of it
    proof: Proof | None = None
    seconds: float = 0.0
    trouble: str = ""
    failed: bool = False


def may_share(cell: Cell) -> bool:
    """Does it leave nothing behind that the next cell, or the proof of the run, would notice?"""
    mechanism = MECHANISMS[cell.setting.mechanism]
    return mechanism.ordered and mechanism.lossless and not cell.setting.replicate and cell.setting.hosts is None


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
        outputs = watch.outputs()
        done = [each.measured(watch, outputs, proof, on_links, seconds) for each in found]
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
    trigger_ms: float

    def measured(
        self, watch: Watch, outputs: measure.Outputs, proof: Proof, on_links: int | None, seconds: float
    ) -> Measured:
        calm = outputs.between(self.calm_ms, self.requested_ms)
        steady = measure.steady(calm.emitted_ms, calm.latency_ms, float("inf"))
        cost = measure.cost(self.plan, outputs, watch.timeline, steady, self.requested_ms, self.until_ms)
        seen = outputs.between(self.calm_ms, self.until_ms)
        return Measured(self.cell, cost, seen, self.trigger_ms, on_links, proof, seconds)


class _Bench:
    """A deployment in which rows flow."""

    def __init__(self, running: Running, flow: Flow, compiled: Compiled, seen: dict[OpId, list[str]], by: str) -> None:
        self.running = running
        self.flow = flow
        self._specs = compiled.specs
        self._seen = seen
        self._by = by
        self._plans = 0

    def cell(self, cell: Cell, last: bool) -> _Found:
        setting = cell.setting
        named = {op: moving.parts(setting, self._by, self._specs[op], keys) for op, keys in self._seen.items()}
        self._keep_replicas(setting, named)
        calm_ms = now_ms()
        time.sleep(setting.calm_s)
        self.flow.check()
        trigger_ms = stream.trigger_ms(self.running.deployment.host.query, calm_ms)
        edge = PlaceId(_edge(setting.edges))
        source, target = PlaceId(CLOUD), edge
        plan = self._plan(setting, named, source, target)
        requested_ms = now_ms()
        self.running.deployment.submit(plan)
        if setting.mechanism == "restart":
            self.running.deployment.host.query.stop()  # who supervises the hosts starts it again
        self._wait(plan)
        time.sleep(setting.settle_s)
        until_ms = now_ms()
        if not last:
            self._plans += 1
            back = moving.between(self._specs, named, 1, target, source)
            self._wait(moving.plan(f"back{self._plans}", "live", back), submit=True)
            self.flow.warm_up(1.0)
        return _Found(cell, plan.id, calm_ms, requested_ms, until_ms, trigger_ms)

    def _plan(self, setting: Setting, named: dict[OpId, list[Any]], source: PlaceId, target: PlaceId) -> Plan:
        self._plans += 1
        if setting.hosts is not None:
            places = _hosts(setting.hosts)
            chunks = moving.rescale(self._specs, named, setting.chunks, places, setting.hosts)
        else:
            chunks = moving.between(self._specs, named, setting.chunks, source, target)
        return moving.plan(f"move{self._plans}", setting.mechanism, chunks)

    def _wait(self, plan: Plan, submit: bool = False) -> None:
        if submit:
            self.running.deployment.submit(plan)
        ended = self.running.deployment.wait(plan.id, PATIENCE_S)
        if ended.outcome != "done":
            raise PeregrineError(f"the plan {plan.id} has {ended.outcome}", "see the routers' logs")

    def _keep_replicas(self, setting: Setting, named: dict[OpId, list[Any]]) -> None:
        root = self.running.deployment.clients[CLOUD]
        for op, parts in named.items():
            chosen = parts[: round(len(parts) * setting.replicate)]
            for nth in range(1, setting.edges + 1) if chosen else ():
                keys = moving.key_set(self._specs[op], chosen)
                root.offer(KeepReplicas(op, keys, PlaceId(CLOUD), PlaceId(_edge(nth))))


@contextmanager
def _deployed(
    application: Application, compiled: Compiled, feed: Feed, ops: list[OpId], watch: Watch
) -> Iterator[_Bench]:
    setting = feed.setting
    by = setting.by or application.by
    seen: dict[OpId, list[str]] = {op: [] for op in ops}
    sites = [_edge(nth) for nth in range(1, setting.edges + 1)]
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
            yield _Bench(running, flow, compiled, seen, "groups" if setting.hosts is not None else by)
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
