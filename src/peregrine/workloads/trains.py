"""Occupancy of the trains of a ring line (ISQD 1): in each coach, at each stop, and where passengers change trains.

    passengers -> occupancy of each coach of a train
               -> stops: sessions of (train, station), how many boarded and alighted
    arrivals   -> transfers: trains of both directions that are at a transfer station at about the same time

Trains roam: what is kept for a train follows it along the ring. `tests/oracles/trains.py` says exactly what comes out.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from peregrine import App, Interval, Session, Sum
from peregrine.app.logic import Emit, Key, Moment, Timeless
from peregrine.workloads.generate.trains import PASSENGERS, TRANSFERS

TRAINS = tuple(f"train{number}" for number in range(40))
OCCUPANCY = "train string, coach int, at_ms bigint, occupancy bigint"
ARRIVALS = "station string, line string, train string, occupancy bigint, at_ms bigint"
PAIRS = (
    "station string, clockwise string, against string, clockwise_ms bigint, against_ms bigint, "
    "clockwise_occupancy bigint, against_occupancy bigint"
)


def trains(
    senders: Iterable[str] = TRAINS,
    *,
    gap_ms: int = 20_000,
    within_ms: int = 60_000,
    transfers: tuple[str, ...] = TRANSFERS,
    delay_ms: int = 0,
    groups: int = 16,
) -> App:
    """Results: `occupancy`, `stops` and `transfers`. A stop is over `gap_ms` after its last row; two arrivals belong
    together if they are at most `within_ms` apart.
    """
    app = App("trains", groups)
    passengers = app.source(
        "passengers",
        PASSENGERS,
        key="train",
        event_time="at_ms",
        delay=delay_ms,
        senders=senders,
    )
    coaches = passengers.key_by("train").connect("coaches", Coaches(), schema=OCCUPANCY, sides={"arrivals": ARRIVALS})
    coaches.to("occupancy")
    (
        passengers.key_by("train", "station")
        .window(Session(gap_ms))
        .aggregate("boarded", boarding=Sum("boarding"), alighting=Sum("alighting"))
        .to("stops")
    )
    arrivals = coaches.side("arrivals").filter("at_transfers", _at(frozenset(transfers)))
    clockwise = arrivals.filter("clockwise", lambda arrival: arrival.line == "S41")
    against = arrivals.filter("against", lambda arrival: arrival.line == "S42")
    (
        clockwise.key_by("station")
        .join("meet", against.key_by("station"), Interval(-within_ms, within_ms), _pair, PAIRS)
        .to("transfers")
    )
    return app


APPS: Mapping[str, Callable[..., App]] = {"trains": trains}


@dataclass(frozen=True)
class Coaches(Timeless):
    """Passengers in each coach of a train; and, when it comes to another station, how many it brings there.

    State: [station, {coach: passengers}].
    """

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        station, coaches = state or (None, {})
        emits = []
        if record.station != station:
            arrival = (record.station, record.line, record.train, sum(coaches.values()), record.at_ms)
            emits.append(Emit(arrival, at.time_ms, 1))
        inside = coaches[record.coach] = coaches.get(record.coach, 0) + record.boarding - record.alighting
        emits.append(Emit((record.train, record.coach, record.at_ms, inside), at.time_ms))
        return [record.station, coaches], emits


def _at(transfers: frozenset[str]) -> Callable[[Any], bool]:
    def counts(arrival: Any) -> bool:
        return arrival.occupancy > 0 and arrival.station in transfers

    return counts


def _pair(clockwise: Any, against: Any) -> tuple[Any, ...]:
    return (
        clockwise.station,
        clockwise.train,
        against.train,
        clockwise.at_ms,
        against.at_ms,
        clockwise.occupancy,
        against.occupancy,
    )
