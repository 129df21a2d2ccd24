"""What moves in a cell, in which order and chunks: a plan of the core, from a setting. Pure.

Keys are taken from the rows that will be sent, in the order in which they first come.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from peregrine.bench.engine.definition import Setting
from peregrine.core.keyspace import KeySet, group_of, stable_hash
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.operator import OpSpec
from peregrine.core.reconfigure import Move, Plan, Stage
from peregrine.types import OpId, PlaceId

Parts = Sequence[Any]  # names of keys, or numbers of groups, in the order in which they move
Moving = Mapping[OpId, Parts]
Specs = Mapping[OpId, OpSpec]
Chunk = list[Move]


def parts(setting: Setting, by: str, spec: OpSpec, seen: Iterable[str]) -> list[Any]:
    """The share of the keys (or groups) that moves."""
    counts: Counter[Any] = Counter(seen if by == "keys" else (group_of(stable_hash(key), spec.groups) for key in seen))
    every = list(counts) if by == "keys" else list(range(spec.groups))
    chosen = every[: max(round(len(every) * setting.share), 1)]
    if setting.order == "hot-first":
        chosen.sort(key=lambda part: -counts[part])
    elif setting.order == "random":
        random.Random(0).shuffle(chosen)
    return chosen


def key_set(spec: OpSpec, named: Parts) -> KeySet:
    keys, groups = [each for each in named if isinstance(each, str)], [each for each in named if isinstance(each, int)]
    return KeySet.of_groups(spec.groups, groups) | KeySet.of_keys(spec.groups, keys)


def plan(id: str, mechanism: str, chunks: Iterable[Chunk]) -> Plan:
    """Chunk after chunk; within one, everything at the same time, unless the mechanism stops whole hosts."""
    stages: list[Stage] = []
    for moves in chunks:
        stages += [(move,) for move in moves] if MECHANISMS[mechanism].alone else [tuple(moves)] if moves else []
    return Plan(id, tuple(stages), mechanism)


def between(specs: Specs, moving: Moving, chunks: int, source: PlaceId, target: PlaceId) -> list[Chunk]:
    """All that moves from one place to another, in so many chunks."""
    return [
        [
            Move(op, key_set(specs[op], named), source, target)
            for op, every in moving.items()
            if (named := _nth(every, nth, chunks))
        ]
        for nth in range(chunks)
    ]


def rescale(specs: Specs, moving: Moving, chunks: int, places: Sequence[PlaceId], hosts: Sequence[int]) -> list[Chunk]:
    """From so many hosts to so many, step after step, each in chunks; groups are dealt out to hosts in turn."""
    found: list[Chunk] = []
    for before, after in pairwise(hosts):
        for nth in range(chunks):
            chunk: Chunk = []
            for op, groups in moving.items():
                leaving = [group for group in groups if host_of(group, before) != host_of(group, after)]
                ways: dict[tuple[int, int], list[int]] = {}
                for group in _nth(leaving, nth, chunks):
                    ways.setdefault((host_of(group, before), host_of(group, after)), []).append(group)
                chunk += [
                    Move(op, key_set(specs[op], named), places[source], places[target])
                    for (source, target), named in ways.items()
                ]
            found.append(chunk)
    return found


def host_of(group: int, hosts: int) -> int:
    return group % hosts


def _nth(parts: Parts, nth: int, chunks: int) -> Parts:
    return parts[len(parts) * nth // chunks : len(parts) * (nth + 1) // chunks]


def unfit(mechanism: str, specs: Iterable[OpSpec]) -> str:
    """Why a mechanism cannot move these operators; empty if it can."""
    for spec in specs:
        has = {"stateless": spec.stateless, "windowed": spec.windowed, "static sources": not spec.roaming}
        if lacks := sorted(need for need in MECHANISMS[mechanism].needs if not has[need]):
            return f"{mechanism} needs operators that are {' and '.join(lacks)}; {spec.op} is not"
    return ""
