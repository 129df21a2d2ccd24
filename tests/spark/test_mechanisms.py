"""Every mechanism with every application on Spark: nothing is lost, repeated or out of order, states are as if nothing
had moved, and the audit of the routers' journals finds nothing.

With `make test-mechanisms` all cells: for each mechanism one deployment with all applications. Every time only one
deployment, in which each application moves by another mechanism.
"""

import os
from collections.abc import Iterator

import pytest
from mechanism_course import course
from mechanism_proof import Cell

from oracles.everything import everything
from peregrine.core.mechanisms import MECHANISMS

# `live` is in test_oracle_apps.py.
EVERY_TIME = {
    "q7": "window-recreation",
    "stock": "on-demand",
    "key_count": "static-dynamic",
    "tm_app": "shed",
    "tweets": "drain",
}
RUNS = [EVERY_TIME]  # of each the mechanism by application
if os.environ.get("PEREGRINE_MECHANISMS") == "all":
    RUNS = [{each.name: mechanism for each in everything()} for mechanism in MECHANISMS]
CELLS = [(nth, app) for nth, by in enumerate(RUNS) for app in by]


class Runs:
    """Made when the first cell of each is wanted, and shown in the end."""

    def __init__(self, directories: pytest.TempPathFactory) -> None:
        self.made: dict[int, dict[str, Cell]] = {}
        self._directories = directories

    def cell(self, nth: int, application: str) -> Cell:
        if nth not in self.made:
            apps = [each for each in everything() if each.name in RUNS[nth]]
            cells = course(apps, RUNS[nth], self._directories.mktemp("mechanisms") / "deployment")
            self.made[nth] = {cell.application: cell for cell in cells}
        return self.made[nth][application]


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, spark: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    made = Runs(tmp_path_factory)
    yield made
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print()
        for cell in (cell for cells in made.made.values() for cell in cells.values()):
            print(f"{cell.mechanism:<18} {cell.application:<10} {cell.says}")


@pytest.mark.parametrize(("nth", "application"), CELLS, ids=[f"{RUNS[nth][app]}-{app}" for nth, app in CELLS])
def test_whatever_moves_an_application_the_proof_holds(runs: Runs, nth: int, application: str) -> None:
    cell = runs.cell(nth, application)
    assert cell.wrong == []
    assert cell.moved or cell.refused
