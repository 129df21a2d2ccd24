"""The pictures of the simulated demonstration, drawn into a file that says it is a terminal; Ctrl-C in the real one."""

import os
import signal
from io import StringIO

import pytest
from rich.console import Console

from peregrine import demo
from peregrine.control.demo import interrupted_once
from peregrine.sim import cars
from peregrine.sim.cars import Phase, Watch
from peregrine.sim.simulation import Simulation


def drawn(watch: Watch, width: int) -> list[str]:
    paper = StringIO()
    Console(file=paper, width=width).print(demo.picture(watch, width))
    return paper.getvalue().splitlines()


def test_every_migration_is_seen_and_the_picture_keeps_its_size() -> None:
    watch = Watch(Simulation(cars.scenario()))
    pictures: list[list[str]] = []

    def look() -> bool:
        pictures.append(drawn(watch, 80))
        return True

    watch.run.world.every(25.0, look)
    watch.run.run()
    assert {len(picture) for picture in pictures} == {len(pictures[0])}
    assert {len(line) for picture in pictures for line in picture} == {80}
    seen = "\n".join(line for picture in pictures for line in picture)
    for phase in list(Phase)[:-1]:
        assert cars.MEANING[phase] in seen
    moved = [str(journey) for journey in watch.journeys.values()]
    assert moved == ["car0-4: cloud → edge1", "car2: edge1 → cloud", "car2: cloud → edge2"]
    assert watch.rows_in == watch.rows_out == len(watch.samples)


def test_on_a_terminal_the_demo_plays_and_then_proves(monkeypatch: pytest.MonkeyPatch) -> None:
    slept_s: list[float] = []
    monkeypatch.setattr(demo, "sleep", slept_s.append)
    monkeypatch.setattr(demo, "FRAME_MS", 200.0)
    paper = StringIO()
    assert demo.run_demo(Console(file=paper, force_terminal=True, width=100, height=40))
    assert len(slept_s) > 20
    assert "Compared with a run in which nothing moved" in paper.getvalue()


def test_ctrl_c_interrupts_once_and_not_while_everything_is_put_away() -> None:
    before = signal.getsignal(signal.SIGINT)
    put_away = False
    with pytest.raises(KeyboardInterrupt), interrupted_once() as again:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # as Spark does when a session begins
        again()
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            put_away = True
    assert put_away
    assert signal.getsignal(signal.SIGINT) is before
