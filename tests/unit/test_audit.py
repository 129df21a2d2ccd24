"""The journals of a run, stepped through once more: they must agree with what the simulator has seen as it ran."""

from collections.abc import Callable

from peregrine.audit import Audit
from peregrine.core import journal
from peregrine.core.intake import RouterConfig
from peregrine.sim.scenario import Options, Scenario, draw
from peregrine.sim.simulation import Simulation


def audited(run: Simulation, meddle: Callable[[Audit], None] = lambda seen: None) -> list[str]:
    scenario = run.scenario
    seen = Audit()
    for site, router in run.routers.items():
        config = RouterConfig(site, scenario.topology, scenario.specs)
        seen.read(config, (journal.decode(raw) for raw in router.journal))
    meddle(seen)
    return seen.found(scenario.topology.main_place(scenario.topology.root), scenario.initial)


def draws(count: int) -> list[Scenario]:
    drawn = (draw(seed, Options(mechanism="live")) for seed in range(200))
    return [each for each in drawn if each.ordered and each.lossless][:count]


def ran(scenario: Scenario) -> Simulation:
    return Simulation(scenario).run()


def test_the_journals_of_correct_runs_show_nothing_wrong() -> None:
    moved = 0
    for scenario in draws(12):
        run = ran(scenario)
        assert run.observed.finished
        assert audited(run) == [], f"seed {scenario.seed}"
        moved += len(run.observed.moved)
    assert moved > 10, "there was something to look at"


def test_what_is_wrong_is_found() -> None:
    run = next(run for run in map(ran, draws(12)) if any(len(at) > 1 for at in run.observed.emitters.values()))
    assert any("but emitted at" in each for each in audited(run, lambda seen: seen.done.clear()))
    assert any("emitted by nobody" in each for each in audited(run, lambda seen: seen.emitted.clear()))


def test_a_journal_that_ends_in_the_middle_of_a_migration_shows_what_was_left_behind() -> None:
    run = next(run for run in map(ran, draws(12)) if len(run.observed.moved) > 2)
    found = []
    for site, router in run.routers.items():
        for cut in range(0, len(router.journal), 7):
            seen = Audit()
            config = RouterConfig(site, run.scenario.topology, run.scenario.specs)
            seen.read(config, (journal.decode(raw) for raw in router.journal[:cut]))
            found += seen.violations
    assert any("left behind" in each for each in found)
