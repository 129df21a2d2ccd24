"""A router in the test's own process: the machine of core/ in memory, served as `net/protocol.py` says.

It is there for what a router process would hide or make slow: a look at every offer, a log that is filled in one go.
"""

import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from peregrine.audit import Audit
from peregrine.core import journal
from peregrine.core.host import Emission
from peregrine.core.intake import RouterConfig
from peregrine.core.log import MemoryLog
from peregrine.core.messages import Append, Committed, DeadLetter, Deliver, Event, FromGroups, FromHost, Report
from peregrine.core.router import Router
from peregrine.core.rows import Row, Rows, length, rows_of
from peregrine.core.slices import slices
from peregrine.net import protocol
from peregrine.types import PlaceId


class StandIn(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(self, config: RouterConfig) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.address = f"127.0.0.1:{self.port}"
        self.groups = {op: spec.groups for op, spec in config.operators.items()}
        self.config = config
        self.router = Router(config)
        self.events: list[Event] = []
        self.logs = {place: MemoryLog() for place in config.topology.places(config.site)}
        self.offered: list[FromHost] = []  # also what the door drops
        self.results: list[Row] = []
        self.dead: list[DeadLetter] = []
        self.reports: list[Report] = []
        self.away: set[PlaceId] = set()  # what hosts of these places offer is not answered
        self._lock = threading.Lock()

    def step(self, event: Event) -> None:
        with self._lock:
            self.events.append(event)
            for effect in self.router.step(event):
                match effect:
                    case Append(place, offset, entry):
                        self.logs[place].append(offset, entry)
                    case Deliver(_, rows):
                        self.deliver(rows.batch)
                    case DeadLetter():
                        self.dead.append(effect)
                    case Report():
                        self.reports.append(effect)

    def audit(self) -> list[str]:
        """What is wrong in its journal."""
        seen, topology = Audit(), self.config.topology
        seen.read(self.config, self.events)
        return seen.found(topology.main_place(topology.root))

    def deliver(self, batch: pa.RecordBatch) -> None:
        self.results += rows_of(batch)

    def do_action(self, context: Any, action: flight.Action) -> Iterator[bytes]:
        if action.type == protocol.OFFERS:
            raws = msgspec.msgpack.decode(action.body.to_pybytes(), type=list[bytes])
            for event in map(journal.decode, raws):
                while isinstance(event, FromHost | FromGroups) and event.place in self.away:
                    time.sleep(0.01)
                self.offered += _by_group(event)
                self.step(event)
            yield protocol.encode([(None, None)] * len(raws))
        elif action.type == protocol.ADVANCE:
            committed, _ = msgspec.msgpack.decode(action.body.to_pybytes(), type=tuple[dict[PlaceId, int], float])
            for place, offset in committed.items():
                if offset > self.router.commits.get(place, 0):
                    self.step(Committed(place, offset))
            with self._lock:
                ends = {place: self.router.ends.get(place, 0) for place in committed}
            yield protocol.encode((ends, []))
        elif action.type == protocol.STATUS:
            router = self.router
            facts = (len(self.results), len(self.dead), [], 0, 0, {}, {}, [], 0)
            yield protocol.encode(
                protocol.Status(router.site, dict(router.ends), dict(router.commits), router.accepts_rows(), *facts)
            )

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.RecordBatchStream:
        asked = msgspec.msgpack.decode(ticket.ticket, type=protocol.Ticket)
        with self._lock:
            entries = self.logs[PlaceId(asked.place)].read(asked.position, asked.max_rows)
        found = [(asked.place, *each) for each in slices(entries, self.groups)]
        after = entries[-1][0] + length(entries[-1][1]) if entries else asked.position
        columns = list(zip(*found, strict=True)) or [()] * len(protocol.SLICE_SCHEMA)
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, protocol.SLICE_SCHEMA, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=protocol.with_next(protocol.SLICE_SCHEMA, after))
        return flight.RecordBatchStream(table)


def _by_group(event: Event) -> Iterator[FromHost]:
    """What each group has emitted, however it was handed over."""
    if isinstance(event, FromHost):
        yield event
    elif isinstance(event, FromGroups):
        begin = 0
        for group, count in event.groups:
            mine = Rows(event.rows.op, event.rows.batch.slice(begin, count), gate=event.rows.gate)
            emission = Emission(event.offsets[begin : begin + count], mine)
            yield FromHost(event.place, event.op, group, (emission,))
            begin += count
