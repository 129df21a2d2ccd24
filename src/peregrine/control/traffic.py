"""Cars that report to a deployment, each a device of its own, and what has to be waited for."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from peregrine import proof
from peregrine.control import questions
from peregrine.control.auditing import audit_deployment
from peregrine.control.deployment import Deployment
from peregrine.control.watch import Watch
from peregrine.core.keyspace import KeySet
from peregrine.core.migrate import Migration
from peregrine.core.operator import Operator, OpSpec
from peregrine.core.placement import Initial
from peregrine.core.rows import UNCHAINED, Row
from peregrine.errors import PeregrineError
from peregrine.net.device import Device
from peregrine.types import MigrationId, OpId, SiteId, SourceId
from peregrine.workloads import tm

PATIENCE_S = 60.0
TURN_S = 0.005
READ_WAIT_S = 0.5


class Paced(ABC):
    """What is sent at a steady rate while something else is waited for."""

    def __init__(self, per_s: float, watch: Watch) -> None:
        self.devices: dict[str, Device] = {}
        self._per_s = per_s
        self._watch = watch

    @abstractmethod
    def send_nth(self, nth: int) -> int:
        """Of a stretch; returns how many rows that are."""

    @abstractmethod
    def inputs(self) -> Mapping[OpId, Sequence[Row]]:
        """All that has been sent."""

    def flow(self, seconds: float) -> None:
        self.flow_while(lambda elapsed_s: elapsed_s < seconds)

    def flow_until(self, done: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
        def going(elapsed_s: float) -> bool:
            if elapsed_s > patience_s:
                raise PeregrineError(f"after {patience_s:g} s it is not so that {what}", "is the machine very busy?")
            return not done()

        self.flow_while(going)

    def flow_while(self, going: Callable[[float], bool]) -> None:
        """`going` is told for how many seconds it has."""
        began_s, count = time.monotonic(), 0
        while going(elapsed_s := time.monotonic() - began_s):
            due = int(elapsed_s * self._per_s) - count
            self._watch.on_sent(sum(map(self.send_nth, range(count, count + due))))
            count += due
            time.sleep(TURN_S)


class Traffic(Paced):
    """Readings of all cars in turn."""

    def __init__(self, deployment: Deployment, homes: Mapping[str, SiteId], rows_per_s: float, watch: Watch) -> None:
        """`homes`: at which site each car is in the beginning."""
        super().__init__(rows_per_s, watch)
        self.sent: list[Row] = []
        self._cars = list(homes)
        self._readings = {car: tm.readings(car) for car in homes}
        self._seq = dict.fromkeys(homes, 0)
        for car, site in homes.items():
            keys = KeySet.of_keys(tm.GROUPS, [car])
            self.devices[car] = deployment.device(car, site, roaming=True, feeds=(tm.MOV_AVG, keys))

    def send(self, car: str) -> None:
        payload = next(self._readings[car])
        self.devices[car].send(tm.MOV_AVG, car, payload)
        self.sent.append(Row(car, SourceId(car), self._seq[car], UNCHAINED, 0, 0, payload))
        self._seq[car] += 1

    def first_results(self) -> None:
        """Spark's first batch takes seconds: no rows before it is through, they would only wait."""
        for car in self.devices:
            self.send(car)
        self._watch.on_sent(len(self.devices))
        deadline_s = time.monotonic() + PATIENCE_S
        while self._watch.rows_out < len(self.devices):
            if time.monotonic() > deadline_s:
                raise PeregrineError(f"no results after {PATIENCE_S:g} s", "is the machine very busy?")
            time.sleep(0.05)

    def send_nth(self, nth: int) -> int:
        self.send(self._cars[nth % len(self._cars)])
        return 1

    def inputs(self) -> Mapping[OpId, Sequence[Row]]:
        return {tm.MOV_AVG: self.sent}


@contextmanager
def watched(deployment: Deployment, watch: Watch) -> Iterator[None]:
    """The watch reads results, and learns which migration is which."""
    watch.find = lambda migration: _find(deployment, migration)
    stop = threading.Event()
    reader = threading.Thread(target=_read, args=(deployment, watch, stop), name="results", daemon=True)
    reader.start()
    try:
        yield
    finally:
        stop.set()
        reader.join(timeout=5)


def proved(
    deployment: Deployment,
    flow: Paced,
    specs: Mapping[OpId, OpSpec],
    operators: Mapping[OpId, Operator],
    watch: Watch,
    initial: Initial = (),
) -> proof.Proof:
    """Waits until all rows are through. Against a run in which nothing moved."""
    inputs = flow.inputs()
    should, should_states = proof.expected(specs, operators, inputs)
    _drain(deployment, flow, sum(map(len, should.values())), watch)
    watch.say("comparing results and states with a run in which nothing moved")
    states = proof.values(deployment.states())
    found = proof.prove(sum(map(len, inputs.values())), deployment.result_lines(), should, states, should_states)
    return replace(found, violations=tuple(audit_deployment(deployment, initial)))


def _drain(deployment: Deployment, flow: Paced, results: int, watch: Watch) -> None:
    """Until every row has its result, every plan has ended and every host has committed."""
    for device in flow.devices.values():
        device.flush(PATIENCE_S)
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        found = deployment.results_at_rest()
        running = deployment.driver.ask(questions.running)
        if found is not None and not running and found >= results <= watch.rows_out:
            return
        time.sleep(0.2)
    watch.say(f"after {PATIENCE_S:g} s not all rows are through")


def _read(deployment: Deployment, watch: Watch, stop: threading.Event) -> None:
    client, position = deployment.clients[deployment.topology.root], 0
    while not stop.is_set():
        try:
            table, after = client.read_results(position, wait_s=READ_WAIT_S)
        except PeregrineError:  # the router is away; it comes back, or the proof says what is missing
            stop.wait(READ_WAIT_S)
            continue
        if after != position:
            watch.on_results(table)
        position = after


def _find(deployment: Deployment, migration: MigrationId) -> Migration | None:
    return deployment.driver.ask(questions.migration, migration)
