"""From the plan that users wrote to what routers and hosts run.

Operators without state that are fed by operators run inside of those (core/chain.py). Every other one gets a shell. Who
must be told how far event time has come is worked out here: devices tell operators, and operators tell those behind
them (decision 0017). Several applications are one plan, in which equal operators may run once (sharing.py).
"""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from peregrine.app.model import App
from peregrine.app.plan import Input, Node, SourceNode, TransformNode, consumers
from peregrine.app.schema import Keying, Schema
from peregrine.app.sharing import merged
from peregrine.app.shell import Shell, Target
from peregrine.app.watermark import Watermark
from peregrine.core.operator import Operator, OpSpec
from peregrine.core.source import Reading
from peregrine.errors import ConfigurationError
from peregrine.types import OpId, SourceId

_EPOCH = datetime.datetime(1970, 1, 1)
_MS = datetime.timedelta(milliseconds=1)


@dataclass(frozen=True)
class Ingress:
    """How records of a source become readings for the operators that take them."""

    name: str
    schema: Schema
    keying: Keying | None
    event_time: str | None
    targets: tuple[Target, ...]
    clocked: tuple[tuple[OpId, int], ...]  # operators that want to be told how far event time has come, their groups
    roaming: bool
    senders: tuple[SourceId, ...] | None

    def readings(self, given: Any, sender: str, now_ms: int) -> list[Reading]:
        record = self.schema.record_of(given)
        encoded = self.schema.encode(record)
        time_ms = self.time_ms(record, now_ms)
        own = self.keying.text(record) if self.keying is not None else sender
        return [
            Reading(
                target.op,
                own if target.keying is None else target.keying.text(record),
                time_ms,
                now_ms,
                target.payload(encoded),
            )
            for target in self.targets
        ]

    def time_ms(self, record: Any, now_ms: int) -> int:
        if self.event_time is None:
            return now_ms
        found = getattr(record, self.event_time)
        if found is None:
            raise ValueError(f"the event time {self.event_time} is null")
        return found if isinstance(found, int) else (found - _EPOCH) // _MS


@dataclass(frozen=True)
class Compiled:
    name: str
    specs: dict[OpId, OpSpec]
    operators: dict[OpId, Operator]
    sources: dict[str, Ingress]
    results: dict[str, tuple[OpId, Schema]]
    keyings: dict[OpId, Keying | None]
    transforms: dict[OpId, tuple[TransformNode, tuple[Target, ...]]]


def compile_app(app: App) -> Compiled:
    """Raises an error that says what is missing if the application cannot run."""
    (compiled,) = compile_apps([app])
    return compiled


def compile_apps(apps: Sequence[App], twins: Mapping[OpId, OpId] | None = None) -> list[Compiled]:
    """Applications with different names. `twins`: operators that do not run, each with the equal one that runs for it;
    that one is part of its own application alone, and feeds what both of them feed.
    """
    for app in apps:
        _check(app)
    nodes = merged([node for app in apps for node in app.nodes], twins or {})
    plan = _Plan(nodes)
    return [_compiled(app.name, [node for node in nodes if node.app == app.name], plan) for app in apps]


def _check(app: App) -> None:
    if not any(node.kind == "result" for node in app.nodes):
        raise ConfigurationError(f"the application {app.name!r} has no result", 'say where a stream goes: .to("name")')
    for node in app.nodes:
        if node.outputs and not any(consumers(app.nodes, node)):
            raise ConfigurationError(
                f"{node.where}: nobody takes what {node.name!r} puts out", "use it, or take it out"
            )


def _compiled(name: str, nodes: list[Node], plan: "_Plan") -> Compiled:
    operators: dict[OpId, Operator] = {}
    specs: dict[OpId, OpSpec] = {}
    sources: dict[str, Ingress] = {}
    for node in nodes:
        if isinstance(node, SourceNode):
            sources[node.name] = plan.ingress(node)
        else:
            specs[node.op] = plan.spec(node)
            if node.logic is not None:
                operators[node.op] = plan.shell(node)
    return Compiled(
        name,
        specs,
        operators,
        sources,
        {node.name: (node.op, node.inputs[0].schema) for node in nodes if node.kind == "result"},
        {node.op: node.keying for node in nodes},
        {node.op: (node, plan.targets(node, 0)) for node in nodes if isinstance(node, TransformNode)},
    )


class _Plan:
    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes

    def targets(self, node: Node, output: int) -> tuple[Target, ...]:
        return tuple(
            Target(fed.op, fed.inputs[number].keying, self.labels(fed)[number])
            for given, fed, number in consumers(self.nodes, node)
            if given == output
        )

    def labels(self, node: Node) -> list[str]:
        """What stands around records of each input. One input needs none; nor do streams that become one."""
        if len(node.inputs) == 1 or node.kind == "union":
            return [""] * len(node.inputs)
        return [f"{number}.{given.node.name}" for number, given in enumerate(node.inputs)]

    def fed(self, node: Node) -> Iterator[Node]:
        """The operators with a place that a node feeds, directly or through inline ones."""
        for _, other, _ in consumers(self.nodes, node):
            if other.inline:
                yield from self.fed(other)
            else:
                yield other

    def heads(self, given: Input) -> Iterator[Node]:
        """The sources and operators with a place that an input comes from."""
        if given.node.inline:
            for before in given.node.inputs:
                yield from self.heads(before)
        else:
            yield given.node

    def wants_clocks(self, node: Node) -> bool:
        if isinstance(node, TransformNode) and any(self.wants_clocks(fed) for fed in self.fed(node)):
            raise ConfigurationError(
                f"{node.where}: windows in event time behind the DataFrame operator {node.name!r}",
                "put the windows before it: a DataFrame operator does not know how far event time has come",
            )
        if node.logic is None:
            return False
        return node.logic.event_time or any(self.wants_clocks(fed) for fed in self.fed(node))

    def clocked(self, node: Node) -> tuple[tuple[OpId, int], ...]:
        found = {fed.op: fed.groups for fed in self.fed(node) if self.wants_clocks(fed)}
        return tuple(found.items())

    def time_sources(self, node: Node) -> tuple[SourceId, ...] | None:
        """By which names a node hears of event time; None if that is not known beforehand."""
        found: dict[SourceId, None] = {}
        for head in (head for given in node.inputs for head in self.heads(given)):
            if isinstance(head, SourceNode):
                names = head.senders
            else:
                before = self.time_sources(head)
                names = None if before is None else tuple(SourceId(f"{head.op}/{name}") for name in before)
            if names is None:
                return None
            found |= dict.fromkeys(names)
        return tuple(found)

    def sources(self, node: Node) -> list[SourceNode]:
        return [given.node for given in node.inputs if isinstance(given.node, SourceNode)]

    def lost_after_ms(self, node: Node) -> int | None:
        """Behind an operator as well: it passes on nothing of a source that is lost."""
        heads = [head for given in node.inputs for head in self.heads(given)]
        found = [head.lost_after_ms if isinstance(head, SourceNode) else self.lost_after_ms(head) for head in heads]
        return max((each for each in found if each is not None), default=None)

    def shell(self, node: Node) -> Shell:
        assert node.logic is not None
        direct = self.sources(node)
        return Shell(
            node.op,
            node.logic,
            node.keying,
            tuple((label, given.schema) for label, given in zip(self.labels(node), node.inputs, strict=True))[
                : 1 if node.kind == "union" else None
            ],
            tuple((output.schema, self.targets(node, number)) for number, output in enumerate(node.outputs)),
            node.stateless,
            Watermark(
                self.time_sources(node),
                max((source.delay_ms for source in direct), default=0),
                self.lost_after_ms(node) if node.logic.event_time else None,
            ),
            time_from_rows=len(direct) == len(node.inputs),
            clocks_to=() if node.inline else self.clocked(node),
        )

    def spec(self, node: Node) -> OpSpec:
        logic = node.logic
        event_time = logic is not None and logic.event_time
        return OpSpec(
            node.op,
            node.groups,
            stateless=node.stateless,
            inline=node.inline,
            windowed=bool(getattr(logic, "windowed", False)),
            roaming=any(source.roaming for source in self.sources(node)),
            ticks=logic is not None
            and (logic.processing_time or (event_time and self.lost_after_ms(node) is not None)),
            sink=node.kind == "result",
            feeds=tuple(dict.fromkeys(fed.op for _, fed, _ in consumers(self.nodes, node))),
        )

    def ingress(self, node: SourceNode) -> Ingress:
        return Ingress(
            node.name,
            node.outputs[0].schema,
            node.source_keying,
            node.event_time,
            self.targets(node, 0),
            self.clocked(node),
            node.roaming,
            node.senders,
        )
