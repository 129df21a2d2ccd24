"""Continuous hosts in the simulator: random runs without a violation, and mistakes that one could make, each found."""

from collections.abc import Callable

import pytest

from peregrine.core.shard import Shard, Unit
from peregrine.errors import PeregrineError
from peregrine.sim.checkers import check
from peregrine.sim.continuous import ContinuousHost, Process
from peregrine.sim.scenario import Options, draw
from peregrine.sim.simulation import Simulation

OPTIONS = Options(continuous=True)
SEEDS = 60


@pytest.mark.parametrize("seed", range(24))
def test_rows_that_are_applied_one_by_one_come_to_the_same(seed: int) -> None:
    scenario = draw(seed, OPTIONS)
    assert check(Simulation(scenario).run(), Simulation(scenario.reference()).run()) == []


def test_processes_are_taken_over_while_they_go_on() -> None:
    """Else the runs above would show less than they claim."""
    zombies = []
    for seed in range(24):
        run = Simulation(draw(seed, OPTIONS)).run()
        hosts = [host for host in run.hosts.values() if isinstance(host, ContinuousHost)]
        zombies += [zombie for host in hosts for zombie in host.zombies]
    assert len(zombies) > 5


def applies_again(patch: pytest.MonkeyPatch) -> None:
    """A shard that was taken ahead of its epoch forgets up to where it holds."""
    take = Unit.take
    patch.setattr(Unit, "take", lambda self, held: Shard(0, take(self, held).groups))


def takes_before_handing_over(patch: pytest.MonkeyPatch) -> None:
    """State is taken while its outputs are on their way, and they die with the process."""
    step = Process._step

    def hasty(self: Process) -> None:
        end, before = self._host.log.end, self.position
        step(self)
        if self.running and self.position == before:
            self.position = before  # outputs are on their way
            for unit in self._units.values():
                unit.upto = end

    patch.setattr(Process, "_step", hasty)


def takes_too_little(patch: pytest.MonkeyPatch) -> None:
    """What changed just before the state that is committed is taken for part of it."""
    take = Unit.take
    patch.setattr(Unit, "take", lambda self, held: take(self, held + 2))


def begins_late(patch: pytest.MonkeyPatch) -> None:
    """A new process begins where the log ends, not where the committed state does."""
    make = Process.__init__

    def made(self: Process, host: ContinuousHost) -> None:
        make(self, host)
        self.position = host.log.end

    patch.setattr(Process, "__init__", made)


@pytest.mark.parametrize("fault", [applies_again, takes_before_handing_over, takes_too_little, begins_late])
def test_the_simulator_finds(fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(seed: int) -> bool:
        scenario = draw(seed, OPTIONS)
        reference = Simulation(scenario.reference()).run()
        with monkeypatch.context() as patch:
            fault(patch)
            try:
                return bool(check(Simulation(scenario).run(), reference))
            except (AssertionError, PeregrineError):
                return True

    assert any(fails(seed) for seed in range(SEEDS)), f"nobody noticed: {fault.__doc__}"
