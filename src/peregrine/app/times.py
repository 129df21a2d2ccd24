"""Lengths of time as people write them."""

import re
from datetime import timedelta

from peregrine.errors import ConfigurationError

Duration = int | str | timedelta

_UNITS_MS = {
    "millisecond": 1,
    "ms": 1,
    "second": 1000,
    "sec": 1000,
    "s": 1000,
    "minute": 60_000,
    "min": 60_000,
    "hour": 3_600_000,
    "h": 3_600_000,
    "day": 86_400_000,
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def duration_ms(given: Duration) -> int:
    """Milliseconds of `"1 minute"`, `"1 minute 30 seconds"`, `timedelta(...)`, or of a number of milliseconds. A minus
    in front is for all of it.

    >>> duration_ms("1 minute 30 seconds")
    90000
    """
    if isinstance(given, timedelta):
        return given // timedelta(milliseconds=1)
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    text = given.strip().lower() if isinstance(given, str) else ""
    sign = -1 if text.startswith("-") else 1
    text = text.removeprefix("-")
    total, position = 0.0, 0
    while match := _PART.match(text, position):
        number, unit = match.groups()
        ms = _UNITS_MS.get(unit) or _UNITS_MS.get(unit.removesuffix("s"))
        if ms is None:
            break
        total, position = total + float(number) * ms, match.end()
    if position != len(text) or not text:
        raise ConfigurationError(f"{given!r} is not a length of time", 'write it like "10 seconds" or "1 minute"')
    return sign * round(total)


def span_ms(given: Duration, what: str) -> int:
    """As `duration_ms`, for what cannot be less than nothing."""
    found = duration_ms(given)
    if found < 0:
        raise ConfigurationError(f"{what}: {given!r}", "give a length of time of 0 or more")
    return found
