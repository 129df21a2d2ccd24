"""Operators that several applications share: where sub-plans are equal, one of them runs for all.

Two operators of different applications are equal if they do the same (`code`), divide their keys into the same groups,
and are fed by equal producers in the same way: the same sources, or operators that are equal themselves. They are
shared only if they are at the same places, so sharing moves nothing. The one with the smallest id runs. Within an
application nothing is shared: whoever takes both of two equal streams would get every row twice by one name.

What is equal, and what becomes of it, is said in app/sharing.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from peregrine.errors import ConfigurationError
from peregrine.plan.redeploy.layout import AppId, app_of
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
    known: dict[tuple[object, ...], dict[OpId, set[AppId]]] = {}  # equal ones that run, and for whom
    rest = {shape.op: shape for shape in sorted(shapes, key=lambda each: each.op)}
    while rest:
        ready = [s for s in rest.values() if all(given.producer not in rest for given in s.inputs)]
        if not ready:
            raise ConfigurationError(f"operators feed each other in a ring: {', '.join(rest)}", "break the ring")
        for shape in ready:
            inputs = tuple(_as_run(given, runs) for given in shape.inputs)
            twins = known.setdefault((shape.code, shape.groups, inputs), {})
            app = app_of(shape.op)
            fit = (twin for twin, apps in twins.items() if app not in apps and same_places(twin, shape.op))
            runs[shape.op] = next(fit, shape.op)
            twins.setdefault(runs[shape.op], set()).add(app)
            del rest[shape.op]
    return runs


def _as_run(given: Input, runs: Mapping[OpId, OpId]) -> Input:
    producer = OpId(given.producer)
    return replace(given, producer=runs[producer]) if producer in runs else given
