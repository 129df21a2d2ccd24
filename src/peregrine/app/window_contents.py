"""What is kept of the records of a window, and what is told of them when it ends.

Windows are kept in parts (panes, sessions that become one, counts), so contents can be merged. They know nothing of
time: when a window ends, and which records are in it, is the business of app/time_windows.py and its neighbours.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from functools import reduce
from operator import call, itemgetter
from typing import Any, Protocol

from peregrine.app.accumulated import EXACT
from peregrine.app.aggregates import Aggregate, Avg, Count, Max, Min, Sum
from peregrine.app.column_types import digits_of
from peregrine.app.logic import Key
from peregrine.app.picking import Collect, CountDistinct, First, Last, MaxBy, MinBy
from peregrine.app.schema import Keying, Schema, schema_of
from peregrine.app.windows import Span
from peregrine.errors import ConfigurationError

START, END = "window_start_ms", "window_end_ms"
_BOUNDED = frozenset({Count, Sum, Avg, Min, Max, First, Last, MinBy, MaxBy})
_KNOWN = _BOUNDED | {Collect, CountDistinct}


class Contents(Protocol):
    bounded: bool  # does not grow with the number of records

    def zero(self) -> Any: ...

    def add(self, acc: Any, record: Any, time_ms: int) -> Any:
        """May change and return `acc`."""
        ...

    def merge(self, parts: Sequence[Any]) -> Any:
        """One of at least one, in the order of time. Changes none; of a single one, it is that one."""
        ...

    def results(self, key: Key, span: Span | None, acc: Any) -> Iterable[Any]:
        """Records of the output. Windows of records have no span."""
        ...


class Aggregated:
    """One accumulator for each aggregate. Results are the key, the window if it has times, and the aggregates."""

    def __init__(self, schema: Schema, keying: Keying, aggregates: Mapping[str, Aggregate], timed: bool) -> None:
        columns = {column: schema.types[column] for column in keying.columns}
        if timed:
            if taken := [name for name in (START, END) if name in columns]:
                raise ConfigurationError(
                    f"a window names its own times, and the key has a column {taken[0]!r}",
                    "rename that column before: .map(...) with another schema",
                )
            columns |= {START: "bigint", END: "bigint"}
        if not aggregates:
            raise ConfigurationError("an aggregation of nothing", 'name aggregates, like average=Avg("speed")')
        for name, aggregate in aggregates.items():
            if isinstance(aggregate, type) or not isinstance(aggregate, Aggregate):
                raise ConfigurationError(
                    f"{name} = {aggregate!r} is not an aggregate", 'give Count(), Avg("column") or another one'
                )
            if name in columns:
                raise ConfigurationError(f"two columns are named {name!r}", "rename the aggregate")
            columns[name] = aggregate.type(schema)
        self.schema = schema_of(", ".join(f"{name} {type_}" for name, type_ in columns.items()))
        self._zeros = [each.zero for each in aggregates.values()]
        self._adds = list(enumerate(each.add for each in aggregates.values()))
        self._merges = [(at, each.zero, each.merge) for at, each in enumerate(aggregates.values())]
        self._results = [
            _rounded(each.result, columns[name]) if columns[name].startswith("decimal") else each.result
            for name, each in aggregates.items()
        ]
        # What others compute may not be of the type that they say, and structs come back as dicts: these are converted.
        known = all(type(each) in _KNOWN for each in aggregates.values())
        nested = any("<" in columns[name] for name in aggregates)
        self._make: Callable[..., Any] = self.schema.record if known and not nested else self._converted
        self.bounded = all(type(each) in _BOUNDED for each in aggregates.values())

    def zero(self) -> list[Any]:
        return [zero() for zero in self._zeros]

    def add(self, acc: list[Any], record: Any, time_ms: int) -> list[Any]:
        for at, add in self._adds:
            acc[at] = add(acc[at], record)
        return acc

    def merge(self, parts: Sequence[list[Any]]) -> list[Any]:
        if len(parts) == 1:
            return parts[0]
        return [reduce(merge, [part[at] for part in parts], zero()) for at, zero, merge in self._merges]

    def results(self, key: Key, span: Span | None, acc: list[Any]) -> list[Any]:
        values = map(call, self._results, acc)
        return [self._make(*key, *values) if span is None else self._make(*key, *span, *values)]

    def _converted(self, *values: Any) -> Any:
        return self.schema.record_of(values)


class Rows:
    """All records, for a function of users: in the order of event time, of windows of records in that of arrival."""

    bounded = False

    def __init__(self, schema: Schema, function: Callable[[Key, Span, list[Any]], Any], output: Schema) -> None:
        self.schema = output
        self._function, self._input = function, schema

    def zero(self) -> list[Any]:
        return []

    def add(self, acc: list[Any], record: Any, time_ms: int) -> list[Any]:
        acc.append((time_ms, self._input.encode(record)))
        return acc

    def merge(self, parts: Sequence[list[Any]]) -> list[Any]:
        return parts[0] if len(parts) == 1 else [row for part in parts for row in part]

    def results(self, key: Key, span: Span | None, acc: list[Any]) -> list[Any]:
        if span is None:
            times = [time_ms for time_ms, _ in acc]
            span = Span(min(times), max(times) + 1)
        else:
            acc = sorted(acc, key=itemgetter(0))
        records = [self._input.decode(encoded) for _, encoded in acc]
        return [self.schema.record_of(each) for each in self._function(key, span, records) or ()]


class Reduced:
    """One record, made of all by a function of two."""

    bounded = True

    def __init__(self, schema: Schema, function: Callable[[Any, Any], Any]) -> None:
        self.schema = schema
        self._function = function

    def zero(self) -> bytes | None:
        return None

    def add(self, acc: bytes | None, record: Any, time_ms: int) -> bytes:
        if acc is None:
            return self.schema.encode(record)
        return self.schema.encode(self._function(self.schema.decode(acc), record))

    def merge(self, parts: Sequence[bytes]) -> bytes:
        acc = parts[0]
        for part in parts[1:]:
            acc = self.add(acc, self.schema.decode(part), 0)
        return acc

    def results(self, key: Key, span: Span | None, acc: bytes) -> list[Any]:
        return [self.schema.decode(acc)]


def _rounded(result: Callable[[Any], Any], type_: str) -> Callable[[Any], Any]:
    """With as many digits behind the point as its type has."""
    unit = Decimal(1).scaleb(-digits_of(type_)[1])

    def rounded(acc: Any) -> Any:
        value = result(acc)
        return value.quantize(unit, ROUND_HALF_UP, EXACT) if isinstance(value, Decimal) else value

    return rounded
