"""How long a planned migration will take, how many bytes will move and how long rows of a key will wait.

A chunk's path (plan/paths.py) is turned into amounts of work: ways over links, turns of hosts, bytes, keys. What each
of them takes begins with a default and is learnt (plan/learning.py).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.mechanisms.program import Mechanism
from peregrine.core.messages import REFRESH_MS
from peregrine.core.replication import Retrieval
from peregrine.core.topology import Topology
from peregrine.errors import ConfigurationError
from peregrine.plan.chunking import Pace
from peregrine.plan.learning import AS_SAID, Coefficients, Factors
from peregrine.plan.migration_plan import MigrationPlan, PlannedChunk
from peregrine.plan.paths import NOTHING, Span, Way, path_of

# The kinds of work: what one of each takes (ms), and how sure that is.
WORK = {
    "chunk": (40.0, 2.0),  # commands, reports, the next stage
    "link_ms": (1.0, 0.2),
    "turn_ms": (1.5, 0.7),  # what comes during a turn waits for its end, and for the next one
    "transfer_ms": (1.0, 0.3),  # what a link of this bandwidth needs for the bytes
    "megabytes": (30.0, 2.0),  # read, cut, sent, journaled and restored
    "keys": (0.1, 2.0),
    "window_ms": (1.0, 0.3),
}
SMALL_BYTES, SMALL_MS = 256.0, 20.0  # differences below are noise


UNTAUGHT = Coefficients(*zip(*WORK.values(), strict=True))


@dataclass(frozen=True, slots=True)
class Conditions:
    """How the deployment stands while the plan is made."""

    turn_ms: float  # how long a micro-batch of a host takes now
    replica_age_ms: float = float(REFRESH_MS)  # how far replicas lag behind
    window_ms: float = 0.0  # how long windows stay open; 0: nobody knows


@dataclass(frozen=True, slots=True)
class Prediction:
    mechanism: str
    duration_ms: float
    bytes_moved: float
    pause_ms: float  # the longest that rows or results of one key wait for the migration
    work: tuple[float, ...]  # in the order of WORK
    table: tuple[float, float]  # bytes and pause by the model alone, before any factor


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it. A pause that nobody has measured teaches nothing."""

    duration_ms: float
    bytes_moved: float
    pause_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Predictor:
    coefficients: Coefficients = UNTAUGHT
    durations: Factors = AS_SAID
    moved: Factors = AS_SAID
    pauses: Factors = AS_SAID
    lessons: int = 0

    def predict(
        self, plan: MigrationPlan, topology: Topology, conditions: Conditions, mechanism: str | None = None
    ) -> Prediction:
        how = MECHANISMS[mechanism or plan.mechanism]
        ways = [Way(topology, move) for move in plan.moves]
        chunks = [self._slowest(how, ways, chunk, conditions) for chunk in plan.chunks]
        work = tuple(map(math.fsum, zip(*(each.work for each in chunks), strict=True)))
        moved = math.fsum(each.bytes_moved for each in chunks)
        pause = max(each.pause_ms for each in chunks)
        return Prediction(
            how.name,
            self.coefficients.of(work) * self.durations.of(how.name),
            moved * self.moved.of(how.name),
            pause * self.pauses.of(how.name),
            work,
            (moved, pause),
        )

    def learnt(self, said: Prediction, came: Outcome) -> "Predictor":
        """Behind a migration of which both are known."""
        coefficients = self.coefficients.learnt(said.work, came.duration_ms)
        wiser = Predictor(
            coefficients,
            self.durations.learnt(said.mechanism, coefficients.of(said.work), came.duration_ms, SMALL_MS),
            self.moved.learnt(said.mechanism, said.table[0], came.bytes_moved, SMALL_BYTES),
            self.pauses,
            self.lessons + 1,
        )
        return wiser if came.pause_ms is None else wiser.learnt_pause(said, came.pause_ms)

    def learnt_pause(self, said: Prediction, pause_ms: float) -> "Predictor":
        return replace(self, pauses=self.pauses.learnt(said.mechanism, said.table[1], pause_ms, SMALL_MS))

    def pace(self, plan: MigrationPlan, topology: Topology, conditions: Conditions, mechanism: str) -> Pace:
        """What chunks of this plan take with this mechanism, for cutting it by time."""
        nobody = replace(plan, chunks=(PlannedChunk(plan.chunks[0].keys, ()),))
        values = dict(zip(WORK, self.coefficients.values or self.coefficients.defaults, strict=True))
        mbps = min(Way(topology, move).mbps for move in plan.moves)
        factor = self.durations.of(mechanism)
        return Pace(
            self.predict(nobody, topology, conditions, mechanism).duration_ms,
            factor * (values["megabytes"] + values["transfer_ms"] * 8000 / mbps),
            factor * values["keys"],
        )

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2)

    def _slowest(self, how: Mechanism, ways: Sequence[Way], chunk: PlannedChunk, now: Conditions) -> Prediction:
        """Moves from several places run at the same time: the longest way counts."""
        found = [self._chunk(how, way, chunk, now) for way in ways if not way.move.keys.isdisjoint(chunk.keys)]
        return max(found, key=lambda each: each.duration_ms)

    def _chunk(self, how: Mechanism, way: Way, chunk: PlannedChunk, now: Conditions) -> Prediction:
        path = path_of(how, way.latency_ms)
        groups = len(chunk.keys.touched_groups()) if path.each_group else 1
        carried = _carried(how, chunk, now)
        repeated = replace(path.duration, link_ms=path.duration.link_ms * groups, turns=path.duration.turns * groups)
        work = _work(repeated, carried, way, now, chunks=1, keys=chunk.load.keys)
        alone = _Carried(carried.whole / groups, carried.changed / groups)
        waiting = chunk.load.keys / groups if path.pause != NOTHING else 0
        waits = _work(path.pause, alone, way, now, keys=waiting)
        moved = (carried.whole if path.duration.whole else 0) + (carried.changed if path.duration.changed else 0)
        return Prediction(how.name, self.coefficients.of(work), moved, self.coefficients.of(waits), work, (0.0, 0.0))


def from_json(text: bytes | str) -> Predictor:
    """What was learnt with other kinds of work is of no use, and forgotten."""
    try:
        found = msgspec.json.decode(text, type=Predictor)
    except msgspec.DecodeError as error:
        raise ConfigurationError(
            f"what was learnt about migrations cannot be read: {error}", "remove the file: it is learnt anew"
        ) from error
    known = found.coefficients.defaults == UNTAUGHT.defaults
    return found if known else replace(found, coefficients=UNTAUGHT)


@dataclass(frozen=True, slots=True)
class _Carried:
    whole: float  # bytes of all keys
    changed: float  # bytes of those that the target lacks when rows stop


def _carried(how: Mechanism, chunk: PlannedChunk, now: Conditions) -> _Carried:
    whole = float(chunk.load.state_bytes)
    changed = 0.0
    for each in chunk.units:
        fresh = each.retrieval is Retrieval.RELOAD or not how.checkpoint_assisted  # else there is nothing to build on
        changed += each.load.state_bytes * (each.load.touched(now.replica_age_ms) if fresh else 1.0)
    return _Carried(whole, changed)


def _work(
    span: Span, carried: _Carried, way: Way, now: Conditions, chunks: float = 0, keys: float = 0
) -> tuple[float, ...]:
    moved = span.whole * carried.whole + span.changed * carried.changed
    return (
        chunks,
        span.link_ms,
        span.turns * now.turn_ms,
        moved * 8 / 1000 / way.mbps,
        moved / 1e6,
        keys,
        span.windows * now.window_ms,
    )
