"""Windows as logics: how windows are cut (time, sessions, counts) times what is kept of their records.

Results are told when the watermark reaches the end of their window, with its last millisecond as their time. With a
lateness, a window is kept for that long behind its end, and records that come for it meanwhile tell it anew at once;
later ones go to the side output `late`. Windows of records know no lateness.
"""

from collections.abc import Callable, Mapping
from math import gcd
from typing import Any

from peregrine.app.aggregates import Aggregate
from peregrine.app.count_windows import CountWindows, LastRecords
from peregrine.app.logic import Emit, Key, Moment
from peregrine.app.running import Reduce, RunningAggregate
from peregrine.app.schema import Keying, Schema
from peregrine.app.session_windows import SessionWindows
from peregrine.app.time_windows import TimeWindows
from peregrine.app.window_contents import Aggregated, Contents, Reduced, Rows
from peregrine.app.windows import CountSliding, CountTumbling, Session, Sliding, Span, Tumbling, Window
from peregrine.errors import ConfigurationError

__all__ = ["WindowAggregate", "WindowApply", "WindowReduce", "RunningAggregate", "Reduce"]


class _Windows:
    """The part of a logic that is the same whatever is kept. Its functions are those of the windows themselves: one
    call less for each record.
    """

    processing_time = False
    on_record: Callable[[Key, Any, Any, Moment], tuple[Any, list[Emit]]]
    on_time: Callable[[Key, Any, Moment], tuple[Any, list[Emit]]]
    open_ends: Callable[[Any], list[int]]

    def __init__(
        self, arguments: tuple[Any, ...], contents: Contents, schema: Schema, window: Window, lateness_ms: int
    ):
        self._arguments = arguments
        self.output_ddl = schema.ddl
        self.event_time = self.windowed = _timed(window)
        windows = _windows(window, contents, lateness_ms)
        self.on_record, self.on_time, self.open_ends = windows.on_record, windows.on_time, windows.open_ends

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments

    # Windows of time and sessions keep [next, ended, windows].

    def beside_windows(self, state: Any) -> Any:
        return None if state is None else state[:-1]

    def with_windows(self, beside: Any, state: Any) -> Any:
        return None if beside is None or state is None else [*beside, state[-1]]


class WindowAggregate(_Windows):
    """The aggregates of each window. Output: the key, `window_start_ms` and `window_end_ms` if timed, aggregates.

    >>> from peregrine.app.aggregates import Avg
    >>> from peregrine.app.schema import schema_of
    >>> schema = schema_of("vehicle string, speed double")
    >>> logic = WindowAggregate(schema, Keying(schema, ["vehicle"]), Tumbling("1 minute"), {"average": Avg("speed")})
    >>> logic.output_ddl
    'vehicle string, window_start_ms bigint, window_end_ms bigint, average double'
    >>> state, _ = logic.on_record(("car1",), None, schema.record("car1", 30.0), Moment(1_000))
    >>> state, _ = logic.on_record(("car1",), state, schema.record("car1", 50.0), Moment(59_999))
    >>> state, emits = logic.on_time(("car1",), state, Moment(0, watermark_ms=60_000))
    >>> emits[0].record.average, emits[0].time_ms, state
    (40.0, 59999, None)
    """

    def __init__(
        self,
        schema: Schema,
        keying: Keying,
        window: Window,
        aggregates: Mapping[str, Aggregate],
        lateness_ms: int = 0,
    ) -> None:
        contents = Aggregated(schema, keying, aggregates, _timed(window))
        arguments = (schema, keying, window, dict(aggregates), lateness_ms)
        super().__init__(arguments, contents, contents.schema, window, lateness_ms)


class WindowApply(_Windows):
    """`function(key, span, records)` gives the results of a window from all of its records, in the order of event time
    (of windows of records: of arrival). All of them are kept until then; aggregates are cheaper.
    """

    def __init__(
        self,
        schema: Schema,
        keying: Keying,
        window: Window,
        function: Callable[[Key, Span, list[Any]], Any],
        output_schema: Schema,
        lateness_ms: int = 0,
    ) -> None:
        arguments = (schema, keying, window, function, output_schema, lateness_ms)
        contents = Rows(schema, function, output_schema)
        super().__init__(arguments, contents, output_schema, window, lateness_ms)


class WindowReduce(_Windows):
    """The records of each window, two of them made one again and again. The schema stays."""

    def __init__(
        self,
        schema: Schema,
        keying: Keying,
        window: Window,
        function: Callable[[Any, Any], Any],
        lateness_ms: int = 0,
    ) -> None:
        arguments = (schema, keying, window, function, lateness_ms)
        super().__init__(arguments, Reduced(schema, function), schema, window, lateness_ms)


def _timed(window: Window) -> bool:
    return not isinstance(window, CountTumbling | CountSliding)


def _windows(
    window: Window, contents: Contents, lateness_ms: int
) -> TimeWindows | SessionWindows | CountWindows | LastRecords:
    if lateness_ms < 0:
        raise ConfigurationError(f"a lateness of {lateness_ms} ms", "give 0 or more")
    if lateness_ms and not _timed(window):
        raise ConfigurationError(
            f"a lateness of {lateness_ms} ms for {window}", "leave it out: a window of records takes each that comes"
        )
    match window:
        case Tumbling():
            return TimeWindows(window.size_ms, window.size_ms, contents, lateness_ms)
        case Sliding():
            return TimeWindows(window.size_ms, window.slide_ms, contents, lateness_ms)
        case Session():
            return SessionWindows(window.gap_ms, contents, lateness_ms)
        case CountTumbling():
            return CountWindows(window.size, window.size, contents)
        case CountSliding():
            many = window.size // gcd(window.size, window.slide) >= LastRecords.WORTHWHILE
            windows = LastRecords if many and contents.bounded else CountWindows
            return windows(window.size, window.slide, contents)
    raise ConfigurationError(
        f"{window!r} is not a window", "use Tumbling, Sliding, Session, CountTumbling or CountSliding"
    )
