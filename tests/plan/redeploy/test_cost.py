"""Planning a change costs what is affected: counted in sites, writes and calls, because times lie on a busy machine."""

import sys
from typing import Any

import pytest

from peregrine.bench.redeployment import change, railway
from peregrine.plan.redeploy.planner import Scope


def counted(sites: int, scope: Scope = Scope.INCREMENTAL) -> tuple[int, int, int]:
    """Sites looked at, entries written, functions called."""
    planner = railway(sites, scope)
    change(planner, 1)
    planner.succeeded()
    planner.world.visited = 0
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        change(planner, 2)
    finally:
        sys.setprofile(before)
    return planner.world.visited, planner.world.changes.mark(), calls


@pytest.mark.parametrize("sites", [100, 10_000])
def test_one_change_costs_the_same_among_ten_sites_and_among_ten_thousand(sites: int) -> None:
    for small, large in zip(counted(10), counted(sites), strict=True):
        assert large <= 2 * small


def test_to_replan_everything_costs_what_exists() -> None:
    for small, large in zip(counted(10), counted(1_000, Scope.HOLISTIC), strict=True):
        assert large > 10 * small
