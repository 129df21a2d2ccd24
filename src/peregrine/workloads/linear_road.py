"""Linear Road's toll and accident notification with the windows of Falcon (IV-A). The key is the segment throughout.

Rows are those of `generate.linear_road`. Results are named RESULTS.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from peregrine import App, Avg, CountDistinct, Sliding, Tumbling
from peregrine.app.logic import Emit, Key, Moment, Timeless
from peregrine.app.model import Stream
from peregrine.workloads.generate.linear_road import POSITIONS

RESULTS = "results"

Senders = Iterable[str] | None


def toll(
    senders: Senders = None,
    *,
    size_ms: int = 60_000,
    slide_ms: int = 1000,
    speed_limit: float = 40,
    cars_limit: int = 50,
    delay_ms: int = 0,
    groups: int = 16,
) -> App:
    """The toll of each segment: SPD AVG and CAR COUNT over the same sliding windows, and JOIN of the two."""
    app = App("toll", groups)
    positions = _positions(app, senders, delay_ms)
    window = Sliding(size_ms, slide_ms)
    speeds = positions.key_by("segment").window(window).aggregate("spd_avg", average=Avg("speed"))
    crowds = positions.key_by("segment").window(window).aggregate("car_count", cars=CountDistinct("car"))
    # Both have the event time just before the end of their window: they meet in one window of a slide.
    tolls = speeds.key_by("segment").window_join(
        "join",
        crowds.key_by("segment"),
        Tumbling(slide_ms),
        Charge(speed_limit, cars_limit),
        "window_end_ms bigint, segment bigint, average double, cars bigint, toll bigint",
    )
    tolls.to(RESULTS)
    return app


def accident(senders: Senders = None, *, reports: int = 10, stay_ms: int = 90_000, groups: int = 16) -> App:
    """Who is on a segment when a car stands there: ACC DET, then CAR REG, which keeps the cars of each segment.

    In Falcon both take the reports, and a JOIN follows. Who is there "now" would then depend on which of the two was
    faster. So ACC DET hands all reports on, those of an accident marked, and CAR REG answers in the order of reports.
    Reports of a segment must come from one sender, in order.
    """
    app = App("accident", groups)
    positions = _positions(app, senders, 0)
    marked = positions.key_by("segment").connect(
        "acc_det",
        AccidentDetection(reports, stay_ms),
        schema="segment bigint, at_ms bigint, car bigint, stands boolean",
    )
    notified = marked.key_by("segment").connect(
        "car_reg", CarRegister(stay_ms), schema="segment bigint, at_ms bigint, car bigint, cars array<bigint>"
    )
    notified.to(RESULTS)
    return app


APPS: Mapping[str, Callable[..., App]] = {"toll": toll, "accident": accident}


@dataclass(frozen=True)
class Charge:
    """Linear Road's formula: driving is free unless a segment is slow and crowded."""

    speed_limit: float
    cars_limit: int

    def __call__(self, speed: Any, crowd: Any) -> dict[str, Any]:
        average, cars = speed.average, crowd.cars
        charged = average < self.speed_limit and cars > self.cars_limit
        return {
            "window_end_ms": speed.window_end_ms,
            "segment": speed.segment,
            "average": average,
            "cars": cars,
            "toll": 2 * (cars - self.cars_limit) ** 2 if charged else 0,
        }


@dataclass(frozen=True)
class AccidentDetection(Timeless):
    """A car stands if its last `reports` reports are from the same position. State: car -> [position, how often, when].

    A car that has been silent for more than `stay_ms` has left, and begins anew if it comes back.
    """

    reports: int
    stay_ms: int

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        state = state or {}
        car, now_ms = record.car, record.at_ms
        position, times, last_ms = state.pop(car, (None, 0, now_ms))
        again = position == record.position and now_ms - last_ms <= self.stay_ms
        # Out and in again: cars are in the order of their last reports.
        state[car] = [record.position, times + 1 if again else 1, now_ms]
        _forget(state, lambda seen: now_ms - seen[2] > self.stay_ms)
        stands = state[car][1] >= self.reports
        return state, [Emit({"segment": key[0], "at_ms": now_ms, "car": car, "stands": stands}, at.time_ms)]


@dataclass(frozen=True)
class CarRegister(Timeless):
    """The cars of a segment, told whenever one of them stands. State: car -> when it reported last."""

    stay_ms: int

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        state = state or {}
        now_ms = record.at_ms
        state.pop(record.car, None)
        state[record.car] = now_ms
        _forget(state, lambda seen_ms: now_ms - seen_ms > self.stay_ms)
        if not record.stands:
            return state, []
        told = {"segment": key[0], "at_ms": now_ms, "car": record.car, "cars": sorted(state)}
        return state, [Emit(told, at.time_ms)]


def _forget(cars: dict[int, Any], left: Callable[[Any], bool]) -> None:
    """Takes out who has left. The longest silent come first, so most of the time only one is looked at."""
    while left(cars[car := next(iter(cars))]):  # ends: the car that has just reported is there
        del cars[car]


def _positions(app: App, senders: Senders, delay_ms: int) -> Stream:
    return app.source("positions", POSITIONS, key="segment", event_time="at_ms", delay=delay_ms, senders=senders)
