"""Values as accumulators keep them: builtins that msgpack carries as they are.

Strings, numbers and booleans stay; everything else becomes bytes whose first letter says what it is.
"""

import datetime
import decimal
from typing import Any

import msgspec

_STAYS = frozenset({str, int, float, bool, type(None)})
# More digits than any decimal of Spark has (38): sums and comparisons are exact.
EXACT = decimal.Context(prec=76, rounding=decimal.ROUND_HALF_UP)


def keep(value: Any) -> Any:
    if type(value) in _STAYS:
        return value
    if isinstance(value, bytes):
        return b"b" + value
    if isinstance(value, datetime.datetime):
        return b"t" + value.isoformat().encode()
    if isinstance(value, datetime.date):
        return b"d" + value.isoformat().encode()
    if isinstance(value, decimal.Decimal):
        return b"n" + str(value).encode()
    return b"j" + msgspec.json.encode(value)  # a struct, an array or a map


def kept(value: Any) -> Any:
    """What `keep` was given. Structs come back as dicts, and what is in them as JSON says it."""
    if type(value) is not bytes:
        return value
    kind, rest = value[:1], value[1:]
    if kind == b"b":
        return rest
    if kind == b"t":
        return datetime.datetime.fromisoformat(rest.decode())
    if kind == b"d":
        return datetime.date.fromisoformat(rest.decode())
    if kind == b"n":
        return decimal.Decimal(rest.decode())
    return msgspec.json.decode(rest)


def identity(value: Any) -> str | int:
    """Equal for equal values of a column, and fit to be a key of a dict in a state."""
    if type(value) is str or type(value) is int:
        return value
    if isinstance(value, decimal.Decimal):
        return str(EXACT.create_decimal(value).normalize(EXACT))
    if isinstance(value, float):
        value += 0.0  # -0.0 is 0.0
    return msgspec.json.encode(value, order="deterministic").decode()
