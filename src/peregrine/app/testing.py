"""An application on records in memory, without Spark: for the tests of those who write one.

    >>> from peregrine import App, Count, InMemory
    >>> app = App("shop")
    >>> orders = app.source("orders", "customer string, euros double")
    >>> orders.key_by("customer").aggregate("totals", orders=Count()).to("totals")
    >>> run = InMemory(app)
    >>> run.send("orders", [{"customer": "ann", "euros": 3}, {"customer": "ann", "euros": 4}])
    >>> run.results("totals")
    [Record(customer='ann', orders=1), Record(customer='ann', orders=2)]

It is the host that runs on Spark too: state is bytes between two calls, so what works here can also be moved.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from peregrine.app.compile import Compiled, Ingress, compile_app
from peregrine.app.logic import END_OF_TIME_MS
from peregrine.app.model import App
from peregrine.core import state
from peregrine.core.chain import chained, deployed, in_order
from peregrine.core.host import apply, by_group
from peregrine.core.keyspace import KeySet, group_of, stable_hash
from peregrine.core.rows import UNCHAINED, Clock, Row, Rows, batch_of, rows_of
from peregrine.errors import UnknownName
from peregrine.types import OpId, SourceId

SENDER = "test"

Sent = Row | Clock


class InMemory:
    def __init__(self, app: App | Compiled) -> None:
        self.compiled = app if isinstance(app, Compiled) else compile_app(app)
        self._specs = deployed(self.compiled.specs)
        self._operators = chained(self.compiled.specs, self.compiled.operators)
        self._order = in_order(self._specs)
        self._states: dict[tuple[OpId, int], bytes] = {}
        self._offsets: dict[OpId, int] = {}
        self._waiting: dict[OpId, list[Sent]] = {op: [] for op in self._order}
        self._seqs: dict[str, int] = {}
        self._senders: dict[str, dict[str, None]] = {}  # of each source: who has sent
        self._results: dict[OpId, list[Row]] = {}
        self.now_ms = 0

    def send(self, source: str, records: Any, sender: str | None = None) -> None:
        """A record of a source, or several of them. Results are there when this returns."""
        ingress = self._ingress(source)
        sender = sender or (ingress.senders or (SENDER,))[0]
        self._senders.setdefault(source, {})[sender] = None
        for record in [records] if isinstance(records, Mapping) or hasattr(records, "asDict") else records:
            seq = self._seqs[sender] = self._seqs.get(sender, -1) + 1
            for reading in ingress.readings(record, sender, self.now_ms):
                row = Row(
                    reading.key,
                    SourceId(sender),
                    seq,
                    UNCHAINED,
                    reading.time_ms,
                    reading.created_ms,
                    reading.payload,
                )
                self._waiting[reading.op].append(row)
        self._run()

    def heartbeat(self, source: str, time_ms: int, sender: str | None = None) -> None:
        """A device says that nothing before this time comes from it any more."""
        ingress = self._ingress(source)
        self._tell(ingress, sender or (ingress.senders or (SENDER,))[0], time_ms)
        self._run()

    def tick(self, now_ms: int) -> None:
        """The wall clock, for processing time."""
        self.now_ms = max(self.now_ms, now_ms)
        for op, spec in self._specs.items():
            if spec.ticks:
                self._waiting[op].append(Clock(op, KeySet.everything(spec.groups), None, self.now_ms))
        self._run()

    def finish(self) -> None:
        """Every device says that nothing comes any more: windows close."""
        for name, ingress in self.compiled.sources.items():
            for sender in ingress.senders or self._senders.get(name, {}):
                self._tell(ingress, sender, END_OF_TIME_MS)
        self._run()

    def results(self, name: str) -> list[Any]:
        """All records of a result so far."""
        if name not in self.compiled.results:
            raise UnknownName(f"result of {self.compiled.name}", name, list(self.compiled.results))
        op, schema = self.compiled.results[name]
        return [schema.decode(row.payload) for row in self._results.get(op, [])]

    def state(self, operator: str, key: Any) -> Any:
        """What the operator has stored for a key; None if nothing."""
        op = OpId(f"{self.compiled.name}/{operator}")
        if op not in self._specs:
            raise UnknownName(
                f"operator of {self.compiled.name}", operator, [each.split("/")[1] for each in self._specs]
            )
        keying = self.compiled.keyings[op]
        text = keying.text_of(key) if keying is not None else str(key)
        group = group_of(stable_hash(text), self._specs[op].groups)
        found = state.decode(self._states.get((op, group), b"")).get(text)
        return None if found is None or found.value is None else found.value[1]

    # --- how it runs ---

    def _ingress(self, source: str) -> Ingress:
        if source not in self.compiled.sources:
            raise UnknownName(f"source of {self.compiled.name}", source, list(self.compiled.sources))
        return self.compiled.sources[source]

    def _tell(self, ingress: Ingress, sender: str, time_ms: int) -> None:
        for op, groups in ingress.clocked:
            self._waiting[op].append(Clock(op, KeySet.everything(groups), SourceId(sender), time_ms))

    def _run(self) -> None:
        """All that waits, operator after operator: whoever is fed comes later in the order."""
        for op in self._order:
            sent, self._waiting[op] = self._waiting[op], []
            if self._specs[op].sink:
                self._results.setdefault(op, []).extend(row for row in sent if isinstance(row, Row))
            elif sent:
                self._apply(op, sent)

    def _apply(self, op: OpId, sent: list[Sent]) -> None:
        entries = list(_entries(op, sent, self._offsets.get(op, 0)))
        self._offsets[op] = self._offsets.get(op, 0) + len(sent)
        made: list[tuple[int, OpId, Sent]] = []
        for (_, group), mine in by_group(entries, {op: self._specs[op].groups}).items():
            before = self._states.get((op, group), b"")
            emissions, self._states[op, group] = apply(self._operators[op], before, mine)
            for emission in emissions:
                item = emission.item
                if isinstance(item, Rows):
                    pairs = zip(emission.offsets.tolist(), rows_of(item.batch), strict=True)
                    made += [(offset, item.op, row) for offset, row in pairs]
                elif isinstance(item, Clock):
                    made.append((int(emission.offsets[0]), item.op, item))
        # What groups have made, as one log would have it: a record's results come where the record came.
        for _, to, what in sorted(made, key=lambda each: each[0]):
            self._waiting[to].append(what)


def _entries(op: OpId, sent: list[Sent], first: int) -> Iterable[tuple[int, Rows | Clock]]:
    rows: list[Row] = []
    for offset, what in enumerate(sent, first):
        if isinstance(what, Row):
            rows.append(what)
            continue
        if rows:
            yield offset - len(rows), Rows(op, batch_of(rows))
            rows = []
        yield offset, what
    if rows:
        yield first + len(sent) - len(rows), Rows(op, batch_of(rows))
