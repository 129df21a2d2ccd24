"""What users write: an App with streams, and what is done with them.

>>> from peregrine import App, Avg
>>> app = App("tm")
>>> speeds = app.source("speeds", "vehicle string, speed double", key="vehicle")
>>> averages = speeds.key_by("vehicle").aggregate("average", average=Avg("speed"))
>>> averages.filter("too_fast", lambda row: row.average > 100).to("alerts")
>>> print(app.describe())
tm
  speeds    source                                  (vehicle string, speed double)
  average   aggregate  by vehicle      <- speeds    average = avg(speed)  (vehicle string, average double)
  too_fast  filter     within average  <- average   (vehicle string, average double)
  alerts    result                     <- too_fast  (vehicle string, average double)
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from peregrine.app import checks, functions
from peregrine.app.plan import Input, Node, Output, SourceNode, TransformNode, place_of_definition
from peregrine.app.schema import Keying, Schema, schema_of
from peregrine.app.times import Duration, span_ms
from peregrine.errors import ConfigurationError, UnknownName
from peregrine.types import SourceId

if TYPE_CHECKING:
    from peregrine.app.keyed import KeyedStream

GROUPS = 16


class App:
    """An application: sources, operators and results, defined once and run anywhere."""

    def __init__(self, name: str, groups: int = GROUPS) -> None:
        """`groups`: into how many parts the keys of each operator are divided; state moves by key or by group."""
        self.name = _name(name, "an application")
        self.groups = groups
        self.nodes: list[Node] = []

    def source(
        self,
        name: str,
        schema: Any,
        *,
        key: str | Iterable[str] | None = None,
        event_time: str | None = None,
        delay: Duration = 0,
        senders: Iterable[str] | None = None,
        lost_after: Duration | None = None,
        roaming: bool = False,
    ) -> "Stream":
        """Records that devices send, or any Spark stream.

        `key`: columns by which records are kept in order on their way to operators that have no key of their own.
        `event_time`: the column with the time of a record (milliseconds, or a timestamp); without it that is when it
        is sent. `delay`: how much older than a record those behind it may be. `senders`: all devices that will send;
        windows wait for each of them, or, without this, for those that a key has heard of. `lost_after`: a device that
        is silent for so long is not waited for. `roaming`: devices may move between sites.
        """
        columns = schema_of(schema)
        if event_time is not None and columns.types[columns.require(event_time, f"event time of {name}")] not in (
            "bigint",
            "timestamp",
        ):
            raise ConfigurationError(
                f"event time {event_time} {columns.types[event_time]} of source {name!r}", "take a bigint or timestamp"
            )
        keys = (key,) if isinstance(key, str) else tuple(key) if key is not None else ()
        node = SourceNode(
            self.name,
            name,
            "source",
            place_of_definition(),
            outputs=(Output("", columns),),
            event_time=event_time,
            delay_ms=span_ms(delay, f"delay of {name!r}"),
            senders=None if senders is None else tuple(SourceId(each) for each in senders),
            lost_after_ms=None if lost_after is None else span_ms(lost_after, f"lost_after of {name!r}"),
            roaming=roaming,
            source_keying=Keying(columns, keys) if keys else None,
        )
        return self.add(node)

    def table(self, name: str, schema: Any, rows: Iterable[Any], key: str | Iterable[str]) -> "Table":
        """Records that do not change, to look up in (`Stream.lookup`). They travel with the operator's code."""
        columns = schema_of(schema)
        keying = Keying(columns, (key,) if isinstance(key, str) else tuple(key))
        records = [columns.record_of(row) for row in rows]
        return Table(name, columns, keying, {keying.text(record): columns.encode(record) for record in records})

    def stream(self, name: str) -> "Stream":
        """The output of a source or an operator, by its name."""
        for node in self.nodes:
            if node.name == name and node.outputs:
                return Stream(self, node)
        raise UnknownName(f"stream of {self.name}", name, [node.name for node in self.nodes if node.outputs])

    def add(self, node: Node) -> "Stream":
        """A node that any method has made. Its streams must be of this application, and its name new."""
        _name(node.name, f"a {node.kind} ({node.where})")
        node.groups = self.groups
        for other in self.nodes:
            if other.op == node.op:
                raise ConfigurationError(
                    f"{node.where}: there is already a {other.kind} named {node.name!r} ({other.where})",
                    "give each operator, source and result of an application a name of its own",
                )
        for given in node.inputs:
            if given.node not in self.nodes:
                raise ConfigurationError(
                    f"{node.where}: {node.name!r} takes a stream of the application {given.node.app!r}",
                    f"take streams of {self.name!r}; results of another application can be fed to a source",
                )
        for written in node.code:
            checks.check_deterministic(f"{node.name} ({node.where})", written)
        self.nodes.append(node)
        return Stream(self, node)

    def describe(self) -> str:
        """The logical plan, for people."""
        from peregrine.app.describe import describe  # what it needs to know of inlining is known to the compiler

        return describe(self)


class Table:
    def __init__(self, name: str, schema: Schema, keying: Keying, rows: Mapping[str, bytes]) -> None:
        self.name, self.schema, self.keying, self.rows = name, schema, keying, rows


class Stream:
    """Records of one schema."""

    def __init__(self, app: App, node: Node, output: int = 0) -> None:
        self.app, self.node, self.output = app, node, output

    @property
    def schema(self) -> Schema:
        return self.node.outputs[self.output].schema

    def map(self, name: str, function: Callable[[Any], Any], schema: Any) -> "Stream":
        """One record for each, of another schema."""
        return self._function(name, "map", functions.Map(function), function, schema_of(schema))

    def filter(self, name: str, function: Callable[[Any], Any]) -> "Stream":
        """Only the records for which the function says true."""
        return self._function(name, "filter", functions.Filter(function), function, self.schema)

    def flat_map(
        self, name: str, function: Callable[[Any], Iterable[Any]], schema: Any, sides: Mapping[str, Any] | None = None
    ) -> "Stream":
        """Any number of records for each. `Side(name, record)` goes to a side output: `sides` has their schemas."""
        logic = functions.FlatMap(function, tuple(sides or ()))
        return self._function(name, "flat_map", logic, function, schema_of(schema), sides)

    def union(self, *others: "Stream", name: str = "") -> "Stream":
        """The records of several streams of the same schema."""
        streams = (self, *others)
        name = name or "_and_".join(stream.node.name for stream in streams)
        for other in others:
            if other.schema is not self.schema:
                raise ConfigurationError(
                    f"{place_of_definition()}: a union of ({self.schema.ddl}) and ({other.schema.ddl})",
                    "map them to one schema first",
                )
        return self.app.add(
            Node(
                self.app.name,
                name,
                "union",
                place_of_definition(),
                tuple(stream.as_input(None) for stream in streams),
                (Output("", self.schema),),
                functions.Pass(),
                stateless=True,
            )
        )

    def lookup(
        self,
        name: str,
        table: Table,
        on: str | Iterable[str],
        select: Callable[[Any, Any], Any] | None = None,
        schema: Any = None,
        how: str = "inner",
    ) -> "Stream":
        """Each record with the table's record of the same key. `how="left"`: also those without one."""
        from peregrine.app.joins import Lookup

        keying = Keying(self.schema, (on,) if isinstance(on, str) else tuple(on))
        output = schema_of(schema) if schema is not None else None
        logic = Lookup(self.schema, table.schema, keying, table.keying, table.rows, select, output, how)
        return self._function(name, "lookup", logic, select, schema_of(logic.output_ddl), about=f"in {table.name}")

    def transform(self, name: str, function: Callable[[Any], Any], schema: Any) -> "Stream":
        """A function from DataFrame to DataFrame, without state: SQL, pandas UDFs, models. A Spark query of its own."""
        checks.check_signature(name, function, 1)
        return self.app.add(
            TransformNode(
                self.app.name,
                name,
                "transform",
                place_of_definition(),
                (self.as_input(None),),
                (Output("", schema_of(schema)),),
                stateless=True,
                transform=function,
            )
        )

    def key_by(self, *columns: str) -> "KeyedStream":
        """For what keeps state: each key has its own, and its records are applied in order."""
        from peregrine.app.keyed import KeyedStream

        return KeyedStream(self, Keying(self.schema, columns))

    def side(self, name: str) -> "Stream":
        """A side output of the operator that this stream comes from."""
        names = [output.name for output in self.node.outputs]
        if name not in names[1:]:
            raise UnknownName(f"side output of {self.node.name}", name, names[1:])
        return Stream(self.app, self.node, names.index(name))

    def to(self, name: str) -> None:
        """A result of the application."""
        self.app.add(Node(self.app.name, name, "result", place_of_definition(), (self.as_input(None),)))

    def as_input(self, keying: Keying | None) -> Input:
        return Input(self.node, self.output, keying)

    def _function(
        self,
        name: str,
        kind: str,
        logic: Any,
        function: Any,
        schema: Schema,
        sides: Mapping[str, Any] | None = None,
        about: str = "",
    ) -> "Stream":
        if function is not None:
            checks.check_signature(name, function, 2 if kind == "lookup" else 1)
        outputs = (Output("", schema), *(Output(side, schema_of(of)) for side, of in (sides or {}).items()))
        code = () if function is None else (function,)
        where = place_of_definition()
        node = Node(self.app.name, name, kind, where, (self.as_input(None),), outputs, logic, True, code, about)
        return self.app.add(node)


def _name(name: str, of: str) -> str:
    if not name.replace("-", "_").isidentifier():
        raise ConfigurationError(f"{of} cannot be named {name!r}", "take letters, digits, _ and -, a letter first")
    return name
