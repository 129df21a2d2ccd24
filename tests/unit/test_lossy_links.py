"""The simulator's links lose the share of frames that the topology says, and nobody notices but those who wait."""

from dataclasses import replace

from peregrine.core.topology import Link, Topology
from peregrine.sim import cars
from peregrine.sim.checkers import results
from peregrine.sim.simulation import Simulation


def run_with(loss: float) -> Simulation:
    links = {edge: (cars.CLOUD, Link(40.0, 50.0, loss=loss)) for edge in (cars.EDGE1, cars.EDGE2)}
    return Simulation(replace(cars.scenario(), topology=Topology.tree(cars.CLOUD, links))).run()


def sent_bytes(run: Simulation) -> int:
    return sum(link.bytes_sent for router in run.routers.values() for link in router.links.values())


def test_frames_that_are_lost_are_sent_again_and_change_no_result() -> None:
    calm, lossy = run_with(0.0), run_with(0.2)
    assert lossy.observed.finished and results(lossy) == results(calm)
    assert sent_bytes(lossy) > 1.1 * sent_bytes(calm)
