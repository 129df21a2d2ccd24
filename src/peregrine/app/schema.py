"""What records of a stream look like: a Spark schema, without Spark.

A schema is given as Spark's DDL (`"vehicle string, speed double"`) or as a `StructType`. Records are structs with one
attribute for each column that can be used like a `Row` of PySpark (`row.speed`, `row["speed"]`, `row[1]`,
`row.asDict()`), and JSON objects on the wire, so Spark's `from_json` and people can read them. Timestamps are naive and
in UTC; NaN and infinity become null, because JSON has no other way to say it.
"""

import datetime
import decimal
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Optional

import msgspec

from peregrine.app.ddl import parse_ddl
from peregrine.app.logic import Key
from peregrine.errors import ConfigurationError, UnknownName


class Record(msgspec.Struct):
    """One record. What can be asked of a PySpark `Row` can be asked of it."""

    def __getitem__(self, name: str | int) -> Any:
        if isinstance(name, str):
            try:
                return getattr(self, name)
            except AttributeError:
                raise KeyError(name) from None
        return getattr(self, self.__struct_fields__[name])

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, name) for name in self.__struct_fields__)

    def __len__(self) -> int:
        return len(self.__struct_fields__)

    def __contains__(self, name: object) -> bool:
        return name in self.__struct_fields__

    def asDict(self, recursive: bool = False) -> dict[str, Any]:
        if recursive:
            found: dict[str, Any] = msgspec.to_builtins(self, builtin_types=_BUILTIN)
            return found
        return {name: getattr(self, name) for name in self.__struct_fields__}


_BUILTIN = (datetime.datetime, datetime.date, decimal.Decimal, bytes)

_SCALARS: dict[str, tuple[str, type]] = {
    "string": ("string", str),
    "varchar": ("string", str),
    "char": ("string", str),
    "bigint": ("bigint", int),
    "long": ("bigint", int),
    "int": ("int", int),
    "integer": ("int", int),
    "smallint": ("smallint", int),
    "short": ("smallint", int),
    "tinyint": ("tinyint", int),
    "byte": ("tinyint", int),
    "double": ("double", float),
    "float": ("float", float),
    "real": ("float", float),
    "boolean": ("boolean", bool),
    "binary": ("binary", bytes),
    "timestamp": ("timestamp", datetime.datetime),
    "timestamp_ntz": ("timestamp_ntz", datetime.datetime),
    "timestamp_ltz": ("timestamp", datetime.datetime),
    "date": ("date", datetime.date),
    "decimal": ("decimal", decimal.Decimal),
    "dec": ("decimal", decimal.Decimal),
    "numeric": ("decimal", decimal.Decimal),
}


class Schema:
    """Columns with their types. Make it with `schema_of`: equal schemas are one object, with one record type."""

    def __init__(self, ddl: str) -> None:
        parsed = parse_ddl(ddl)
        if not parsed:
            raise ConfigurationError("a schema without columns", 'give columns, like "vehicle string, speed double"')
        self.types: dict[str, str] = {}
        python: list[tuple[str, Any, Any]] = []
        _check_names([name for name, _ in parsed])
        for name, type_ in parsed:
            self.types[name], hint = _type_of(type_)
            python.append((name, Optional[hint], None))  # noqa: UP045 (hint is a value here)
        self._names = frozenset(self.types)
        self.ddl = ", ".join(f"{name} {type_}" for name, type_ in self.types.items())
        self.record: Any = msgspec.defstruct("Record", python, bases=(Record,))
        self._times = tuple(name for name, type_ in self.types.items() if "timestamp" in type_)
        decode = msgspec.json.Decoder(self.record).decode
        #: A record from JSON. Columns that are missing are null, columns that nobody knows are ignored.
        self.decode: Callable[[bytes], Any] = (lambda payload: self._in_utc(decode(payload))) if self._times else decode

    def __reduce__(self) -> tuple[Any, ...]:
        return schema_of, (self.ddl,)

    def __repr__(self) -> str:
        return f"schema_of({self.ddl!r})"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.types)

    def require(self, column: str, what: str) -> str:
        """The column, if it is one."""
        if column not in self.types:
            raise UnknownName(f"column ({what})", column, list(self.types))
        return column

    def encode(self, record: Any) -> bytes:
        return encode(record if type(record) is self.record else self.record_of(record))

    def record_of(self, given: Any) -> Any:
        """A record of this schema from a dict, a `Row`, another record, or values in the order of the columns."""
        if type(given) is self.record:
            return given
        if type(given) is dict:
            fields = given
        elif isinstance(given, Mapping):
            fields = dict(given)
        elif isinstance(given, Record):
            fields = given.asDict()
        elif isinstance(given, tuple) and (names := getattr(given, "__fields__", None)):
            fields = dict(zip(names, given, strict=True))  # a Row of PySpark
        elif isinstance(given, Sequence) and not isinstance(given, str | bytes):
            if len(given) != len(self.types):
                raise ValueError(f"{len(given)} values for the {len(self.types)} columns {self.ddl}")
            fields = dict(zip(self.types, given, strict=True))
        else:
            raise TypeError(f"a record of ({self.ddl}) cannot be made from a {type(given).__name__}")
        if not self._names.issuperset(fields):
            unknown = ", ".join(sorted(fields.keys() - self.types.keys()))
            raise ValueError(f"({self.ddl}) has no column {unknown}")
        try:
            found = msgspec.convert(fields, self.record)
        except msgspec.ValidationError:
            found = msgspec.convert({name: _plain(each) for name, each in fields.items()}, self.record)
        return self._in_utc(found) if self._times else found

    def _in_utc(self, record: Any) -> Any:
        for name in self._times:
            setattr(record, name, _utc(getattr(record, name)))
        return record


_TAKEN = {"asDict"}


def _text_of_other(value: Any) -> Any:
    """For the encoder, of what passes for a value of Python's and is none: NumPy's text."""
    plain = _plain(value)
    if plain is value:
        raise NotImplementedError
    return plain


#: A record that is of its schema already, as JSON.
encode = msgspec.json.Encoder(enc_hook=_text_of_other).encode


@lru_cache(maxsize=4096)
def _schema(ddl: str) -> Schema:
    return Schema(ddl)


def schema_of(given: Any) -> Schema:
    """From DDL, from a `StructType`, or a schema itself.

    >>> schema_of("vehicle string, speed double").decode(b'{"vehicle": "car1", "speed": 3}').speed
    3.0
    """
    if isinstance(given, Schema):
        return given
    if isinstance(given, str):
        return _schema(_schema(given).ddl)  # however it is spelled: one object
    if callable(getattr(given, "simpleString", None)):
        return schema_of(given.simpleString())
    raise ConfigurationError(
        f"{given!r} is not a schema", 'give Spark\'s DDL, like "vehicle string, speed double", or a StructType'
    )


def _check_names(names: list[str]) -> None:
    for name in names:
        if not name.isidentifier() or name.startswith("__") or name in _TAKEN:
            raise ConfigurationError(
                f"a column cannot be named {name!r}", "take letters, digits and _, and no name that records use"
            )
        if names.count(name) > 1:
            raise ConfigurationError(f"two columns are named {name!r}", "rename one of them")


def _type_of(type_: Any) -> tuple[str, Any]:
    """(as Spark spells it, the Python type) of a parsed type."""
    name, arguments = type_
    match name:
        case "array":
            inner, hint = _type_of(arguments[0])
            return f"array<{inner}>", list[Optional[hint]]  # type: ignore[valid-type]  # noqa: UP045
        case "map":
            (key, key_hint), (value, value_hint) = (_type_of(each) for each in arguments)
            if arguments[0][0] not in _SCALARS:
                raise ConfigurationError(f"the keys of a map cannot be {key}", "take a type that is one value")
            return f"map<{key},{value}>", dict[key_hint, Optional[value_hint]]  # type: ignore[valid-type]  # noqa: UP045
        case "struct":
            _check_names([field for field, _ in arguments])
            parts = [(field, *_type_of(of)) for field, of in arguments]
            record = msgspec.defstruct("Record", [(f, Optional[h], None) for f, _, h in parts], bases=(Record,))  # noqa: UP045
            return "struct<" + ",".join(f"{field}:{spelled}" for field, spelled, _ in parts) + ">", record
    if name not in _SCALARS:
        raise ConfigurationError(f"unknown type {name!r}", f"known are {', '.join(_SCALARS)}, array, map and struct")
    spelled, hint = _SCALARS[name]
    if spelled == "decimal":
        if len(arguments) > 2 or not all(each.isdigit() for each in arguments):
            raise ConfigurationError(f"decimal({','.join(arguments)}) is no type", "write it like decimal(10,2)")
        spelled = f"decimal({','.join([*arguments, *['10', '0'][len(arguments) :]])})"
    return spelled, hint


def _utc(value: Any) -> Any:
    """Timestamps in it that name their zone, naive and in UTC."""
    if isinstance(value, datetime.datetime):
        return value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)
    if isinstance(value, list):
        return [_utc(each) for each in value]
    if isinstance(value, dict):
        return {_utc(key): _utc(each) for key, each in value.items()}
    if isinstance(value, Record):
        for name in value.__struct_fields__:
            setattr(value, name, _utc(getattr(value, name)))
    return value


def _plain(value: Any) -> Any:
    """NumPy's and pandas' values as Python's, and Rows in them as fields by name."""
    if type(value).__name__ in ("NaTType", "NAType") or (isinstance(value, float) and value != value):
        return None
    if hasattr(value, "to_pydatetime"):
        return value.to_pydatetime(warn=False)  # no nanoseconds here
    if str(getattr(value, "dtype", "")) == "datetime64[ns]":
        value = value.astype("datetime64[us]")
    if hasattr(value, "tolist"):
        found = value.tolist()
        return _plain(found) if isinstance(found, list) else found
    if isinstance(value, tuple) and (names := getattr(value, "__fields__", None)):
        return {name: _plain(each) for name, each in zip(names, value, strict=True)}
    if isinstance(value, Mapping):
        return {_plain(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


class Keying:
    """How the key of a stream is written: the text by which routers know it, and the values that operators see.

    A single string column is the text itself; otherwise it is JSON. Both ways are exact, so that a key has one text.
    """

    def __init__(self, schema: Schema, columns: Sequence[str]) -> None:
        self.schema = schema
        self.columns = tuple(schema.require(column, "of a key") for column in columns)
        if not columns:
            raise ConfigurationError("a key without columns", "name at least one column")
        for column in self.columns:
            if not schema.types[column].startswith(
                ("string", "bigint", "int", "smallint", "tinyint", "boolean", "date")
            ):
                raise ConfigurationError(
                    f"{column} {schema.types[column]} cannot be part of a key",
                    "take strings, integers, booleans or dates",
                )
        self._text_is_key = len(columns) == 1 and schema.types[self.columns[0]] == "string"
        hints = {field.name: field.type for field in msgspec.structs.fields(schema.record)}
        types: Any = tuple(hints[column] for column in self.columns)
        self._single = len(types) == 1
        self._decoder: Any = msgspec.json.Decoder(types[0] if self._single else tuple[types])

    def __reduce__(self) -> tuple[Any, ...]:
        return Keying, (self.schema, self.columns)

    def text(self, record: Any) -> str:
        if self._single:
            value = getattr(record, self.columns[0])
            if value is None:
                raise ValueError(f"the key column {self.columns[0]} is null")
            if self._text_is_key:
                return value if type(value) is str else str(value)
            return encode(value).decode()
        values = [getattr(record, column) for column in self.columns]
        if None in values:
            raise ValueError(f"a key column is null: {dict(zip(self.columns, values, strict=True))}")
        return encode(values).decode()

    def text_of(self, key: Any) -> str:
        """Of a key as a user names it: a value, or a tuple of them for several columns."""
        values = list(key) if isinstance(key, tuple | list) else [key]
        if len(values) != len(self.columns):
            raise ConfigurationError(
                f"{key!r} is not a key of {', '.join(self.columns)}", "give a value for each column"
            )
        if self._text_is_key:
            return str(values[0])
        try:
            return self.text(self.schema.record_of(dict(zip(self.columns, values, strict=True))))
        except ValueError as wrong:  # also what msgspec says of other types
            raise ConfigurationError(
                f"{key!r} is not a key of {', '.join(self.columns)}: {wrong}", "give values of the columns' types"
            ) from None

    def values(self, text: str) -> Key:
        if self._text_is_key:
            return (text,)
        found = self._decoder.decode(text)
        return (found,) if self._single else found
