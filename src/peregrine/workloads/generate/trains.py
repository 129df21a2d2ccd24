"""What the passenger counters of trains on a ring line tell: two directions, like S41 and S42 in Berlin (ISQD 1, 7.1).

Row n is a function of (seed, n): one door of one coach of one train at one stop. All trains make one stop a cycle. Who
boards through a door alights through the same door some stops later, so a train that has begun is never empty.
The train is the source; it moves along the ring, and with it the site to which it is connected.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from peregrine.workloads.generate.draws import Numbers, below, stretch, uniform
from peregrine.workloads.generate.sending import event_times, table

PASSENGERS = "train string, line string, station string, coach int, boarding int, alighting int, at_ms bigint"

LINES = ("S41", "S42")
# Clockwise, as S41 goes; S42 goes the other way round.
RING = (
    *("Südkreuz", "Schöneberg", "Innsbrucker Platz", "Bundesplatz", "Heidelberger Platz", "Hohenzollerndamm"),
    *("Halensee", "Westkreuz", "Messe Nord", "Westend", "Jungfernheide", "Beusselstraße", "Westhafen", "Wedding"),
    *("Gesundbrunnen", "Schönhauser Allee", "Prenzlauer Allee", "Greifswalder Straße", "Landsberger Allee"),
    *("Storkower Straße", "Frankfurter Allee", "Ostkreuz", "Treptower Park", "Sonnenallee", "Neukölln"),
    *("Hermannstraße", "Tempelhof"),
)
TRANSFERS = ("Südkreuz", "Westkreuz", "Gesundbrunnen", "Ostkreuz")

RIDES = (2, 5, 9)  # stops from boarding to alighting, for each door of a coach
DOORS = len(RIDES)
_CROWD = 14


def passengers(
    count: int,
    seed: int = 0,
    *,
    first: int = 0,
    rate: int = 4,
    trains: int = 40,
    coaches: int = 4,
    skew: float = 0.5,
    disorder_ms: int = 0,
    start_ms: int = 0,
) -> pa.Table:
    """Rows `first` to `first + count`, on average `rate` a second: `cycle_ms` from one stop to the next.

    `skew` is the Zipf exponent of how popular stations are (0: all alike). Rows are sorted by the time of sending, so
    at their edges two stretches overlap in time; the rows of one train do not.
    """
    numbers = stretch(first, count)
    door, coach, train, stop = _parts(numbers, trains, coaches)
    boarded = numbers - np.array(RIDES)[door] * (trains * coaches * DOORS)
    alighting = np.where(boarded < 0, 0, _boarding(np.maximum(boarded, 0), trains, coaches, skew, seed))
    cycle = cycle_ms(rate, trains, coaches)
    within = (coach * DOORS + door + uniform(seed, "report", numbers)) / (coaches * DOORS)
    sent = _arrivals_us(train, stop, trains, cycle, seed) + (within * cycle * 250).astype(np.int64)
    columns = {
        "train": _pick([f"train{n}" for n in range(trains)], train),
        "line": _pick(LINES, train % 2),
        "station": _pick(RING, _stations(train, stop, trains)),
        "coach": pa.array(coach, pa.int32()),
        "boarding": pa.array(_boarding(numbers, trains, coaches, skew, seed), pa.int32()),
        "alighting": pa.array(alighting, pa.int32()),
        "at_ms": event_times(sent, start_ms, disorder_ms, seed),
    }
    return table(columns, "train", trains, train, sent).take(pa.array(np.argsort(sent, kind="stable")))


def cycle_ms(rate: int, trains: int = 40, coaches: int = 4) -> int:
    """From one stop of a train to its next one. Its doors report during a quarter of it; half of it is silent."""
    return trains * coaches * DOORS * 1000 // rate


def _pick(values: Sequence[str], picks: Numbers) -> pa.Array:
    return pa.array(values).take(pa.array(picks))


def _parts(numbers: Numbers, trains: int, coaches: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    per_stop = coaches * DOORS
    return numbers % DOORS, numbers // DOORS % coaches, numbers // per_stop % trains, numbers // (per_stop * trains)


def _stations(train: Numbers, stop: Numbers, trains: int) -> Numbers:
    """Trains of even number go clockwise, the others against it; those of a line are spread over the ring."""
    start = train // 2 * len(RING) // ((trains + 1) // 2)
    found: Numbers = (start + np.where(train % 2 == 0, stop, -stop)) % len(RING)
    return found


def _boarding(numbers: Numbers, trains: int, coaches: int, skew: float, seed: int) -> Numbers:
    _, _, train, stop = _parts(numbers, trains, coaches)
    popularity = np.argsort(uniform(seed, "popularity", np.arange(len(RING))))
    crowd = np.floor(_CROWD / (popularity + 1.0) ** skew) + 1
    found: Numbers = 1 + (uniform(seed, "boarding", numbers) * crowd[_stations(train, stop, trains)]).astype(np.int64)
    return found


def _arrivals_us(train: Numbers, stop: Numbers, trains: int, cycle: int, seed: int) -> Numbers:
    """Trains stop one after the other within a cycle, up to a quarter of it late."""
    late = below(max(cycle * 250, 1), seed, "late", stop * trains + train)
    found: Numbers = stop * cycle * 1000 + train * cycle * 1000 // trains + late
    return found
