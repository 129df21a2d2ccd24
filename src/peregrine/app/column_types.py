"""What types of columns an aggregate takes."""

from peregrine.app.schema import Schema
from peregrine.errors import ConfigurationError

WHOLE = ("bigint", "int", "smallint", "tinyint")


def number_type(schema: Schema, column: str, what: str) -> str:
    """The type of a column of numbers."""
    of = schema.types[schema.require(column, what)]
    if of not in (*WHOLE, "double", "float") and not of.startswith("decimal"):
        raise ConfigurationError(f"{what} of a {of}: it takes numbers", "name a column of numbers")
    return of


def ordered_type(schema: Schema, column: str, what: str) -> str:
    """The type of a column whose values can be compared."""
    of = schema.types[schema.require(column, what)]
    if "<" in of:
        raise ConfigurationError(f"{what} of a {of}: it takes values that can be compared", "name another column")
    return of


def digits_of(type_: str) -> tuple[int, int]:
    """(all digits, those behind the point) of a decimal type. Spark's `decimal` is `decimal(10,0)`."""
    digits, _, scale = type_.removeprefix("decimal").strip("()").partition(",")
    return int(digits or 10), int(scale or 0)
