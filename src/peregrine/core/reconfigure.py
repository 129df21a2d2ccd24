"""Reconfigurations, composed of Migrate alone (Falcon III-D, figure 4).

A plan is stages that run one after the other, or overlap; the migrations of a stage run at the same time, on disjoint
keys. Each function here only says *what* to do; `core/coordinator.py` checks it against the placement and carries it
out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from peregrine.core.keyspace import KeySet
from peregrine.core.placement import Placement
from peregrine.errors import PlanError
from peregrine.types import OpId, PlaceId, SiteId, site_of


@dataclass(frozen=True, slots=True)
class Move:
    """Migrate(K, S, D). Without an anchor, S's router is it on the way up and D's on every other way."""

    op: OpId
    keys: KeySet
    source: PlaceId
    target: PlaceId
    anchor: SiteId | None = None


Stage = tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    id: str
    stages: tuple[Stage, ...]
    mechanism: str = "live"
    caught_up_lag_rows: int = 0
    shed_below: int = 0
    overlap: bool = False  # a stage begins when those before it have switched, unless it needs their end
    note: str = field(default="", compare=False)

    def moves(self) -> Iterable[Move]:
        return (move for stage in self.stages for move in stage)


def move(placement: Placement, op: OpId, source: PlaceId, target: PlaceId) -> tuple[Stage, ...]:
    """The whole instance."""
    keys = placement.instances(op).get(source)
    if keys is None:
        raise PlanError(f"{op} has no instance at {source}", f"it is at: {', '.join(sorted(placement.instances(op)))}")
    return ((Move(op, keys, source, target),),)


def split(op: OpId, keys: KeySet, source: PlaceId, target: PlaceId) -> tuple[Stage, ...]:
    """Some keys of an instance, up or down."""
    return ((Move(op, keys, source, target),),)


def merge(placement: Placement, op: OpId, sources: Sequence[PlaceId], target: PlaceId) -> tuple[Stage, ...]:
    """Several instances into one, all at the same time: their keys are disjoint."""
    return (tuple(single for source in sources for stage in move(placement, op, source, target) for single in stage),)


def redistribute(op: OpId, one: tuple[PlaceId, KeySet], other: tuple[PlaceId, KeySet]) -> tuple[Stage, ...]:
    """Two instances give each other keys at the same time."""
    return ((Move(op, one[1], one[0], other[0]), Move(op, other[1], other[0], one[0])),)


def sideways(placement: Placement, op: OpId, keys: KeySet, source: PlaceId, target: PlaceId) -> tuple[Stage, ...]:
    """Between siblings in two moves: up to where their paths meet, and down (figure 4c)."""
    topology = placement.topology
    top = topology.main_place(topology.lca(site_of(source), site_of(target)))
    if top in (source, target):
        return split(op, keys, source, target)
    return ((Move(op, keys, source, top),), (Move(op, keys, top, target),))


def sideways_direct(op: OpId, keys: KeySet, source: PlaceId, target: PlaceId) -> tuple[Stage, ...]:
    """Between siblings in one move: the new place's router is the anchor."""
    return ((Move(op, keys, source, target, anchor=site_of(target)),),)


def in_chunks(stages: tuple[Stage, ...], order: Sequence[KeySet]) -> tuple[Stage, ...]:
    """The same moves, chunk after chunk of their keys in the given order (Spacker III-C1)."""
    chunked = []
    for stage in stages:
        rest = stage
        for chunk in order:
            chunked.append(tuple(replace(m, keys=m.keys & chunk) for m in rest if not m.keys.isdisjoint(chunk)))
            rest = tuple(replace(m, keys=m.keys - chunk) for m in rest if m.keys - chunk)
        chunked.append(rest)
    return tuple(stage for stage in chunked if stage)


def even_chunks(keys: KeySet, count: int) -> list[KeySet]:
    """A key set in `count` chunks of about as many groups (or keys, where it names keys) each."""
    if count < 1:
        raise PlanError(f"a plan in {count} chunks", "give one chunk or more")
    parts = [*sorted(keys.whole), *sorted(keys.plus)]
    count = min(count, max(len(parts), 1))
    bounds = [-(-nth * len(parts) // count) for nth in range(count + 1)]
    chunks = []
    for first, end in pairwise(bounds):
        groups = [part for part in parts[first:end] if isinstance(part, int)]
        names = [part for part in parts[first:end] if isinstance(part, str)]
        chunks.append(KeySet.of_groups(keys.groups, groups) & keys | KeySet.of_keys(keys.groups, names))
    return chunks


def taken_back(plans: Iterable[Plan], done: Iterable[Move], suffix: str = "back") -> tuple[Plan, ...]:
    """Plans that bring back what has been moved already when a redeployment fails: the same moves, last first."""
    moved = set(done)
    back = []
    for plan in plans:
        stages = tuple(
            tuple(replace(move, source=move.target, target=move.source) for move in stage if move in moved)
            for stage in reversed(plan.stages)
        )
        if any(stages):
            back.append(replace(plan, id=f"{plan.id}-{suffix}", stages=tuple(stage for stage in stages if stage)))
    return tuple(back)
