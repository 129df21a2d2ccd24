"""Planned migrations of a running deployment: measured, planned and predicted before anything moves.

    preview = running.plan("average", to="edge1", strategy="hot-first, chunks:3")
    print(preview.describe())
    print(preview.run().describe())

Nothing is decided here: plan/ decides, the manager carries out. What predictions have learnt and which keys have
replicas are files in one directory; the thresholds are of the machine (control/calibrated.py).
"""

import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from peregrine.control import calibrated
from peregrine.control.deployment import Deployment
from peregrine.control.metering import Turns, metrics_of
from peregrine.control.migrating import Migrated, Migrating
from peregrine.control.replicas import Replicas
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.messages import REFRESH_MS
from peregrine.core.operator import OpSpec
from peregrine.core.reconfigure import Move
from peregrine.core.replication import Retrieval
from peregrine.errors import UnknownName
from peregrine.net.chunk_files import write_aside
from peregrine.plan import calibration, predict
from peregrine.plan.adaptive import Adaptive, strategy_of
from peregrine.plan.metrics import Unit
from peregrine.plan.migration_plan import MOST_KEYS, MigrationPlan, planned
from peregrine.plan.paths import rows_wait
from peregrine.plan.predict import Conditions, Outcome, Prediction, Predictor
from peregrine.plan.strategy import Fixed, Strategy, replicas_of
from peregrine.types import OpId, PlaceId

BY_STRATEGY = "by-strategy"  # as mechanism: what the chunks and replicas of the strategy amount to
SHOWN_KEYS = 6
MEASURED, NOT_MEASURED = "thresholds: measured on this machine", "thresholds: defaults; run peregrine calibrate"


class Planner:
    def __init__(self, deployment: Deployment, directory: Path | None = None) -> None:
        """`directory`: where what is learnt is kept; without one it ends with the deployment's own directory."""
        self.deployment = deployment
        self.directory = directory or deployment.directory / "planning"
        self.predictor = predict.from_json(found) if (found := self._read("predictor")) else Predictor()
        costs = calibrated.read(calibrated.usual_file())
        self.calibrated = costs is not None
        self.much = calibration.derived(costs) if costs is not None else calibration.DEFAULTS
        self.replicas = Replicas(deployment, self.directory / "replicas.json")
        self._numbers = itertools.count(1)
        self._turns = Turns(deployment)
        self._under_way: list[Migrating] = []
        self._learning = threading.Lock()  # migrations end when they want

    def plan(self, moves: Sequence[Move], strategy: str | Strategy = "adaptive", mechanism: str = "live") -> "Preview":
        """Measures, and plans these moves to one target. Nothing moves before `run` of what is returned."""
        if mechanism not in (*MECHANISMS, BY_STRATEGY):
            raise UnknownName("mechanism", mechanism, [*MECHANISMS, BY_STRATEGY])
        op = moves[0].op
        now = self._turns.look()
        metrics = metrics_of(self.deployment, op)
        topology, replicas = self.deployment.topology, self.replicas.of(op)
        whole = planned(moves, Fixed(), metrics, replicas)
        usual = whole.mechanism if mechanism == BY_STRATEGY else mechanism
        pace = self.predictor.pace(whole, topology, now, usual)
        made = strategy_of(strategy, self.much, pace, rows_wait(MECHANISMS[usual]))
        plan = planned(moves, made, metrics, replicas)
        reasons: tuple[str, ...] = ()
        if isinstance(made, Adaptive):
            reasons = (*made.reasons(plan.order, plan.metrics), MEASURED if self.calibrated else NOT_MEASURED)
        return Preview(self, plan, now, plan.mechanism if mechanism == BY_STRATEGY else mechanism, reasons)

    def replicate(
        self, op: OpId, strategy: str | Strategy = "adaptive", every_ms: int = REFRESH_MS
    ) -> Mapping[Unit, Sequence[PlaceId]]:
        """Replicas of an operator's keys from now on, as the strategy wants them, and no others. What changes is sent
        again and again, for which everybody pays; a replica is kept until its key moves, or until `stop_replicas`.
        """
        metrics = metrics_of(self.deployment, op)
        if len(metrics.loads) > MOST_KEYS:
            metrics = metrics.by_group()
        wanted = replicas_of(strategy_of(strategy, self.much), sorted(metrics.loads, key=str), metrics)
        shares: dict[tuple[PlaceId, PlaceId], list[Unit]] = {}
        for unit, places in wanted.items():
            source = metrics.load(unit).place
            for target in places:
                if source is not None:
                    shares.setdefault((source, target), []).append(unit)
        self.replicas.keep(op, shares, every_ms)
        return wanted

    def stop_replicas(self, op: OpId) -> None:
        """No replicas of an operator any more: those that there are are given up."""
        self.replicas.stop(op)

    def start(self, preview: "Preview") -> Migrating:
        plan, topology = preview.plan, self.deployment.topology
        said = preview.predictions[preview.mechanism]
        chunks_ms = [
            self.predictor.predict(replace(plan, chunks=(chunk,)), topology, preview.now, preview.mechanism).duration_ms
            for chunk in plan.chunks
        ]
        id = f"plan-{next(self._numbers)}-{time.time_ns()}"
        began_s = time.monotonic()
        self.deployment.submit(plan.to_core(id, preview.mechanism, "; ".join(preview.reasons)))
        under_way = Migrating(self.deployment, id, plan, said, chunks_ms, self.learn, began_s)
        self._under_way = [each for each in self._under_way if not each.ended] + [under_way]
        return under_way

    def learn(self, said: Prediction, came: Outcome) -> None:
        """Called for each migration that was done."""
        with self._learning:
            self._turns.look()
            self.predictor = self.predictor.learnt(said, came)
            self._write("predictor", self.predictor.to_json())

    def learn_pause(self, said: Prediction, pause_ms: float) -> None:
        """From somebody who has read the results (`measure.Cost`): routers do not see it."""
        with self._learning:
            self.predictor = self.predictor.learnt_pause(said, pause_ms)
            self._write("predictor", self.predictor.to_json())

    def close(self) -> None:
        """What is under way goes on; nobody here waits for it any more."""
        for each in self._under_way:
            each.forget()

    def calibrate(self, costs: calibration.Costs, goal: calibration.Goal = calibration.ALIKE) -> None:
        """Thresholds by these costs, for what this planner plans from now on."""
        self.much, self.calibrated = calibration.derived(costs, goal), True

    def _read(self, name: str) -> bytes:
        file = self.directory / f"{name}.json"
        return file.read_bytes() if file.exists() else b""

    def _write(self, name: str, text: bytes) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        write_aside(self.directory / f"{name}.json", text, durable=False)


@dataclass(frozen=True)
class Preview:
    """What would happen, and what it would cost with each mechanism that the operator allows."""

    planner: Planner
    plan: MigrationPlan
    now: Conditions
    mechanism: str
    reasons: tuple[str, ...]

    @property
    def predictions(self) -> Mapping[str, Prediction]:
        topology, predictor = self.planner.deployment.topology, self.planner.predictor
        spec = self.planner.deployment.specs[self.plan.op]
        names = [name for name in MECHANISMS if name == self.mechanism or _allowed(spec, name)]
        return {name: predictor.predict(self.plan, topology, self.now, name) for name in names}

    def describe(self) -> str:
        return "\n".join([*self._what(), *self._chunks(), *self._costs()])

    def start(self) -> Migrating:
        """Submits it; returns when it is on the disk."""
        return self.planner.start(self)

    def run(self, timeout_s: float = 120.0) -> Migrated:
        """Carries it out, and learns from it."""
        return self.start().wait(timeout_s)

    def _what(self) -> list[str]:
        sources = ", ".join(sorted({move.source for move in self.plan.moves}))
        inputs = self.plan.metrics.inputs(self.plan.order)
        return [
            f"{self.plan.op}: {sources} → {self.plan.target}, {self.mechanism}",
            f"  {inputs.keys:,} keys known, {inputs.rows_per_s:,.0f} rows/s, skew {inputs.skew:.2f}, "
            f"{inputs.key_bytes:,.0f} bytes a key, {inputs.access_ratio:.0%} touched in a second; "
            f"a turn of a host takes {self.now.turn_ms:,.0f} ms",
            *(f"  {reason}" for reason in self.reasons),
        ]

    def _chunks(self) -> list[str]:
        lines = [f"{'chunk':>6}{'keys':>9}{'rows/s':>10}{'bytes':>14}{'reload':>8}  in this order"]
        for number, chunk in enumerate(self.plan.chunks, start=1):
            load = chunk.load
            reload = sum(each.retrieval is Retrieval.RELOAD for each in chunk.units)
            names = [f"g:{each.unit}" if isinstance(each.unit, int) else each.unit for each in chunk.units]
            more = f", ... {len(names) - SHOWN_KEYS} more" if len(names) > SHOWN_KEYS else ""
            lines.append(
                f"{number:>6}{load.keys:>9,}{load.rows_per_s:>10,.0f}{load.state_bytes:>14,}{reload:>8}"
                f"  {', '.join(names[:SHOWN_KEYS])}{more}"
            )
        return lines

    def _costs(self) -> list[str]:
        lessons = self.planner.predictor.lessons
        lines = [f"{'predicted':<20}{'duration ms':>12}{'bytes':>14}{'pause ms':>10}  (learnt from {lessons})"]
        for name, said in self.predictions.items():
            unknown = name == "window-recreation" and not self.now.window_ms  # as long as windows stay open
            duration = "?" if unknown else f"{said.duration_ms:,.0f}"
            lines.append(
                f"{'> ' if name == self.mechanism else '  '}{name:<18}{duration:>12}"
                f"{said.bytes_moved:>14,.0f}{said.pause_ms:>10,.0f}"
            )
        return lines


def _allowed(spec: OpSpec, mechanism: str) -> bool:
    has = {"stateless": spec.stateless, "windowed": spec.windowed, "static sources": not spec.roaming}
    return all(has[need] for need in MECHANISMS[mechanism].needs)
