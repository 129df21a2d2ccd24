"""An ordinary `StatefulProcessor` of PySpark as a logic, unchanged: only its methods are called, by their names.

    init                at construction on a copy, to learn its states, and once in each worker
    handleInitialState  for a key with initial state, before its first record, once in the key's life
    handleInputRows     with an iterator of one row, for each record
    handleExpiredTimer  for each timer that is due, after the row of a record, and when time has advanced

The state of a key is [variables, timers] (`handle.py`, `timers.py`); it is None again when both are empty, except for
a key that had initial state: that it was used up must not be forgotten.

Where a stream of single rows differs from Spark's batches:
- The watermark that a row sees already counts it; in Spark it is that of the batch before.
- In event time a record before the watermark is late, and is dropped as Spark does; one at the watermark is not late.
- Results have the time of their record; those of event-time timers have the timer's expiry, those of processing-time
  timers the time of what brought them about.
- Before any watermark is known it is 0, as in Spark. With the time mode "none" both times are -1.
- A key of the initial state that never has a record is never initialised.
"""

import copy
from collections.abc import Callable, Iterable
from typing import Any

from peregrine.app import timers
from peregrine.app.flavours import Flavour, flavour_of
from peregrine.app.handle import Current, Handle
from peregrine.app.logic import Emit, Key, Moment
from peregrine.app.schema import Keying, Schema, schema_of
from peregrine.app.timers import ExpiredTimerInfo, TimerValues
from peregrine.app.user_values import named
from peregrine.errors import ConfigurationError

_TIME_MODES = {
    "none": "none",
    "processing": "processing",
    "processingtime": "processing",  # as Spark spells it
    "event": "event",
    "eventtime": "event",
}
_NO_TIME = TimerValues()


class ProcessorLogic:
    def __init__(
        self,
        processor: Any,
        input_schema: Any,
        output_schema: Any,
        keying: Keying,
        flavour: str = "row",
        time_mode: str = "none",
        initial_state: Iterable[Any] | None = None,
        initial_state_schema: Any = None,
    ) -> None:
        """`initial_state`: rows with the key's columns, as dicts, `Row`s or a frame of pandas. Their schema is found
        from the first of them if it is not given.
        """
        if time_mode.lower() not in _TIME_MODES:
            raise ConfigurationError(f"there is no time mode {time_mode!r}", 'take "none", "processing" or "event"')
        self._time_mode = _TIME_MODES[time_mode.lower()]
        self._processor = processor  # never initialised itself: this is what travels
        self._input = schema_of(input_schema)
        self._output = schema_of(output_schema)
        self._keying = keying
        self._flavour_name = flavour
        rows, schema = _initial_rows(initial_state, initial_state_schema, keying)
        self._initial_schema = schema
        self._initial: dict[Key, list[bytes]] = rows
        probe = _Live(self)
        self.states = probe.handle.declared  # variable -> what it is, for people
        probe.close()
        self._live: _Live | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_live": None}

    @property
    def event_time(self) -> bool:
        return self._time_mode == "event"

    @property
    def processing_time(self) -> bool:
        return self._time_mode == "processing"  # a state with a TTL asks for it, too

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        if self._time_mode == "event" and at.time_ms < at.watermark_ms:
            return state, []
        live = self._live or self._opened()
        times = self._bind(live, key, state, at)
        results = live.processor.handleInputRows(key, iter((live.read(record),)), times)
        emits = live.flavour.emits(results, at.time_ms)
        if live.current.timers:
            emits += self._fire(live, key, times, at)
        return self._unbound(live, key), emits

    def on_time(self, key: Key, state: Any, at: Moment) -> tuple[Any, list[Emit]]:
        if state is None:
            return None, []
        live = self._live or self._opened()
        times = self._bind(live, key, state, at)
        emits = self._fire(live, key, times, at)
        return self._unbound(live, key), emits

    def open_ends(self, state: Any) -> list[int]:
        return []

    def close(self) -> None:
        """The processor's `close`, if it was used here."""
        if self._live is not None:
            self._live.close()
            self._live = None

    def _opened(self) -> "_Live":
        self._live = _Live(self)
        return self._live

    def _bind(self, live: "_Live", key: Key, state: Any, at: Moment) -> TimerValues:
        current = live.current
        current.variables, current.timers = ({}, []) if state is None else state
        current.now_ms = at.now_ms
        for name in live.handle.deleted:
            current.variables.pop(name, None)
        for variable in live.handle.expiring:
            variable.expire()
        times = _NO_TIME if self._time_mode == "none" else TimerValues(at.now_ms, max(at.watermark_ms, 0))
        if state is None and self._initial_schema is not None and key in self._initial:
            records = [self._initial_schema.decode(encoded) for encoded in self._initial[key]]
            for given in live.flavour.initial(self._initial_schema, records):
                live.processor.handleInitialState(key, given, times)
        return times

    def _unbound(self, live: "_Live", key: Key) -> Any:
        variables, pending = live.current.variables, live.current.timers
        live.current.variables, live.current.timers = {}, None
        return [variables, pending] if variables or pending or key in self._initial else None

    def _fire(self, live: "_Live", key: Key, times: TimerValues, at: Moment) -> list[Emit]:
        by_event = self._time_mode == "event"
        pending = live.current.timers or []
        emits: list[Emit] = []
        for expiry_ms in timers.expired(pending, at.watermark_ms if by_event else at.now_ms):
            results = live.processor.handleExpiredTimer(key, times, ExpiredTimerInfo(expiry_ms))
            emits += live.flavour.emits(results, expiry_ms if by_event else at.time_ms)
            timers.delete(pending, expiry_ms)
        return emits


class _Live:
    """A copy of the processor, initialised: one in each worker, for all keys."""

    def __init__(self, logic: ProcessorLogic) -> None:
        self.current = Current()
        self.handle = Handle(logic._time_mode, self.current)
        try:
            self.processor = copy.deepcopy(logic._processor)
        except Exception as error:
            raise ConfigurationError(
                f"{type(logic._processor).__name__} cannot be copied: {error}",
                "open files, connections and locks in init(), not in the constructor",
            ) from error
        self.flavour: Flavour = flavour_of(logic._flavour_name, self.processor, logic._output)
        self.read = self.flavour.reader(logic._input)
        self.processor.init(self.handle)
        self.handle.finish_init()

    def close(self) -> None:
        close: Callable[[], None] | None = getattr(self.processor, "close", None)
        if close is not None:
            close()


def _initial_rows(given: Any, schema: Any, keying: Keying) -> tuple[dict[Key, list[bytes]], Schema | None]:
    """Key -> its rows, encoded."""
    if given is None:
        return {}, None
    if hasattr(given, "to_dict"):
        given = given.to_dict("records")  # a frame of pandas
    rows = [named(row) or row for row in given]
    if not rows:
        return {}, None
    found = schema_of(schema) if schema is not None else _schema_of_rows(rows, keying)
    for column in keying.columns:
        found.require(column, "of the key, in the initial state")
    grouped: dict[Key, list[bytes]] = {}
    for row in rows:
        record = found.record_of(row)
        grouped.setdefault(keying.values(keying.text(record)), []).append(found.encode(record))
    return grouped, found


_TYPES = {str: "string", bool: "boolean", int: "bigint", float: "double", bytes: "binary"}


def _schema_of_rows(rows: list[Any], keying: Keying) -> Schema:
    first = rows[0] if isinstance(rows[0], dict) else {}
    values = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in first.items()}  # NumPy's
    types = {name: _TYPES.get(type(value)) for name, value in values.items()}
    types.update({name: keying.schema.types[name] for name in keying.columns if name in types})
    if not types or None in types.values():
        raise ConfigurationError("the types of the initial state cannot be found", "give initial_state_schema")
    return schema_of(", ".join(f"{name} {of}" for name, of in types.items()))
