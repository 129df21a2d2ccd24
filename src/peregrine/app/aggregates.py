"""What can be told of many records by looking at each of them once.

An aggregate folds records into an accumulator, merges accumulators, and makes a value of one. Accumulators are what
msgpack carries (app/accumulated.py). Nulls count as in Spark SQL: they are left out, but by `Count()`, and by `First`
and `Last` unless asked. Where order matters (`First`, `Last`, `Collect`), it is the order in which records come; parts
of a window that are kept apart (the panes of a sliding one, sessions that become one) follow each other in time.
"""

import operator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Protocol, runtime_checkable

from peregrine.app.accumulated import EXACT, keep, kept
from peregrine.app.column_types import WHOLE, digits_of, number_type, ordered_type
from peregrine.app.picking import Collect, CountDistinct, First, Fold, Last, MaxBy, MinBy
from peregrine.app.schema import Schema
from peregrine.errors import ConfigurationError

__all__ = [
    "Aggregate",
    "Count",
    "Sum",
    "Avg",
    "Min",
    "Max",
    "First",
    "Last",
    "MinBy",
    "MaxBy",
    "Collect",
    "CountDistinct",
    "Fold",
]

_BIGINT = 1 << 63


@runtime_checkable
class Aggregate(Protocol):
    """`add` may change and return `acc`. `merge` may change and return `a`, never `b`; `a` is of earlier records."""

    def type(self, schema: Schema) -> str:
        """The Spark type of its column, for records of this schema."""
        ...

    def zero(self) -> Any: ...

    def add(self, acc: Any, record: Any) -> Any: ...

    def merge(self, a: Any, b: Any) -> Any: ...

    def result(self, acc: Any) -> Any: ...


@dataclass(frozen=True)
class Count:
    """How many records, or how many in which a column is not null.

    >>> print(Count(), Count("speed"))
    count(*) count(speed)
    """

    column: str | None = None

    def __str__(self) -> str:
        return f"count({self.column or '*'})"

    def type(self, schema: Schema) -> str:
        if self.column is not None:
            schema.require(self.column, str(self))
        return "bigint"

    def zero(self) -> int:
        return 0

    def add(self, acc: int, record: Any) -> int:
        return acc if self.column is not None and getattr(record, self.column) is None else acc + 1

    def merge(self, a: int, b: int) -> int:
        return a + b

    def result(self, acc: int) -> int:
        return acc


@dataclass(frozen=True)
class Sum:
    """Null without values. Whole numbers become a bigint, others a double, decimals stay exact.

    >>> print(Sum("amount"))
    sum(amount)
    """

    column: str

    def __str__(self) -> str:
        return f"sum({self.column})"

    def type(self, schema: Schema) -> str:
        of = number_type(schema, self.column, str(self))
        if of.startswith("decimal"):
            digits, scale = digits_of(of)
            return f"decimal({min(38, digits + 10)},{scale})"
        return "bigint" if of in WHOLE else "double"

    def zero(self) -> Any:
        return None

    def add(self, acc: Any, record: Any) -> Any:
        value = getattr(record, self.column)
        if value is None:
            return acc
        return keep(value) if acc is None else self._plus(acc, value)

    def merge(self, a: Any, b: Any) -> Any:
        if a is None or b is None:
            return b if a is None else a
        return self._plus(a, kept(b))

    def result(self, acc: Any) -> Any:
        return kept(acc)

    def _plus(self, acc: Any, value: Any) -> Any:
        if type(acc) is bytes:
            return keep(EXACT.add(kept(acc), value))
        total = acc + value
        if type(total) is int and not -_BIGINT <= total < _BIGINT:
            raise ConfigurationError(f"{self} does not fit a bigint", f"make {self.column} a double or a decimal first")
        return total


@dataclass(frozen=True)
class Avg:
    """A double, of decimals a decimal with four more digits; null without values.

    >>> print(Avg("speed"))
    avg(speed)
    """

    column: str

    def __str__(self) -> str:
        return f"avg({self.column})"

    def type(self, schema: Schema) -> str:
        of = number_type(schema, self.column, str(self))
        if not of.startswith("decimal"):
            return "double"
        digits, scale = digits_of(of)
        return f"decimal({min(38, digits + 4)},{min(38, scale + 4)})"

    def zero(self) -> list[Any]:
        return [0.0, 0]

    def add(self, acc: list[Any], record: Any) -> list[Any]:
        value = getattr(record, self.column)
        if value is not None:
            if type(value) is Decimal:
                return self.merge(acc, [keep(value), 1])
            acc[0] += value
            acc[1] += 1
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        count = b[1]
        if count:
            if type(b[0]) is bytes:
                a[0] = keep(EXACT.add(kept(a[0]), kept(b[0]))) if a[1] else b[0]
            else:
                a[0] += b[0]
            a[1] += count
        return a

    def result(self, acc: list[Any]) -> Any:
        total, count = acc
        if not count:
            return None
        if type(total) is not bytes:
            return total / count
        return EXACT.divide(kept(total), Decimal(count))


@dataclass(frozen=True)
class _Extreme:
    """Keeps one value: what is there stays where it is no worse than what comes."""

    column: str
    name: ClassVar[str]
    no_worse: ClassVar[Any]  # (Any, Any) -> bool

    def __str__(self) -> str:
        return f"{self.name}({self.column})"

    def type(self, schema: Schema) -> str:
        return ordered_type(schema, self.column, str(self))

    def zero(self) -> Any:
        return None

    def add(self, acc: Any, record: Any) -> Any:
        value = getattr(record, self.column)
        if value is None or (acc is not None and self.no_worse(kept(acc), value)):
            return acc
        return keep(value)

    def merge(self, a: Any, b: Any) -> Any:
        if a is None or b is None:
            return b if a is None else a
        return a if self.no_worse(kept(a), kept(b)) else b

    def result(self, acc: Any) -> Any:
        return kept(acc)


class Min(_Extreme):
    """The lowest value; null without values.

    >>> print(Min("speed"))
    min(speed)
    """

    name = "min"
    no_worse = operator.le


class Max(_Extreme):
    """The highest value; null without values.

    >>> print(Max("speed"))
    max(speed)
    """

    name = "max"
    no_worse = operator.ge
