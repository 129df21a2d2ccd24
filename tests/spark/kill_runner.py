"""The processes that test_kills.py kills: `kill_runner.py caller DIR` has a deployment, `... devices DIR` the devices.

Both are told what to do by lines of JSON on their standard input, say what they see in lines of JSON, and go on where
they were when they are started again on the same directory. They end when their standard input does.
"""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

from peregrine import proof
from peregrine.control import questions
from peregrine.control.auditing import audit_deployment
from peregrine.control.driver import News
from peregrine.control.hosts import ONE_SESSION
from peregrine.control.local import Deployment, local
from peregrine.control.routers import read_addresses
from peregrine.control.supervisor import Incident
from peregrine.core.coordinator import PlanEnded
from peregrine.core.keyspace import KeySet
from peregrine.core.messages import Reached, Report
from peregrine.core.placement import Initial
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.rows import UNCHAINED, Row
from peregrine.core.topology import Link, Topology
from peregrine.errors import TransportError
from peregrine.net.device import Device
from peregrine.net.settings import read_token
from peregrine.types import PlaceId, SiteId, SourceId
from peregrine.workloads import tm

CLOUD, EDGE1, EDGE2 = SiteId("cloud"), SiteId("edge1"), SiteId("edge2")
CARS = tm.vehicles(6)
MOVING = CARS[:3]  # those at edge1: their keys can live there or above
ROAMER = CARS[-1]  # drives from edge to edge, and its key follows it
DWELL_MS = 300
ROWS_PER_S = 120.0
PATIENCE_S = 300.0  # a Spark application for each site: three take minutes to come back on a busy machine
_mouth = threading.Lock()


def say(**what: Any) -> None:
    with _mouth:
        print(json.dumps(what), flush=True)


def commands() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)


# --- the caller ---


def caller(directory: Path, hosts: str = ONE_SESSION, runner: str = "microbatch") -> None:
    link = Link(10.0, 1000.0)
    topology = Topology.tree(CLOUD, {EDGE1: (CLOUD, link), EDGE2: (CLOUD, link)})
    # They begin at edge1 and are elsewhere when the caller is killed: a second time this must have no effect.
    initial = [
        (tm.MOV_AVG, KeySet.of_keys(tm.GROUPS, MOVING), PlaceId(EDGE1)),
        (tm.MOV_AVG, KeySet.of_keys(tm.GROUPS, [ROAMER]), PlaceId(EDGE2)),
    ]
    # Small snapshots: a router that is killed has cut its journal before.
    more = {"dwell_ms": DWELL_MS, "hosts": hosts, "runner": runner, "snapshot_mb": 0.25, "keep_journal": True}
    with local(topology, tm.specs(), tm.operators(), initial, directory, watch=tell, **more) as up:
        for car in CARS:
            up.driver.feed(SourceId(car), ((tm.MOV_AVG, KeySet.of_keys(tm.GROUPS, [car])),))
        say(ready=True)
        for command in commands():
            match command:
                case {"submit": name, "source": source, "target": target}:
                    _submit(up, name, PlaceId(source), PlaceId(target))
                case {"wait": name}:
                    say(ended=name, outcome=up.wait(name, PATIENCE_S).outcome)
                case {"pids": True}:
                    say(pids=pids(up))
                case {"follow": site}:
                    until(lambda site=site: owner(up, ROAMER) == site and up.driver.idle)
                    say(followed=owner(up, ROAMER) == site)
                case {"prove": counts}:
                    say(proof=prove(up, counts, initial), given_up=up.supervisor.given_up)


def tell(news: News | PlanEnded) -> None:
    match news:
        case Report(site, migration, status):
            say(migration=migration, phase=status, site=site)
        case Reached(site, migration, step):
            say(migration=migration, phase=step, site=site)
        case Incident(what, status, detail):
            say(incident=what, status=status, detail=detail[:300])


def pids(up: Deployment) -> dict[str, int]:
    hosts = {f"host {site}": os.getsid(host.pids[0]) for site, host in up.hosts.items()}
    return hosts | {str(site): router.pid for site, router in up.routers.items()}


def owner(up: Deployment, car: str) -> PlaceId:
    return up.driver.ask(questions.owner, tm.MOV_AVG, car)


def _submit(up: Deployment, name: str, source: PlaceId, target: PlaceId) -> None:
    if not up.knows(name):
        keys = KeySet.of_keys(tm.GROUPS, MOVING)
        up.submit(Plan(name, ((Move(tm.MOV_AVG, keys, source, target),),)))
    say(submitted=name)


def prove(up: Deployment, counts: dict[str, int], initial: Initial) -> dict[str, Any]:
    sent = [
        Row(car, SourceId(car), seq, UNCHAINED, seq, 0, payload)
        for car, count in counts.items()
        for seq, payload in enumerate(islice(tm.readings(car), count))
    ]
    should, should_states = proof.expected(tm.specs(), tm.operators(), {tm.MOV_AVG: sent})
    until(lambda: _quiet(up, len(sent)))
    found = proof.prove(len(sent), up.result_lines(), should, proof.values(up.states()), should_states)
    found = replace(found, violations=tuple(audit_deployment(up, initial)))
    return {
        **asdict(found),
        "holds": found.holds,
        "leftovers": [each.status().leftovers for each in up.clients.values()],
    }


def _quiet(up: Deployment, results: int) -> bool:
    """Every row has its result (or more than one), no plan runs, and every host has committed what it has read."""
    try:
        found = up.results_at_rest()
    except TransportError:
        return False  # one of them was killed, and is not back yet
    return found is not None and found >= results and up.driver.idle


def until(true: Callable[[], bool]) -> None:
    """What does not come true shows in the proof."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not true() and time.monotonic() < deadline_s:
        time.sleep(0.1)


# --- the devices ---


def devices(directory: Path, roaming: bool = True) -> None:
    going = threading.Event()
    addresses, token = read_addresses(directory), read_token(directory / "token")
    cars = {
        car: Device(
            SourceId(car), addresses, EDGE1 if car in MOVING else EDGE2, token, roaming, directory / "devices" / car
        )
        for car in CARS
    }
    idle = threading.Lock()
    threading.Thread(target=_drive, args=(cars, going, idle), daemon=True).start()
    say(ready=True)
    for command in commands():
        match command:
            case {"go": True}:
                going.set()
            case {"go": False}:
                going.clear()
                with idle:
                    safe = all(device.flush(PATIENCE_S) for device in cars.values())
                    say(taken={car: device.taken for car, device in cars.items()}, safe=safe)
            case {"drive": site}:
                cars[ROAMER].move(SiteId(site))


def _drive(cars: dict[str, Device], going: threading.Event, idle: threading.Lock) -> None:
    readings = {car: islice(tm.readings(car), device.taken, None) for car, device in cars.items()}
    while going.wait():
        with idle:
            for car, device in cars.items() if going.is_set() else ():  # it may have been told to stop meanwhile
                device.send(tm.MOV_AVG, car, next(readings[car]), time_ms=device.taken)
        time.sleep(len(cars) / ROWS_PER_S)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    {"caller": caller, "devices": devices}[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
