"""Cells in which a car drives from edge to edge and its key comes after it (Falcon III-F).

`drive`: at every edge it stays until its key has come. `pass`: it stays at the last one only, so the key waits above
them. `ping-pong`: it goes to and fro between two edges before its key could follow, and at last stays at the second.
`ping-pong-late`: it turns back whenever its key is on the way down to it, and that leg is given up. What is measured is
what the results of the car feel from the first hand-over to the last, and what goes over links meanwhile. Of a `drive`
each hand-over is judged by itself as well (`handovers.py`), so there is a little calm before each.
"""

from collections.abc import Iterator
from enum import Enum, auto
from functools import partial
from math import ceil
from typing import Any

from peregrine import Link, Topology
from peregrine.bench.engine import traffic as links
from peregrine.bench.engine.definition import Cell, Setting
from peregrine.bench.engine.handovers import HandOver, worst_share
from peregrine.bench.engine.measured import Measured, Roamed, of_results
from peregrine.bench.spark import stream
from peregrine.control.local import local
from peregrine.control.traffic import Traffic, proved, watched
from peregrine.control.watch import Journey, Watch
from peregrine.core.keyspace import KeySet
from peregrine.core.mobility import Phase
from peregrine.types import PlaceId, SiteId
from peregrine.workloads import tm

CLOUD = SiteId("cloud")
CARS, DRIVER = 10, "car0"
DWELL_MS = 2000
PASSING_S = DWELL_MS / 1000 / 2  # at an edge at which it does not stay
TURNS = 6  # of a ping-pong
LATE_TURNS = 4  # each of them takes as long as the key waits above
LAST_S, CALM_S = 0.5, 2.0  # a hand-over's last results come; nothing moves before the next one,
CALM_BATCHES = 3  # for so many intervals at least
REST_S = 1.0  # after Spark was asked
SITES_ABOVE = 4  # a site between cloud and edges has at most so many below it


class Stay(Enum):
    """At an edge."""

    SHORT = auto()  # its key cannot follow
    TILL_IT_COMES = auto()  # the key is on its way down
    FOR_GOOD = auto()  # the key has come


def run_cell(cell: Cell) -> Measured:
    setting = cell.setting
    edges = [SiteId(f"edge{nth}") for nth in range(1, setting.edges + 1)]
    homes = {car: edges[nth % len(edges)] for nth, car in enumerate(tm.vehicles(CARS))}
    specs, operators = tm.specs(), tm.operators()
    initial = [(tm.MOV_AVG, KeySet.of_keys(tm.GROUPS, [car]), PlaceId(edge)) for car, edge in homes.items()]
    watch = Watch(homes)
    tree = topology(edges, setting)
    between_s = max(CALM_S, CALM_BATCHES * setting.trigger_ms / 1000)
    settings: dict[str, Any] = {"watch": watch.on_news, "keep_journal": True, "dwell_ms": DWELL_MS, **setting.hosting}
    with local(tree, specs, operators, initial, **settings) as deployment:
        cars = Traffic(deployment, homes, setting.rows_per_s, watch)
        with watched(deployment, watch):
            cars.first_results()
            cars.flow(setting.warm_s)
            begin, begun_rows = links.positions(deployment), len(cars.sent)
            calm = _Calm(cars, watch, deployment.host.query if setting.runner == "microbatch" else None, setting.calm_s)
            calm_ms, trigger_ms = calm.from_ms, calm.batch_ms
            drives, calm_rows = links.positions(deployment), len(cars.sent) - begun_rows
            requested_ms = ended_ms = watch.now_ms()
            handovers: list[HandOver] = []
            for edge, stay in stops(setting.mechanism, edges):
                moved_ms = watch.now_ms()
                cars.devices[DRIVER].move(edge)
                if stay is Stay.SHORT:
                    cars.flow(PASSING_S)
                    continue
                if stay is Stay.TILL_IT_COMES:
                    cars.flow_until(partial(_comes, watch, edge), f"the key of {DRIVER} is on its way to {edge}")
                    continue
                cars.flow_until(partial(_owns, watch, edge), f"the key of {DRIVER} is at {edge}")
                ended_ms = watch.now_ms()
                if setting.mechanism == "drive":
                    cars.flow(LAST_S)
                    before, calm = calm, _Calm(cars, watch, calm.query, between_s)
                    if before.batch_ms is not None and calm.batch_ms is not None:
                        interval_ms = max(setting.trigger_ms, before.batch_ms, calm.batch_ms)
                        handovers.append(HandOver(before.span_ms, moved_ms, calm.from_ms, interval_ms))
            cars.flow(setting.settle_s)
            until_ms, end = watch.now_ms(), links.positions(deployment)
            proof = proved(deployment, cars, specs, operators, watch, initial)
            (on_links,) = links.state_bytes(deployment, [(begin, end)])
            in_calm, in_drive = links.rows_on_links(deployment, [(begin, drives), (drives, end)], tm.MOV_AVG)
    outputs = watch.outputs({DRIVER})
    drive_rows = len(cars.sent) - begun_rows - calm_rows
    roamed = roamed_of(in_calm, in_drive, drive_rows / calm_rows, watch)
    more: dict[str, Any] = {"trigger_ms": trigger_ms, "bytes_on_links": on_links, "roamed": roamed, "proof": proof}
    worst = worst_share(handovers, outputs, watch.outputs(but={DRIVER}), setting.round_trip_ms)
    if worst is not None:
        more["handover"], more["handover_of_others"] = worst
    return of_results(cell, outputs, calm_ms, requested_ms, ended_ms, until_ms, **more)


class _Calm:
    """Some seconds in which nothing moves. To ask Spark how long its batches took keeps it from them, and cars from
    sending, for half a second: that is not part of the calm, and things come to rest before anything moves.
    """

    def __init__(self, cars: Traffic, watch: Watch, query: Any | None, seconds: float) -> None:
        self.query = query  # none: there are no batches
        self.from_ms = watch.now_ms()
        cars.flow(seconds)
        self.span_ms = (self.from_ms, watch.now_ms())
        self.batch_ms = None if query is None else stream.trigger_ms(query, self.from_ms)
        if query is not None:
            cars.flow(REST_S)


def _owns(watch: Watch, edge: SiteId) -> bool:
    return watch.owners[DRIVER] == edge


def _comes(watch: Watch, edge: SiteId) -> bool:
    journey = watch.under_way
    return journey is not None and journey.target == edge and _is_second_leg(journey)


def _is_second_leg(journey: Journey) -> bool:
    return journey.plan.endswith(f"-{Phase.DOWN}")


def roamed_of(calm: links.RowBytes, drive: links.RowBytes, times: float, watch: Watch) -> Roamed:
    """`times`: for each row that was sent in the calm, so many while the car drove. Cars are silent while Spark is
    asked, so seconds would tell less.
    """
    given_up = sum(_is_second_leg(each) and "aborted" in each.steps for each in watch.journeys.values())
    return Roamed(drive.every, round(calm.every * times), drive.up, drive.down, given_up)


def stops(way: str, edges: list[SiteId]) -> Iterator[tuple[SiteId, Stay]]:
    """Where the car goes from the first edge on, and how long it stays there."""
    match way:
        case "drive":
            yield from ((edge, Stay.FOR_GOOD) for edge in edges[1:])
        case "pass":
            yield from ((edge, Stay.FOR_GOOD if edge == edges[-1] else Stay.SHORT) for edge in edges[1:])
        case "ping-pong-late":
            yield from _turns(edges, LATE_TURNS, Stay.TILL_IT_COMES)
        case _:
            yield from _turns(edges, TURNS, Stay.SHORT)


def _turns(edges: list[SiteId], turns: int, stay: Stay) -> Iterator[tuple[SiteId, Stay]]:
    """To and fro between the first two, and for good at the second."""
    yield from ((edges[(turn + 1) % 2], Stay.FOR_GOOD if turn == turns else stay) for turn in range(turns + 1))


def topology(edges: list[SiteId], setting: Setting) -> Topology:
    """Of so many levels; the way from an edge to the cloud is as long whatever lies on it."""
    between = setting.levels - 2
    link = Link(setting.round_trip_ms / 2 / (between + 1), setting.bandwidth_mbps)
    parents: dict[SiteId, tuple[SiteId, Link]] = {}
    below = edges
    for level in range(between):
        above = [SiteId(f"region{level}-{nth}") for nth in range(1, ceil(len(below) / SITES_ABOVE) + 1)]
        parents |= {site: (above[nth // SITES_ABOVE], link) for nth, site in enumerate(below)}
        below = above
    return Topology.tree(CLOUD, parents | dict.fromkeys(below, (CLOUD, link)))
