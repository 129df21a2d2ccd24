"""What users do with streams that have a key: state, windows, joins."""

from collections.abc import Callable, Iterable
from typing import Any

from peregrine.app import checks
from peregrine.app.aggregates import Aggregate
from peregrine.app.joins import Interval, IntervalJoin, WindowJoin
from peregrine.app.logic import Logic
from peregrine.app.model import Stream
from peregrine.app.plan import Node, Output, place_of_definition
from peregrine.app.processor import ProcessorLogic
from peregrine.app.schema import Keying, schema_of
from peregrine.app.times import Duration, span_ms
from peregrine.app.window_logic import Reduce, RunningAggregate, WindowAggregate, WindowApply, WindowReduce
from peregrine.app.windows import Window
from peregrine.errors import ConfigurationError

LATE = "late"


class KeyedStream:
    """A stream by key. Its operators keep state for each key, and that state moves with the key."""

    def __init__(self, stream: Stream, keying: Keying) -> None:
        self.stream, self.keying = stream, keying

    def process(
        self,
        name: str,
        processor: Any,
        schema: Any,
        *,
        flavour: str = "row",
        time_mode: str = "none",
        initial_state: Iterable[Any] | None = None,
        initial_state_schema: Any = None,
    ) -> Stream:
        """An ordinary `StatefulProcessor` of PySpark, unchanged. It is called with one row at a time.

        `flavour`: "row" or "pandas". `time_mode`: "none", "processing" or "event", as `transformWithState` has it.
        """
        output = schema_of(schema)
        logic = ProcessorLogic(
            processor,
            self.stream.schema,
            output,
            self.keying,
            flavour,
            time_mode,
            None if initial_state is None else list(initial_state),
            None if initial_state_schema is None else schema_of(initial_state_schema),
        )
        return self._add(name, "process", logic, [("", output)], (processor,), type(processor).__name__)

    def aggregate(self, name: str, /, **aggregates: Aggregate) -> Stream:
        """Aggregates of all records of a key so far, told with each of them."""
        logic = RunningAggregate(self.stream.schema, self.keying, aggregates)
        return self._add(name, "aggregate", logic, [("", schema_of(logic.output_ddl))], about=_about(aggregates))

    def reduce(self, name: str, function: Callable[[Any, Any], Any]) -> Stream:
        """The records of a key so far, two of them made one again and again."""
        checks.check_signature(name, function, 2)
        logic = Reduce(self.stream.schema, self.keying, function)
        return self._add(name, "reduce", logic, [("", self.stream.schema)], (function,))

    def window(self, window: Window, lateness: Duration = 0) -> "WindowedStream":
        """`lateness`: for how long after its end a window takes records; later ones go to the side output `late`."""
        return WindowedStream(self, window, span_ms(lateness, "lateness"))

    def join(
        self,
        name: str,
        other: "KeyedStream",
        within: Interval,
        select: Callable[[Any, Any], Any] | None = None,
        schema: Any = None,
        lateness: Duration = 0,
    ) -> Stream:
        """Pairs of records of the same key whose times are at most so far apart (`Interval`)."""
        return self._join(name, "join", IntervalJoin, other, within, select, schema, lateness)

    def window_join(
        self,
        name: str,
        other: "KeyedStream",
        window: Window,
        select: Callable[[Any, Any], Any] | None = None,
        schema: Any = None,
        lateness: Duration = 0,
    ) -> Stream:
        """Pairs of records of the same key and window."""
        return self._join(name, "window join", WindowJoin, other, window, select, schema, lateness)

    def connect(
        self, name: str, logic: Logic, *others: "KeyedStream", schema: Any, sides: dict[str, Any] | None = None
    ) -> Stream:
        """A logic of your own (peregrine.app.logic) over this and other streams of the same key."""
        outputs = [("", schema_of(schema)), *((side, schema_of(of)) for side, of in (sides or {}).items())]
        return self._add(name, "connect", logic, outputs, (type(logic),), type(logic).__name__, others)

    def _join(
        self,
        name: str,
        kind: str,
        make: Callable[..., IntervalJoin | WindowJoin],
        other: "KeyedStream",
        over: Interval | Window,
        select: Any,
        schema: Any,
        lateness: Duration,
    ) -> Stream:
        left, right = self.stream.schema, other.stream.schema
        output = schema_of(schema) if schema is not None else None
        logic = make(left, right, self.keying, other.keying, over, select, output, span_ms(lateness, "lateness"))
        outputs = [("", schema_of(logic.output_ddl)), ("late_left", left), ("late_right", right)]
        if select is not None:
            checks.check_signature(name, select, 2)
        return self._add(name, kind, logic, outputs, () if select is None else (select,), str(over), (other,))

    def _add(
        self,
        name: str,
        kind: str,
        logic: Any,
        outputs: list[tuple[str, Any]],
        code: tuple[Any, ...] = (),
        about: str = "",
        others: tuple["KeyedStream", ...] = (),
    ) -> Stream:
        where = place_of_definition()
        for other in others:
            mine, theirs = _key_types(self), _key_types(other)
            if mine != theirs:
                raise ConfigurationError(
                    f"{where}: {name!r} takes streams with the keys ({', '.join(mine)}) and ({', '.join(theirs)})",
                    "key both by columns of the same types",
                )
        inputs = tuple(each.stream.as_input(each.keying) for each in (self, *others))
        made = tuple(Output(side, schema) for side, schema in outputs)
        return self.stream.app.add(
            Node(self.stream.app.name, name, kind, where, inputs, made, logic, False, code, about)
        )


class WindowedStream:
    def __init__(self, keyed: KeyedStream, window: Window, lateness_ms: int) -> None:
        self._keyed, self._window, self._lateness_ms = keyed, window, lateness_ms
        self._schema = keyed.stream.schema

    def aggregate(self, name: str, /, **aggregates: Aggregate) -> Stream:
        """Aggregates of the records of each window."""
        logic = WindowAggregate(self._schema, self._keyed.keying, self._window, aggregates, self._lateness_ms)
        return self._add(name, logic, schema_of(logic.output_ddl), (), _about(aggregates))

    def reduce(self, name: str, function: Callable[[Any, Any], Any]) -> Stream:
        """The records of each window, two of them made one again and again."""
        checks.check_signature(name, function, 2)
        logic = WindowReduce(self._schema, self._keyed.keying, self._window, function, self._lateness_ms)
        return self._add(name, logic, self._schema, (function,))

    def apply(self, name: str, function: Callable[[Any, Any, Any], Iterable[Any]], schema: Any) -> Stream:
        """`function(key, window, records)` gives the results of a window from all of its records."""
        checks.check_signature(name, function, 3)
        output = schema_of(schema)
        logic = WindowApply(self._schema, self._keyed.keying, self._window, function, output, self._lateness_ms)
        return self._add(name, logic, output, (function,))

    def _add(self, name: str, logic: Any, schema: Any, code: tuple[Any, ...], about: str = "") -> Stream:
        outputs = [("", schema), (LATE, self._schema)]
        about = f"{self._window}, {about}" if about else str(self._window)
        return self._keyed._add(name, "window", logic, outputs, code, about)


def _about(aggregates: dict[str, Aggregate]) -> str:
    return ", ".join(f"{name} = {aggregate}" for name, aggregate in aggregates.items())


def _key_types(keyed: KeyedStream) -> list[str]:
    return [keyed.keying.schema.types[column] for column in keyed.keying.columns]
