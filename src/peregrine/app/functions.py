"""Stateless operators from plain functions: map, filter and flat_map."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from peregrine.app.logic import Emit, Key, Moment, Timeless


@dataclass(frozen=True)
class Map(Timeless):
    function: Callable[[Any], Any]

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        return None, [Emit(self.function(record), at.time_ms)]


@dataclass(frozen=True)
class Filter(Timeless):
    function: Callable[[Any], Any]

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        return None, [Emit(record, at.time_ms)] if self.function(record) else []


@dataclass(frozen=True)
class Side:
    """What a function of `flat_map` yields to put a record out on a side output."""

    name: str
    record: Any


@dataclass(frozen=True)
class FlatMap(Timeless):
    function: Callable[[Any], Iterable[Any]]
    sides: tuple[str, ...] = ()

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        return None, [
            Emit(made.record, at.time_ms, 1 + self.sides.index(made.name))
            if isinstance(made, Side)
            else Emit(made, at.time_ms)
            for made in self.function(record)
        ]


@dataclass(frozen=True)
class Pass(Timeless):
    """Hands records on: where several streams become one."""

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        return None, [Emit(record, at.time_ms)]
