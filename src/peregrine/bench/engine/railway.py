"""Cells in which trains go from station to station while all applications run (ISQD 7, figures 1, 7 to 10, and 7.2.3).

Cloud, stations below it, trains below stations. Each train is a site with a source; each application counts what each
train reports, in the cloud (only the tree changes) or at the station above the train (its state comes after it). Every
so often a train leaves its station for the next one on the ring. With `filters` an operator without state, at the
station, picks what the application wants of the train, ahead of the count in the cloud; it goes on with the train.

`incremental` carries out what has changed, and all else goes on. The baselines stop and start the query of all
applications for each batch of changes, once (`holistic concurrent`) or once for each application (`holistic serial`);
then the tree changes. Rows wait meanwhile.

A change is carried out when its train is where it was told to be and all keys that were to follow it have followed. A
change of a redeployment that left plans out is not: its train has arrived, its keys have not. What is found is the mean
of one change; ISQD adds up those of a run. A cell in which some train never arrives fails; the rules (`carried_out` in
`expected.toml`) fail those in which keys were left behind.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from peregrine.bench.engine.definition import Cell, Setting
from peregrine.bench.engine.measured import Measured, of_results
from peregrine.bench.spark import stream
from peregrine.control.deployment import Deployment
from peregrine.control.driver import Told
from peregrine.control.local import local
from peregrine.control.traffic import Paced, proved, watched
from peregrine.control.watch import Watch
from peregrine.core.keyspace import KeySet
from peregrine.core.operator import Marks, Operator, OpSpec, Out
from peregrine.core.redeploying import Redeployed
from peregrine.core.rows import UNCHAINED, Row
from peregrine.core.topology import Link
from peregrine.errors import PeregrineError
from peregrine.net.device import Device
from peregrine.plan.redeploy.events import SiteMoved, SiteSet, Station
from peregrine.types import OpId, PlaceId, SiteId, SourceId
from peregrine.workloads.generate.ring_line import UPLINK, RingLine

GROUPS = 4
PATIENCE_S = 120.0
TURN_S = 0.01


@dataclass(frozen=True)
class Counting:
    """[reports, their sum] of each train."""

    results: OpId

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        count, total = value or (0, 0)
        after = [count + 1, total + int.from_bytes(row.payload, "big")]
        told = msgspec.msgpack.encode(after)
        return after, [Out(self.results, key, SourceId(f"{row.source}>{key}"), row.seq, row.time_ms, told)]

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        return value, []

    def open_ends(self, value: Any) -> list[int]:
        return []


@dataclass(frozen=True)
class Wanted:
    """Three reports of four go on, as they are."""

    count: OpId

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        if int.from_bytes(row.payload, "big") % 4 == 0:
            return None, []
        return None, [Out(self.count, key, SourceId(f"{row.source}>{key}"), row.seq, row.time_ms, row.payload)]

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        return None, []

    def open_ends(self, value: Any) -> list[int]:
        return []


class Railway:
    """What was sent, which changes were told, and when each was carried out."""

    def __init__(self, setting: Setting) -> None:
        uplink = Link(UPLINK.latency_ms, setting.bandwidth_mbps)
        self.ring = RingLine(setting.trains, setting.edges, uplink, shape=setting.shape)
        self.trains = [SiteId(f"train{nth}") for nth in range(setting.trains)]
        self.apps = [OpId(f"app{nth}/count") for nth in range(setting.apps)]
        self.fed = [OpId(f"app{nth}/wanted") for nth in range(setting.apps)] if setting.filters else self.apps
        self.latencies_ms: list[float] = []  # from when a change was told until it was carried out
        self.left_behind = 0  # changes whose train has arrived, and not all of its keys
        self._left_out: set[int] = set()  # redeployments
        self.sent: dict[OpId, list[Row]] = {op: [] for op in self.fed}
        self._reports = 0
        self._changes = self.ring.changes(max(int(setting.change_every_s * 1000), 1), at_once=setting.at_once)
        self._told: dict[SiteId, deque[tuple[SiteId, float]]] = {train: deque() for train in self.trains}
        self._seq = dict.fromkeys(self.trains, 0)

    def send(self, devices: Mapping[str, Device]) -> int:
        """The next report of a train, to all applications; returns how many rows that are."""
        train = self.trains[self._reports % len(self.trains)]
        payload = (self._reports % 251).to_bytes(2, "big")
        for op in self.fed:
            devices[train].send(op, key_of(train), payload)
            self.sent[op].append(Row(key_of(train), SourceId(train), self._seq[train], UNCHAINED, 0, 0, payload))
            self._seq[train] += 1
        self._reports += 1
        return len(self.fed)

    def carries_nothing(self, train: SiteId) -> SiteSet:
        """Nobody runs on a train: planning is not to look there for a place."""
        return SiteSet(Station(self.ring.topology().site(train), slots=0), 1)

    def leave(self, now_ms: float) -> list[SiteMoved]:
        """The next trains go on."""
        events = [event for event in next(self._changes).events if isinstance(event, SiteMoved)]
        for event in events:
            self._told[event.site].append((event.target, now_ms))
        return events

    def redeployed(self, news: Redeployed, now_ms: float) -> None:
        """What was late is told once more under its number, without the plans that were left out the first time."""
        if news.left_out:
            self._left_out.add(news.number)
        for each in news.rehomed:
            if each.target is not None:
                self._arrived(each.site, each.target, now_ms, followed=news.number not in self._left_out)

    def _arrived(self, train: SiteId, station: SiteId, now_ms: float, followed: bool) -> None:
        """A train that went on meanwhile has been at the stations between as well."""
        told = self._told[train]
        while any(target == station for target, _ in told):
            latency_ms = now_ms - told.popleft()[1]
            if followed:
                self.latencies_ms.append(latency_ms)
            else:
                self.left_behind += 1

    @property
    def open_changes(self) -> int:
        return sum(map(len, self._told.values()))


def key_of(train: SiteId) -> str:
    """Not its name: a key that is called like a place would be taken for one by the audit."""
    return train.replace("train", "no")


def run_cell(cell: Cell) -> Measured:
    setting = cell.setting
    railway = Railway(setting)
    specs, operators = applications(railway)
    initial = initial_places(railway) if setting.stateful or setting.filters else ()
    watch = Watch({})

    def on_news(news: Told) -> None:
        if isinstance(news, Redeployed):
            railway.redeployed(news, watch.now_ms())
        watch.on_news(news)

    trains = [PlaceId(train) for train in railway.trains]  # nothing runs on them
    settings: dict[str, Any] = {"watch": on_news, "keep_journal": True, "apart": trains, **setting.hosting}
    with (
        local(railway.ring.topology(), specs, operators, initial, **settings) as deployment,
        watched(deployment, watch),
    ):
        deployment.change([railway.carries_nothing(train) for train in railway.trains], PATIENCE_S)
        flow = Trains(deployment, railway, setting, watch)
        flow.flow_until(lambda: watch.rows_out > 0, "the first results have come", PATIENCE_S)
        flow.flow(setting.warm_s)
        calm_ms = watch.now_ms()
        flow.flow(setting.calm_s)
        # An epoch of the continuous runner is no batch that anybody waits for.
        batches = setting.runner == "microbatch"
        trigger_ms = stream.trigger_ms(deployment.host.query, calm_ms) if batches else None
        requested_ms = watch.now_ms()
        _change(setting, deployment, flow)
        flow.flow_until(flow.all_arrived, "all trains have arrived", PATIENCE_S)
        ended_ms = watch.now_ms()
        flow.flow(setting.settle_s)
        until_ms = watch.now_ms()
        found = proved(deployment, flow, specs, operators, watch, initial)
    outputs = watch.outputs()
    more = {
        "trigger_ms": trigger_ms,
        "proof": found,
        "changes": len(railway.latencies_ms),
        "deployment_ms": float(np.mean(railway.latencies_ms)) if railway.latencies_ms else None,
        "event_time_ms": float(outputs.between(requested_ms, ended_ms).latency_ms.mean()),
    }
    return of_results(cell, outputs, calm_ms, requested_ms, ended_ms, until_ms, **more)


def applications(railway: Railway) -> tuple[dict[OpId, OpSpec], dict[OpId, Operator]]:
    specs: dict[OpId, OpSpec] = {}
    operators: dict[OpId, Operator] = {}
    for fed, app in zip(railway.fed, railway.apps, strict=True):
        results = OpId(app.replace("/count", "/results"))
        specs[app] = OpSpec(app, GROUPS, feeds=(results,))
        specs[results] = OpSpec(results, GROUPS, sink=True)
        operators[app] = Counting(results)
        if fed != app:
            specs[fed] = OpSpec(fed, GROUPS, stateless=True, feeds=(app,))
            operators[fed] = Wanted(app)
    return specs, operators


def initial_places(railway: Railway) -> list[tuple[OpId, KeySet, PlaceId]]:
    """What applications do with each train first, at its station."""
    topology, at = railway.ring.topology(), dict[SiteId, list[str]]()
    for train in railway.trains:
        at.setdefault(topology.ancestors(train)[0], []).append(key_of(train))
    return [
        (op, KeySet.of_keys(GROUPS, trains), PlaceId(station)) for op in railway.fed for station, trains in at.items()
    ]


class Trains(Paced):
    """Reports of all trains in turn, each to all applications."""

    def __init__(self, deployment: Deployment, railway: Railway, setting: Setting, watch: Watch) -> None:
        super().__init__(setting.rows_per_s / setting.apps, watch)
        self._deployment, self._railway = deployment, railway
        for train in railway.trains:
            keys = KeySet.of_keys(GROUPS, [key_of(train)])
            deployment.driver.feed(SourceId(train), tuple((op, keys) for op in railway.fed))
            self.devices[train] = deployment.device(train, train)

    def send_nth(self, nth: int) -> int:
        return self._railway.send(self.devices)

    def inputs(self) -> Mapping[OpId, Sequence[Row]]:
        return self._railway.sent

    def changing(self, setting: Setting, change: Callable[[SiteMoved], None]) -> None:
        """Rows flow, and every so often trains go on."""
        told = 0

        def going(elapsed_s: float) -> bool:
            nonlocal told
            while told < setting.times_told(elapsed_s):
                told += 1
                for event in self._railway.leave(self._watch.now_ms()):
                    change(event)
            return elapsed_s < setting.changes_s

        self.flow_while(going)

    def all_arrived(self) -> bool:
        return not self._railway.open_changes and not self._deployment.driver.changing


def _change(setting: Setting, deployment: Deployment, flow: Trains) -> None:
    if setting.mechanism == "incremental":
        flow.changing(setting, deployment.tell)
        return
    anew = _Anew(deployment, setting.apps if setting.mechanism == "holistic serial" else 1)
    flow.changing(setting, anew.tell)
    anew.finish()


class _Anew:
    """Deploys everything again for each batch of changes."""

    def __init__(self, deployment: Deployment, restarts: int) -> None:
        self._deployment, self._restarts = deployment, restarts
        self._waiting: deque[SiteMoved] = deque()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="anew", daemon=True)
        self._thread.start()

    def tell(self, change: SiteMoved) -> None:
        self._waiting.append(change)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set() or self._waiting:
            batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if not batch:
                time.sleep(TURN_S)
                continue
            for _ in range(self._restarts):
                self._restart()
            self._deployment.change(batch, PATIENCE_S)

    def _restart(self) -> None:
        """Of the one query in which all applications run."""
        deployment = self._deployment
        before = deployment.host.query
        deployment.supervisor.expect(deployment.host.name, "everything is deployed anew")
        before.stop()
        deployment.host.end_processes()
        deadline_s = time.monotonic() + PATIENCE_S
        while deployment.host.query is before or not deployment.host.query.recentProgress:
            if time.monotonic() > deadline_s:
                raise PeregrineError("the host query does not come back", "see spark.log of the deployment")
            time.sleep(TURN_S)
