"""The pictures of the demonstration, drawn into a file that says it is a terminal."""

from io import StringIO

import pytest
from rich.console import Console

from peregrine import demo
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
