"""What each hand-over of a roaming source cost, one by one.

The bound is a round trip (the detour by way of the site where the ways meet) and a trigger interval (a row may just
have missed a batch). Machines are not equally fast from one minute to the next, so each hand-over is held against the
calm just before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from peregrine.measure import Outputs, peak_jitter_ms


@dataclass(frozen=True, slots=True)
class HandOver:
    calm_ms: float  # from here on nothing moved
    moved_ms: float
    settled_ms: float
    trigger_ms: float  # between the beginnings of two batches, from when it moved until it had settled

    def jitter_ms(self, outputs: Outputs) -> float:
        seen, calm = outputs.between(0, self.settled_ms), outputs.steady(self.calm_ms, self.moved_ms)
        return peak_jitter_ms(seen.emitted_ms, seen.latency_ms, calm, self.moved_ms)

    def share(self, outputs: Outputs, round_trip_ms: float) -> float:
        """Of a round trip and a trigger interval."""
        return self.jitter_ms(outputs) / (round_trip_ms + self.trigger_ms)


def worst_share(handovers: Sequence[HandOver], outputs: Outputs, round_trip_ms: float) -> float | None:
    return max((each.share(outputs, round_trip_ms) for each in handovers), default=None)
