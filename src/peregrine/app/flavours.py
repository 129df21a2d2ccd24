"""How rows go into a processor and come out: as `Row`s of PySpark, or as data frames of pandas.

    row     in: a real `Row`, as its code may unpack it or ask for its type; to what is not a PySpark class, a record.
            out: by name; columns that are missing are null, others are ignored. Tuples without names by position.
    pandas  in: a frame with one row; numbers that are null are NaN, times NaT.
            out: by name if columns have names (all must be there, others are ignored), else by position. NaN is null.

PySpark is not imported here: a processor's class has brought `Row` along, or its code cannot know of it.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, Protocol

from msgspec.structs import astuple

from peregrine.app.logic import Emit
from peregrine.app.schema import Record, Schema
from peregrine.app.user_values import changes_from_user, changes_to_user, checked, named
from peregrine.errors import ConfigurationError

Reader = Callable[[Any], Any]


class Flavour(Protocol):
    def reader(self, schema: Schema) -> Reader:
        """From a record to what `handleInputRows` iterates over."""
        ...

    def initial(self, schema: Schema, records: Sequence[Any]) -> list[Any]:
        """The initial state of a key, for each call of `handleInitialState`."""
        ...

    def emits(self, results: Iterable[Any] | None, time_ms: int) -> list[Emit]:
        """What a processor has given, as records of the output."""
        ...


class Rows:
    def __init__(self, processor: Any, output: Schema) -> None:
        self._row = _row_class(processor)
        self._output = output
        self._changes = changes_from_user(output)

    def reader(self, schema: Schema) -> Reader:
        if self._row is None:
            return lambda record: record
        make, changes = self._row(*schema.names), changes_to_user(schema)
        if not changes:
            return lambda record: make(*astuple(record))
        return lambda record: make(*_changed(record, changes))

    def initial(self, schema: Schema, records: Sequence[Any]) -> list[Any]:
        return list(map(self.reader(schema), records))

    def emits(self, results: Iterable[Any] | None, time_ms: int) -> list[Emit]:
        return [Emit(checked(self._output, self._fields(each), self._changes), time_ms) for each in results or ()]

    def _fields(self, result: Any) -> dict[str, Any]:
        fields = named(result)
        if fields is not None:
            return fields
        if not isinstance(result, tuple | list) or len(result) != len(self._output.types):
            raise ConfigurationError(
                f"a processor gave {result!r} as a row of ({self._output.ddl})", "give Rows with the names of columns"
            )
        return dict(zip(self._output.types, result, strict=True))


class Frames:
    def __init__(self, output: Schema) -> None:
        try:
            self._pandas: Any = import_module("pandas")
        except ImportError as error:
            raise ConfigurationError(
                "a processor works on pandas, which is not installed", "pip install 'peregrine-spark[spark]'"
            ) from error
        self._output = output
        self._changes = changes_from_user(output)

    def reader(self, schema: Schema) -> Reader:
        return lambda record: self._frame(schema, (record,))

    def initial(self, schema: Schema, records: Sequence[Any]) -> list[Any]:
        return [self._frame(schema, records)]

    def emits(self, results: Iterable[Any] | None, time_ms: int) -> list[Emit]:
        return [Emit(record, time_ms) for frame in results or () for record in self._of_frame(frame)]

    def _frame(self, schema: Schema, records: Sequence[Any]) -> Any:
        missing = [self._missing(of) for of in schema.types.values()]
        rows = [
            [nothing if value is None else _frame_value(value) for value, nothing in zip(record, missing, strict=True)]
            for record in records
        ]
        return self._pandas.DataFrame(rows, columns=list(schema.names))

    def _of_frame(self, frame: Any) -> list[Any]:
        names = list(self._output.names)
        if not isinstance(frame, self._pandas.DataFrame):
            raise ConfigurationError(
                f"a processor gave a {type(frame).__name__}", "give pandas data frames, or take the flavour row"
            )
        by_name = any(isinstance(column, str) for column in frame.columns)
        if (by_name and set(names) - set(frame.columns)) or (not by_name and len(frame.columns) != len(names)):
            raise ConfigurationError(
                f"a processor gave a frame with the columns {list(frame.columns)} for ({self._output.ddl})",
                "give all of these columns",
            )
        rows = (frame[names] if by_name else frame).itertuples(index=False, name=None)
        return [
            checked(self._output, {n: self._value(v) for n, v in zip(names, row, strict=True)}, self._changes)
            for row in rows
        ]

    def _missing(self, of: str) -> Any:
        if of.startswith("timestamp"):
            return self._pandas.NaT
        return float("nan") if of in ("bigint", "int", "smallint", "tinyint", "double", "float") else None

    def _value(self, value: Any) -> Any:
        if value is None or value is self._pandas.NA or value is self._pandas.NaT:
            return None
        return None if isinstance(value, float) and value != value else value


def flavour_of(name: str, processor: Any, output: Schema) -> Flavour:
    if name == "row":
        return Rows(processor, output)
    if name == "pandas":
        return Frames(output)
    raise ConfigurationError(f"a processor cannot have the flavour {name!r}", 'take "row" or "pandas"')


def _row_class(processor: Any) -> Any:
    for base in type(processor).__mro__:
        if base.__name__ == "StatefulProcessor":
            return getattr(sys.modules.get(base.__module__), "Row", None)
    return None


def _changed(record: Any, changes: dict[int, Any]) -> Sequence[Any]:
    changed = list(astuple(record))
    for at, change in changes.items():
        if changed[at] is not None:
            changed[at] = change(changed[at])
    return changed


def _frame_value(value: Any) -> Any:
    return value.asDict(True) if isinstance(value, Record) else value
