"""The journals of a run, stepped through once more: they must agree with what the simulator has seen as it ran."""

from collections.abc import Callable

from harness import CLOUD, OP, SINK, row, rows, sink, spec
from peregrine.audit import Audit
from peregrine.core import journal
from peregrine.core.intake import RouterConfig
from peregrine.core.messages import FromSource
from peregrine.core.topology import Topology
from peregrine.sim.scenario import Options, Scenario, draw
from peregrine.sim.simulation import Simulation
from peregrine.types import PlaceId, SourceId


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
    assert any("have not landed" in each for each in audited(run, lambda seen: last(seen).clear()))
    assert any("more than once" in each for each in audited(run, lambda seen: last(seen).append(last(seen)[0])))


def last(seen: Audit) -> list[int]:
    return next(reversed(seen.landed.values()))


def test_what_a_source_gives_to_a_sink_must_land_once_though_nobody_emits_it() -> None:
    config = RouterConfig(CLOUD, Topology.tree(CLOUD), {OP: spec(), SINK: sink()})
    given = FromSource(SourceId("s"), ((2, rows(row("k", 0), row("k", 1), row("l", 2), op=SINK)),))
    again = FromSource(SourceId("s"), ((2, rows(row("l", 0), row("l", 1), row("k", 2), op=SINK)),))  # seen before
    seen = Audit()
    seen.read(config, [given, again])
    assert seen.found(PlaceId(CLOUD)) == []
    seen.landed.popitem()
    assert seen.found(PlaceId(CLOUD)) == [f"1 results of {SINK} l s have not landed"]


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
