"""What a reconfiguration cost, by the papers' definitions, from what was seen at the results and what routers said.

Pure: times, latencies and a timeline in, figures out. The same for every mechanism, simulated or on Spark. All times
are milliseconds on one clock.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from peregrine.core.coordinator import PlanEnded, plan_of
from peregrine.core.messages import Reached, Report
from peregrine.errors import ConfigurationError
from peregrine.types import MigrationId

Milliseconds = npt.NDArray[np.float64]
Timeline = Sequence[tuple[float, object]]  # when what was heard: Report, Reached and PlanEnded count, all else does not

# What begins with each step of a migration, and goes on until the next one.
PHASES = {
    "begun": "begin",  # markers travel to both places
    "snapshot": "snapshot",  # the old place's host comes to the position of the snapshot
    "sent": "state",  # the state travels
    "restored": "catch-up",  # the new place applies what waited
    "switched": "switch",  # the old place finishes, and its last outputs go first
}
ENDS = ("done", "aborted")


@dataclass(frozen=True, slots=True)
class Outputs:
    """When each result came out, and how long after its row was made."""

    emitted_ms: Milliseconds
    latency_ms: Milliseconds

    def __len__(self) -> int:
        return len(self.emitted_ms)

    def between(self, from_ms: float, to_ms: float = float("inf")) -> "Outputs":
        return self.where((self.emitted_ms >= from_ms) & (self.emitted_ms < to_ms))

    def steady(self, from_ms: float, to_ms: float) -> "Steady":
        """Of what came out in between, while nothing was being reconfigured."""
        calm = self.between(from_ms, to_ms)
        return steady(calm.emitted_ms, calm.latency_ms, float("inf"))

    def where(self, mine: npt.NDArray[np.bool_]) -> "Outputs":
        return Outputs(self.emitted_ms[mine], self.latency_ms[mine])


@dataclass(frozen=True, slots=True)
class Steady:
    """Latency while nothing is being reconfigured."""

    mean_ms: float
    sigma_ms: float
    p99_ms: float
    rows: int

    @property
    def disrupted_from_ms(self) -> float:
        """Falcon IV: processing is disrupted where the latency is at or above the mean plus five sigma.

        With a small sigma a detour of some hops is above it, with a large one seconds are not.
        """
        return self.mean_ms + 5 * self.sigma_ms


@dataclass(frozen=True, slots=True)
class Cost:
    """What one plan cost those who read the results."""

    plan: str
    requested_ms: float
    ended_ms: float  # the last report of its migrations
    calm: Steady
    disruption_ms: float
    peak_jitter_ms: float
    p99_jitter_ms: float
    freeze_ms: float
    state_movement_ms: float | None  # None: no state travelled
    bytes_moved: int
    phases_ms: Mapping[str, float]  # by the names of PHASES
    available_ms: float | None = None  # ISQD 7.2.4: from the request until the state is at the last place of its way

    @property
    def duration_ms(self) -> float:
        """Falcon IV ends it with the first output of the new place; this ends later, when everybody has finished."""
        return self.ended_ms - self.requested_ms


def cost(
    plan: str,
    outputs: Outputs,
    timeline: Timeline,
    calm: Steady,
    requested_ms: float | None = None,
    until_ms: float = float("inf"),
) -> Cost:
    """Of a plan that has ended. Without `requested_ms` it was asked for when the first router heard of it; what is
    seen after `until_ms` is not its fault.
    """
    steps = {id: each for id, each in steps_of(timeline).items() if plan_of(id) == plan}
    ends = [at_ms for each in steps.values() for step, at_ms in each.items() if step in ENDS]
    if len(ends) < max(len(steps), 1):
        raise ConfigurationError(f"the timeline does not tell the end of plan {plan!r}", "wait until it has ended")
    if requested_ms is None:
        requested_ms = min(at_ms for each in steps.values() for at_ms in each.values())
    stretches = [stretch for each in steps.values() for stretch in phases(each)]
    moving = [(begin, end) for each in steps.values() for begin, end in _moving(each)]
    return replace(
        cost_of_results(plan, outputs, calm, requested_ms, max(ends), until_ms),
        state_movement_ms=covered_ms(moving) if moving else None,
        bytes_moved=_bytes_moved(plan, timeline),
        available_ms=max(end for _, end in moving) - requested_ms if moving else None,
        phases_ms={
            name: covered_ms((begin, end) for phase, begin, end in stretches if phase == name)
            for name in PHASES.values()
            if any(phase == name for phase, _, _ in stretches)
        },
    )


# --- from the results ---


def cost_of_results(
    plan: str,
    outputs: Outputs,
    calm: Steady,
    requested_ms: float,
    ended_ms: float,
    until_ms: float = float("inf"),
) -> Cost:
    """As far as results tell it: without phases and state."""
    seen = outputs.between(requested_ms, until_ms)
    return Cost(
        plan=plan,
        requested_ms=requested_ms,
        ended_ms=ended_ms,
        calm=calm,
        disruption_ms=disruption_ms(seen.emitted_ms, seen.latency_ms, calm, requested_ms),
        peak_jitter_ms=peak_jitter_ms(seen.emitted_ms, seen.latency_ms, calm, requested_ms),
        p99_jitter_ms=p99_jitter_ms(seen.emitted_ms, seen.latency_ms, calm, requested_ms),
        freeze_ms=freeze_ms(outputs.emitted_ms, requested_ms, min(ended_ms, until_ms)),
        state_movement_ms=None,
        bytes_moved=0,
        phases_ms={},
    )


def steady(emitted_ms: Milliseconds, latency_ms: Milliseconds, before_ms: float) -> Steady:
    """From what was emitted before a reconfiguration was asked for."""
    mine = latency_ms[emitted_ms < before_ms]
    if len(mine) < 2:
        raise ConfigurationError(
            f"{len(mine)} results before {before_ms:g} ms are no steady state", "run longer before the reconfiguration"
        )
    return Steady(float(mine.mean()), float(mine.std()), float(np.percentile(mine, 99)), len(mine))


def disruption_ms(emitted_ms: Milliseconds, latency_ms: Milliseconds, calm: Steady, from_ms: float) -> float:
    """The time covered by runs of disrupted outputs, and by the silence before each run, from when its first output was
    overdue. A run ends with the first output that is as usual again.

    Results come in batches, which hold rows that waited long and rows that did not: what came out at one moment counts
    as its slowest.
    """
    chosen = emitted_ms >= from_ms
    times, at = np.unique(emitted_ms[chosen], return_inverse=True)
    slowest = np.full(len(times), -np.inf)
    np.maximum.at(slowest, at, latency_ms[chosen])
    total, began, before = 0.0, None, from_ms
    for time, overdue_ms in zip(times.tolist(), (slowest - calm.disrupted_from_ms).tolist(), strict=True):
        if overdue_ms >= 0 and began is None:
            began = max(before, time - overdue_ms)
        elif overdue_ms < 0 and began is not None:
            total += time - began
            began = None
        before = time
    return total + (float(times[-1]) - began if began is not None else 0.0)


def peak_jitter_ms(emitted_ms: Milliseconds, latency_ms: Milliseconds, calm: Steady, from_ms: float) -> float:
    """Falcon IV: peak latency minus the mean of the steady state."""
    mine = latency_ms[emitted_ms >= from_ms]
    return float(mine.max()) - calm.mean_ms if len(mine) else 0.0


def p99_jitter_ms(emitted_ms: Milliseconds, latency_ms: Milliseconds, calm: Steady, from_ms: float) -> float:
    """As Falcon's figures show it. The slowest of a minute of results is slower than the slowest of a second, so moves
    that take longer are compared by this.
    """
    mine = latency_ms[emitted_ms >= from_ms]
    return float(np.percentile(mine, 99)) - calm.mean_ms if len(mine) else 0.0


def freeze_ms(emitted_ms: Milliseconds, from_ms: float, to_ms: float) -> float:
    """The longest silence between two outputs from the request to the end of the reconfiguration.

    Survey III-B: from the old host's stop to the new host's start. Seen at the results it holds the time between two
    batches as well, which is there without any reconfiguration.
    """
    times = np.sort(emitted_ms)
    before = times[times < from_ms][-1:]
    within = times[(times >= from_ms) & (times <= to_ms)]
    after = times[times > to_ms][:1]
    seen = np.concatenate([before, within, after])
    return float(np.diff(seen).max()) if len(seen) > 1 else 0.0


# --- from the timeline ---


def steps_of(timeline: Timeline) -> dict[MigrationId, dict[str, float]]:
    """When each migration reached each of its steps; routers may tell one again."""
    found: dict[MigrationId, dict[str, float]] = {}
    for at_ms, news in timeline:
        if isinstance(news, Report):
            found.setdefault(news.migration, {}).setdefault(news.status, at_ms)
        elif isinstance(news, Reached):
            found.setdefault(news.migration, {}).setdefault(news.step, at_ms)
    return found


def phases(steps: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """(phase, begin, end) of one migration; what has not ended yet has no phase."""
    ordered = sorted(steps.items(), key=lambda each: each[1])
    return [(PHASES[step], begin, end) for (step, begin), (_, end) in pairwise(ordered) if step in PHASES]


def covered_ms(stretches: Iterable[tuple[float, float]]) -> float:
    """How long at least one of the stretches lasted: migrations side by side count once."""
    total, upto = 0.0, -np.inf
    for begin, end in sorted(stretches):
        total += max(end - max(begin, upto), 0.0)
        upto = max(upto, end)
    return float(total)


def _moving(steps: Mapping[str, float]) -> list[tuple[float, float]]:
    """Survey III-B: from the moment when the old host begins to send until the new one has all of it."""
    return [(steps["sent"], steps["restored"])] if "sent" in steps and "restored" in steps else []


def _bytes_moved(plan: str, timeline: Timeline) -> int:
    moved = {
        news.migration: news.moved.bytes_moved
        for _, news in timeline
        if isinstance(news, Report) and news.status == "done" and plan_of(news.migration) == plan
    }
    ended = [news for _, news in timeline if isinstance(news, PlanEnded) and news.plan.id == plan]
    return ended[-1].state.bytes_moved if ended else sum(moved.values())
