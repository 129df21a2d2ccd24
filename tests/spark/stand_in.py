"""A router in the test's own process: the machine of core/ in memory, served as `net/protocol.py` says.

It is there for what a real router process would make slow or hide: a log filled in one go, a look at every offer.
"""

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from peregrine.core import journal, wire
from peregrine.core.intake import RouterConfig
from peregrine.core.log import MemoryLog
from peregrine.core.messages import Append, DeadLetter, Deliver, Event, FromHost, Report
from peregrine.core.router import Router
from peregrine.core.rows import rows_of
from peregrine.core.slices import slices
from peregrine.net import protocol
from peregrine.types import PlaceId


class StandIn(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(self, config: RouterConfig) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.address = f"127.0.0.1:{self.port}"
        self.groups = {op: spec.groups for op, spec in config.operators.items()}
        self.router = Router(config)
        self.logs = {place: MemoryLog() for place in config.topology.places(config.site)}
        self.lines: dict[str, list[tuple[int, bytes]]] = {}  # results of each source, in the order of their arrival
        self.arrived: list[tuple[int, float]] = []  # created_ms of results and when they came
        self.dead: list[DeadLetter] = []
        self.reports: list[Report] = []
        self.offered: list[FromHost] = []  # also what the door drops
        self.results = 0
        self.keep = True
        self._lock = threading.Lock()

    def step(self, event: Event) -> None:
        with self._lock:
            for effect in self.router.step(event):
                match effect:
                    case Append(place, offset, entry):
                        self.logs[place].append(offset, entry)
                    case Deliver(_, rows):
                        self.results += len(rows)
                        if self.keep:
                            for row in rows_of(rows.batch):
                                self.lines.setdefault(row.source, []).append((row.seq, row.payload))
                        self.on_results(rows.batch)
                    case DeadLetter():
                        self.dead.append(effect)
                    case Report():
                        self.reports.append(effect)

    def on_results(self, batch: pa.RecordBatch) -> None:
        """For measurements."""

    def do_action(self, context: Any, action: flight.Action) -> Iterator[bytes]:
        if action.type == protocol.OFFER:
            event = journal.decode(action.body.to_pybytes())
            if isinstance(event, FromHost) and self.keep:
                self.offered.append(event)
            self.step(event)
            yield b""
        elif action.type == protocol.STATUS:
            yield protocol.encode(
                protocol.Status(
                    self.router.site, {**self.router.ends}, {**self.router.commits}, self.router.accepts_rows(),
                    self.results, len(self.dead), [], 0, 0, {}, {}, [], 0,
                )
            )  # fmt: skip

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.RecordBatchStream:
        import msgspec

        asked = msgspec.msgpack.decode(ticket.ticket, type=protocol.Ticket)
        with self._lock:
            entries = self.logs[PlaceId(asked.place)].read(asked.position, asked.max_rows)
        found = [(asked.place, *each) for offset, entry in entries for each in slices(offset, entry, self.groups)]
        after = asked.position
        if entries:
            from peregrine.core.rows import length

            after = entries[-1][0] + length(entries[-1][1])
        columns = list(zip(*found, strict=True)) or [()] * len(protocol.SLICE_SCHEMA)
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, protocol.SLICE_SCHEMA, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=protocol.with_next(protocol.SLICE_SCHEMA, after))
        return flight.RecordBatchStream(table)


def dead_rows(letters: list[DeadLetter]) -> list[bytes]:
    return [row.payload for letter in letters for row in rows_of(letter.rows.batch)]  # type: ignore[union-attr]


__all__ = ["Mapping", "StandIn", "dead_rows", "wire"]
