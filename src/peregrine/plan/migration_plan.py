"""A migration as planned: ordered chunks, each key marked transfer or reload (Spacker III-C1).

The marks are suggestions: when a key moves, what both sides have then decides (core/replication.py). The plan becomes
stages of the core, one for each chunk; nothing is coordinated here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from peregrine.core.keyspace import KeySet, as_stored, group_of, stable_hash
from peregrine.core.reconfigure import Move, Plan, in_chunks
from peregrine.core.replication import Retrieval
from peregrine.errors import PlanError
from peregrine.plan.metrics import Load, Metrics, Unit
from peregrine.plan.strategy import Strategy, chunks_of, order_of
from peregrine.types import OpId, PlaceId

MOST_KEYS = 2_000  # from here on groups are planned, not keys: each key by itself is a rule at every router


@dataclass(frozen=True, slots=True)
class PlannedUnit:
    unit: Unit
    load: Load
    retrieval: Retrieval  # TRANSFER or RELOAD


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """`keys` may be more than the units: the last chunk also takes the keys that nobody has seen yet."""

    keys: KeySet
    units: tuple[PlannedUnit, ...]

    @property
    def load(self) -> Load:
        return reduce(Load.__add__, (each.load for each in self.units), Load(keys=0))

    def bytes_by(self, retrieval: Retrieval) -> int:
        return sum(each.load.state_bytes for each in self.units if each.retrieval is retrieval)


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    op: OpId
    target: PlaceId
    moves: tuple[Move, ...]
    chunks: tuple[PlannedChunk, ...]
    metrics: Metrics  # of what was planned with: keys or groups

    @property
    def order(self) -> list[Unit]:
        return [each.unit for chunk in self.chunks for each in chunk.units]

    @property
    def mechanism(self) -> str:
        """What the strategy amounts to if nobody names a mechanism: Spacker's own three."""
        if any(each.retrieval is Retrieval.RELOAD for chunk in self.chunks for each in chunk.units):
            return "replica"
        return "progressive" if len(self.chunks) > 1 else "pause"

    def to_core(self, id: str, mechanism: str | None = None, note: str = "") -> Plan:
        stages = in_chunks((self.moves,), [chunk.keys for chunk in self.chunks])
        return Plan(id, stages, mechanism or self.mechanism, note=note)


def planned(
    moves: Sequence[Move],
    strategy: Strategy,
    metrics: Metrics,
    replicas: Mapping[Unit, Sequence[PlaceId]] | None = None,
    most_keys: int = MOST_KEYS,
) -> MigrationPlan:
    """`moves` go to one target, at the same time; `replicas` says where keys have one already."""
    targets = {(move.op, move.target) for move in moves}
    if len(targets) != 1:
        raise PlanError(f"a plan for {len(targets)} operators or targets", "plan the moves to each target by itself")
    keys = reduce(KeySet.__or__, (move.keys for move in moves))
    # Keys that lie together touch few groups, and few pages of each. A strategy may know better.
    known = as_stored({key for key in metrics.loads if isinstance(key, str) and key in keys} | keys.plus, keys.groups)
    units: list[Unit] = list(known)
    if len(known) > most_keys:
        metrics, units = metrics.by_group(), list(keys.touched_groups())
    ((op, target),) = targets
    there = {unit for unit, places in (replicas or {}).items() if target in places}
    metrics = replace(metrics, replicated=frozenset(each for each in units if _has_one(each, there, keys.groups)))
    order = order_of(strategy, units, metrics)
    chunks = chunks_of(strategy, order, metrics) or [[]]
    return MigrationPlan(op, target, tuple(moves), tuple(_chunks(keys, chunks, metrics)), metrics)


def _chunks(keys: KeySet, chunks: Sequence[Sequence[Unit]], metrics: Metrics) -> list[PlannedChunk]:
    rest, found = keys, []
    for nth, units in enumerate(chunks):
        mine = rest if nth == len(chunks) - 1 else keys_of(keys, units)
        rest -= mine
        marked = (Retrieval.RELOAD if unit in metrics.replicated else Retrieval.TRANSFER for unit in units)
        planned_units = zip(units, map(metrics.load, units), marked, strict=True)
        found.append(PlannedChunk(mine, tuple(PlannedUnit(*each) for each in planned_units)))
    return found


def keys_of(keys: KeySet, units: Sequence[Unit]) -> KeySet:
    names = KeySet.of_keys(keys.groups, [unit for unit in units if isinstance(unit, str)])
    return names | (KeySet.of_groups(keys.groups, [unit for unit in units if isinstance(unit, int)]) & keys)


def _has_one(unit: Unit, there: set[Unit], groups: int) -> bool:
    """A key has a replica by itself or with its whole group."""
    return unit in there or (isinstance(unit, str) and bool(there) and group_of(stable_hash(unit), groups) in there)
