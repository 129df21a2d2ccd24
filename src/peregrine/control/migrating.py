"""A planned migration under way: how far it is, when it will end, and then what was predicted against what came."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from peregrine import measure
from peregrine.control import questions
from peregrine.control.deployment import Deployment
from peregrine.core.coordinator import PlanEnded, Status, plan_of, stage_of
from peregrine.core.messages import Reached, Report
from peregrine.errors import PeregrineError
from peregrine.plan.migration_plan import MigrationPlan
from peregrine.plan.predict import Outcome, Prediction
from peregrine.types import MigrationId, SiteId, site_of

LISTEN_S = 0.5

Learn = Callable[[Prediction, Outcome], None]


@dataclass(frozen=True, slots=True)
class Progress:
    """How a migration stands. Keys that nobody has seen yet are in no count."""

    phase: str  # of `measure.PHASES`, or how it ended
    chunk: int  # the one that moves now, from 1
    chunks: int
    keys_done: int
    keys: int
    bytes_moved: int  # by chunks that are done
    backlog_rows: int  # in logs of the places concerned, not yet worked off
    elapsed_ms: float
    left_ms: float  # estimated

    def __str__(self) -> str:
        return (
            f"{self.phase}: chunk {self.chunk} of {self.chunks}, {self.keys_done:,} of {self.keys:,} keys, "
            f"{self.bytes_moved:,} bytes, backlog {self.backlog_rows:,} rows, "
            f"{self.elapsed_ms / 1000:.1f} s, about {self.left_ms / 1000:.1f} s left"
        )


@dataclass(frozen=True, slots=True)
class Migrated:
    """What was predicted, and what came of it."""

    ended: PlanEnded
    predicted: Prediction
    measured: Outcome

    def with_pause(self, pause_ms: float) -> "Migrated":
        """As somebody who has read the results has measured it (`measure.Cost`)."""
        return replace(self, measured=replace(self.measured, pause_ms=pause_ms))

    def describe(self) -> str:
        said, came = self.predicted, self.measured
        lines = [
            f"{self.ended.plan.id}: {said.mechanism}, {self.ended.outcome}",
            f"{'':12}{'predicted':>12}{'measured':>12}",
        ]
        for name, expected, found in (
            ("duration ms", said.duration_ms, came.duration_ms),
            ("bytes", said.bytes_moved, came.bytes_moved),
            ("pause ms", said.pause_ms, came.pause_ms),
        ):
            lines.append(
                f"{name:12}{expected:>12,.0f}{'-' if found is None else f'{found:,.0f}':>12}{_off(expected, found)}"
            )
        return "\n".join(lines)


def _off(expected: float, found: float | None) -> str:
    return f"{expected / found - 1:>+9.0%}" if found else ""


class Migrating:
    """`core_id` has been submitted. `chunks_ms` is what each of its chunks was predicted to take."""

    def __init__(
        self,
        deployment: Deployment,
        core_id: str,
        plan: MigrationPlan,
        predicted: Prediction,
        chunks_ms: list[float],
        learn: Learn,
        began_s: float,
    ) -> None:
        self.id = core_id
        self.plan = plan
        self.predicted = predicted
        self._deployment = deployment
        self._chunks_ms = chunks_ms
        self._learn = learn
        self._began_s = began_s
        self._ended_s: float | None = None
        self._ended: PlanEnded | None = None
        self._steps: dict[MigrationId, str] = {}  # migration -> what it has reached last
        self._heard = dict.fromkeys(self._sites(), 0)  # site -> how far its news were read
        self._stop = threading.Event()
        # Notices when it ends, also if nobody waits for it then.
        self._thread = threading.Thread(target=self._follow, name=f"follow-{core_id}", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float = 120.0) -> Migrated:
        """Returns when it has ended. What is learnt from it the next predictions know."""
        self._thread.join(timeout_s)
        if self._ended is None:
            self._deployment.wait(self.id, 0.001)  # says what is wrong
            self._thread.join()
        assert self._ended is not None and self._ended_s is not None
        came = Outcome((self._ended_s - self._began_s) * 1000, self._ended.state.bytes_moved)
        return Migrated(self._ended, self.predicted, came)

    def abort(self) -> None:
        """Chunks that have not switched stay where they are; what has switched goes on to its end."""
        self._deployment.driver.cancel(self.id)

    @property
    def ended(self) -> bool:
        return self._ended is not None

    def forget(self) -> None:
        """Nobody wants to know any more."""
        self._stop.set()
        self._thread.join()

    def progress(self) -> Progress:
        at = self._deployment.driver.ask(questions.progress, self.id)
        if at is None:
            self._thread.join(LISTEN_S)  # it has ended, and is about to be noticed
        ended = self._ended
        stage, bytes_moved = at or (0, 0)
        if ended is not None:
            stage, bytes_moved = len({stage_of(each.id) for each in ended.moved}), ended.state.bytes_moved
        elapsed_ms = ((self._ended_s or time.monotonic()) - self._began_s) * 1000
        return Progress(
            self._phase(stage),
            min(stage + 1, len(self.plan.chunks)),
            len(self.plan.chunks),
            sum(chunk.load.keys for chunk in self.plan.chunks[:stage]),
            sum(chunk.load.keys for chunk in self.plan.chunks),
            bytes_moved,
            self._backlog(),
            elapsed_ms,
            0.0 if ended is not None else self._left_ms(stage, elapsed_ms),
        )

    def _follow(self) -> None:
        while not self._stop.is_set() and self._ended is None:
            try:
                ended = self._deployment.driver.wait(self.id, LISTEN_S)
            except PeregrineError:
                continue  # not yet
            self._ended_s, self._ended = time.monotonic(), ended
            if ended.outcome is Status.DONE:
                duration_ms = (self._ended_s - self._began_s) * 1000
                self._learn(self.predicted, Outcome(duration_ms, ended.state.bytes_moved))

    def _sites(self) -> set[SiteId]:
        return {site_of(place) for move in self.plan.moves for place in (move.source, move.target)}

    def _phase(self, stage: int) -> str:
        if self._ended is not None:
            return str(self._ended.outcome)
        for site, after in self._heard.items():
            self._heard[site], news = self._deployment.clients[site].news(after, 0.0)
            for each in news:
                if isinstance(each, Report | Reached) and plan_of(each.migration) == self.id:
                    self._steps[each.migration] = each.status if isinstance(each, Report) else each.step
        reached = [step for of, step in self._steps.items() if stage_of(of) == stage]
        return next((measure.PHASES[step] for step in reached if step in measure.PHASES), "begin")

    def _backlog(self) -> int:
        statuses = [self._deployment.clients[site].status() for site in self._heard]
        return sum(end - status.commits[place] for status in statuses for place, end in status.ends.items())

    def _left_ms(self, stage: int, elapsed_ms: float) -> float:
        """What is left by the prediction, at the pace that was seen so far."""
        done, now, rest = (
            sum(part)
            for part in (self._chunks_ms[:stage], self._chunks_ms[stage : stage + 1], self._chunks_ms[stage + 1 :])
        )
        if not stage:
            return max(now - elapsed_ms, 0.0) + rest
        return (now / 2 + rest) * elapsed_ms / (done + now / 2)
