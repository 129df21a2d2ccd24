"""Cells in which an operator comes to one more edge while all others go on (Shepherd VI-E to VI-G).

There is a feed at each edge, and what handles its rows is at that edge, but for the last one: that feed begins to send,
its rows are handled in the cloud, and then the operator comes to its edge. Or, `nearer`, there is one edge, which has
the first operator, and the one behind it comes there. What is measured is what all results feel, those of the other
edges too: a system that stops to change stops for all.
"""

import time
from collections.abc import Mapping

import numpy as np

from peregrine import Link, Topology, measure, run
from peregrine.app.compile import Compiled, compile_app
from peregrine.bench.engine.applications import APPLICATIONS
from peregrine.bench.engine.definition import Cell
from peregrine.bench.engine.flow import Feed, Flow
from peregrine.bench.engine.measured import Felt, Measured, of_results
from peregrine.bench.engine.reference import prove
from peregrine.bench.spark.stream import now_ms
from peregrine.control.running import At
from peregrine.control.watch import Watch
from peregrine.core.keyspace import KeySet
from peregrine.errors import PeregrineError
from peregrine.types import SiteId

CLOUD = SiteId("cloud")
SAMPLE_S = 4.0  # of rows: the keys that come in it are those that there are


def run_cell(cell: Cell) -> Measured:
    setting = cell.setting
    application = APPLICATIONS[setting.app]
    feed = Feed(application, setting)
    app = application.app(feed.devices, setting.parameters)
    compiled = compile_app(app)
    edges = [SiteId(f"edge{nth}") for nth in range(1, setting.edges + 1)]
    keys: Mapping[str, KeySet | None] = dict.fromkeys(feed.devices) if setting.nearer else keys_of(feed, compiled)
    last = feed.devices[-1]
    first, moves = application.operators[0], application.operators[1 if setting.nearer else 0]
    homes = zip(edges, feed.devices, strict=True)
    there: At = {first: {edge: keys[device] for edge, device in homes if setting.nearer or device != last}}
    link = Link(setting.round_trip_ms / 2, setting.bandwidth_mbps)
    tree = Topology.tree(CLOUD, dict.fromkeys(edges, (CLOUD, link)))
    watch = Watch({})
    with run(app, topology=tree, at=there, watch=watch.on_news, keep_journal=True) as running:
        flow = Flow(running, feed, list(edges))
        flow.silent = set() if setting.nearer else {last}
        flow.start(watch)
        try:
            flow.warm_up(setting.warm_s)
            flow.silent = set()
            flow.warm_up(setting.warm_s / 2)
            calm_ms = now_ms()
            time.sleep(setting.calm_s)
            requested_ms = now_ms()
            moved = running.move(moves, to=edges[-1], keys=keys[last], mechanism=setting.mechanism)
            if moved.outcome != "done":
                raise PeregrineError(f"{moves} did not move: {moved.outcome}", "see the log of the deployment")
            ended_ms = now_ms()
            time.sleep(setting.settle_s)
            flow.check()
            until_ms = now_ms()
            flow.stop()
            running.finish()
            found = prove(compiled, flow.sent, running)
        finally:
            flow.close()
    outputs = watch.outputs()
    felt = feels(outputs, calm_ms, requested_ms, until_ms, setting.agreed_ms)
    return of_results(cell, outputs, calm_ms, requested_ms, ended_ms, until_ms, proof=found, felt=felt)


def keys_of(feed: Feed, compiled: Compiled) -> dict[str, KeySet]:
    """Of each device."""
    found: dict[str, dict[str, None]] = {device: {} for device in feed.devices}
    for device, op, key in feed.first(compiled, SAMPLE_S):
        found[device][key] = None
        groups = compiled.specs[op].groups
    return {device: KeySet.of_keys(groups, keys) for device, keys in found.items()}


def feels(outputs: measure.Outputs, calm_ms: float, requested_ms: float, until_ms: float, agreed_ms: float) -> Felt:
    since = outputs.between(requested_ms, until_ms)
    late = since.emitted_ms[since.latency_ms > agreed_ms]
    usual_ms = longest_gap_ms(outputs.emitted_ms, calm_ms, requested_ms)
    return Felt(
        max(longest_gap_ms(outputs.emitted_ms, requested_ms, until_ms) - usual_ms, 0.0),
        len(late),
        float(late.max() - late.min()) if len(late) else 0.0,
    )


def longest_gap_ms(emitted_ms: measure.Milliseconds, from_ms: float, to_ms: float) -> float:
    """In which nothing came; a stretch with nothing at its end counts too."""
    mine = emitted_ms[(emitted_ms >= from_ms) & (emitted_ms < to_ms)]
    return float(np.diff(np.concatenate(([from_ms], np.sort(mine), [to_ms]))).max())
