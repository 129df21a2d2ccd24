"""Which routers are asked where their logs end: all that may have something, and nobody else."""

import threading
from collections.abc import Iterator

import pytest

from peregrine.spark import asking
from peregrine.spark.asking import Advanced, Asking, Committed
from peregrine.types import PlaceId

A, B = PlaceId("a"), PlaceId("b")
PATIENCE_S = 10.0


class Routers:
    """Two routers, at the addresses "a" and "b", each with one place of that name."""

    def __init__(self) -> None:
        self.ends = {A: 0, B: 0}
        self.asked: list[str] = []  # those that were asked without waiting
        self.waited_at: set[str] = set()
        self._came = threading.Condition()
        self._closed = False

    def ask(self, address: str, committed: Committed, wait_s: float) -> Advanced:
        with self._came:
            if wait_s:
                self.waited_at.add(address)
                self._came.wait_for(lambda: self._closed or self._ends(committed) != committed, PATIENCE_S)
                self.waited_at.discard(address)
            else:
                self.asked.append(address)
            return self._ends(committed), []

    def _ends(self, committed: Committed) -> dict[PlaceId, int]:
        return {place: self.ends[place] for place in committed}

    def append(self, place: PlaceId) -> None:
        with self._came:
            self.ends[place] += 1
            self._came.notify_all()

    def close(self) -> None:
        with self._came:
            self._closed = True
            self._came.notify_all()


@pytest.fixture
def routers() -> Iterator[Routers]:
    made = Routers()
    yield made
    made.close()


def committed(a: int, b: int) -> dict[str, Committed]:
    return {"a": {A: a}, "b": {B: b}}


def until_it_has_something(asks: Asking, at: dict[str, Committed]) -> dict[PlaceId, int]:
    for _ in range(int(PATIENCE_S / asking.WAIT_S)):
        ends, _ = asks.advance(at, can_wait=True)
        if ends:
            return ends
    raise AssertionError("what has come is never told")


def test_a_router_that_had_nothing_is_not_asked_again_while_it_has_nothing(routers: Routers) -> None:
    asks = Asking(routers.ask)
    routers.append(A)
    assert asks.advance(committed(0, 0), can_wait=True)[0] == {A: 1}
    assert sorted(routers.asked) == ["a", "b"]
    routers.append(A)
    assert asks.advance(committed(1, 0), can_wait=True)[0] == {A: 2}
    assert sorted(routers.asked) == ["a", "a", "b"]


def test_a_router_that_had_nothing_is_asked_when_it_has_something_and_tells_all_that_it_has_by_then(
    routers: Routers,
) -> None:
    asks = Asking(routers.ask)
    assert asks.advance(committed(0, 0), can_wait=True)[0] == {}
    routers.append(B)
    routers.append(B)
    assert until_it_has_something(asks, committed(0, 0)) == {B: 2}


def test_what_is_committed_is_told_to_a_router_that_had_something(routers: Routers) -> None:
    told: list[Committed] = []

    def ask(address: str, at: Committed, wait_s: float) -> Advanced:
        told.append(at)
        return routers.ask(address, at, wait_s)

    asks = Asking(ask)
    routers.append(A)
    asks.advance(committed(0, 0), can_wait=True)
    asks.advance(committed(1, 0), can_wait=True)
    assert {A: 1} in told


def test_a_router_that_gets_another_place_is_asked_about_it_at_once(routers: Routers) -> None:
    asks = Asking(routers.ask)
    asks.advance(committed(0, 0), can_wait=True)
    more = PlaceId("b/more")
    routers.ends[more] = 3
    assert asks.advance({"a": {A: 0}, "b": {B: 0, more: 0}}, can_wait=True)[0] == {B: 0, more: 3}


def test_a_router_that_goes_away_while_it_is_waited_for_is_asked_again() -> None:
    gone, asked = threading.Event(), []

    def ask(address: str, at: Committed, wait_s: float) -> Advanced:
        if not wait_s:
            asked.append(address)
        elif address == "b":
            gone.set()
            raise ConnectionError("it went away")
        else:
            stay.wait(PATIENCE_S)
        return dict(at), []

    stay = threading.Event()
    asks = Asking(ask)
    asks.advance(committed(0, 0), can_wait=True)
    assert gone.wait(PATIENCE_S)
    asks.advance(committed(0, 0), can_wait=True)
    stay.set()
    assert asked.count("a") == 1 and asked.count("b") > 1


def test_where_processes_follow_logs_every_router_is_asked_every_time(routers: Routers) -> None:
    asks = Asking(routers.ask)
    for _ in range(3):
        assert asks.advance(committed(0, 0), can_wait=False)[0] == {A: 0, B: 0}
    assert sorted(routers.asked) == ["a", "a", "a", "b", "b", "b"]
    assert not routers.waited_at
