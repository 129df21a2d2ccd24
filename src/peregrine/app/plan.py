"""The logical plan of an application: what users have written, as a graph of nodes.

A node has inputs (outputs of other nodes, with the key by which it wants them) and outputs (the main one first, then
side outputs). Nodes exist before what they feed, so a plan has no rings.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peregrine.app.logic import Logic
from peregrine.app.schema import Keying, Schema
from peregrine.types import OpId, SourceId

_HERE = str(Path(__file__).parent)


@dataclass(frozen=True)
class Output:
    name: str
    schema: Schema


@dataclass(frozen=True, eq=False)
class Input:
    node: "Node"
    output: int
    keying: Keying | None  # None: whatever key a record has where it comes from

    @property
    def schema(self) -> Schema:
        return self.node.outputs[self.output].schema


@dataclass(eq=False)
class Node:
    """`kind` is what users call it: source, map, window, join, ..., result."""

    app: str
    name: str
    kind: str
    where: str  # file and line at which it was defined
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    logic: Logic | None = None  # None for sources, results and DataFrame operators
    stateless: bool = False
    code: tuple[Any, ...] = ()  # what of it users wrote: functions, processors
    about: str = ""  # one phrase for people
    groups: int = 16

    @property
    def op(self) -> OpId:
        """Results have names of their own: one is often called as the operator whose output it is."""
        return OpId(f"{self.app}/results/{self.name}" if self.kind == "result" else f"{self.app}/{self.name}")

    @property
    def inline(self) -> bool:
        """Without state, behind operators only: it runs within what feeds it."""
        return self.stateless and self.logic is not None and all(given.node.logic is not None for given in self.inputs)

    @property
    def keying(self) -> Keying | None:
        return self.inputs[0].keying if self.inputs else None


@dataclass(eq=False)
class SourceNode(Node):
    event_time: str | None = None
    delay_ms: int = 0
    senders: tuple[SourceId, ...] | None = None  # None: those that a key has heard of
    lost_after_ms: int | None = None
    roaming: bool = False
    source_keying: Keying | None = None  # of records that go to operators without a key


@dataclass(eq=False)
class TransformNode(Node):
    """A function from DataFrame to DataFrame: a Spark query of its own, which knows no keys and no state."""

    transform: Callable[[Any], Any] = field(default=lambda frame: frame)


def place_of_definition() -> str:
    """Where in the user's code we are."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}, line {frame.f_lineno}"


def consumers(nodes: list[Node], node: Node) -> Iterator[tuple[int, Node, int]]:
    """(output of `node`, who is fed by it, as which of its inputs)."""
    for other in nodes:
        for number, given in enumerate(other.inputs):
            if given.node is node:
                yield given.output, other, number
