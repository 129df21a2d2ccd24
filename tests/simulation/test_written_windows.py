"""Windows of applications that users write, recreated at another place, and ways in which that can be built wrong."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from peregrine.app.session_windows import END, SESSIONS, SessionWindows
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.mechanisms.program import Defer, Mechanism, Mute, On, Ripen, Step, Tell
from peregrine.core.migrate import Role
from peregrine.sim.checkers import check
from peregrine.sim.runner import run_seed
from peregrine.sim.scenario import Options, draw
from peregrine.sim.simulation import Doubles, Simulation

OPTIONS = Options(mechanism="window-recreation", app="written")
SEEDS = 60
CHUNK = 10


@pytest.mark.parametrize("start", range(0, 40, CHUNK))
def test_recreated_windows_tell_what_they_would_have_told(start: int) -> None:
    """Names, contents and order of results, and the state in the end: all as if nothing had moved."""
    results = [run_seed(seed, OPTIONS) for seed in range(start, start + CHUNK)]
    assert [violation for each in results for violation in each.violations] == []
    assert sum(each.migrations.get("window-recreation", 0) for each in results) >= CHUNK // 2


def test_other_mechanisms_move_written_windows_too() -> None:
    for mechanism in ("live", "pause", "on-demand", "static-dynamic"):
        results = [run_seed(seed, replace(OPTIONS, mechanism=mechanism)) for seed in range(5)]
        assert [violation for each in results for violation in each.violations] == []


def with_changes(changes: Mapping[tuple[Role, On], tuple[Step, ...]]) -> Mapping[str, Mechanism]:
    built = MECHANISMS["window-recreation"]
    return {**MECHANISMS, built.name: replace(built, program={**built.program, **changes})}


# From which seed on to look: some faults show in few of them, and the search takes half a second for each.
FIRST = {"time is not the same from the beginning": 150, "a session has grown": 90}
FAULTS: dict[str, Mapping[tuple[Role, On], tuple[Step, ...]]] = {
    "nothing is handed over": {(Role.SOURCE, On.RIPE): (Tell(Role.ANCHOR, On.READY),)},
    "time is not the same from the beginning": {
        (Role.SOURCE, On.RECONFIG): (Defer(), Ripen()),
        (Role.TARGET, On.RECONFIG): (Mute(),),
    },
    "it does not wait for open windows": {(Role.SOURCE, On.RECONFIG): (Defer(), Tell(Role.ANCHOR, On.HANDOVER))},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_simulator_finds(fault: str) -> None:
    assert first_seed_that_fails(Doubles(mechanisms=with_changes(FAULTS[fault])), FIRST.get(fault, 0)) is not None


def test_the_simulator_finds_that_a_session_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_ends(windows: SessionWindows, state: Any) -> list[int]:
        return [] if state is None else [session[END] for session in state[SESSIONS]]

    monkeypatch.setattr(SessionWindows, "open_ends", last_ends)
    assert first_seed_that_fails(Doubles(), FIRST["a session has grown"]) is not None


def first_seed_that_fails(doubles: Doubles, first: int) -> int | None:
    for seed in range(first, first + SEEDS):
        scenario = draw(seed, replace(OPTIONS, faults=False))
        try:
            if check(Simulation(scenario, doubles).run(), Simulation(scenario.reference()).run()):
                return seed
        except AssertionError:
            return seed
    return None
