"""Values as PySpark's processors see and give them, and as records and state hold them.

    column          in a record, in state    what a processor gets         what it may give
    timestamp       naive, in UTC            aware, in UTC (as Spark)      aware, or naive in UTC
    struct          record                   dict                          Row, dict, record, tuple
    map             dict                     list of pairs (as Spark)      dict, pairs
    decimal(p,s)    any scale                with the scale of its type    any number
    anything else   the same everywhere; NumPy's numbers become Python's

State is by position, as Spark takes it, and may hold NaN. What state gives back has dicts for maps, records for structs
and naive timestamps. A value of the wrong type is an error, where Spark would store null.
"""

import datetime
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from math import isfinite
from typing import Any, Optional

import msgspec

from peregrine.app.ddl import Type, parse_ddl
from peregrine.app.schema import Record, Schema
from peregrine.errors import ConfigurationError

Change = Callable[[Any], Any]

_PLAIN: dict[str, type] = {
    "string": str,
    "bigint": int,
    "int": int,
    "smallint": int,
    "tinyint": int,
    "double": float,
    "float": float,
    "boolean": bool,
    "binary": bytes,
}


class Values:
    """Rows of a state variable: stored as tuples that msgpack can carry."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        columns = parse_ddl(schema.ddl)
        self._width = len(columns)
        self._plain = all(name in _PLAIN for _, (name, _) in columns)
        self._types = tuple(_PLAIN.get(name, object) for _, (name, _) in columns)
        self._changes = changes_from_user(schema)
        self._text_is_key = self._types == (str,)
        stored: Any = tuple(Optional[bytes] if each is bytes else Any for each in self._types)  # noqa: UP045
        self._decode_key: Any = msgspec.json.Decoder(tuple[stored]).decode

    def store(self, given: Any) -> tuple[Any, ...]:
        if not isinstance(given, tuple | list):
            raise self._wrong(given, "it is not a tuple")
        if tuple(map(type, given)) == self._types:
            return tuple(given)
        if len(given) != self._width:
            raise self._wrong(given, f"it has {len(given)} values for {self._width} columns")
        record = checked(self.schema, dict(zip(self.schema.types, given, strict=True)), self._changes)
        if self._plain:
            return msgspec.structs.astuple(record)
        return tuple(msgspec.to_builtins(record, builtin_types=(bytes,)).values())

    def load(self, stored: Sequence[Any]) -> tuple[Any, ...]:
        if self._plain:
            return tuple(stored)
        fields = dict(zip(self.schema.types, stored, strict=True))
        return msgspec.structs.astuple(msgspec.convert(fields, self.schema.record, builtin_types=(bytes,)))

    def text(self, key: Any) -> str:
        """Of a key of a map: one text for each key."""
        stored = self.store(key)
        if any(type(each) is float and not isfinite(each) for each in stored):
            raise self._wrong(key, "NaN and infinity are not keys")
        if not self._text_is_key:
            return msgspec.json.encode(stored).decode()
        if stored[0] is None:
            raise self._wrong(key, "it is null")
        return str(stored[0])

    def of_text(self, text: str) -> tuple[Any, ...]:
        return (text,) if self._text_is_key else self.load(self._decode_key(text))

    def _wrong(self, given: Any, why: str) -> ConfigurationError:
        return ConfigurationError(
            f"{given!r} cannot be kept in a state of ({self.schema.ddl}): {why}",
            "give a tuple with a value for each column",
        )


def checked(schema: Schema, fields: dict[str, Any], changes: Mapping[str, Change]) -> Any:
    """A record from what a processor gave. Columns that are missing are null, others are ignored."""
    if changes:
        for name, change in changes.items():
            if fields.get(name) is not None:
                fields[name] = change(fields[name])
    try:
        return msgspec.convert(fields, schema.record)
    except msgspec.ValidationError:
        try:
            return schema.record_of({name: _whole(fields.get(name), of) for name, of in schema.types.items()})
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"{fields!r} does not fit ({schema.ddl}): {error}", "give each column a value of its type"
            ) from error


def _whole(value: Any, of: str) -> Any:
    """pandas makes floats of integers among which there are nulls."""
    return int(value) if _PLAIN.get(of) is int and isinstance(value, float) and value.is_integer() else value


def changes_to_user(schema: Schema) -> dict[int, Change]:
    """For the columns, by position, whose values are not handed over as they are."""
    return {at: made for at, (_, of) in enumerate(parse_ddl(schema.ddl)) if (made := _to_user(of)) is not None}


def changes_from_user(schema: Schema) -> dict[str, Change]:
    return {name: made for name, of in parse_ddl(schema.ddl) if (made := _from_user(of)) is not None}


def _to_user(of: Type) -> Change | None:
    name, arguments = of
    match name:
        case "timestamp":
            return lambda value: value.replace(tzinfo=datetime.UTC)
        case "decimal":
            return _decimal(arguments)
        case "array":
            inner = _to_user(arguments[0])
            return None if inner is None else lambda value: [_each(inner, item) for item in value]
        case "map":
            key, inside = (_to_user(each) for each in arguments)
            return lambda value: [(_each(key, k), _each(inside, v)) for k, v in value.items()]
        case "struct":
            parts = {field: _to_user(part) for field, part in arguments}
            return lambda value: {field: _each(part, getattr(value, field)) for field, part in parts.items()}
    return None


def _from_user(of: Type) -> Change | None:
    name, arguments = of
    match name:
        case "timestamp":
            return _in_utc
        case "decimal":
            return _decimal(arguments)
        case "array":
            inner = _from_user(arguments[0])
            return None if inner is None else lambda value: [_each(inner, item) for item in value]
        case "map":
            key, inside = (_from_user(each) for each in arguments)
            return lambda value: {_each(key, k): _each(inside, v) for k, v in dict(value).items()}
        case "struct":
            parts = {field: _from_user(part) for field, part in arguments}
            return lambda value: _fields(value, parts)
    return None


def _decimal(arguments: list[Any]) -> Change | None:
    """Spark's decimals have the scale of their type: 1.5 is 1.50 in a decimal(10,2)."""
    if len(arguments) != 2:
        return None
    unit = Decimal(1).scaleb(-int(arguments[1]))
    return lambda value: Decimal(value).quantize(unit, ROUND_HALF_UP)


def _each(change: Change | None, value: Any) -> Any:
    return value if value is None or change is None else change(value)


def _in_utc(value: Any) -> Any:
    if getattr(value, "tzinfo", None) is None:
        return value
    return value.astimezone(datetime.UTC).replace(tzinfo=None)


def _fields(value: Any, parts: Mapping[str, Change | None]) -> dict[str, Any]:
    fields = named(value)
    if fields is None:
        fields = dict(zip(parts, value, strict=True))
    return {name: _each(change, fields.get(name)) for name, change in parts.items()}


def named(value: Any) -> dict[str, Any] | None:
    """The fields of what has names: a `Row` of PySpark, a dict, a record."""
    names = getattr(value, "__fields__", None)
    if names:
        return dict(zip(names, value, strict=True))
    if isinstance(value, Record):
        return value.asDict()
    if isinstance(value, Mapping):
        return dict(value)
    return None
