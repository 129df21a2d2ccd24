"""Linear Road's expressway: cars that report where they are (Falcon IV-A; Arasu et al., 2004). One direction, no lanes.

Report n is of car n mod `cars`, so every car reports once in cars / rate seconds. Where it is then has a closed form:
it drives at a speed of its own, some cars stand for a while again and again, and whoever reaches the end starts anew.
Slow cars that began in the same few segments are the jam. A roadside unit serves neighbouring segments and sends all
reports from there, so the reports from one segment have one order.
"""

import numpy as np
import pyarrow as pa

from peregrine.workloads.generate.draws import Answers, Numbers, below, happens, stretch
from peregrine.workloads.generate.sending import event_times, sent_us, table

POSITIONS = "car bigint, speed bigint, segment bigint, position bigint, at_ms bigint"

SEGMENTS, CARS = 101, 124_000
SEGMENT_FEET = 5280
PREFIX = "unit"

_JAM_SEGMENTS = 3
_STANDS, _DRIVES = 15, 45  # reports from which a broken car stands, then drives


def positions(
    count: int,
    seed: int = 0,
    *,
    first: int = 0,
    rate: int = 1500,
    cars: int = CARS,
    segments: int = SEGMENTS,
    jammed: float = 0.1,
    broken: float = 0.01,
    sources: int = 1,
    disorder_ms: int = 0,
    start_ms: int = 0,
) -> pa.Table:
    """Reports `first` to `first + count`, `rate` a second: speeds in miles an hour, positions in feet.

    The share `jammed` of all cars is in the jam (the skew of segments); the share `broken` stands from time to time.
    """
    numbers = stretch(first, count)
    sent = sent_us(numbers, rate)
    car, turn = numbers % cars, numbers // cars
    in_jam = happens(jammed, seed, "jam", car)
    breaks = happens(broken, seed, "broken", car)
    speed = np.where(in_jam, 5 + below(31, seed, "speed", car), 45 + below(41, seed, "speed", car))
    stands, driven = _breakdowns(turn, below(_STANDS + _DRIVES, seed, "phase", car), breaks)
    # A car drives from one of its reports to the next, unless it stands: cars / rate seconds at its speed.
    feet = speed * driven * SEGMENT_FEET * cars // (rate * 3600)
    position = (_starts(car, in_jam, seed, segments) + feet) % (segments * SEGMENT_FEET)
    segment = position // SEGMENT_FEET
    columns = {
        "car": car,
        "speed": np.where(stands, 0, speed),
        "segment": segment,
        "position": position,
        "at_ms": event_times(sent, start_ms, disorder_ms, seed),
    }
    return table(columns, PREFIX, sources, segment * sources // segments, sent)


def _breakdowns(turn: Numbers, phase: Numbers, breaks: Answers) -> tuple[Answers, Numbers]:
    """Whether a car has stood since its report before, and in how many such intervals it has driven so far."""
    period = _STANDS + _DRIVES
    at = turn + phase
    driven = at // period * _DRIVES + np.minimum(at % period, _DRIVES) - np.minimum(phase, _DRIVES)
    return breaks & ((at - 1) % period >= _DRIVES), np.where(breaks, driven, turn)


def _starts(car: Numbers, in_jam: Answers, seed: int, segments: int) -> Numbers:
    """In feet. The jam begins in the middle of the road."""
    middle = segments // 2 * SEGMENT_FEET
    anywhere = below(segments * SEGMENT_FEET, seed, "start", car)
    return np.where(in_jam, middle + anywhere % (min(_JAM_SEGMENTS, segments) * SEGMENT_FEET), anywhere)
