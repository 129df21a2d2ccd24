"""One thread plans and three read: no reader ever sees a placement that was not.

PEREGRINE_THREADS_S says for how long (`make test-threads`: a minute).
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from managed_driver import AT_CLOUD, AT_EDGE1, AT_EDGE2, GROUPS, OP, Managed, managed, plan
from peregrine.control.replicas import Replicas
from peregrine.core.coordinator import Status
from peregrine.core.keyspace import KeySet
from peregrine.errors import PlanError
from peregrine.types import PlaceId

FOR_S = float(os.environ.get("PEREGRINE_THREADS_S", "1"))
REFUSED = 20  # plans, between two that are carried out
KEYS = KeySet.of_keys(GROUPS, [f"car{i}" for i in range(300)])  # so many that to look takes a while


class Planning:
    """Plans in turn: most of them are refused, having been imagined; others move all keys to an edge and back."""

    def __init__(self, up: Managed) -> None:
        self._up = up
        # What may be seen since when: the newest last. In the middle of a move both of its ends may.
        self.may_be_seen: list[frozenset[PlaceId]] = [frozenset({AT_CLOUD})]
        self.carried_out = 0
        self.refused = 0

    def go_on(self) -> None:
        here, there = (AT_CLOUD, AT_EDGE1) if self.carried_out % 2 == 0 else (AT_EDGE1, AT_CLOUD)
        for elsewhere in (AT_EDGE2, there) * (REFUSED // 2):
            self.refused += 1
            with pytest.raises(PlanError, match="is not all at"):
                self._up.driver.submit(plan(f"bad{self.refused}", (KEYS, here, elsewhere), (KEYS, here, there)))
        self.may_be_seen.append(frozenset({here, there}))
        self._up.driver.submit(plan(f"good{self.carried_out}", (KEYS, here, there)))
        assert self._up.driver.wait(f"good{self.carried_out}", 10).outcome is Status.DONE
        self.may_be_seen.append(frozenset({there}))
        self.carried_out += 1


class Reader(threading.Thread):
    def __init__(self, planning: Planning, stop: threading.Event, look: Callable[[], PlaceId]) -> None:
        super().__init__(name=look.__name__)
        self.looks = 0
        self.wrong: list[Any] = []
        self._planning, self._end, self._look = planning, stop, look

    def run(self) -> None:
        seen = self._planning.may_be_seen
        while not self._end.is_set():
            begin = len(seen) - 1
            try:
                found: Any = self._look()
            except Exception as error:
                found = error
            if found not in frozenset().union(*seen[begin:]):
                self.wrong.append((self.name, found, seen[begin:]))
            self.looks += 1


@contextmanager
def often() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_no_reader_ever_sees_a_placement_that_was_not(tmp_path: Path) -> None:
    with managed(tmp_path) as up, often():
        places = (AT_CLOUD, AT_EDGE1, AT_EDGE2)
        shares = ", ".join(f'["{place}", "replica of {place}", ["car0"]]' for place in places)
        (tmp_path / "replicas.json").write_text(f'{{"{OP}": [{shares}]}}')
        replicas = Replicas(up, tmp_path / "replicas.json")  # type: ignore[arg-type]

        def describes() -> PlaceId:
            """Of the line that names the keys, the place; at the cloud they have no line of their own."""
            lines = up.running.describe().splitlines()
            return next((PlaceId(line.split()[1]) for line in lines if " car0" in line), AT_CLOUD)

        def would_move() -> PlaceId:
            try:
                moves, _ = up.running._moves(OP, AT_EDGE2, KEYS)
            except PlanError:
                return AT_EDGE2
            (move,) = moves
            return move.source

        def replicates() -> PlaceId:
            (replica,) = replicas.of(OP)["car0"]
            return PlaceId(replica.removeprefix("replica of "))

        stop, planning = threading.Event(), Planning(up)
        readers = [Reader(planning, stop, look) for look in (describes, would_move, replicates)]
        for reader in readers:
            reader.start()
        try:
            until_s = time.monotonic() + FOR_S
            while time.monotonic() < until_s:
                planning.go_on()
        finally:
            stop.set()
            for reader in readers:
                reader.join(10)
        looks = [reader.looks for reader in readers]
        print(f"{planning.refused} plans refused, {planning.carried_out} carried out, looks of readers: {looks}")
        assert [each.wrong[:3] for each in readers if each.wrong] == []
        assert planning.carried_out and all(looks)
