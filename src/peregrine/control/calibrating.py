"""Measures what migrations and replicas take on this machine, in a deployment that is thrown away: about a minute.

A cloud and an edge beside it, keys with large state and keys with next to none. While rows flow, small and large moves
alternate, so that what else the machine does meanwhile falls on all of them alike; the median of each counts.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import shake_128
from itertools import count, cycle
from statistics import median
from typing import Any

from peregrine.app.logic import Emit, Key, Moment, Timeless
from peregrine.app.model import App
from peregrine.control.running import Running, run
from peregrine.core.big_map import BigMap
from peregrine.core.topology import Link, Topology
from peregrine.errors import PeregrineError
from peregrine.plan.calibration import Costs
from peregrine.types import OpId, SiteId

CLOUD, EDGE = SiteId("cloud"), SiteId("edge")
NEARBY = Link(0.5, 10_000.0)  # links are added to what is predicted, so they must not be in what is measured
OP = OpId("calibration/shelf")

LARGE_BYTES = 1 << 20
ENTRY_BYTES = 16 * 1024
LARGE = tuple(f"large{n}" for n in range(16))
SMALL = tuple(f"small{n}" for n in range(400))
TOUCHED = (*SMALL, *LARGE[:4])  # by rows while there are replicas: of all large ones a batch would take too long
MOVES: tuple[tuple[str, Sequence[str]], ...] = (("a key", SMALL[:1]), ("large keys", LARGE), ("small keys", SMALL[1:]))
REPETITIONS = 4  # there and back
ROWS_PER_S = 500
ON_ITS_WAY_S = 0.3  # a row is at most, from the device to the log
BURST_ROWS = 20_000
CALM_S = 4.0
PATIENCE_S = 60.0
STEPS = ("start Spark", "fill keys", "warm up", "move keys", "work off rows", "keep replicas")

Say = Callable[[str], None]  # told when each of STEPS begins


def calibrate(say: Say = lambda step: None) -> Costs:
    steps, epochs = iter(STEPS), count(1)
    say(next(steps))
    app = App("calibration", 4)
    touches = app.source("touches", "key string, epoch bigint", key="key", senders=["gate"])
    touches.key_by("key").connect("shelf", Shelf(), schema="rows bigint").to("results")
    with run(app, topology=Topology.tree(CLOUD, {EDGE: (CLOUD, NEARBY)})) as running:
        gate = running.device("gate", EDGE)
        say(next(steps))
        for key in (*LARGE, *SMALL):
            gate.send("touches", key=key, epoch=0)
        running.settle(PATIENCE_S)
        with _Traffic(running, SMALL):
            say(next(steps))
            _durations_ms(running, epochs, 1)
            say(next(steps))
            took_ms = _durations_ms(running, epochs, REPETITIONS)
        running.settle(PATIENCE_S)
        say(next(steps))
        rows_per_s = _burst(running)
        say(next(steps))
        with _Traffic(running, TOUCHED):
            without_ms = _turn_ms(running)
            running.planner.replicate(OP, "ratio:1")
            with_ms = _turn_ms(running)
    round_ms = took_ms["a key"]
    return Costs(
        round_ms=round_ms,
        ms_per_mb=max(took_ms["large keys"] - round_ms, 1.0) / (len(LARGE) * LARGE_BYTES / 1e6),
        ms_per_key=max(took_ms["small keys"] - round_ms, 0.0) / len(SMALL),
        rows_per_s=rows_per_s,
        replica_overhead=max(with_ms / without_ms - 1, 0.0),
    )


@dataclass(frozen=True)
class Shelf(Timeless):
    """State: [rows of the key, epoch, its entries], of which a row changes one, and one of a new epoch all."""

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        rows, epoch, entries = state if state is not None else (0, -1, BigMap())
        if record.epoch > epoch:
            epoch, entries = record.epoch, BigMap(_entries(key[0], record.epoch))
        entries["last"] = rows + 1
        return [rows + 1, epoch, entries], [Emit({"rows": rows + 1}, at.time_ms)]


def _entries(key: str, epoch: int) -> dict[str, bytes]:
    number = LARGE_BYTES // ENTRY_BYTES if key in LARGE else 0
    return {f"e{nth}": shake_128(f"{key} {epoch} {nth}".encode()).digest(ENTRY_BYTES) for nth in range(number)}


class _Traffic:
    """Rows of these keys in turn, in a thread, at a steady rate."""

    def __init__(self, running: Running, keys: Sequence[str]) -> None:
        self._keys = keys
        self._gate = running.senders["gate"]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, name="traffic", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _send(self) -> None:
        began_s = time.monotonic()
        for sent, key in enumerate(cycle(self._keys)):
            while sent > (time.monotonic() - began_s) * ROWS_PER_S:
                if self._stop.wait(0.01):
                    return
            self._gate.send("touches", key=key, epoch=0)


def _durations_ms(running: Running, epochs: Iterator[int], repetitions: int) -> dict[str, float]:
    """Each of MOVES there and back, each time in another order: what one leaves is felt by the next."""
    took_ms: dict[str, list[float]] = {name: [] for name, _ in MOVES}
    for nth in range(2 * ((repetitions + 1) // 2)):  # everything is back in the end
        for name, keys in (*MOVES[nth % len(MOVES) :], *MOVES[: nth % len(MOVES)]):
            if keys is LARGE:  # what went the same way before need not travel again
                epoch = next(epochs)
                for key in LARGE:
                    running.senders["gate"].send("touches", key=key, epoch=epoch)
            _catch_up(running)
            began_s = time.monotonic()
            running.move("shelf", EDGE if nth % 2 == 0 else CLOUD, list(keys), "pause", PATIENCE_S)
            took_ms[name].append((time.monotonic() - began_s) * 1000)
    return {name: median(found) for name, found in took_ms.items()}


def _catch_up(running: Running) -> None:
    """What waited for the last move, or was sent for the next one, must be no burden to it."""
    time.sleep(ON_ITS_WAY_S)
    there = running.deployment.log_ends()
    _until(lambda: running.deployment.has_applied(there))


def _turn_ms(running: Running) -> float:
    """The median time of batches, a little later: what has just begun is over then."""
    time.sleep(CALM_S / 2)
    found: dict[int, int] = {}
    first = running.deployment.progress()[0].batch
    until_s = time.monotonic() + CALM_S

    def seen() -> bool:
        now = running.deployment.progress()[0]
        if now.batch > first and now.trigger_ms > 0:
            found[now.batch] = now.trigger_ms
        return bool(found) and time.monotonic() > until_s

    _until(seen)
    return median(found.values())


def _burst(running: Running) -> float:
    """Rows of keys without state, as fast as they are taken, until they are all through."""
    gate = running.senders["gate"]
    began_s = time.monotonic()
    for nth in range(BURST_ROWS):
        gate.send("touches", key=SMALL[nth % len(SMALL)], epoch=0)
    gate.flush(PATIENCE_S)
    _until(lambda: running.deployment.results_at_rest() is not None)
    return BURST_ROWS / (time.monotonic() - began_s)


def _until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline_s:
            raise PeregrineError("hosts do not follow", "the machine is too busy: calibrate when it is not")
        time.sleep(0.02)
