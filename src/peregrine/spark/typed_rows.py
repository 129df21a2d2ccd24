"""Rows of an operator as typed columns for a DataFrame, and columns of a DataFrame as rows for whoever is fed.

Beside the columns of its schema a DataFrame operator sees `_key`, `_time_ms` and `_created_ms`. Rows of its result that
still have them keep their key and their times; others get the latest of what it was given.
"""

# pyspark is optional, also where types are checked.
# mypy: disable-error-code="import-not-found"

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from peregrine.app.schema import Schema
from peregrine.app.shell import Target
from peregrine.core.rows import UNCHAINED, Row
from peregrine.errors import ConfigurationError
from peregrine.types import OpId, SourceId

HIDDEN = {"_key": "string", "_time_ms": "bigint", "_created_ms": "bigint"}
_NUMBER_BITS = 24  # outputs of one row have so many numbers


class Taken(NamedTuple):
    """A row that could be read: where it lies in the log, and its columns."""

    offset: int
    row: Row
    columns: dict[str, Any]


class Unread(NamedTuple):
    """A row that could not be read, or the position and the content of one that could not be put out."""

    offset: int
    row: Row
    reason: str


class Reader:
    def __init__(self, schema: Schema) -> None:
        hidden = ", ".join(f"{name} {kind}" for name, kind in HIDDEN.items())
        self.struct = _struct(f"{schema.ddl}, {hidden}")
        self._schema = schema
        self._nested = "struct<" in schema.ddl
        self._arrow = to_arrow_schema(self.struct, timezone="UTC")

    def read(self, offsets: Sequence[int], rows: Sequence[Row]) -> tuple[list[Taken], list[Unread]]:
        taken: list[Taken] = []
        unread: list[Unread] = []
        for offset, row in zip(offsets, rows, strict=True):
            try:
                record = self._schema.decode(row.payload)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                unread.append(Unread(offset, row, f"{type(error).__name__}: {error}"))
                continue
            hidden = (row.key, row.time_ms, row.created_ms)
            taken.append(Taken(offset, row, record.asDict(self._nested) | dict(zip(HIDDEN, hidden, strict=True))))
        try:
            self.table(taken)
        except (pa.ArrowException, OverflowError):
            return self._one_by_one(taken, unread)
        return taken, unread

    def table(self, taken: Sequence[Taken]) -> pa.Table:
        return pa.Table.from_pylist([each.columns for each in taken], schema=self._arrow)

    def _one_by_one(self, all_: list[Taken], unread: list[Unread]) -> tuple[list[Taken], list[Unread]]:
        """A value may be JSON of the right kind and still not fit: a number that is too large for its column."""
        taken: list[Taken] = []
        for each in all_:
            try:
                self.table([each])
            except (pa.ArrowException, OverflowError) as error:
                unread.append(Unread(each.offset, each.row, f"{type(error).__name__}: {error}"))
            else:
                taken.append(each)
        return taken, sorted(unread)


def _struct(ddl: str) -> StructType:
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType), "several columns are a struct"
    return found


class Writer:
    """Numbers grow with the log, so that the outputs of a place are a line of their own for whoever is fed."""

    def __init__(self, op: OpId, place: str, schema: Schema, targets: Sequence[Target]) -> None:
        self.source = SourceId(f"{op}>{place}")
        self._schema = schema
        self._targets = targets

    def select(self, frame: Any) -> Any:
        """What there must be in a result, as the schema says, and what there may be."""
        given = set(frame.columns)
        missing = [name for name in self._schema.names if name not in given]
        if missing:
            raise ConfigurationError(
                f"the result has no column {', '.join(missing)}; it has {', '.join(frame.columns)}",
                f"give it the columns of its schema: {self._schema.ddl}",
            )
        kinds = {**self._schema.types, **{name: kind for name, kind in HIDDEN.items() if name in given}}
        return frame.select(*(frame[name].cast(kind).alias(name) for name, kind in kinds.items()))

    def write(
        self, results: pa.Table, of: Sequence[Taken], numbers: Iterator[int]
    ) -> Iterator[tuple[OpId, Row] | Unread]:
        """Rows for each target. `numbers` go on from result to result of a stretch of the log."""
        latest = (of[-1].row.key, max(each.row.time_ms for each in of), max(each.row.created_ms for each in of))
        names = results.column_names
        columns = [results.column(name).to_pylist() if name in names else [None] * len(results) for name in HIDDEN]
        records = results.select(list(self._schema.names)).cast(_naive(results.schema, self._schema.names))
        for fields, number, *own in zip(records.to_pylist(maps_as_pydicts="strict"), numbers, *columns, strict=False):
            found: list[Any] = [mine if mine is not None else last for mine, last in zip(own, latest, strict=True)]
            key, time_ms, created_ms = found
            row = Row(key, self.source, number, UNCHAINED, time_ms, created_ms, b"")
            try:
                record = self._schema.record_of(fields)
                payload = self._schema.encode(record)
                to = [key if target.keying is None else target.keying.text(record) for target in self._targets]
            except (ValueError, TypeError, msgspec.MsgspecError) as error:
                content = repr(fields).encode()
                reason = f"{type(error).__name__}: {error}"
                yield Unread(of[-1].offset, msgspec.structs.replace(row, payload=content), reason)
                continue
            for target, name in zip(self._targets, to, strict=True):
                yield target.op, msgspec.structs.replace(row, key=name, payload=target.payload(payload))


def numbers_from(offset: int) -> Iterator[int]:
    first = offset << _NUMBER_BITS
    return iter(range(first, 1 << 63))


def _naive(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Timestamps as records have them: in UTC, and not saying so."""
    return pa.schema([pa.field(name, _without_zone(schema.field(name).type)) for name in names])


def _without_zone(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    if pa.types.is_list(kind):
        return pa.list_(_without_zone(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_without_zone(kind.key_type), _without_zone(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _without_zone(field.type)) for field in kind])
    return kind
