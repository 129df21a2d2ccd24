"""What an operator of an application does with the records of one key. Pure: no clock, no randomness, no I/O.

A logic never sees rows, payloads, sources or marks: the shell around it (app/operator.py) decodes records, works out
the watermark, calls it, numbers what it emits, and encodes that for whoever is fed. So windows, joins, functions and
processors of users are each a few pure functions, and all of them move between sites in the same way.
"""

from typing import Any, Protocol

import msgspec

NEVER = -(1 << 62)  # the watermark before anything is known of the sources
END_OF_TIME_MS = 1 << 61  # the watermark of a source from which nothing comes any more

Key = tuple[Any, ...]  # the values of the key columns


class Moment(msgspec.Struct, gc=False):
    """When something is applied, as the log tells it."""

    time_ms: int  # of a record: its event time; of a clock: what it says
    watermark_ms: int = NEVER  # no record before this time is expected any more, from any source of this key
    now_ms: int = 0  # processing time of this key: it only grows, and is the same in every replay
    input: int = 0  # which of the operator's inputs a record comes from


class Emit(msgspec.Struct, frozen=True, gc=False):
    record: Any  # a record of the output's schema, or what can become one: a dict, a Row, a tuple
    time_ms: int  # its event time
    output: int = 0  # 0 is the main output, then side outputs in the order in which they were declared


class Logic(Protocol):
    """`state` is None for a new key, and anything msgpack can carry (a `BigMap` may be in it). The new one is returned;
    it may be the same object, changed. None forgets the key's state.
    """

    @property
    def event_time(self) -> bool:
        """Wants watermarks: `on_time` is called whenever the key's watermark has advanced."""
        ...

    @property
    def processing_time(self) -> bool:
        """Wants the wall clock: `on_time` is called at every tick."""
        ...

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        """`at.watermark_ms` already counts this record. Windows that it closes are closed by the `on_time` that follows
        if the watermark has advanced; a record is late if its window had ended by then.
        """
        ...

    def on_time(self, key: Key, state: Any, at: Moment) -> tuple[Any, list[Emit]]: ...

    def open_ends(self, state: Any) -> list[int]:
        """Ends of the windows that are open; empty for what has no windows."""
        ...


class Timeless:
    """For logics without time: the half of `Logic` that they do not need."""

    event_time = False
    processing_time = False

    def on_time(self, key: Key, state: Any, at: Moment) -> tuple[Any, list[Emit]]:
        return state, []

    def open_ends(self, state: Any) -> list[int]:
        return []
