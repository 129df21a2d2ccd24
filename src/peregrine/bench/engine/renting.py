"""Cells that tell what a deployment would cost in a month (Shepherd VI-C): what it rents, and what it sends.

A day of five cameras goes by in seconds: each step stands for an hour, in which some of them see traffic and send
frames. Frames are looked at in the cloud, at the edge, or, `hourly`, wherever this hour is cheaper: the operator moves,
live. Nothing is measured for that: the cell knows beforehand how many cameras see traffic in the hour that begins. The
edge is rented while somebody looks at frames there. Bytes are those that came to the cloud over its link, by its
journal, multiplied: from seconds to hours, and from our frames to the size of Shepherd's.
"""

import time

from peregrine import Link, Topology, run
from peregrine.app.compile import compile_app
from peregrine.bench.engine import traffic
from peregrine.bench.engine.applications import APPLICATIONS
from peregrine.bench.engine.definition import Cell
from peregrine.bench.engine.flow import Feed, Flow
from peregrine.bench.engine.measured import Measured, of_results
from peregrine.bench.engine.reference import prove
from peregrine.bench.spark.stream import now_ms
from peregrine.control.running import At, Running
from peregrine.control.watch import Watch
from peregrine.errors import PeregrineError
from peregrine.types import SiteId
from peregrine.workloads.generate.cameras import HEIGHT, WIDTH

CLOUD, EDGE = SiteId("cloud"), SiteId("edge1")
# How many cameras see traffic, hour by hour: streets that are busy all day, at some hours, or hardly ever.
ACTIVE = (0, 0, 0, 0, 1, 1, 2, 4, 5, 5, 3, 2, 3, 3, 2, 3, 5, 5, 4, 2, 1, 1, 0, 0)
DAYS = 30
HOUR_S = 3600.0
# Dollars. A machine in the cloud, what one costs more at the edge, and what is charged for a GB over a private link.
MACHINE_PER_HOUR = 0.17
EDGE_SURCHARGE = 0.4
TRANSFER_PER_GB = 0.01
FRAME_BYTES = 130_000  # Shepherd's
OUR_FRAME_BYTES = 2 * HEIGHT * WIDTH  # with its background
KEPT = 0.2  # of what comes in as frames goes out as results, at most


def run_cell(cell: Cell) -> Measured:
    setting = cell.setting
    application = APPLICATIONS[setting.app]
    feed = Feed(application, setting)
    app = application.app(feed.devices, setting.parameters)
    compiled = compile_app(app)
    link = Link(setting.round_trip_ms / 2, setting.bandwidth_mbps)
    operator = application.operators[0]
    at: At = {operator: {EDGE: None}} if setting.mechanism == "edge" else {}
    watch = Watch({})
    tree = Topology.tree(CLOUD, {EDGE: (CLOUD, link)})
    with run(app, topology=tree, at=at, watch=watch.on_news, keep_journal=True) as running:
        flow = Flow(running, feed, [EDGE] * len(feed.devices))
        flow.start(watch)
        try:
            flow.warm_up(setting.warm_s)
            calm_ms = now_ms()
            time.sleep(setting.calm_s)
            requested_ms = now_ms()
            here, edge_hours, hours = EDGE if at else CLOUD, 0, []
            for active in ACTIVE:
                begin = traffic.positions(running.deployment)
                site = at_hour(setting.mechanism, active, setting.rows_per_s / len(feed.devices))
                if site != here:
                    _move(running, operator, site)
                    here = site
                flow.silent = set(feed.devices[active:])
                time.sleep(setting.changes_s / len(ACTIVE))
                hours.append((begin, traffic.positions(running.deployment)))
                edge_hours += here == EDGE
            ended_ms = now_ms()
            flow.silent = set()
            time.sleep(setting.settle_s)
            flow.check()
            until_ms = now_ms()
            flow.stop()
            running.finish()
            found = prove(compiled, flow.sent, running)
            sent = traffic.row_bytes(running.deployment, hours, CLOUD)
        finally:
            flow.close()
    as_hours = HOUR_S * len(ACTIVE) / setting.changes_s
    dollars = per_month(sum(sent) * as_hours * FRAME_BYTES / OUR_FRAME_BYTES, edge_hours)
    outputs = watch.outputs()
    return of_results(cell, outputs, calm_ms, requested_ms, ended_ms, until_ms, proof=found, per_month=dollars)


def at_hour(way: str, active: int, frames_per_s: float) -> SiteId:
    """Where so many cameras are looked at; each sends so many frames when it sees something."""
    if way != "hourly":
        return EDGE if way == "edge" else CLOUD
    saved_gb = active * frames_per_s * HOUR_S * FRAME_BYTES * (1 - KEPT) / 1e9
    return EDGE if saved_gb * TRANSFER_PER_GB > MACHINE_PER_HOUR * EDGE_SURCHARGE else CLOUD


def per_month(bytes_a_day: float, edge_hours: int) -> float:
    machines = MACHINE_PER_HOUR * (len(ACTIVE) + EDGE_SURCHARGE * edge_hours)
    return DAYS * (machines + bytes_a_day / 1e9 * TRANSFER_PER_GB)


def _move(running: Running, operator: str, site: SiteId) -> None:
    moved = running.move(operator, to=site)
    if moved.outcome != "done":
        raise PeregrineError(f"{operator} did not move: {moved.outcome}", "see the log of the deployment")
