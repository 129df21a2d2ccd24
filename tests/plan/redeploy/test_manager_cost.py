"""A whole change through the manager costs what is affected, as planning it does (`test_cost.py`).

Counted in functions called and bytes that were wanted at the same time (a copy of all sites is one call, but large).
"""

import sys
import tracemalloc
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from peregrine.bench.redeployment import GROUPS, ROOT, carry_out, managed_railway, moved, obey, partial
from peregrine.core.coordinator import Submit
from peregrine.core.keyspace import KeySet
from peregrine.core.manager import Manager
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.redeploying import Redeployed, TopologyChanged
from peregrine.types import PlaceId

CHANGES = 6


Change = Callable[[Manager, int], object]


def mend(manager: Manager, version: int) -> None:
    """A user's plan brings the train's keys to the edge that the train is just leaving."""
    fact = moved(version)
    op, keys, edge, root = partial(0), KeySet.of_keys(GROUPS, ["train0"]), PlaceId(fact.source), PlaceId(ROOT)
    obey(manager, Submit(Plan(f"up{version}", ((Move(op, keys, edge, root),),))))
    down = Submit(Plan(f"down{version}", ((Move(op, keys, root, edge),),)))
    ended, mended = [each for each in obey(manager, down, TopologyChanged(fact)) if isinstance(each, Redeployed)]
    assert ended.wrong and mended.complete and not mended.wrong
    assert manager.coordinator.placement.owner(op, "train0") == fact.target


@cache
def counted(sites: int, change: Change) -> tuple[int, int]:
    """Functions called, ours and others', and bytes: of the cheapest of some changes. (Now and then one of them pays
    for tables that are tidied up: `test_layered.py`.)
    """
    manager = managed_railway(sites)
    change(manager, 1)  # what the first change makes, the others find
    calls = [_calls(manager, 2 + nth, change) for nth in range(CHANGES)]
    return min(calls), min(_bytes(manager, 2 + CHANGES + nth, change) for nth in range(CHANGES))


def _calls(manager: Manager, version: int, change: Change) -> int:
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        change(manager, version)
    finally:
        sys.setprofile(before)
    return calls


def _bytes(manager: Manager, version: int, change: Change) -> int:
    tracemalloc.start()
    try:
        start, _ = tracemalloc.get_traced_memory()
        change(manager, version)
        return tracemalloc.get_traced_memory()[1] - start
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("sites", [100, 1_000, 10_000])
def test_a_whole_change_costs_the_manager_the_same_among_ten_sites_and_among_ten_thousand(sites: int) -> None:
    for small, large in zip(counted(10, carry_out), counted(sites, carry_out), strict=True):
        assert large <= 2 * small


def test_so_does_a_change_after_which_keys_that_somebody_has_moved_are_planned_again() -> None:
    for small, large in zip(counted(10, mend), counted(10_000, mend), strict=True):
        assert large <= 2 * small
