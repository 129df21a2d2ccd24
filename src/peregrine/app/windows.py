"""The kinds of windows. Here they only say what they are; app/window_logic.py runs them.

Windows of time are [start, end) and aligned to time 0. A session ends when its key has been silent for the gap: two
records whose times differ by the gap or less are in the same session, as in Spark's `session_window`.
"""

from dataclasses import InitVar, dataclass, field
from datetime import timedelta
from typing import NamedTuple

from peregrine.app.times import Duration, duration_ms
from peregrine.errors import ConfigurationError

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


@dataclass(frozen=True)
class Tumbling:
    """One window after the other.

    >>> Tumbling("1 minute").size_ms
    60000
    >>> print(Tumbling("90 seconds"))
    tumbling 90 s
    """

    size: InitVar[Duration]
    size_ms: int = field(init=False)

    def __post_init__(self, size: Duration) -> None:
        object.__setattr__(self, "size_ms", _length_ms("size", size))

    def __str__(self) -> str:
        return f"tumbling {_spelled(self.size_ms)}"


@dataclass(frozen=True)
class Sliding:
    """Windows of `size`, one starting with every `slide`, so that they overlap.

    >>> print(Sliding("1 minute", slide="1 second"))
    sliding 1 min every 1 s
    """

    size: InitVar[Duration]
    slide: InitVar[Duration]
    size_ms: int = field(init=False)
    slide_ms: int = field(init=False)

    def __post_init__(self, size: Duration, slide: Duration) -> None:
        size_ms, slide_ms = _length_ms("size", size), _length_ms("slide", slide)
        if slide_ms > size_ms:
            raise ConfigurationError(
                f"a sliding window of {_spelled(size_ms)} every {_spelled(slide_ms)} leaves records out",
                "let it slide by its size or less",
            )
        object.__setattr__(self, "size_ms", size_ms)
        object.__setattr__(self, "slide_ms", slide_ms)

    def __str__(self) -> str:
        return f"sliding {_spelled(self.size_ms)} every {_spelled(self.slide_ms)}"


@dataclass(frozen=True)
class Session:
    """From a record to `gap` after the last one that follows without a longer pause.

    >>> print(Session("30 seconds"))
    session 30 s
    """

    gap: InitVar[Duration]
    gap_ms: int = field(init=False)

    def __post_init__(self, gap: Duration) -> None:
        object.__setattr__(self, "gap_ms", _length_ms("gap", gap))

    def __str__(self) -> str:
        return f"session {_spelled(self.gap_ms)}"


@dataclass(frozen=True)
class CountTumbling:
    """Every `size` records of a key, in the order in which they come.

    >>> print(CountTumbling(100))
    tumbling 100 records
    """

    size: int

    def __post_init__(self) -> None:
        _count("size", self.size)

    def __str__(self) -> str:
        return f"tumbling {self.size} records"


@dataclass(frozen=True)
class CountSliding:
    """The last `size` records of a key, told again after every `slide` of them; the first windows hold fewer.

    >>> print(CountSliding(10))
    sliding 10 records every 1
    """

    size: int
    slide: int = 1

    def __post_init__(self) -> None:
        _count("size", self.size)
        _count("slide", self.slide)
        if self.slide > self.size:
            raise ConfigurationError(
                f"a sliding window of {self.size} records every {self.slide} leaves records out",
                "let it slide by its size or less",
            )

    def __str__(self) -> str:
        return f"sliding {self.size} records every {self.slide}"


TimeWindow = Tumbling | Sliding | Session
CountWindow = CountTumbling | CountSliding
Window = TimeWindow | CountWindow


class Span(NamedTuple):
    """One window, as functions see it: [start, end). Of a window of records: from the earliest to behind the latest."""

    start_ms: int
    end_ms: int


def _length_ms(what: str, given: Duration) -> int:
    if isinstance(given, bool) or not isinstance(given, int | str | timedelta):
        raise ConfigurationError(
            f"the {what} of a window cannot be {given!r}", 'give a length of time, like "10 seconds"'
        )
    ms = duration_ms(given)
    if ms <= 0:
        raise ConfigurationError(f"the {what} of a window is {given!r}", "give at least a millisecond")
    return ms


def _count(what: str, given: int) -> None:
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise ConfigurationError(f"the {what} of a window of records is {given!r}", "give a number from 1 on")


def _spelled(ms: int) -> str:
    for unit_ms, unit in _UNITS:
        if ms % unit_ms == 0:
            return f"{ms // unit_ms} {unit}"
    return f"{ms} ms"
