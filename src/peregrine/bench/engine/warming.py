"""Cells in which a DataFrame operator moves: its new query is warm or cold when the first rows come (Shepherd VI-H)."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from peregrine import Link, Topology, measure, proof, run
from peregrine.bench.engine.applications import APPLICATIONS
from peregrine.bench.engine.definition import Cell
from peregrine.bench.engine.flow import Feed, Flow, Sent
from peregrine.bench.engine.measured import Measured, of_results
from peregrine.bench.engine.scores import score_of
from peregrine.bench.spark.stream import now_ms
from peregrine.control.running import Running
from peregrine.control.watch import Watch
from peregrine.core.messages import Report
from peregrine.errors import PeregrineError
from peregrine.types import SiteId

CLOUD, EDGE = SiteId("cloud"), SiteId("edge1")
BIN_MS = 1000.0  # Shepherd's throughput is that of seconds


def run_cell(cell: Cell) -> Measured:
    setting = cell.setting
    application = APPLICATIONS[setting.app]
    feed = Feed(application, setting)
    link = Link(setting.round_trip_ms / 2, setting.bandwidth_mbps)
    watch = Watch({})
    app = application.app(feed.devices, setting.parameters)
    tree = Topology.tree(CLOUD, {EDGE: (CLOUD, link)})
    with run(app, topology=tree, warm_up=setting.mechanism == "warm", watch=watch.on_news) as running:
        flow = Flow(running, feed, [EDGE])
        flow.start(watch)
        try:
            flow.warm_up(setting.warm_s)
            calm_ms = now_ms()
            time.sleep(setting.calm_s)
            requested_ms = now_ms()
            if running.move(application.operators[0], to=EDGE).outcome != "done":
                raise PeregrineError("the operator has not moved", "see the routers' logs")
            ended_ms = now_ms()
            time.sleep(setting.settle_s)
            until_ms = now_ms()
            flow.stop()
            running.finish()
            found = _prove(flow.sent, running)
        finally:
            flow.close()
    outputs = watch.outputs()
    begun_ms = _begun_ms(watch, requested_ms)
    calm = (calm_ms, requested_ms)
    dips = {
        "dip_before": dip(outputs.emitted_ms, calm, (requested_ms, begun_ms)),  # a query is started, and practises
        "dip": dip(outputs.emitted_ms, calm, (begun_ms, until_ms)),
    }
    return of_results(cell, outputs, calm_ms, requested_ms, ended_ms, until_ms, proof=found, **dips)


def _begun_ms(watch: Watch, requested_ms: float) -> float:
    """When the manager began to move the operator: all that goes before happens in the background."""
    begun = (at_ms for at_ms, news in watch.timeline if isinstance(news, Report) and news.status == "begun")
    return next(at_ms for at_ms in begun if at_ms >= requested_ms)


Span = tuple[float, float]


def dip(emitted_ms: measure.Milliseconds, calm_ms: Span, other_ms: Span) -> float | None:
    """The share by which fewer results came in the worst second of a time than in the worst of the calm; None if it
    does not last a second, or the calm has a second without results.

    Results come in batches, so also in the calm not every second has as many.
    """
    calm, other = (_worst(emitted_ms, *span) for span in (calm_ms, other_ms))
    return max(1 - other / calm, 0.0) if calm and other is not None else None


def _worst(emitted_ms: measure.Milliseconds, from_ms: float, to_ms: float) -> float | None:
    """None: it does not last a second."""
    bins = np.arange(from_ms, to_ms, BIN_MS)
    return float(np.histogram(emitted_ms, bins)[0].min()) if len(bins) > 1 else None


def _prove(sent: list[Sent], running: Running) -> proof.Proof:
    """Of each record one result, those of a key in order."""
    got: proof.Lines = {}
    for each in running.records("scores"):
        got.setdefault(("scores", each.key, ""), []).append((each.n, _told(each.score)))
    should: proof.Lines = {}
    for _, _, record in sent:
        should.setdefault(("scores", _key(record), ""), []).append((record["n"], _told(score_of(record["n"]))))
    return proof.prove(len(sent), got, should, {}, {})


def _key(record: Mapping[str, Any]) -> str:
    return str(record["key"])


def _told(score: float) -> bytes:
    return f"{score:.6f}".encode()
