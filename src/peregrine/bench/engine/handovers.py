"""What each hand-over of a roaming source cost, one by one.

The bound is a round trip (the detour by way of the site where the ways meet) and a trigger interval (a row may just
have missed a batch). Machines are not equally fast from one minute to the next, so each hand-over is held against the
calm just before it. Its results are those of rows that were made before it had settled, however late they come.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from peregrine.errors import ConfigurationError
from peregrine.measure import Outputs, peak_jitter_ms


@dataclass(frozen=True, slots=True)
class HandOver:
    calm_ms: tuple[float, float]  # just before it, when nothing moved
    moved_ms: float
    settled_ms: float
    trigger_ms: float  # between the beginnings of two batches, in the calm before it or behind it

    def jitter_ms(self, outputs: Outputs) -> float:
        calm = outputs.steady(*self.calm_ms)
        made_ms = np.subtract(outputs.emitted_ms, outputs.latency_ms)
        mine = outputs.where(made_ms < self.settled_ms).between(self.moved_ms)
        if not len(mine):
            raise ConfigurationError(f"no result of the hand-over at {self.moved_ms:g} ms", "send more rows a second")
        return peak_jitter_ms(mine.emitted_ms, mine.latency_ms, calm, self.moved_ms)

    def share(self, outputs: Outputs, round_trip_ms: float) -> float:
        """Of a round trip and a trigger interval."""
        return self.jitter_ms(outputs) / (round_trip_ms + self.trigger_ms)


def worst_share(
    handovers: Sequence[HandOver], mine: Outputs, others: Outputs, round_trip_ms: float
) -> tuple[float, float] | None:
    """And that of sources which stayed where they are, at the same time: what is theirs as well is the machine's."""
    if not handovers:
        return None
    worst = max(handovers, key=lambda each: each.share(mine, round_trip_ms))
    return worst.share(mine, round_trip_ms), worst.share(others, round_trip_ms)
