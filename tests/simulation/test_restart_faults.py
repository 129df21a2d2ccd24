"""Mistakes that one could make about restarts and about what hosts hand over, each found within 200 seeds.

A process that comes back has a snapshot, a journal that was cut behind it, and logs that were cut too. Each fault here
is one of these that holds less, or something else, than it should.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from by_pickle import ByPickle
from peregrine.core import device_record
from peregrine.core.device_record import Beat, Read
from peregrine.core.intake import Intake
from peregrine.core.messages import FromGroups
from peregrine.core.router import Router
from peregrine.core.router_logs import Cut, RouterLogs, Session
from peregrine.core.rows import Rows
from peregrine.core.source import Source
from peregrine.errors import PeregrineError
from peregrine.plan import manager_books
from peregrine.plan.manager_books import Books, Make
from peregrine.sim import devices
from peregrine.sim.checkers import check
from peregrine.sim.devices import SimManager
from peregrine.sim.scenario import Options, Scenario, draw
from peregrine.sim.simulation import Doubles, Simulation
from peregrine.sim.store import SimStore

SEEDS = 200


class IntakeThatForgets(Intake):
    """What was seen of hosts is not in a snapshot."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_hosts": {}}


class ForgetsHosts(Router):
    intake_type = IntakeThatForgets


class IntakeThatForgetsLinks(Intake):
    """What was taken from neighbours is not in a snapshot."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_links": {}}


class ForgetsLinks(Router):
    intake_type = IntakeThatForgetsLinks


class IntakeWithOneMark(Intake):
    """The mark of the last of several groups is taken for that of all."""

    def from_groups(self, event: FromGroups) -> Rows | None:
        rows = super().from_groups(event)
        for group, _ in event.groups:
            self._hosts[event.place, event.op, group] = int(event.offsets.max())
        return rows


class OneMark(Router):
    intake_type = IntakeWithOneMark


class IntakeWithTheMarksOfOthers(Intake):
    """What is a repeat is judged by the mark of the first of several groups."""

    def from_groups(self, event: FromGroups) -> Rows | None:
        seen = self._hosts.get((event.place, event.op, event.groups[0][0]), -1)
        super().from_groups(event)
        fresh = event.offsets > seen
        return replace(event.rows, batch=event.rows.batch.filter(np.asarray(fresh))) if fresh.any() else None


class MarksOfOthers(Router):
    intake_type = IntakeWithTheMarksOfOthers


def misses_an_event(patch: pytest.MonkeyPatch) -> None:
    """The journal is cut one event too far."""
    records = SimStore.records

    def cut(self: SimStore, position: int) -> Iterator[tuple[int, bytes]]:
        found = list(records(self, position))
        return iter(found[1:] if position else found)

    patch.setattr(SimStore, "records", cut)


def cuts_too_much(of: str) -> Callable[[pytest.MonkeyPatch], None]:
    """A log is cut past what was acknowledged."""

    def fault(patch: pytest.MonkeyPatch) -> None:
        cut = RouterLogs.cut

        def cuts(self: RouterLogs, machine: Router, ends: Mapping[str, int], acked: Mapping[Session, int]) -> Cut:
            right = cut(self, machine, ends, acked)
            return replace(right, before={name: at + 3 * name.startswith(of) for name, at in right.before.items()})

        patch.setattr(RouterLogs, "cut", cuts)

    return fault


def snapshots_too_early(patch: pytest.MonkeyPatch) -> None:
    """A snapshot promises of the logs what the disk does not have yet."""
    lose = SimStore.lose

    def loses(self: SimStore) -> None:
        if self._snapshot is not None:
            position, body, ends = self._snapshot
            self._snapshot = position, body, {name: end - 3 for name, end in ends.items() if end > 3}
        lose(self)

    patch.setattr(SimStore, "lose", loses)


def manager_without_its_last_record(patch: pytest.MonkeyPatch) -> None:
    recover = manager_books.recover

    def recovers(books: Books, records: Iterable[bytes], make: Make) -> Books:
        return recover(books, [*records][:-1], make)

    patch.setattr(manager_books, "recover", recovers)


def manager_with_an_old_snapshot(patch: pytest.MonkeyPatch) -> None:
    offer = SimManager.offer

    def offers(self: SimManager, event: Any) -> bool:
        old = self._snapshot
        try:
            return offer(self, event)
        finally:
            self._snapshot = old or self._snapshot

    patch.setattr(SimManager, "offer", offers)


def device_that_forgets_its_last_rows(patch: pytest.MonkeyPatch) -> None:
    def recovers(source: Source, records: list[bytes]) -> Source:
        lost = [device_record._decoder.decode(raw) for raw in records[-2:]]
        source = device_record.recover(source, records[:-2])
        source._next_seq += sum(isinstance(each, Read | Beat) for each in lost)
        return source

    patch.setattr(devices, "recover", recovers)


DOUBLES: dict[str, Doubles] = {
    "a snapshot without the marks of hosts": Doubles(router=ForgetsHosts, codec=ByPickle()),
    "a snapshot without the marks of links": Doubles(router=ForgetsLinks, codec=ByPickle()),
    "one mark for several groups": Doubles(router=OneMark, codec=ByPickle()),
    "marks of another group": Doubles(router=MarksOfOthers, codec=ByPickle()),
}
PATCHES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a journal that is cut too far": misses_an_event,
    "a log to a neighbour that is cut too far": cuts_too_much("out/"),
    "a log of a host that is cut too far": cuts_too_much("hosts/"),
    "a snapshot before the logs are safe": snapshots_too_early,
    "a manager without its last record": manager_without_its_last_record,
    "a manager with an old snapshot": manager_with_an_old_snapshot,
    "a device without its last rows": device_that_forgets_its_last_rows,
}
LIKELY = {  # where each was found first
    "a snapshot without the marks of hosts": 221,
    "a snapshot without the marks of links": 4,
    "one mark for several groups": 17,
    "marks of another group": 18,
    "a journal that is cut too far": 15,
    "a log to a neighbour that is cut too far": 15,
    "a log of a host that is cut too far": 3,
    "a snapshot before the logs are safe": 12,
    "a manager without its last record": 10,
    "a manager with an old snapshot": 106,
    "a device without its last rows": 29,
}


@lru_cache(maxsize=SEEDS)
def drawn(seed: int) -> tuple[Scenario, Simulation]:
    """With its reference run, in which nothing crashes: the same for every fault."""
    scenario = draw(seed, Options())
    return scenario, Simulation(scenario.reference()).run()


def fails(seed: int, doubles: Doubles) -> bool:
    scenario, reference = drawn(seed)
    try:
        return bool(check(Simulation(scenario, doubles).run(), reference))
    except (AssertionError, PeregrineError):
        return True


def first_seed_that_fails(fault: str, doubles: Doubles) -> int | None:
    return next((seed for seed in (LIKELY.get(fault, 0), *range(SEEDS)) if fails(seed, doubles)), None)


@pytest.mark.parametrize("fault", DOUBLES)
def test_the_simulator_finds(fault: str) -> None:
    assert first_seed_that_fails(fault, DOUBLES[fault]) is not None, f"{SEEDS} seeds and nobody noticed: {fault}"


@pytest.mark.parametrize("fault", PATCHES)
def test_the_simulator_finds_in_what_is_kept(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = (LIKELY.get(fault, 0), *range(SEEDS))
    for seed in seeds:
        drawn(seed)  # what nothing is wrong with on purpose
        with monkeypatch.context() as patch:
            PATCHES[fault](patch)
            if fails(seed, Doubles()):
                return
    pytest.fail(f"{SEEDS} seeds and nobody noticed: {fault}")
