"""A whole change through the manager costs what is affected, as planning it does (`test_cost.py`).

Counted in functions called and bytes that were wanted at the same time (a copy of all sites is one call, but large).
"""

import sys
import tracemalloc
from functools import cache
from typing import Any

import pytest

from peregrine.bench.redeployment import carry_out, managed_railway
from peregrine.core.manager import Manager

CHANGES = 6


@cache
def counted(sites: int) -> tuple[int, int]:
    """Functions called, ours and others', and bytes: of the cheapest of some changes. (Now and then one of them pays
    for tables that are tidied up: `test_layered.py`.)
    """
    manager = managed_railway(sites)
    carry_out(manager, 1)  # what the first change makes, the others find
    calls = [_calls(manager, 2 + nth) for nth in range(CHANGES)]
    return min(calls), min(_bytes(manager, 2 + CHANGES + nth) for nth in range(CHANGES))


def _calls(manager: Manager, version: int) -> int:
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        carry_out(manager, version)
    finally:
        sys.setprofile(before)
    return calls


def _bytes(manager: Manager, version: int) -> int:
    tracemalloc.start()
    try:
        start, _ = tracemalloc.get_traced_memory()
        carry_out(manager, version)
        return tracemalloc.get_traced_memory()[1] - start
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("sites", [100, 1_000, 10_000])
def test_a_whole_change_costs_the_manager_the_same_among_ten_sites_and_among_ten_thousand(sites: int) -> None:
    for small, large in zip(counted(10), counted(sites), strict=True):
        assert large <= 2 * small
