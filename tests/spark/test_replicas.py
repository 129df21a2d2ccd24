"""Replicas on Spark: kept while rows flow, used up by moves, stopped; and everything comes to rest meanwhile."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from peregrine import Link, Topology, run
from peregrine.app.compile import compile_app
from peregrine.bench.engine.reference import prove
from peregrine.control.auditing import audit_deployment
from peregrine.control.running import Running
from peregrine.core.coordinator import Status
from peregrine.core.replication import StateMoved
from peregrine.errors import PlanError, UnknownName
from peregrine.types import SiteId
from peregrine.workloads.key_count import key_count

CLOUD, EDGE = SiteId("cloud"), SiteId("edge1")
TOPOLOGY = Topology.tree(CLOUD, {EDGE: (CLOUD, Link(10.0, 200.0))}, {CLOUD: ("h1", "h2")})
KEYS, SLOTS, STATE_BYTES = 6, 4, 64_000
GATE, TOUCHES = "gate", "touches"

Sent = list[tuple[str, str, dict[str, int]]]


def test_replicas_are_kept_used_up_and_stopped(spark: Any, tmp_path: Path) -> None:
    app = key_count([GATE], state_bytes=STATE_BYTES, slots=SLOTS, groups=4)
    sent: Sent = []
    with run(app, topology=TOPOLOGY, directory=tmp_path, keep_journal=True) as running:
        gate = running.device(GATE, EDGE)

        def touch(number: int) -> None:
            record = {"at_ms": number, "key": number % KEYS, "slot": number // KEYS % SLOTS}
            gate.send(TOUCHES, **record)
            sent.append((GATE, TOUCHES, record))

        for number in range(KEYS * SLOTS):
            touch(number)
        running.settle()
        kept = running.replicate("count", "consistent-hashing:2", every_ms=100)
        assert len(kept) == KEYS and {place for places in kept.values() for place in places} == {"cloud/h2", "edge1"}
        for number in range(len(sent), len(sent) + KEYS):
            touch(number)
        running.settle()  # although replicas are kept
        _until_fresh(running)
        assert moved(running, "cloud/h2", [0, 1]).reload == 2  # between hosts of one site
        assert moved(running, "cloud/h1", [0, 1]).transfer == 2  # they were used up
        running.stop_replicas("count")
        running.settle()  # what has not been given up yet may still be used
        assert moved(running, "cloud/h2", [2, 3]).transfer == 2
        _errors(running)

        running.replicate("count", "consistent-hashing:2", every_ms=100)
        with _going_on(touch, len(sent)):
            moved(running, "edge1", [0, 2])
            moved(running, "cloud/h1", [2, 3])
            running.replicate("count", "consistent-hashing:1", every_ms=50)
            moved(running, "cloud/h2", [0, 1, 2])
        running.finish()
        assert audit_deployment(running.deployment, running.initial) == []
        proof = prove(compile_app(app), sent, running)
        assert proof.holds, proof
        running.stop_replicas("count")
        running.settle()


def moved(running: Running, to: str, keys: list[int]) -> StateMoved:
    ended = running.move("count", to=to, keys=keys, mechanism="replica")
    assert ended.outcome is Status.DONE
    return ended.state


def _until_fresh(running: Running) -> None:
    deadline_s = time.monotonic() + 60
    while any(client.status().stale for client in running.deployment.clients.values()):
        assert time.monotonic() < deadline_s, "replicas do not become fresh"
        time.sleep(0.1)


def _errors(running: Running) -> None:
    with pytest.raises(PlanError, match="no replicas of key_count/count are kept"):
        running.stop_replicas("count")
    with pytest.raises(UnknownName):
        running.replicate("cuont")


@contextmanager
def _going_on(touch: Any, first: int) -> Iterator[None]:
    """Rows flow while this is open."""
    stopping = threading.Event()

    def send() -> None:
        number = first
        while not stopping.wait(0.02):
            touch(number)
            number += 1

    sender = threading.Thread(target=send, name="traffic", daemon=True)
    sender.start()
    try:
        yield
    finally:
        stopping.set()
        sender.join()
