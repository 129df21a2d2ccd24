"""A router that can be called: Arrow Flight, and a socket for calls of this machine, in front of the stepper, the store
and the links of one site.

Calls only translate: everything that changes anything goes through the stepper. Every call carries the token; the
server listens on this machine only, with TLS if its settings name certificates.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from peregrine.core import journal, wire
from peregrine.core.admission import admit, has_seq
from peregrine.core.messages import Committed, Event, FromLink, HandedBack, Single, Together
from peregrine.core.rows import length
from peregrine.core.slices import Slice, slices
from peregrine.errors import ConfigurationError, PeregrineError, ProtocolError, UnknownName
from peregrine.log.record_log import RecordLog
from peregrine.net import local_socket, protocol
from peregrine.net.addresses import HERE, Addresses
from peregrine.net.chunk_service import ChunkService
from peregrine.net.door import Door
from peregrine.net.faults import Told, told, told_to_the_client
from peregrine.net.links import Links
from peregrine.net.local_server import LocalServer
from peregrine.net.protocol import Neighbour, Status, Ticket
from peregrine.net.push import Push
from peregrine.net.registrar import Registrar
from peregrine.net.relay import Relay
from peregrine.net.settings import RouterSettings, read_token
from peregrine.net.stepper import Stepper
from peregrine.net.store import Store
from peregrine.net.tls import server_options
from peregrine.types import PlaceId, SiteId

_frame = msgspec.msgpack.Decoder(tuple[str, int, list[bytes], int])
_ticket = msgspec.msgpack.Decoder(Ticket)
_chunks = msgspec.msgpack.Decoder(tuple[SiteId, list[bytes], SiteId | None])
_follow = msgspec.msgpack.Decoder(tuple[PlaceId, int])
_raws = msgspec.msgpack.Decoder(list[bytes])
_advance = msgspec.msgpack.Decoder(tuple[dict[PlaceId, int], float])
_results = msgspec.msgpack.Decoder(tuple[int, int, float])
_dead = msgspec.msgpack.Decoder(tuple[str, bytes])
_relay = msgspec.msgpack.Decoder(tuple[SiteId, str, str, bytes])
log = logging.getLogger(__name__)


class RouterServer(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(self, settings: RouterSettings, failed: Callable[[BaseException], None]) -> None:
        """Recovers from the directory, then listens. `failed` must end the process: see Stepper."""
        token = read_token(Path(settings.token_file))
        self.store = Store(settings)
        self.stepper = Stepper(settings, self.store, failed)
        self.site = settings.site
        self._groups = {spec.op: spec.groups for spec in settings.operators}
        self._push = Push(self.stepper, self.store.hosts, self._groups)
        self._addresses = Addresses(self.store.directory, settings.neighbours)
        self.links = Links(self.stepper, self._addresses, token, settings.reach)
        self._relay = Relay(token, settings.reach)
        self._chunks = ChunkService(settings, self.stepper, self.links, token)
        self.stepper.start()
        self._chunks.start()
        self.links.start()
        port = self._addresses.port(settings.port)
        location, tls = server_options(HERE, port, settings.tls, settings.tls_verify_clients)
        try:
            super().__init__(location, middleware={"door": Door(token, self.site)}, **tls)
        except pa.ArrowException as error:
            raise ConfigurationError(
                f"router {self.site} cannot listen at {location}: {error}",
                "choose another port; with TLS, see that tls_cert and tls_key belong together",
            ) from error
        self._local = None
        if settings.local_socket and local_socket.IS_HERE and settings.tls is None:
            self._local = LocalServer(self.port, token, self.site, self.answer)
        self._addresses.listens_at(self.port)
        here = settings.whereabouts(f"{HERE}:{self.port}")
        self._registrar = None if here is None else Registrar(settings.reach(settings.guide), token, here)

    def stop(self) -> None:
        """What was promised is on the disk; what was not will be offered again."""
        if self._registrar is not None:
            self._registrar.stop()
        self._chunks.stop()
        self.links.stop()
        self._relay.stop()
        self.stepper.stop()
        if self._local is not None:
            self._local.stop()
        self.shutdown()
        self.store.close()

    # --- calls ---

    def do_action(self, context: Any, action: flight.Action) -> Iterable[bytes]:
        body = action.body.to_pybytes() if action.body is not None else b""
        with told_to_the_client():
            answer = self.answer(action.type, body)
        return [answer] if isinstance(answer, bytes) else _told_parts(answer)

    def answer(self, name: str, body: bytes) -> bytes | Iterator[bytes]:
        """To an action, whichever way it came; of some in parts."""
        try:
            match name:
                case protocol.CHUNKS:
                    return self._chunks.give(*_chunks.decode(body))
                case protocol.FOLLOW:
                    return self._push.follow(*_follow.decode(body))
                case protocol.TABLE:
                    return protocol.encode_table(self._table(body))
            return self._act(name, body)
        except msgspec.DecodeError as error:
            raise _unreadable(name, error) from error

    def _act(self, name: str, body: bytes) -> bytes:
        match name:
            case protocol.OFFER:
                # The bytes that came are those that are journaled: nothing is encoded twice.
                acked = self.stepper.offer(_single(journal.decode(body)), body)
                return b"" if acked is None else protocol.encode(acked)
            case protocol.OFFERS:
                return protocol.encode(self._take_all(_raws.decode(body)))
            case protocol.ADVANCE:
                return protocol.encode(self._advance(*_advance.decode(body)))
            case protocol.FRAME:
                return protocol.encode(self._take_frame(*_frame.decode(body)))
            case protocol.RELAY:
                return self._relay.pass_on(*_relay.decode(body))
            case protocol.RESULTS:
                return protocol.encode(self._read_results(*_results.decode(body)))
            case protocol.NEWS:
                after, wait_s = msgspec.msgpack.decode(body, type=tuple[int, float])
                return protocol.encode_news(*self.stepper.news(after, min(wait_s, protocol.NEWS_WAIT_S)))
            case protocol.STATUS:
                return protocol.encode(self.stepper.ask(self._status))
            case protocol.NEIGHBOURS:
                self.links.connect(msgspec.msgpack.decode(body, type=dict[SiteId, Neighbour]))
            case protocol.RELEASE:
                self._push.release(msgspec.msgpack.decode(body, type=PlaceId))
            case protocol.PRESSURE:
                self.stepper.hear_pressure(msgspec.msgpack.decode(body, type=bool))
            case _:
                raise UnknownName("action", name, _ACTIONS)
        return b""

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return [(name, "see peregrine.net.protocol") for name in _ACTIONS]

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.RecordBatchStream:
        with told_to_the_client():
            return flight.RecordBatchStream(self._table(ticket.ticket))

    def _table(self, ticket: bytes) -> pa.Table:
        try:
            asked = _ticket.decode(ticket)
        except msgspec.DecodeError as error:
            raise _unreadable("ticket", error) from error
        match asked.kind:
            case protocol.LOG:
                return self._read_log(asked)
            case protocol.DEAD:
                return self._read_dead(asked)
        raise UnknownName("ticket", asked.kind, [protocol.LOG, protocol.DEAD])

    # --- what they do ---

    def _take_all(self, raws: list[bytes]) -> list[tuple[int | None, Told | None]]:
        handed = self.stepper.hand_all([(_single(journal.decode(raw)), raw) for raw in raws])
        answers: list[tuple[int | None, Told | None]] = []
        for each in handed:
            try:
                answers.append((each.result(), None))
            except PeregrineError as error:
                answers.append((None, told(error)))
        return answers

    def _advance(self, committed: dict[PlaceId, int], wait_s: float) -> tuple[dict[PlaceId, int], list[PlaceId]]:
        """A commit is written with what comes next: one that a crash forgets is told again with the next question."""
        hosts, machine = self.store.hosts, self.stepper.machine
        for place, offset in committed.items():
            commit = Committed(place, offset)
            admit(machine, commit)
            if offset > machine.commits.get(place, 0):
                self.stepper.leave(commit)
        if wait_s and all(hosts[place].end <= offset for place, offset in committed.items()):
            self.stepper.wait_until(
                lambda: any(hosts[place].end > offset for place, offset in committed.items()),
                min(wait_s, protocol.LONGEST_WAIT_S),
            )
        left = [place for place in committed if not self._push.is_followed(place)]
        return {place: hosts[place].end for place in committed}, left

    def _take_frame(self, neighbour: str, first_seq: int, messages: list[bytes], session: int) -> int:
        sender = SiteId(neighbour)
        if not messages:
            return int(self.stepper.ask(lambda: has_seq(self.stepper.machine, sender, session)))
        event = FromLink(sender, first_seq, tuple(wire.decode_item(message) for message in messages), session)
        return int(self.stepper.offer(event, journal.from_link(neighbour, first_seq, messages, session)))

    def _status(self) -> Status:
        machine = self.stepper.machine
        return Status(
            site=self.site,
            ends={place: host.end for place, host in self.store.hosts.items()},
            commits={place: machine.commits.get(place, 0) for place in self.store.hosts},
            accepts=machine.accepts_rows(),
            results_end=self.store.results.end,
            dead_end=self.store.dead.end,
            leftovers=machine.leftovers(),
            events=self.store.journal.end,
            journal_bytes=self.stepper.journal_bytes,
            waiting=self.links.waiting(),
            links=self.links.troubles(),
            recovered=self.store.recovered,
            rss=int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
            operators=list(machine.config.operators),
            stale=machine.legs.replicating.stale(),
            parent=machine.parent or "",
        )

    def _read_log(self, asked: Ticket) -> pa.Table:
        host = self.store.hosts.get(PlaceId(asked.place))
        if host is None:
            raise UnknownName(f"place of {self.site}", asked.place, [str(place) for place in self.store.hosts])
        _check_there(host.records, asked.position)
        entries = host.read(asked.position, asked.max_rows)
        _check_there(host.records, asked.position)  # again: it may have been cut off before it was read
        found = list(slices(entries, self._groups))
        end = entries[-1][0] + length(entries[-1][1]) if entries else asked.position
        columns: list[Any] = list(zip(*found, strict=True)) if found else [[] for _ in Slice._fields]
        columns.insert(0, [asked.place] * len(found))
        schema = protocol.with_next(protocol.SLICE_SCHEMA, end)
        return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)

    def _read_results(self, position: int, max_rows: int, wait_s: float) -> list[tuple[int, bytes]]:
        """As they lie in the log, in the order in which they landed."""
        results = self.store.results
        if wait_s and results.end <= position:
            self.stepper.wait_until(lambda: results.end > position, min(wait_s, protocol.LONGEST_WAIT_S))
        return list(_records(results, position, max_rows))

    def _read_dead(self, asked: Ticket) -> pa.Table:
        records = _records(self.store.dead, asked.position, asked.max_rows)
        found = [(at, *_dead.decode(record)) for at, record in records]
        schema = protocol.with_next(protocol.DEAD_SCHEMA, found[-1][0] + 1 if found else asked.position)
        columns: list[Any] = list(zip(*found, strict=True)) if found else [[], [], []]
        return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)


_ACTIONS = [
    *(protocol.OFFER, protocol.OFFERS, protocol.ADVANCE, protocol.FRAME, protocol.NEWS, protocol.STATUS),
    *(protocol.NEIGHBOURS, protocol.PRESSURE, protocol.CHUNKS, protocol.FOLLOW, protocol.RELEASE, protocol.RESULTS),
    protocol.RELAY,
]


def _told_parts(parts: Iterator[bytes]) -> Iterator[bytes]:
    with told_to_the_client():  # what is raised while they are sent, too
        yield from parts


def _single(event: Event) -> Single:
    if isinstance(event, Together | HandedBack):
        raise ProtocolError("events were offered as one that is a router's own", "offer them one by one or with offers")
    return event


def _records(records: RecordLog, begin: int, max_rows: int) -> Iterator[tuple[int, bytes]]:
    _check_there(records, begin)
    position, room = begin, max_rows
    while room > 0 and (found := records.read(position, max_length=room)):
        _check_there(records, position)  # again: it may have been cut off before it was read
        yield from found
        position = found[-1][0] + 1  # behind its first row: the next record is what comes after
        room = max_rows - (position - begin)


def _check_there(records: RecordLog, position: int) -> None:
    if position < records.first:
        raise ProtocolError(
            f"position {position} of {records.directory.name} was asked for, which begins at {records.first}",
            "read on from where it begins; what lies before was committed and cut off",
        )


def _unreadable(what: str, error: Exception) -> ProtocolError:
    return ProtocolError(f"the body of {what} cannot be read: {error}", "run the same version on both sides")
