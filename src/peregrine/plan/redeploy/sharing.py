"""Operators that several applications share: where sub-plans are equal, one of them runs for all.

Two operators are equal if they do the same (`code`), divide their keys into the same groups, and are fed by equal
producers in the same way: the same sources, or operators that are equal themselves. They are shared only if they are at
the same places, so sharing moves nothing. The one with the smallest id runs, and feeds what all of them fed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from peregrine.core.operator import OpSpec
from peregrine.core.validity import FedKeys, Feeds
from peregrine.errors import ConfigurationError
from peregrine.types import OpId, SourceId

SamePlaces = Callable[[OpId, OpId], bool]


@dataclass(frozen=True, slots=True)
class Input:
    """One input of an operator; `how` is what is done on the way (the output that is taken, the key by which)."""

    producer: OpId | SourceId
    how: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    op: OpId
    code: bytes  # equal bytes do the same; whoever compiles the application makes them
    groups: int
    inputs: tuple[Input, ...]


def shared(shapes: Sequence[Shape], same_places: SamePlaces) -> dict[OpId, OpId]:
    """For each operator the one that runs for it: itself, or an equal one with a smaller id."""
    runs: dict[OpId, OpId] = {}
    known: dict[tuple[object, ...], list[OpId]] = {}
    rest = {shape.op: shape for shape in sorted(shapes, key=lambda each: each.op)}
    while rest:
        ready = [s for s in rest.values() if all(given.producer not in rest for given in s.inputs)]
        if not ready:
            raise ConfigurationError(f"operators feed each other in a ring: {', '.join(rest)}", "break the ring")
        for shape in ready:
            inputs = tuple(_as_run(given, runs) for given in shape.inputs)
            twins = known.setdefault((shape.code, shape.groups, inputs), [])
            runs[shape.op] = next((twin for twin in twins if same_places(twin, shape.op)), shape.op)
            if runs[shape.op] == shape.op:
                twins.append(shape.op)
            del rest[shape.op]
    return runs


def _as_run(given: Input, runs: Mapping[OpId, OpId]) -> Input:
    producer = OpId(given.producer)
    return replace(given, producer=runs[producer]) if producer in runs else given


def merged(operators: Mapping[OpId, OpSpec], runs: Mapping[OpId, OpId]) -> dict[OpId, OpSpec]:
    """The operators that run, each feeding what its twins fed."""
    feeds: dict[OpId, dict[OpId, None]] = {}
    for op, spec in operators.items():
        feeds.setdefault(runs.get(op, op), {}).update(dict.fromkeys(runs.get(fed, fed) for fed in spec.feeds))
    return {op: replace(operators[op], feeds=tuple(fed)) for op, fed in feeds.items()}


def merged_feeds(feeds: Feeds, runs: Mapping[OpId, OpId]) -> dict[SourceId, FedKeys]:
    """What sources send when twins do not run: a row goes once to the one that runs for all."""
    return {
        source: tuple(each for each in fed if runs.get(each[0], each[0]) == each[0]) for source, fed in feeds.items()
    }
