"""Cars on a road with a router every so often: where each of them is when, and which edge is the nearest (Falcon IV-C).

Where a car is has a closed form of (seed, car, time): it drives at a speed of its own from one end of the road to the
other and back. So any stretch of time can be made by itself, and nothing has to be remembered. The edges are on a
plane, in a line, the first one at (0, 0).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from peregrine.errors import ConfigurationError
from peregrine.plan.nearest import Coverage, Geometry, Position, Whereabouts
from peregrine.types import SiteId, SourceId
from peregrine.workloads.generate.draws import happens, uniform


@dataclass(frozen=True, slots=True)
class Road:
    """From the first edge to the last one. With a reach below half of the spacing there are gaps that nobody covers."""

    edges: int = 4
    spacing_m: float = 1000.0
    reach_m: float = math.inf

    def __post_init__(self) -> None:
        if self.edges < 1 or not 0 < self.spacing_m < math.inf:
            raise ConfigurationError(
                f"a road along {self.edges} edges, {self.spacing_m} m apart", "give one edge or more, and a spacing"
            )

    @property
    def length_m(self) -> float:
        return (self.edges - 1) * self.spacing_m

    @property
    def sites(self) -> tuple[SiteId, ...]:
        return tuple(SiteId(f"edge{number}") for number in range(1, self.edges + 1))

    def position(self, site: SiteId) -> Position:
        return self.sites.index(site) * self.spacing_m, 0.0

    def routers(self, addresses: Mapping[SiteId, str] | None = None) -> tuple[Whereabouts, ...]:
        """As they register at a guide."""
        known = addresses or {}
        return tuple(
            Whereabouts(site, known.get(site, ""), (nth * self.spacing_m, 0.0), self.reach_m)
            for nth, site in enumerate(self.sites)
        )


class Passing(NamedTuple):
    """A car is at a position; `site` is the nearest edge that covers it, None where there is none."""

    time_ms: int
    car: SourceId
    position: Position
    site: SiteId | None


def drive(
    road: Road,
    seed: int = 0,
    *,
    cars: int = 10,
    speeds_mps: tuple[float, float] = (14.0, 36.0),
    gap_m: float | None = None,
    every_ms: int = 1000,
    from_ms: int = 0,
    until_ms: int | None = None,
) -> Iterator[Passing]:
    """In the order of time, without an end unless `until_ms` (excluded) says one.

    Every car is seen once in `every_ms`, one after the other. Speeds are drawn between the two. With `gap_m` the cars
    start behind each other, so far apart, in one direction (and stay so if they all have one speed); without it
    anywhere, half of them in either direction.
    """
    slow, fast = speeds_mps
    if cars < 1 or every_ms < 1 or not 0 <= slow <= fast < math.inf:
        raise ConfigurationError(
            f"{cars} cars with speeds from {slow} to {fast} m/s, seen every {every_ms} ms",
            "give one car or more, speeds of 0 or more, the slower one first, and a time of 1 ms or more",
        )
    numbers = np.arange(cars, dtype=np.int64)
    speed = (slow + (fast - slow) * uniform(seed, "car speed", numbers)).tolist()
    if gap_m is None:
        anywhere = uniform(seed, "car start", numbers) * road.length_m
        back = happens(0.5, seed, "car direction", numbers)
        start = np.where(back, 2 * road.length_m - anywhere, anywhere).tolist()
    else:
        start = (-gap_m * numbers).tolist()
    coverage = Coverage(Geometry.PLANE, road.routers())
    turn = from_ms // every_ms
    while True:
        for car in range(cars):
            time_ms = turn * every_ms + car * every_ms // cars
            if until_ms is not None and time_ms >= until_ms:
                return
            if time_ms >= from_ms:
                position = _along(road, start[car] + speed[car] * time_ms / 1000)
                yield Passing(time_ms, SourceId(f"car{car}"), position, coverage.nearest(position))
        turn += 1


def _along(road: Road, driven_m: float) -> Position:
    """There and back again: who has driven twice the length is where it began."""
    if road.length_m == 0:
        return 0.0, 0.0
    at_m = driven_m % (2 * road.length_m)
    return (at_m if at_m <= road.length_m else 2 * road.length_m - at_m), 0.0
