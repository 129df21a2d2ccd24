"""A ring line as sites and links: trains that are sites themselves and hand over at each station (ISQD 1, 7.2).

The stations are edges below the cloud, each train is below the station where it is. ISQD 7.2.3 joins the stations in
other ways as well: see `Shape`. Trains of even number go clockwise, the others against it, and they begin as in
generate/trains.py: a train that stops at `RING[n]` there is at `stationN`. Where there is one station only, trains go
to and fro between it and the cloud, which they then reach by themselves. The stream of changes has a steady rate;
trains take turns, in an order that the seed draws.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import ceil
from typing import Literal, NamedTuple

import numpy as np

from peregrine.core.topology import Edge, Link, Topology
from peregrine.errors import ConfigurationError
from peregrine.plan.redeploy.events import LinkRemoved, LinkSet, SiteMoved, TopologyEvent
from peregrine.types import SiteId
from peregrine.workloads.generate.draws import uniform
from peregrine.workloads.generate.trains import RING

CLOUD = SiteId("cloud")
RATES_MS = (4000, 2000, 1000, 500, 250, 100)  # from one change to the next: ISQD 7.2.2, and its example of section 1

UPLINK, RADIO = Link(10.0), Link(5.0)

# How stations reach the cloud: each by itself; by way of its region; by way of its neighbours, as only one of them is
# joined to the cloud; or each by itself, and joined to all others besides.
Shape = Literal["star", "tree", "ring", "full"]
STATIONS_OF_A_REGION = 4


class Change(NamedTuple):
    """What happens to the topology at one time."""

    time_ms: int
    events: tuple[TopologyEvent, ...]


@dataclass(frozen=True, slots=True)
class RingLine:
    trains: int = 40
    stations: int = len(RING)
    uplink: Link = UPLINK  # of a station
    radio: Link = RADIO  # of a train
    shape: Shape = "star"

    def __post_init__(self) -> None:
        if self.trains < 1 or self.stations < 1:
            raise ConfigurationError(
                f"a ring line with {self.trains} trains and {self.stations} stations",
                "give one train or more, and one station or more",
            )

    def station(self, train: int, stop: int) -> SiteId:
        """Where a train is after so many stops."""
        if self.stations == 1 and stop % 2:
            return CLOUD
        start = train // 2 * self.stations // ((self.trains + 1) // 2)
        return SiteId(f"station{(start + (stop if train % 2 == 0 else -stop)) % self.stations}")

    def topology(self) -> Topology:
        """Before the first change."""
        trains = [(SiteId(f"train{n}"), self.station(n, 0), self.radio) for n in range(self.trains)]
        return Topology.from_graph(CLOUD, [*self._between_stations(), *trains])

    def _between_stations(self) -> list[Edge]:
        stations = [SiteId(f"station{number}") for number in range(self.stations)]
        below_cloud = [(station, CLOUD, self.uplink) for station in stations]
        match self.shape:
            case "star":
                return below_cloud
            case "tree":
                regions = [SiteId(f"region{n}") for n in range(ceil(self.stations / STATIONS_OF_A_REGION))]
                below_regions = [
                    (each, regions[n // STATIONS_OF_A_REGION], self.uplink) for n, each in enumerate(stations)
                ]
                return [(region, CLOUD, self.uplink) for region in regions] + below_regions
            case "full":
                return below_cloud + [(one, other, self.uplink) for one, other in combinations(stations, 2)]
            case "ring":
                neighbours = zip(stations, [*stations[1:], *(stations[:1] if self.stations > 2 else ())], strict=False)
                return below_cloud[:1] + [(one, other, self.uplink) for one, other in neighbours]

    def changes(
        self,
        every_ms: int,
        seed: int = 0,
        *,
        at_once: int = 1,
        as_links: bool = False,
        from_ms: int = 0,
        until_ms: int | None = None,
    ) -> Iterator[Change]:
        """A change every `every_ms`, the first one after that time, endless unless `until_ms` (excluded) is given.

        In each of them `at_once` trains (ISQD: one of each query) hand over to their next stations: one event for each,
        or, `as_links`, two: the old link is gone, and there is a new one. Versions count trains' moves from 1 on.
        """
        if every_ms < 1 or not 1 <= at_once <= self.trains:
            raise ConfigurationError(
                f"{at_once} of {self.trains} trains hand over every {every_ms} ms",
                "give 1 ms or more, and one train or more but not more than there are",
            )
        order = np.argsort(uniform(seed, "train order", np.arange(self.trains, dtype=np.int64)), kind="stable").tolist()
        nth = max(from_ms - 1, 0) // every_ms
        while until_ms is None or (nth + 1) * every_ms < until_ms:
            moves = range(nth * at_once, (nth + 1) * at_once)
            events = tuple(event for move in moves for event in self._events(move, order, as_links))
            yield Change((nth + 1) * every_ms, events)
            nth += 1

    def _events(self, move: int, order: list[int], as_links: bool) -> tuple[TopologyEvent, ...]:
        stop, turn = divmod(move, self.trains)
        train = order[turn]
        site, source, target = SiteId(f"train{train}"), self.station(train, stop), self.station(train, stop + 1)
        if as_links:
            return LinkRemoved(site, source, move + 1), LinkSet(site, target, self.radio, move + 1)
        return (SiteMoved(site, source, target, self.radio, move + 1),)
