"""Aggregates of all records of a key so far, told with each of them."""

from collections.abc import Callable, Mapping
from typing import Any

from peregrine.app.aggregates import Aggregate
from peregrine.app.logic import Emit, Key, Moment, Timeless
from peregrine.app.schema import Keying, Schema
from peregrine.app.window_contents import Aggregated, Reduced


class RunningAggregate(Timeless):
    """The state is one accumulator for each aggregate. Output: the key and the aggregates.

    >>> from peregrine.app.aggregates import Avg, Count
    >>> from peregrine.app.schema import schema_of
    >>> schema = schema_of("vehicle string, speed double")
    >>> logic = RunningAggregate(schema, Keying(schema, ["vehicle"]), {"average": Avg("speed"), "readings": Count()})
    >>> state, _ = logic.on_record(("car1",), None, schema.record("car1", 30.0), Moment(1))
    >>> state, emits = logic.on_record(("car1",), state, schema.record("car1", 50.0), Moment(2))
    >>> emits[0].record
    Record(vehicle='car1', average=40.0, readings=2)
    """

    def __init__(self, schema: Schema, keying: Keying, aggregates: Mapping[str, Aggregate]) -> None:
        self._arguments = (schema, keying, dict(aggregates))
        self._contents = Aggregated(schema, keying, aggregates, timed=False)
        self.output_ddl = self._contents.schema.ddl

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        contents = self._contents
        state = contents.add(contents.zero() if state is None else state, record, at.time_ms)
        return state, [Emit(result, at.time_ms) for result in contents.results(key, None, state)]


class Reduce(Timeless):
    """The state is the record that the function made of all so far, encoded. The schema stays."""

    def __init__(self, schema: Schema, keying: Keying, function: Callable[[Any, Any], Any]) -> None:
        self._arguments = (schema, keying, function)
        self._contents = Reduced(schema, function)
        self.output_ddl = schema.ddl

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        state = self._contents.add(state, record, at.time_ms)
        return state, [Emit(result, at.time_ms) for result in self._contents.results(key, None, state)]
