"""Who asks the manager's driver gets what is so between two events, and hears all that it waits for."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from managed_driver import AT_CLOUD, AT_EDGE1, AT_EDGE2, KEYS, OP, Managed, managed, plan
from peregrine.control import metering
from peregrine.control.changing import Changed
from peregrine.control.replicas import Replicas
from peregrine.errors import PlanError
from peregrine.plan.metrics import Seen
from peregrine.plan.redeploy.events import SiteRemoved, TopologyEvent
from peregrine.types import SiteId

A_MOMENT_S = 0.3  # is given to those who should not get anywhere; nobody needs it


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Managed]:
    with managed(tmp_path) as made:
        yield made


def described(up: Managed, tmp_path: Path) -> Any:
    return up.running.describe()


def to_be_moved(up: Managed, tmp_path: Path) -> Any:
    return [move.source for move in up.running._moves(OP, "edge2", KEYS)[0]]


def replicated(up: Managed, tmp_path: Path) -> Any:
    (tmp_path / "replicas.json").write_text(f'{{"{OP}": [["cloud", "edge1", ["car0"]]]}}')
    return Replicas(up, tmp_path / "replicas.json").of(OP)  # type: ignore[arg-type]


def measured(up: Managed, tmp_path: Path) -> Any:
    return {key: load.place for key, load in metering.metrics_of(up, OP).loads.items()}  # type: ignore[arg-type]


Reader = Callable[[Managed, Path], Any]
READERS: list[Reader] = [described, to_be_moved, replicated, measured]


class Reading:
    """A question that a thread of its own asks."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._answers: list[Any] = []
        self._thread = threading.Thread(target=lambda: self._answers.append(ask()), name="reader")
        self._thread.start()
        self._thread.join(A_MOMENT_S)  # if it need not wait it has its answer now

    def answer(self) -> Any:
        self._thread.join(10)
        (found,) = self._answers
        return found


class Refusing:
    """A thread that submits a plan: it is being checked, and imagined, until the test lets it go on and be refused."""

    def __init__(self, up: Managed, monkeypatch: pytest.MonkeyPatch) -> None:
        self._up = up
        self._imagined, self._go_on = threading.Event(), threading.Event()
        placement = up.machine.coordinator.placement
        self._check_above = placement.check_above
        monkeypatch.setattr(placement, "check_above", self._held)
        self._thread = threading.Thread(target=self._submit, name="planner")
        self._thread.start()
        assert self._imagined.wait(10)
        assert placement.owner(OP, "car0") == AT_EDGE1

    def _held(self, *args: Any) -> None:
        self._imagined.set()
        assert self._go_on.wait(10)
        self._check_above(*args)

    def _submit(self) -> None:
        with pytest.raises(PlanError, match="is not all at"):
            self._up.driver.submit(plan("bad", (KEYS, AT_CLOUD, AT_EDGE1), (KEYS, AT_CLOUD, AT_EDGE2)))

    def end(self) -> None:
        self._go_on.set()
        self._thread.join(10)


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_does_not_see_what_is_only_imagined_while_a_plan_is_checked(
    up: Managed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: Reader
) -> None:
    monkeypatch.setattr(metering, "rows_of", lambda *args: Seen({"car0": 1.0}, {}, 1.0, 1000.0))
    real = reader(up, tmp_path)
    planner = Refusing(up, monkeypatch)
    reading = Reading(lambda: reader(up, tmp_path))
    planner.end()
    assert reading.answer() == real


def test_what_was_imagined_does_not_stay_for_those_who_read_later(up: Managed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that has begun to look while a plan is checked, and is done when the plan has been refused."""
    real = up.running.describe()
    placement = up.machine.coordinator.placement
    placement.move(OP, KEYS, AT_CLOUD, AT_EDGE2)  # and back: nothing is remembered from before
    placement.move(OP, KEYS, AT_EDGE2, AT_CLOUD)
    planner_is_done, look = threading.Event(), placement._owners.partition

    def partition(*args: Any) -> Any:
        found = look(*args)
        if threading.current_thread().name == "reader":
            assert planner_is_done.wait(10)
        return found

    monkeypatch.setattr(placement._owners, "partition", partition)
    planner = Refusing(up, monkeypatch)
    reading = Reading(up.running.describe)
    planner.end()
    planner_is_done.set()
    reading.answer()
    assert up.running.describe() == real


class Changing:
    """A thread that tells the driver of changes, when a test lets it."""

    def __init__(self, up: Managed, *events: TopologyEvent) -> None:
        self.registered, self._go_on = threading.Event(), threading.Event()
        self._changed: list[Changed] = []
        self._thread = threading.Thread(
            target=lambda: self._changed.append(up.driver.change(self._told(events), 10)), name="changing"
        )
        self._thread.start()

    def _told(self, events: tuple[TopologyEvent, ...]) -> Iterator[TopologyEvent]:
        self.registered.set()  # whoever asks for the first one is ready to hear
        assert self._go_on.wait(10)
        yield from events

    def ended(self) -> Changed:
        self._go_on.set()
        self._thread.join(10)
        (changed,) = self._changed
        return changed


def test_one_who_waits_for_changes_hears_of_them_although_another_has_ended_who_had_heard_the_same(up: Managed) -> None:
    first = Changing(up, SiteRemoved(SiteId("nowhere"), 1))
    assert first.registered.wait(10)
    assert up.driver.change([]).redeployed == ()  # it, too, has heard of nothing
    assert len(first.ended().redeployed) == 1


def test_nobody_begins_or_ceases_to_wait_for_changes_while_the_machine_is_in_hand(up: Managed) -> None:
    """Those who wait are told one after the other then: who came or went in between would make others miss it."""
    with up.driver._changed:
        changing = Changing(up)
        assert not changing.registered.wait(A_MOMENT_S)
    assert changing.registered.wait(10)
    changing.ended()
