"""What a reconfiguration cost, by the papers' definitions, from what was seen at the results.

Pure: arrays of times and latencies in, figures out. The same for every mechanism, simulated or on Spark.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from peregrine.errors import ConfigurationError

Milliseconds = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Steady:
    """Latency while nothing is being reconfigured."""

    mean_ms: float
    sigma_ms: float
    p99_ms: float
    rows: int

    @property
    def disrupted_from_ms(self) -> float:
        """Falcon IV: processing is disrupted where the latency is at or above the mean plus five sigma."""
        return self.mean_ms + 5 * self.sigma_ms


def steady(emitted_ms: Milliseconds, latency_ms: Milliseconds, before_ms: float) -> Steady:
    """From what was emitted before a reconfiguration was asked for."""
    mine = latency_ms[emitted_ms < before_ms]
    if len(mine) < 2:
        raise ConfigurationError(
            f"{len(mine)} results before {before_ms:g} ms are no steady state", "run longer before the reconfiguration"
        )
    return Steady(float(mine.mean()), float(mine.std()), float(np.percentile(mine, 99)), len(mine))


def disruption_ms(emitted_ms: Milliseconds, latency_ms: Milliseconds, calm: Steady, from_ms: float) -> float:
    """The time covered by runs of disrupted outputs: each run ends with the first output that is as usual again."""
    order = np.argsort(emitted_ms, kind="stable")
    times, bad = emitted_ms[order], latency_ms[order] >= calm.disrupted_from_ms
    chosen = times >= from_ms
    times, bad = times[chosen], bad[chosen]
    total, began = 0.0, None
    for time, is_bad in zip(times.tolist(), bad.tolist(), strict=True):
        if is_bad and began is None:
            began = time
        elif not is_bad and began is not None:
            total += time - began
            began = None
    return total + (float(times[-1]) - began if began is not None else 0.0)


def peak_jitter_ms(emitted_ms: Milliseconds, latency_ms: Milliseconds, calm: Steady, from_ms: float) -> float:
    mine = latency_ms[emitted_ms >= from_ms]
    return float(mine.max()) - calm.mean_ms if len(mine) else 0.0


def freeze_ms(emitted_ms: Milliseconds, from_ms: float, to_ms: float) -> float:
    """The longest silence between two outputs from the request to the end of the reconfiguration."""
    times = np.sort(emitted_ms)
    before = times[times < from_ms][-1:]
    within = times[(times >= from_ms) & (times <= to_ms)]
    after = times[times > to_ms][:1]
    seen = np.concatenate([before, within, after])
    return float(np.diff(seen).max()) if len(seen) > 1 else 0.0
