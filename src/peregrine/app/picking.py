"""Aggregates that keep values of records: the first, the last, those with the lowest or highest of another column, all,
the different ones; and `Fold`, which keeps what its functions say.
"""

import copy
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from peregrine.app.accumulated import identity, keep, kept
from peregrine.app.column_types import ordered_type
from peregrine.app.schema import Schema, schema_of


@dataclass(frozen=True)
class First:
    """The value in the first record: null if it is null there, unless nulls are left out.

    >>> print(First("gate"))
    first(gate)
    """

    column: str
    ignore_nulls: bool = False

    def __str__(self) -> str:
        return f"first({self.column})"

    def type(self, schema: Schema) -> str:
        return schema.types[schema.require(self.column, str(self))]

    def zero(self) -> list[Any]:
        return []

    def add(self, acc: list[Any], record: Any) -> list[Any]:
        if not acc:
            value = getattr(record, self.column)
            if value is not None or not self.ignore_nulls:
                acc.append(keep(value))
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return a or b[:]

    def result(self, acc: list[Any]) -> Any:
        return kept(acc[0]) if acc else None


@dataclass(frozen=True)
class Last:
    """The value in the last record: null if it is null there, unless nulls are left out.

    >>> print(Last("gate"))
    last(gate)
    """

    column: str
    ignore_nulls: bool = False

    def __str__(self) -> str:
        return f"last({self.column})"

    def type(self, schema: Schema) -> str:
        return schema.types[schema.require(self.column, str(self))]

    def zero(self) -> list[Any]:
        return []

    def add(self, acc: list[Any], record: Any) -> list[Any]:
        value = getattr(record, self.column)
        if value is not None or not self.ignore_nulls:
            acc[:] = (keep(value),)
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return b[:] or a

    def result(self, acc: list[Any]) -> Any:
        return kept(acc[0]) if acc else None


@dataclass(frozen=True)
class _ExtremeBy:
    """Keeps [the best `by`, its `of`]: what comes must be better."""

    of: str
    by: str
    name: ClassVar[str]
    better: ClassVar[Any]  # (Any, Any) -> bool

    def __str__(self) -> str:
        return f"{self.name}({self.of}, {self.by})"

    def type(self, schema: Schema) -> str:
        ordered_type(schema, self.by, str(self))
        return schema.types[schema.require(self.of, str(self))]

    def zero(self) -> list[Any]:
        return []

    def add(self, acc: list[Any], record: Any) -> list[Any]:
        by = getattr(record, self.by)
        if by is not None and (not acc or self.better(by, kept(acc[0]))):
            acc[:] = keep(by), keep(getattr(record, self.of))
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return b[:] if not a or (b and self.better(kept(b[0]), kept(a[0]))) else a

    def result(self, acc: list[Any]) -> Any:
        return kept(acc[1]) if acc else None


class MinBy(_ExtremeBy):
    """The value of `of` in the record in which `by` is lowest, the first of several. Nulls of `by` do not count.

    >>> print(MinBy("vehicle", "speed"))
    min_by(vehicle, speed)
    """

    name = "min_by"
    better = operator.lt


class MaxBy(_ExtremeBy):
    """The value of `of` in the record in which `by` is highest, the first of several. Nulls of `by` do not count.

    >>> print(MaxBy("vehicle", "speed"))
    max_by(vehicle, speed)
    """

    name = "max_by"
    better = operator.gt


@dataclass(frozen=True)
class Collect:
    """All values, without nulls.

    >>> print(Collect("speed"))
    collect(speed)
    """

    column: str

    def __str__(self) -> str:
        return f"collect({self.column})"

    def type(self, schema: Schema) -> str:
        return f"array<{schema.types[schema.require(self.column, str(self))]}>"

    def zero(self) -> list[Any]:
        return []

    def add(self, acc: list[Any], record: Any) -> list[Any]:
        value = getattr(record, self.column)
        if value is not None:
            acc.append(keep(value))
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        a += b
        return a

    def result(self, acc: list[Any]) -> list[Any]:
        return [kept(value) for value in acc]


@dataclass(frozen=True)
class CountDistinct:
    """How many different values, without null. Exact: it remembers them.

    >>> print(CountDistinct("vehicle"))
    count_distinct(vehicle)
    """

    column: str

    def __str__(self) -> str:
        return f"count_distinct({self.column})"

    def type(self, schema: Schema) -> str:
        schema.require(self.column, str(self))
        return "bigint"

    def zero(self) -> dict[str | int, int]:
        return {}

    def add(self, acc: dict[str | int, int], record: Any) -> dict[str | int, int]:
        value = getattr(record, self.column)
        if value is not None:
            acc[identity(value)] = 1
        return acc

    def merge(self, a: dict[str | int, int], b: dict[str | int, int]) -> dict[str | int, int]:
        a.update(b)
        return a

    def result(self, acc: dict[str | int, int]) -> int:
        return len(acc)


class Fold:
    """An aggregate of your own: `add(acc, record)` and `merge(a, b)` give accumulators, which are what msgpack carries.

    `add` may change and return `acc`, `merge` may change and return `a`; if accumulators are changed in place, never
    `b`. `result(acc)`, if given, makes the value of one.

    >>> longest = Fold("", lambda acc, word: max(acc, word.text, key=len), lambda a, b: max(a, b, key=len), "string")
    >>> longest.add("ox", schema_of("text string").record("yak"))
    'yak'
    """

    def __init__(
        self,
        zero: Any,
        add: Callable[[Any, Any], Any],
        merge: Callable[[Any, Any], Any],
        type: str,
        result: Callable[[Any], Any] | None = None,
    ) -> None:
        self._zero, self._add, self._merge, self._result = zero, add, merge, result
        self._type = schema_of(f"value {type}").types["value"]

    def __str__(self) -> str:
        return f"fold({getattr(self._add, '__name__', self._add)})"

    def type(self, schema: Schema) -> str:
        return self._type

    def zero(self) -> Any:
        return copy.deepcopy(self._zero)

    def add(self, acc: Any, record: Any) -> Any:
        return self._add(acc, record)

    def merge(self, a: Any, b: Any) -> Any:
        return self._merge(a, b)

    def result(self, acc: Any) -> Any:
        return acc if self._result is None else self._result(acc)
