"""Peregrine: half of the keys go from one host of a site to another, live or by a restart. No link is in the way."""

import time
from pathlib import Path

from peregrine import measure, proof
from peregrine.bench.engine.definition import Setting
from peregrine.bench.peers.catalogue import SATURATED
from peregrine.bench.peers.seen import Facts, Seen
from peregrine.bench.spark import stream, throughput
from peregrine.bench.spark.stream import CLOUD, Stream, now_ms
from peregrine.control.local import local
from peregrine.core.keyspace import KeySet
from peregrine.core.topology import Topology
from peregrine.types import SiteId
from peregrine.workloads import road, tm

KEYS = 10
ROWS = 400_000  # at saturation
HALF = KeySet.of_keys(tm.GROUPS, [road.vehicle(n, KEYS) for n in range(KEYS // 2)])
HOSTS = ("h1", "h2")
PLAN = "peers"


def run(way: str, setting: Setting, directory: Path) -> Seen:
    if way == SATURATED:
        return _saturated(directory)
    workload = stream.traffic(KEYS)
    timeline: list[tuple[float, object]] = []
    topology = Topology.tree(CLOUD, {}, {CLOUD: HOSTS})
    source, target = topology.places(CLOUD)
    with local(
        topology, workload.specs, workload.operators, watch=lambda news: timeline.append((now_ms(), news))
    ) as up:
        flow = Stream(up, workload, CLOUD, timeline)
        try:
            flow.warm_up(KEYS, setting.warm_s, setting.rows_per_s)
            calm_ms = now_ms()
            time.sleep(setting.calm_s)
            flow.move(PLAN, HALF, SiteId(source), SiteId(target), mechanism=way)
            flow.wait(PLAN)
            time.sleep(setting.settle_s)
            until_ms = now_ms()
            flow.drain()
            cost = flow.cost(PLAN, calm_ms, until_ms)
            return Seen(_facts(cost, flow.prove(), calm_ms, until_ms), flow.outputs())
        finally:
            flow.close()


def _facts(cost: measure.Cost, proved: proof.Proof, calm_ms: float, until_ms: float) -> Facts:
    return Facts(proved, calm_ms, until_ms, cost.requested_ms, cost.ended_ms, cost.bytes_moved)


def _saturated(directory: Path) -> Seen:
    began_ms = now_ms()
    run = throughput.saturated(directory, ROWS, KEYS)
    proved = proof.prove(ROWS, run.results, road.results(ROWS, KEYS), {}, {})
    return Seen(Facts(proved, began_ms, now_ms(), max_rows_per_s=throughput.rows_per_s(run.told)))
