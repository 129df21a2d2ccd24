"""What each hand-over of a roaming source cost, one by one.

The bound is a round trip (the detour by way of the site where the ways meet) and one batch (a row may just have missed
one). A machine that is shared is half as fast again from one minute to the next. So each hand-over is held against the
calm just before it, and the batch is the mean of those that were run while it went on. And it is held against what
sources that stay feel in the same seconds: where even they are late by more than a batch, the machine stood still for a
moment, which is no fault of the hand-over. Their jitter stands for the batch then.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from peregrine.measure import Outputs, peak_jitter_ms


@dataclass(frozen=True, slots=True)
class HandOver:
    calm_ms: float  # from here on nothing moved
    moved_ms: float
    settled_ms: float
    trigger_ms: float  # the mean of the batches from when it moved until it had settled


@dataclass(frozen=True, slots=True)
class Judged:
    jitter_ms: float
    others_ms: float  # the same of those that stay
    share: float  # of a round trip and a batch


def judge(handover: HandOver, moved: Outputs, others: Outputs, round_trip_ms: float) -> Judged:
    jitter_ms, others_ms = _jitter_ms(handover, moved), _jitter_ms(handover, others)
    return Judged(jitter_ms, others_ms, jitter_ms / (round_trip_ms + max(handover.trigger_ms, others_ms)))


def worst_share(handovers: Sequence[HandOver], moved: Outputs, others: Outputs, round_trip_ms: float) -> float | None:
    return max((judge(each, moved, others, round_trip_ms).share for each in handovers), default=None)


def _jitter_ms(handover: HandOver, outputs: Outputs) -> float:
    seen, calm = outputs.between(0, handover.settled_ms), outputs.steady(handover.calm_ms, handover.moved_ms)
    return peak_jitter_ms(seen.emitted_ms, seen.latency_ms, calm, handover.moved_ms)
