"""What moves in a cell, in which order and chunks, and of what there are replicas: by a strategy, from a setting. Pure.

Keys are taken from the rows that will be sent, in the order in which they first come.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

import numpy as np

from peregrine.bench.engine.definition import BY_STRATEGY, Setting
from peregrine.core.keyspace import KeySet
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.operator import OpSpec
from peregrine.core.reconfigure import Move, Plan, Stage
from peregrine.plan.adaptive import strategy_of
from peregrine.plan.metrics import Metrics, Unit, measured, seen
from peregrine.plan.strategy import chunks_of, order_of, replicas_of
from peregrine.types import OpId, PlaceId

Specs = Mapping[OpId, OpSpec]
Chunk = list[Move]
HOME = PlaceId("cloud")
Share = tuple[PlaceId, PlaceId]  # from where to where


@dataclass(frozen=True)
class Moving:
    """What of one operator moves, and how."""

    spec: OpSpec
    chunks: list[list[Unit]]
    replicas: dict[Share, list[Unit]]

    @property
    def units(self) -> list[Unit]:
        return [unit for chunk in self.chunks for unit in chunk]


def moving(
    setting: Setting, by: str, spec: OpSpec, keys: Sequence[str], key_bytes: int, places: Sequence[PlaceId]
) -> Moving:
    """`keys`: of each row of a stretch, as it comes. `places`: the edges, or the hosts of one site."""
    metrics = _metrics(setting, spec, keys, key_bytes, places)
    if by == "groups":
        metrics = metrics.by_group()
    every: list[Unit] = list(dict.fromkeys(keys)) if by == "keys" else list(range(spec.groups))
    chosen = _spread(every, setting.move_keys or max(round(len(every) * setting.share), 1))
    strategy = strategy_of(setting.strategy)
    chunks = chunks_of(strategy, order_of(strategy, chosen, metrics), metrics)
    if setting.chunk_keys:
        most = setting.chunk_keys
        chunks = [chunk[i : i + most] for chunk in chunks for i in range(0, len(chunk), most)]
    return Moving(spec, chunks, _shares(setting, list(replicas_of(strategy, chosen, metrics)), places))


def _spread(every: list[Unit], count: int) -> list[Unit]:
    """From the first to the last: where keys get rows in turn, there are always rows of some that move."""
    count = min(count, len(every))
    return [every[nth * len(every) // count] for nth in range(count)]


def _shares(setting: Setting, replicated: list[Unit], places: Sequence[PlaceId]) -> dict[Share, list[Unit]]:
    """At every edge, as Falcon-HB has it: it is not known beforehand where a key will go. Between hosts, where it goes
    first: a key that moves has used up its replicas.
    """
    if setting.hosts is None:
        return {(HOME, edge): replicated for edge in places} if replicated else {}
    return {(places[s], places[t]): mine for (s, t), mine in _ways(replicated, *setting.hosts[:2]).items()}


def _metrics(setting: Setting, spec: OpSpec, keys: Sequence[str], key_bytes: int, places: Sequence[PlaceId]) -> Metrics:
    """As if what will be sent had been seen already: strategies decide on what there will be."""
    at_ms = np.arange(len(keys), dtype=np.float64) * 1000 / setting.rows_per_s
    rows = seen(keys, at_ms, float("inf"))
    sizes = dict.fromkeys(rows.rows_per_s, key_bytes)
    return measured(spec.op, spec.groups, rows, sizes, lambda key: HOME, (HOME, *places), float(at_ms[-1]))


def key_set(spec: OpSpec, units: Iterable[Unit]) -> KeySet:
    every = list(units)
    groups, keys = [each for each in every if isinstance(each, int)], [each for each in every if isinstance(each, str)]
    return KeySet.of_groups(spec.groups, groups) | KeySet.of_keys(spec.groups, keys)


def mechanism_of(setting: Setting, moved: Iterable[Moving]) -> str:
    """As planning does it where nobody names one (`MigrationPlan.mechanism`)."""
    if setting.mechanism != BY_STRATEGY:
        return setting.mechanism
    every = list(moved)
    if any(each.replicas for each in every):
        return "replica"
    return "progressive" if any(len(each.chunks) > 1 for each in every) else "pause"


def plan(id: str, mechanism: str, chunks: Iterable[Chunk]) -> Plan:
    """Chunk after chunk; within one, everything at the same time, unless the mechanism stops whole hosts."""
    stages: list[Stage] = []
    for moves in chunks:
        stages += [(move,) for move in moves] if MECHANISMS[mechanism].alone else [tuple(moves)] if moves else []
    return Plan(id, tuple(stages), mechanism)


def between(moved: Iterable[Moving], source: PlaceId, target: PlaceId) -> list[Chunk]:
    """All that moves from one place to another; the nth chunks of all operators go together."""
    every = [[Move(each.spec.op, key_set(each.spec, units), source, target) for units in each.chunks] for each in moved]
    return [[move for move in chunk if move is not None] for chunk in zip_longest(*every)]


def rescale(moved: Iterable[Moving], places: Sequence[PlaceId], hosts: Sequence[int]) -> list[Chunk]:
    """From so many hosts to so many, step after step, each in chunks; groups are dealt out to hosts in turn."""
    every = list(moved)
    found: list[Chunk] = []
    for before, after in pairwise(hosts):
        lines = [[_between_hosts(each.spec, units, places, before, after) for units in each.chunks] for each in every]
        found += [[move for moves in chunk for move in moves or ()] for chunk in zip_longest(*lines)]
    return found


def _between_hosts(
    spec: OpSpec, units: Iterable[Unit], places: Sequence[PlaceId], before: int, after: int
) -> list[Move]:
    ways = _ways(units, before, after)
    return [Move(spec.op, key_set(spec, mine), places[s], places[t]) for (s, t), mine in ways.items()]


def _ways(groups: Iterable[Unit], before: int, after: int) -> dict[tuple[int, int], list[Unit]]:
    """(from which host, to which) -> the groups that go."""
    ways: dict[tuple[int, int], list[Unit]] = {}
    for group in groups:
        assert isinstance(group, int), "hosts share groups"
        way = host_of(group, before), host_of(group, after)
        if way[0] != way[1]:
            ways.setdefault(way, []).append(group)
    return ways


def host_of(group: int, hosts: int) -> int:
    return group % hosts


def unfit(mechanism: str, specs: Iterable[OpSpec]) -> str:
    """Why a mechanism cannot move these operators; empty if it can."""
    needs = MECHANISMS[mechanism].needs if mechanism != BY_STRATEGY else frozenset()
    for spec in specs:
        has = {"stateless": spec.stateless, "windowed": spec.windowed, "static sources": not spec.roaming}
        if lacks := sorted(need for need in needs if not has[need]):
            return f"{mechanism} needs operators that are {' and '.join(lacks)}; {spec.op} is not"
    return ""
