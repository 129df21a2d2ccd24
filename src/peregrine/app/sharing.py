"""Where the plans of several applications are equal, and what they are as one plan, in which equal operators run once.

Operators do the same if they are the same bytes when they are pickled: these are what hosts run. A function that is
written twice is two functions (its file and line travel with it), so it is not shared, which is always right.

A source is the same for two applications if its name, schema and settings are: devices that send to the name send to
both. DataFrame operators are not shared: as a rule they run in the process that defined them, and need not be such
that they can be pickled. Nor are results: each application has its own.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from peregrine.app.model import App
from peregrine.app.plan import Node, SourceNode
from peregrine.plan.redeploy.sharing import Input, SamePlaces, Shape, shared
from peregrine.types import OpId, SourceId

Dumps = Callable[[Any], bytes]


def twins_of(apps: Sequence[App], same_places: SamePlaces, dumps: Dumps) -> dict[OpId, OpId]:
    """The operators that need not run, each with the equal one of another application that runs for it."""
    return {op: runs for op, runs in shared(shapes(apps, dumps), same_places).items() if runs != op}


def shapes(apps: Sequence[App], dumps: Dumps) -> list[Shape]:
    """What is compared of all operators that can be shared."""
    nodes = [node for app in apps for node in app.nodes]
    ambiguous = _ambiguous_sources(nodes)
    return [
        Shape(
            node.op,
            _code(node, dumps),
            node.groups,
            tuple(
                Input(_producer(given.node, ambiguous), repr((given.output, given.keying and given.keying.columns)))
                for given in node.inputs
            ),
        )
        for node in nodes
        if node.logic is not None
    ]


def merged(nodes: Sequence[Node], twins: Mapping[OpId, OpId]) -> list[Node]:
    """One plan of the nodes that run, each fed by those that run. What users have is left as it is."""
    made = {node.op: replace(node) for node in nodes if node.op not in twins}
    for node in made.values():
        node.inputs = tuple(replace(given, node=made[twins.get(given.node.op, given.node.op)]) for given in node.inputs)
    return list(made.values())


def _ambiguous_sources(nodes: Sequence[Node]) -> set[str]:
    """Names of sources that are of different schemas in different applications: nobody can send to all of them at once,
    and what is sent to one application alone must not reach another.
    """
    schemas: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, SourceNode):
            schemas.setdefault(node.name, set()).add(node.outputs[0].schema.ddl)
    return {name for name, found in schemas.items() if len(found) > 1}


def _producer(node: Node, ambiguous: Collection[str]) -> OpId | SourceId:
    if not isinstance(node, SourceNode) or node.name in ambiguous:
        return node.op
    settings = (
        node.name,
        node.outputs[0].schema.ddl,
        node.event_time,
        node.delay_ms,
        node.senders,
        node.lost_after_ms,
        node.roaming,
        node.source_keying and node.source_keying.columns,
    )
    return SourceId(repr(settings))


def _code(node: Node, dumps: Dumps) -> bytes:
    outputs = [(output.name, output.schema.ddl) for output in node.outputs]
    return dumps((node.kind, node.stateless, outputs, node.logic))
