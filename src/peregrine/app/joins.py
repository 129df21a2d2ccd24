"""Two streams become one: pairs within an interval, pairs of a window, and records with a row of a table.

Input 0 is the left, input 1 the right; both have the same key. A pair goes to the user's `select`; without one, it is
the left columns and then those of the right that are no key. Late records leave unchanged, by side output 1 those of
the left, by side output 2 those of the right. Buffers hold records as the bytes that travel, and are as long as the
watermark needs them: which pairs come out never depends on when they are cleared.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from peregrine.app.logic import Emit, Key, Moment, Timeless
from peregrine.app.schema import Keying, Schema, schema_of
from peregrine.app.times import Duration, duration_ms
from peregrine.app.windows import Sliding, Tumbling, Window
from peregrine.errors import ConfigurationError

Select = Callable[[Any, Any], Any]  # (left, right) -> a record, or None to leave the pair out


@dataclass(frozen=True)
class Interval:
    """A right record fits a left one if left.time + before <= right.time <= left.time + after.

    >>> Interval("-5 seconds", "0 seconds").before_ms
    -5000
    """

    before: Duration
    after: Duration

    def __post_init__(self) -> None:
        if self.before_ms > self.after_ms:
            raise ConfigurationError(
                f"the interval from {self.before!r} to {self.after!r} is empty",
                'give the earlier end first, like Interval("-5 seconds", "0 seconds")',
            )

    def __str__(self) -> str:
        return f"within {self.before_ms} ms and {self.after_ms} ms"

    @property
    def before_ms(self) -> int:
        return duration_ms(self.before)

    @property
    def after_ms(self) -> int:
        return duration_ms(self.after)


@dataclass(frozen=True)
class LeftThenRight:
    """The `select` of those who give none."""

    left: tuple[str, ...]
    right: tuple[str, ...]

    def __call__(self, left: Any, right: Any) -> dict[str, Any]:
        found = {name: getattr(left, name) for name in self.left}
        for name in self.right:
            found[name] = None if right is None else getattr(right, name)
        return found


def _selection(left: Schema, right: Keying, select: Select | None, output: Schema | None) -> tuple[Select, Schema]:
    """What makes a record of a pair, and what such records look like."""
    remedy = 'give select=lambda left, right: {...} and schema="..."'
    if select is not None:
        if output is None:
            raise ConfigurationError("a select without the schema of what it gives", remedy)
        return select, output
    columns = {name: type_ for name, type_ in right.schema.types.items() if name not in right.columns}
    if clash := [name for name in columns if name in left.types]:
        raise ConfigurationError(f"both sides of the join have a column {', '.join(clash)}", remedy)
    derived = schema_of(", ".join(f"{name} {type_}" for name, type_ in {**left.types, **columns}.items()))
    if output is not None and output is not derived:
        raise ConfigurationError(f"without a select, a join gives ({derived.ddl}), not ({output.ddl})", remedy)
    return LeftThenRight(left.names, tuple(columns)), derived


class _Pairs:
    """What joins of two streams have in common: their sides, and how a pair becomes a record."""

    event_time = True
    processing_time = False

    def __init__(self, left: Schema, right: Keying, select: Select | None, output_schema: Schema | None) -> None:
        self.schemas = (left, right.schema)
        self.select, self.output_schema = _selection(left, right, select, output_schema)

    @property
    def output_ddl(self) -> str:
        return self.output_schema.ddl

    def pair(self, side: int, mine: Any, other: Any, time_ms: int) -> list[Emit]:
        made = self.select(other, mine) if side else self.select(mine, other)
        return [] if made is None else [Emit(made, time_ms)]


class IntervalJoin(_Pairs):
    """Emits a pair as soon as both are there; its event time is the later of the two.

    State: times and records of the left, times and records of the right, both in the order of time.
    """

    def __init__(
        self,
        left_schema: Schema,
        right_schema: Schema,
        keying_left: Keying,
        keying_right: Keying,
        interval: Interval,
        select: Select | None = None,
        output_schema: Schema | None = None,
        lateness_ms: int = 0,
    ) -> None:
        super().__init__(left_schema, keying_right, select, output_schema)
        self.interval, self.lateness_ms = interval, lateness_ms
        # By side: where partners of a record lie, from its own time on.
        self.reach = ((interval.before_ms, interval.after_ms), (-interval.after_ms, -interval.before_ms))

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        side, time_ms = at.input, at.time_ms
        horizon_ms = at.watermark_ms - self.lateness_ms  # nothing older is taken any more
        if time_ms < horizon_ms:
            return state, [Emit(record, time_ms, 1 + side)]
        state = state if state is not None else [[], [], [], []]
        first, last = self.reach[side]
        times, records = state[2 - 2 * side], state[3 - 2 * side]
        decode = self.schemas[1 - side].decode
        emits: list[Emit] = []
        for nth in range(bisect_left(times, time_ms + first), bisect_right(times, time_ms + last)):
            emits += self.pair(side, record, decode(records[nth]), max(time_ms, times[nth]))
        if time_ms + last >= horizon_ms:  # else its partners can only have been here before it
            place = bisect_right(state[2 * side], time_ms)
            state[2 * side].insert(place, time_ms)
            state[2 * side + 1].insert(place, self.schemas[side].encode(record))
        return (state if state[0] or state[2] else None), emits

    def on_time(self, key: Key, state: Any, at: Moment) -> tuple[Any, list[Emit]]:
        if state is None:
            return None, []
        for side, (_, last) in enumerate(self.reach):
            gone = bisect_left(state[2 * side], at.watermark_ms - self.lateness_ms - last)
            if gone:
                del state[2 * side][:gone], state[2 * side + 1][:gone]
        return (state if state[0] or state[2] else None), []

    def open_ends(self, state: Any) -> list[int]:
        return []


class WindowJoin(_Pairs):
    """Emits all pairs of a window when it has ended, by (end, arrival of the left, arrival of the right).

    Pairs that a late but allowed record makes in windows which have ended come out at once. State: ends of the windows
    that are kept, the watermark up to which windows have been emitted, and for each side [time, record] in the order of
    arrival; a record is kept once, in however many windows it is.
    """

    windowed = True

    def __init__(
        self,
        left_schema: Schema,
        right_schema: Schema,
        keying_left: Keying,
        keying_right: Keying,
        window: Window,
        select: Select | None = None,
        output_schema: Schema | None = None,
        lateness_ms: int = 0,
    ) -> None:
        super().__init__(left_schema, keying_right, select, output_schema)
        if not isinstance(window, Tumbling | Sliding):
            raise ConfigurationError(f"a window join cannot be {window}", "use Tumbling or Sliding windows")
        self.size_ms, self.lateness_ms = window.size_ms, lateness_ms
        self.slide_ms = window.slide_ms if isinstance(window, Sliding) else window.size_ms

    def ends(self, time_ms: int) -> range:
        """Of the windows in which a record of this time is."""
        start = time_ms - time_ms % self.slide_ms
        return range(start + self.size_ms, time_ms, -self.slide_ms)[::-1]

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        # What the watermark ends, it ends ahead of this record.
        state, emits = self.on_time(key, state, at)
        side, time_ms = at.input, at.time_ms
        ends = [end for end in self.ends(time_ms) if end + self.lateness_ms > at.watermark_ms]
        if not ends:
            return state, [*emits, Emit(record, time_ms, 1 + side)]
        state = state if state is not None else [[], at.watermark_ms, [], []]
        decode = self.schemas[1 - side].decode
        for end in ends:
            if end <= at.watermark_ms:
                for other_ms, other in state[3 - side]:
                    if end - self.size_ms <= other_ms < end:
                        emits += self.pair(side, record, decode(other), end - 1)
            place = bisect_left(state[0], end)
            if state[0][place : place + 1] != [end]:
                state[0].insert(place, end)
        state[2 + side].append([time_ms, self.schemas[side].encode(record)])
        return state, emits

    def on_time(self, key: Key, state: Any, at: Moment) -> tuple[Any, list[Emit]]:
        if state is None:
            return None, []
        ends, emitted_ms = state[0], state[1]
        due = ends[bisect_right(ends, emitted_ms) : bisect_right(ends, at.watermark_ms)]
        emits = self._close(due, state) if due else []
        state[1] = max(emitted_ms, at.watermark_ms)
        gone = bisect_right(ends, at.watermark_ms - self.lateness_ms)
        if gone == len(ends):
            return None, emits
        if gone:
            del ends[:gone]
            for side in (2, 3):
                state[side] = [each for each in state[side] if self.ends(each[0])[-1] >= ends[0]]
        return state, emits

    def open_ends(self, state: Any) -> list[int]:
        return [] if state is None else list(state[0])

    def beside_windows(self, state: Any) -> Any:
        return None if state is None else state[1]

    def with_windows(self, beside: Any, state: Any) -> Any:
        return None if beside is None or state is None else [state[0], beside, *state[2:]]

    def _close(self, due: list[int], state: Any) -> list[Emit]:
        windows: dict[int, tuple[list[Any], list[Any]]] = {end: ([], []) for end in due}
        for side in (0, 1):
            for time_ms, encoded in state[2 + side]:
                found = [windows[end] for end in self.ends(time_ms) if end in windows]
                if found:
                    record = self.schemas[side].decode(encoded)
                    for window in found:
                        window[side].append(record)
        return [
            emit
            for end, (lefts, rights) in windows.items()
            for left in lefts
            for right in rights
            for emit in self.pair(0, left, right, end - 1)
        ]


class Lookup(Timeless):
    """Each record with the row of a table that has its key, at the record's own time. The table does not change.

    `rows` maps the text of a key to an encoded record. With how="left", a record without a row goes on with None for
    it; a key that is null has no row.
    """

    def __init__(
        self,
        schema: Schema,
        table_schema: Schema,
        keying: Keying,
        table_keying: Keying,
        rows: Mapping[str, bytes],
        select: Select | None = None,
        output_schema: Schema | None = None,
        how: str = "inner",
    ) -> None:
        if how not in ("inner", "left"):
            raise ConfigurationError(f"a lookup cannot be {how!r}", 'use how="inner" or how="left"')
        mine, theirs = ([each.schema.types[name] for name in each.columns] for each in (keying, table_keying))
        if mine != theirs:
            raise ConfigurationError(
                f"the key of the stream is ({', '.join(mine)}), that of the table ({', '.join(theirs)})",
                "look up by columns of the same types, in the same order",
            )
        self.keying, self.table_schema, self.rows, self.how = keying, table_schema, dict(rows), how
        self.select, self.output_schema = _selection(schema, table_keying, select, output_schema)

    @property
    def output_ddl(self) -> str:
        return self.output_schema.ddl

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        known = all(getattr(record, column) is not None for column in self.keying.columns)
        row = self.rows.get(self.keying.text(record)) if known else None
        if row is None and self.how == "inner":
            return None, []
        made = self.select(record, None if row is None else self.table_schema.decode(row))
        return None, [] if made is None else [Emit(made, at.time_ms)]
