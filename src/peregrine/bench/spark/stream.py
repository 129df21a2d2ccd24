"""A stream of readings through a deployment: who sends them at a steady rate, who reads the results, and what was seen.

Latency is from the creation of a row at its device until its result has been read at the root.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from peregrine import measure, proof
from peregrine.control.local import Deployment, local
from peregrine.core.keyspace import KeySet
from peregrine.core.operator import Operator, OpSpec
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.rows import Row
from peregrine.core.topology import Link, Topology
from peregrine.errors import PeregrineError
from peregrine.proof import Lines
from peregrine.types import OpId, PlaceId, SiteId
from peregrine.workloads import road, tm

CLOUD, EDGE = SiteId("cloud"), SiteId("edge")
LINK = Link(40.0, 1000.0)  # 80 ms there and back
ROWS_PER_S = 1500
SEND_EVERY_S = 0.005
PATIENCE_S = 120.0
READ_WAIT_S = 0.5
LAST_RESULTS_S = 2.0


@dataclass(frozen=True)
class Workload:
    """What flows: row `n` of an operator, and who works on it."""

    specs: Mapping[OpId, OpSpec]
    operators: Mapping[OpId, Operator]
    op: OpId
    row: Callable[[int], Row]

    @property
    def everything(self) -> KeySet:
        return KeySet.everything(self.specs[self.op].groups)


def traffic(keys: int) -> Workload:
    return Workload(tm.specs(roaming=False), tm.operators(road.LIMIT), tm.MOV_AVG, lambda n: road.row(n, keys))


class Stream:
    """Made by `running`. Rows flow from `warm_up` until `drain`."""

    def __init__(self, up: Deployment, workload: Workload, at: SiteId, timeline: list[tuple[float, object]]) -> None:
        self.up = up
        self.workload = workload
        self.timeline = timeline
        self.sent = 0
        self.requested_ms: dict[str, float] = {}
        self._device = up.device(road.SOURCE, at, feeds=(workload.op, workload.everything))
        self._results: list[tuple[float, pa.Table]] = []  # when it was read, what was read
        self._acked: list[tuple[int, float]] = []  # up to which row, and when it was known to be safe at a router
        self._device.on_acked = lambda seq: self._acked.append((seq, now_ms()))
        self._sending = False
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._read, name="reader", daemon=True)]
        self._threads[0].start()

    # --- rows ---

    def send(self, count: int) -> None:
        """As fast as they are taken."""
        for number in range(self.sent, self.sent + count):
            self.send_row(self.workload.row(number))

    def send_row(self, row: Row) -> None:
        self._device.send(self.workload.op, row.key, row.payload)
        self.sent += 1

    def warm_up(self, first_rows: int, seconds: float, rows_per_s: float = ROWS_PER_S) -> None:
        """Spark's first batches are slow: a few rows until results come, then the rate until the machine is warm."""
        self.send(first_rows)
        self._until(lambda: self._result_rows >= first_rows, "no results")
        self._sending = True
        self._threads.append(threading.Thread(target=self._send, args=(rows_per_s,), name="sender", daemon=True))
        self._threads[-1].start()
        time.sleep(seconds)

    def pause(self) -> None:
        """No more rows but those of `send`."""
        self._sending = False
        for thread in self._threads[1:]:
            thread.join()

    def drain(self) -> None:
        """No more rows; until every row has its result, every plan has ended and every host has committed."""
        self.pause()
        if not self._device.flush(PATIENCE_S):
            raise PeregrineError(f"the device cannot send: {self._device.trouble}", "see the routers' logs")
        # Twice: a row may have gone from a router that was not yet asked to one that was.
        self._until(lambda: self._is_quiet() and self._is_quiet(), "not quiet")
        time.sleep(LAST_RESULTS_S)  # what is missing then is lost, and the proof says so
        self.close()

    def close(self) -> None:
        self.pause()
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _is_quiet(self) -> bool:
        """Nothing is on its way: not to a host, not over a link, and not in a migration."""
        for client in self.up.clients.values():
            status = client.status()
            if status.ends != status.commits or status.leftovers or any(status.waiting.values()):
                return False
        return True

    @property
    def _result_rows(self) -> int:
        return sum(len(table) for _, table in self._results)

    def _until(self, done: Callable[[], bool], trouble: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            if time.monotonic() > deadline:
                raise PeregrineError(f"{trouble} after {PATIENCE_S:g} s", "see the routers' logs")
            time.sleep(0.05)

    def _send(self, rows_per_s: float) -> None:
        began, first = time.monotonic(), self.sent
        while self._sending:
            self.send(int((time.monotonic() - began) * rows_per_s) - (self.sent - first))
            time.sleep(SEND_EVERY_S)

    def _read(self) -> None:
        position = 0
        client = self.up.clients[self.up.topology.root]
        while not self._stop.is_set():
            try:
                table, after = client.read_results(position, wait_s=READ_WAIT_S)
            except PeregrineError:
                self._stop.wait(SEND_EVERY_S)  # the router is away
                continue
            if after > position:
                self._results.append((now_ms(), table))
                position = after

    # --- plans ---

    def move(self, plan: str, keys: KeySet, source: SiteId, target: SiteId, mechanism: str = "live") -> None:
        self.move_in_chunks(plan, [keys], source, target, mechanism)

    def move_in_chunks(
        self, plan: str, chunks: Sequence[KeySet], source: SiteId, target: SiteId, mechanism: str = "live"
    ) -> None:
        """Each when the one before it has switched."""
        self.requested_ms[plan] = now_ms()
        moves = [Move(self.workload.op, chunk, PlaceId(source), PlaceId(target)) for chunk in chunks]
        self.up.submit(Plan(plan, tuple((move,) for move in moves), mechanism=mechanism, overlap=True))

    def wait(self, plan: str) -> None:
        self.up.wait(plan, PATIENCE_S)

    @property
    def query(self) -> Any:
        """The one query that hosts all places."""
        (query,) = self.up.spark.streams.active
        return query

    def trigger_ms(self, from_ms: float) -> float | None:
        """None: no batch that anybody waits for, since rows are applied as they come."""
        return trigger_ms(self.query, from_ms) if self.up.runner == "microbatch" else None

    # --- what was seen ---

    def outputs(self) -> measure.Outputs:
        created = [table.column("created_ms").to_numpy() for _, table in self._results]
        emitted = np.repeat([read_ms for read_ms, _ in self._results], [len(each) for each in created])
        return measure.Outputs(emitted, emitted - np.concatenate(created))

    def is_of(self, keys: KeySet) -> npt.NDArray[np.bool_]:
        """Which of the outputs are of these keys."""
        return np.concatenate([keys.contains(table.column("hash").to_numpy()) for _, table in self._results])

    def cost(
        self, plan: str, calm_from_ms: float, until_ms: float, mine: npt.NDArray[np.bool_] | None = None
    ) -> measure.Cost:
        """Of a plan, for all results or those that are `mine`; steady is from `calm_from_ms` until a plan begins."""
        outputs = self.outputs() if mine is None else self.outputs().where(mine)
        calm_to_ms = min(at_ms for at_ms in self.requested_ms.values() if at_ms > calm_from_ms)
        steady = outputs.steady(calm_from_ms, calm_to_ms)
        return measure.cost(plan, outputs, self.timeline, steady, self.requested_ms[plan], until_ms)

    def outputs_of_routers(self) -> measure.Outputs:
        """As `outputs`, but for latency: from when a router had the row, as its device heard it."""
        seqs, at_ms = (np.array(each) for each in zip(*self._acked, strict=True))
        emitted = self.outputs().emitted_ms
        mine = np.concatenate([table.column("seq").to_numpy() for _, table in self._results])
        return measure.Outputs(emitted, np.maximum(emitted - at_ms[np.searchsorted(seqs, mine)], 0.0))

    def lines(self) -> Lines:
        found: Lines = {}
        for _, table in self._results:
            columns = [table.column(name).to_pylist() for name in ("op", "key", "source", "seq", "payload")]
            for op, key, source, seq, payload in zip(*columns, strict=True):
                found.setdefault((op, key, source), []).append((seq, payload))
        return found

    def prove(self) -> proof.Proof:
        """After `drain`: against the same rows in one place, where nothing moves."""
        rows = [self.workload.row(n) for n in range(self.sent)]
        should, states = proof.expected(self.workload.specs, self.workload.operators, {self.workload.op: rows})
        return proof.prove(self.sent, self.lines(), should, proof.values(self.up.states()), states)


@contextmanager
def running(workload: Workload, edges: Sequence[SiteId] = (), at: SiteId = CLOUD, **settings: Any) -> Iterator[Stream]:
    """A cloud, edges below it, and the device at one of them."""
    timeline: list[tuple[float, object]] = []
    topology = Topology.tree(CLOUD, dict.fromkeys(edges, (CLOUD, LINK)))
    with local(
        topology,
        workload.specs,
        workload.operators,
        watch=lambda news: timeline.append((now_ms(), news)),
        **settings,
    ) as up:
        stream = Stream(up, workload, at, timeline)
        try:
            yield stream
        finally:
            stream.close()


def heat(seconds: float) -> None:
    """What runs first in a session is slow: where runs of one session are compared, one goes first that is not."""
    with running(traffic(10)) as flow:
        flow.warm_up(10, seconds)
        flow.drain()


def progress(query: Any, from_ms: float = 0.0) -> list[dict[str, Any]]:
    """What Spark tells of its last batches that had rows, of those that began at `from_ms` or later."""
    told = [json.loads(each.json) for each in query.recentProgress]
    return [each for each in told if each["numInputRows"] and _began_ms(each) >= from_ms]


def _began_ms(told: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(told["timestamp"]).timestamp() * 1000


def trigger_ms(query: Any, from_ms: float) -> float:
    """The mean time of a batch."""
    found = [each["durationMs"]["triggerExecution"] for each in progress(query, from_ms)]
    if not found:
        raise PeregrineError("no batch began and ended while it was measured", "the machine is too busy: run longer")
    return float(np.mean(found))


def latency(outputs: measure.Outputs) -> dict[str, float]:
    found = outputs.latency_ms
    return {
        "mean_ms": float(found.mean()),
        **{f"p{p}_ms": float(np.percentile(found, p)) for p in (50, 99)},
        "max_ms": float(found.max()),
        "rows": len(found),
    }


def now_ms() -> float:
    return time.time() * 1000
