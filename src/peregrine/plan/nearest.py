"""Which router a device should use: the nearest one that covers it, and not another one at every report.

A position is a pair of numbers: metres on a plane, or degrees of latitude and longitude on the earth (`Geometry`). A
router covers what is within its reach. A device leaves the router that it uses when another one is nearer by more than
a margin, or when it is beyond the reach by more than that. So whoever is sent back to a router that it has left has
gone more than the margin meanwhile: a car that waits at a border is not sent to and fro.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from peregrine.errors import ConfigurationError
from peregrine.types import SiteId

EARTH_M = 6_371_008.8  # mean radius
Position = tuple[float, float]
Distances = npt.NDArray[np.float64]


class Geometry(StrEnum):
    PLANE = "plane"  # (x, y) in metres
    EARTH = "earth"  # (latitude, longitude) in degrees


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where the router of a site is: on the map, and for a client (`host:port`)."""

    site: SiteId
    address: str
    position: Position
    reach_m: float = math.inf

    def __post_init__(self) -> None:
        if not self.reach_m > 0:  # written so that NaN fails too
            raise ConfigurationError(f"the router of {self.site} reaches {self.reach_m} m", "give a reach above 0")


class Coverage:
    """Routers on a map. A value: another set of routers is another one."""

    def __init__(self, geometry: Geometry, routers: Iterable[Whereabouts] = ()) -> None:
        self.geometry = geometry
        self.routers = {each.site: each for each in sorted(routers, key=lambda each: each.site)}
        for each in self.routers.values():
            check(geometry, each.position)
        self._sites = list(self.routers)
        self._row = {site: at for at, site in enumerate(self._sites)}
        self._reaches_m = np.array([each.reach_m for each in self.routers.values()], np.float64)
        points = np.array([each.position for each in self.routers.values()], np.float64)
        self._points = points.reshape(len(self._sites), 2)

    def __contains__(self, site: object) -> bool:
        return site in self.routers

    def nearest(self, position: Position) -> SiteId | None:
        """Of the routers that cover a position; of equally near ones the first by name. None if nobody covers it."""
        return self._nearest(self._distances_m(position))

    def choice(self, position: Position, current: SiteId | None, margin_m: float) -> SiteId | None:
        """Which router to use by who uses `current` now. Where nobody covers the position it is `current` still."""
        away_m = self._distances_m(position)
        best = self._nearest(away_m)
        if best is None or current not in self.routers:
            return best or current
        best_m, now_m = (float(away_m[self._row[site]]) for site in (best, current))
        stays = now_m <= self.routers[current].reach_m + margin_m and now_m <= best_m + margin_m
        return current if stays else best

    def _nearest(self, away_m: Distances) -> SiteId | None:
        covering = np.where(away_m <= self._reaches_m, away_m, np.inf)
        at = int(np.argmin(covering)) if len(covering) else 0
        return self._sites[at] if len(covering) and covering[at] < np.inf else None

    def _distances_m(self, position: Position) -> Distances:
        check(self.geometry, position)
        return _distances_m(self.geometry, self._points, position)


def distance_m(geometry: Geometry, a: Position, b: Position) -> float:
    """On the earth along the great circle."""
    return float(_distances_m(geometry, np.array([a], np.float64), b)[0])


def check(geometry: Geometry, position: Position) -> None:
    first, second = position
    if not (math.isfinite(first) and math.isfinite(second)):
        raise ConfigurationError(f"the position {position}", "give two finite numbers")
    if geometry is Geometry.EARTH and not (abs(first) <= 90 and abs(second) <= 180):
        raise ConfigurationError(
            f"the position {position} is not on the earth", "give (latitude, longitude) in degrees, or use the plane"
        )


def _distances_m(geometry: Geometry, points: npt.NDArray[np.float64], position: Position) -> Distances:
    if geometry is Geometry.PLANE:
        found: Distances = np.hypot(points[:, 0] - position[0], points[:, 1] - position[1])
        return found
    # The haversine formula: exact enough also for points that are close together.
    north, east = np.radians(points[:, 0]), np.radians(points[:, 1])
    north0, east0 = math.radians(position[0]), math.radians(position[1])
    half = np.sin((north - north0) / 2) ** 2 + np.cos(north) * math.cos(north0) * np.sin((east - east0) / 2) ** 2
    along: Distances = np.arcsin(np.sqrt(np.minimum(half, 1.0)))
    return 2 * EARTH_M * along
