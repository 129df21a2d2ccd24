"""Stateless successors run in the pass of the operator that feeds them: no log, no batch and no router in between.

An operator whose spec says `inline` takes nothing from devices, has no state and no clock. Its rows exist only inside
of whatever feeds it, so it is wherever its feeders are: nobody places or moves it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from peregrine.core.operator import Marks, Operator, OpSpec, Out, beside_windows, timing_of, with_windows
from peregrine.core.rows import UNCHAINED, Row
from peregrine.errors import ConfigurationError
from peregrine.types import OpId


@dataclass(frozen=True)
class Chain:
    """An operator together with all that runs inline behind it."""

    head: Operator
    inline: Mapping[OpId, Operator]

    @cached_property
    def time_from_rows(self) -> bool:
        return timing_of(self.head).time_from_rows

    @cached_property
    def clocks_to(self) -> tuple[tuple[OpId, int], ...]:
        return timing_of(self.head).clocks_to

    @cached_property
    def delay_ms(self) -> int:
        return timing_of(self.head).delay_ms

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        value, outs = self.head.on_row(key, value, row, marks)
        return value, self._through(outs, row.created_ms) if outs else outs

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        value, outs = self.head.on_clock(key, value, marks, now_ms)
        created_ms = now_ms if now_ms is not None else max(marks.values(), default=0)
        return value, self._through(outs, created_ms) if outs else outs

    def open_ends(self, value: Any) -> list[int]:
        return self.head.open_ends(value)

    def beside_windows(self, value: Any) -> Any:
        return beside_windows(self.head, value)

    def with_windows(self, beside: Any, value: Any) -> Any:
        return with_windows(self.head, beside, value)

    def _through(self, outs: list[Out], created_ms: int) -> list[Out]:
        done: list[Out] = []
        for out in outs:
            operator = self.inline.get(out.op)
            if operator is None:
                done.append(out)
                continue
            row = Row(out.key, out.source, out.seq, UNCHAINED, out.time_ms, created_ms, out.payload)
            _, after = operator.on_row(out.key, None, row, {out.source: out.time_ms})
            done += self._through(after, created_ms)
        return done


def chained(specs: Mapping[OpId, OpSpec], operators: Mapping[OpId, Operator]) -> dict[OpId, Operator]:
    """What hosts run: every operator that is not inline, with what is inline behind it."""
    inline = {op: operator for op, operator in operators.items() if specs[op].inline}
    return {
        op: Chain(operator, inline) if behind(specs, op) else operator
        for op, operator in operators.items()
        if op not in inline
    }


def deployed(specs: Mapping[OpId, OpSpec]) -> dict[OpId, OpSpec]:
    """What routers and the manager see: inline operators are parts of those that feed them."""
    check(specs)
    return {op: replace(spec, feeds=_feeds(specs, op)) for op, spec in specs.items() if not spec.inline}


def _feeds(specs: Mapping[OpId, OpSpec], op: OpId) -> tuple[OpId, ...]:
    inline = behind(specs, op)
    fed = [each for one in (op, *sorted(inline)) for each in specs[one].feeds]
    return tuple(dict.fromkeys(each for each in fed if each not in inline))


def behind(specs: Mapping[OpId, OpSpec], op: OpId) -> set[OpId]:
    """The inline operators that an operator feeds, directly or through others."""
    found: set[OpId] = set()
    todo = [op]
    while todo:
        for fed in specs[todo.pop()].feeds:
            if fed in specs and specs[fed].inline and fed not in found:
                found.add(fed)
                todo.append(fed)
    return found


def check(specs: Mapping[OpId, OpSpec]) -> None:
    """An inline operator must be able to run without a place."""
    for op, spec in specs.items():
        if spec.inline and not spec.stateless:
            raise ConfigurationError(f"{op} is inline and has state", "say stateless=True too, or leave out inline")
        if spec.inline and (spec.ticks or spec.windowed or spec.roaming):
            raise ConfigurationError(
                f"{op} is inline and wants clocks, windows or roaming sources", "leave out inline: it needs a place"
            )
        if spec.inline and not any(op in other.feeds for other in specs.values()):
            raise ConfigurationError(f"{op} is inline, and nothing feeds it", "name it in the feeds of an operator")
        if spec.inline and op in behind(specs, op):
            raise ConfigurationError(f"{op} feeds itself inline", "break the ring")


def in_order(specs: Mapping[OpId, OpSpec]) -> list[OpId]:
    """Operators before those that they feed."""
    ordered: list[OpId] = []
    left = dict(specs)
    while left:
        ready = [op for op in left if not any(op in spec.feeds for spec in left.values())]
        if not ready:
            raise ConfigurationError(f"operators feed each other in a ring: {', '.join(left)}", "break the ring")
        ordered += ready
        for op in ready:
            del left[op]
    return ordered
