"""How everybody else talks to a router: devices, hosts, neighbouring routers, the manager.

A call either has happened (what was offered is durable) or raises; after an error the same may be offered again, a
router recognises repeats. A client holds settings only: it can be pickled, and connects when it is first used and again
after an error. Threads may share one.
"""

import threading
from collections.abc import Mapping

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from peregrine.core import journal
from peregrine.core.messages import Event, FromSource
from peregrine.net import protocol
from peregrine.net.faults import told_by_the_router
from peregrine.net.protocol import Neighbour, News, Status, Ticket
from peregrine.types import PlaceId, SiteId

CALL_S = 30.0
_OPTIONS = [  # a router that was restarted is found again at once, not after gRPC's own back-off
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),
]


class RouterClient:
    def __init__(self, address: str, token: str, timeout_s: float = CALL_S) -> None:
        """`address` is `host:port`."""
        self.address = address
        self._token = token
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._connection: flight.FlightClient | None = None

    # --- handing over ---

    def offer(self, event: Event) -> int | None:
        """Returns when the event is durable. For rows of a source: the last of its rows that is safe there.

        Raises `Busy` for rows of a source while the router's hosts are too far behind.
        """
        answer = self._act(protocol.OFFER, journal.encode(event))
        return msgspec.msgpack.decode(answer, type=int) if isinstance(event, FromSource) else None

    def frame(self, neighbour: SiteId, first_seq: int, messages: list[bytes]) -> int:
        """Items of a neighbouring router as core/wire.py writes them; returns the last that is safe there."""
        answer = self._act(protocol.FRAME, protocol.encode((neighbour, first_seq, messages)))
        return msgspec.msgpack.decode(answer, type=int)

    def tell_neighbours(self, neighbours: Mapping[SiteId, Neighbour]) -> None:
        self._act(protocol.NEIGHBOURS, protocol.encode(dict(neighbours)))

    def tell_pressure(self, pressed: bool) -> None:
        self._act(protocol.PRESSURE, protocol.encode(pressed))

    # --- reading ---

    def read_log(self, place: PlaceId, offset: int, max_rows: int = 100_000) -> tuple[pa.Table, int]:
        """Slices (`SLICE_SCHEMA`) of whole entries from `offset` on, and the offset to read on from."""
        return self._get(Ticket(protocol.LOG, place, offset, max_rows))

    def read_results(self, position: int, max_rows: int = 100_000) -> tuple[pa.Table, int]:
        """`RESULT_SCHEMA`: what landed in sinks here, in the order in which it landed."""
        return self._get(Ticket(protocol.RESULTS, "", position, max_rows))

    def read_dead(self, position: int, max_rows: int = 1000) -> tuple[pa.Table, int]:
        """`DEAD_SCHEMA`: what could not be routed, and why."""
        return self._get(Ticket(protocol.DEAD, "", position, max_rows))

    def news(self, after: int = 0, wait_s: float = protocol.NEWS_WAIT_S) -> tuple[int, list[News]]:
        """What the router has to tell its manager since index `after`; waits a little when there is nothing.

        The index never goes back, also when the router restarts; some news may then come again.
        """
        return protocol.decode_news(self._act(protocol.NEWS, protocol.encode((after, wait_s))))

    def status(self) -> Status:
        return msgspec.msgpack.decode(self._act(protocol.STATUS, b""), type=Status)

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> "RouterClient":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getstate__(self) -> tuple[str, str, float]:
        return self.address, self._token, self._timeout_s

    def __setstate__(self, state: tuple[str, str, float]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    # --- calls ---

    def _act(self, name: str, body: bytes) -> bytes:
        with told_by_the_router(self.address):
            results = list(self._connected().do_action((name, body), self._options()))
        return bytes(results[0].body.to_pybytes()) if results else b""

    def _get(self, ticket: Ticket) -> tuple[pa.Table, int]:
        with told_by_the_router(self.address):
            reader = self._connected().do_get(flight.Ticket(protocol.encode(ticket)), self._options())
            table = reader.read_all()
        return table, protocol.next_of(table.schema)

    def _options(self) -> flight.FlightCallOptions:
        header = (b"authorization", f"Bearer {self._token}".encode())
        return flight.FlightCallOptions(timeout=self._timeout_s, headers=[header])

    def _connected(self) -> flight.FlightClient:
        with self._lock:
            if self._connection is None:
                self._connection = flight.FlightClient(f"grpc://{self.address}", generic_options=_OPTIONS)
            return self._connection
