"""`python -m peregrine.bench.spark.soak`: rows flow for long, keys move all the time, and every result is looked at.

Half of the keys of Traffic Monitoring go down to an edge and up again, one move after the other. What must come out of
each reading is known beforehand, so results are checked as they come and none is kept: a run may be as long as one
likes. Memory is that of the routers and of the process of a continuous host. The exit code is 1 if a result was
lost, repeated, out of order or wrong, or a state differs in the end.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console

from peregrine import proof
from peregrine.bench.spark import machine, processes
from peregrine.bench.spark.stream import CLOUD, EDGE, LINK, READ_WAIT_S, SEND_EVERY_S, traffic
from peregrine.config import RUNNERS
from peregrine.control.local import Deployment, local
from peregrine.core.keyspace import KeySet
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.topology import Topology
from peregrine.errors import PeregrineError
from peregrine.net.device import Device
from peregrine.types import PlaceId
from peregrine.workloads import road, tm

KEYS = 10
LOOK_EVERY_S = 10.0
PATIENCE_S = 180.0
PARTS = ("routers", "host")
Memory = tuple[float, float]


@dataclass
class Checker:
    """Results of readings in turn, each as soon as it comes: the next of its car, with the average so far."""

    keys: int
    checked: int = 0
    wrong: list[str] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)  # of the last look

    def __post_init__(self) -> None:
        self._next = {road.vehicle(n, self.keys): n for n in range(self.keys)}
        self._averages = dict.fromkeys(self._next, 0.0)

    def see(self, car: str, seq: int, payload: bytes) -> None:
        self.checked += 1
        expected = self._next[car]
        if seq != expected:
            what = "again" if seq < expected else f"before {expected}"
            self.wrong.append(f"the result of reading {seq} of {car} came {what}")
            return
        speed = float(road.speeds(np.array([seq]))[0])
        self._averages[car] += (speed - self._averages[car]) / (seq // self.keys + 1)
        self._next[car] += self.keys
        average = round(self._averages[car], 6)
        if payload != road.told(average, average > road.LIMIT):
            self.wrong.append(f"the result of reading {seq} of {car} is {payload!r}")

    def missing(self, sent: int) -> int:
        return sum(len(range(number, sent, self.keys)) for number in self._next.values())

    def states(self) -> dict[str, list[float]]:
        """[readings, average] of each car."""
        return {car: [self._next[car] // self.keys, average] for car, average in self._averages.items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="peregrine.bench.spark.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rows", type=int, default=5000, help="a second")
    parser.add_argument("--move-every", type=float, default=5.0, metavar="S")
    parser.add_argument("--runner", choices=RUNNERS, default="continuous")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    console = Console(highlight=False)
    try:
        found = soak(given.minutes * 60, given.rows, given.move_every, given.runner, console)
    except PeregrineError as error:
        print(f"peregrine: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found | {"machine": machine.describe()}, indent=2) + "\n")
    console.print(machine.line(machine.describe()), style="dim")
    for name, value in found.items():
        console.print(f"{name:<16} {value}")
    return 1 if found["wrong"] or found["lost"] or found["states differ"] else 0


def soak(seconds: float, rows_per_s: int, move_every_s: float, runner: str, console: Console) -> dict[str, object]:
    workload = traffic(KEYS)
    tree = Topology.tree(CLOUD, {EDGE: (CLOUD, LINK)})
    settings = {"runner": runner}
    with local(tree, workload.specs, workload.operators, **settings) as up:  # type: ignore[arg-type]
        device = up.device(road.SOURCE, EDGE, feeds=(workload.op, workload.everything))
        checker = Checker(KEYS)
        with _reading(up, checker):
            sent, moves, memory = _flow(up, device, checker, seconds, rows_per_s, move_every_s, console)
            if not device.flush(PATIENCE_S):
                raise PeregrineError(f"the device cannot send: {device.trouble}", "see the routers' logs")
            deadline_s = time.monotonic() + PATIENCE_S
            while checker.missing(sent) and time.monotonic() < deadline_s and not checker.wrong:
                time.sleep(0.1)
            while up.results_at_rest() is None and time.monotonic() < deadline_s:
                time.sleep(0.1)
        states = {key: value for (_, key), value in proof.values(up.states()).items()}
    should = checker.states()
    differ = [car for car, state in should.items() if _rounded(states.get(car)) != _rounded(state)]
    calm = np.array(memory[len(memory) // 5 :] or memory or [(0.0, 0.0)])
    return {
        "rows": sent,
        "results": checker.checked,
        "moves": moves,
        "lost": checker.missing(sent),
        "wrong": checker.wrong[:10],
        "states differ": differ,
        **{f"{name} MB": [round(float(each)) for each in _trend(calm[:, nth])] for nth, name in enumerate(PARTS)},
    }


def _trend(line: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    """After a fifth of the time, at most, and in the end."""
    return line[0], line.max(), line[-1]


def _memory_mb(up: Deployment) -> Memory:
    return processes.rss_mb(router.pid for router in up.routers.values()), processes.rss_mb(processes.hosts(up))


def _rounded(state: object) -> object:
    return [round(float(each), 6) for each in state] if isinstance(state, list | tuple) else state


def _flow(
    up: Deployment,
    device: Device,
    checker: Checker,
    seconds: float,
    rows_per_s: int,
    move_every_s: float,
    console: Console,
) -> tuple[int, int, list[Memory]]:
    half = KeySet.of_keys(tm.GROUPS, [road.vehicle(n, KEYS) for n in range(KEYS // 2)])
    began_s = time.monotonic()
    sent = moves = 0
    next_move_s = next_look_s = began_s + LOOK_EVERY_S
    memory: list[Memory] = []
    while (now_s := time.monotonic()) < began_s + seconds and not checker.wrong:
        for number in range(sent, int((now_s - began_s) * rows_per_s)):
            row = road.row(number, KEYS)
            device.send(tm.MOV_AVG, row.key, row.payload)
            sent = number + 1
        if now_s >= next_move_s and up.driver.idle:
            source, target = (CLOUD, EDGE) if moves % 2 == 0 else (EDGE, CLOUD)
            up.submit(Plan(f"soak-{moves}", ((Move(tm.MOV_AVG, half, PlaceId(source), PlaceId(target)),),)))
            moves += 1
            next_move_s = now_s + move_every_s
        if now_s >= next_look_s:
            next_look_s = now_s + LOOK_EVERY_S
            memory.append(_memory_mb(up))
            seen, checker.latencies_ms = checker.latencies_ms, []
            p50, p99 = np.percentile(seen, [50, 99]) if seen else (0, 0)
            console.print(
                f"{now_s - began_s:6.0f} s  {sent:>11,} sent, {sent - checker.checked:>7,} on their way, {moves} moves,"
                f" latency {p50:,.0f} / {p99:,.0f} ms, routers {memory[-1][0]:,.0f} MB, host {memory[-1][1]:,.0f} MB",
                style="dim",
            )
        time.sleep(SEND_EVERY_S)
    return sent, moves, memory


@contextmanager
def _reading(up: Deployment, checker: Checker) -> Iterator[None]:
    stop = threading.Event()

    def read() -> None:
        position, client = 0, up.clients[CLOUD]
        while not stop.is_set():
            try:
                table, after = client.read_results(position, wait_s=READ_WAIT_S)
            except PeregrineError:
                stop.wait(SEND_EVERY_S)
                continue
            now_ms = time.time() * 1000
            columns = (table.column(name).to_pylist() for name in ("key", "seq", "payload", "created_ms"))
            for key, seq, payload, created_ms in zip(*columns, strict=True):
                checker.see(key, seq, payload)
                checker.latencies_ms.append(now_ms - created_ms)
            position = after

    thread = threading.Thread(target=read, name="reader", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


if __name__ == "__main__":
    sys.exit(main())
