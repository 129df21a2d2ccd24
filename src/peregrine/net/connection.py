"""Calls to a listener of Peregrine: the token on every one of them, TLS as the address says, errors as errors of ours.

They go through Flight, and to a router of this machine without TLS by a shorter way (net/local_socket.py). Only
settings are held: it connects when it is first used, and again after an error. Threads may share one.
"""

import threading
from collections.abc import Iterator
from urllib.parse import quote

import pyarrow as pa
import pyarrow.flight as flight

from peregrine.core.format_version import FORMAT
from peregrine.net import protocol
from peregrine.net.bunches import together
from peregrine.net.faults import told_by
from peregrine.net.local_client import LocalClient
from peregrine.net.tls import client_options, where
from peregrine.types import SiteId

_OPTIONS = [  # a listener that was restarted is found again at once, not after gRPC's own back-off
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),
]


class Connection:
    def __init__(self, who: str, address: str, token: str, timeout_s: float, site: SiteId | None = None) -> None:
        """`who` listens there, for errors. With a `site`, a router of another one is not talked to."""
        self._whom = f"the {who} at {where(address)}"
        self._address = address
        self._token = token
        self._timeout_s = timeout_s
        self._site = site
        self._lock = threading.Lock()
        self._client: flight.FlightClient | None = None
        self._local = LocalClient.of(address, token, site, timeout_s)

    def act(self, name: str, body: bytes) -> bytes:
        with told_by(self._whom):
            answer = None if self._local is None else self._local.act(name, body)
            if answer is not None:
                return answer
            results = list(self._connected().do_action((name, body), self._options()))
        return bytes(results[0].body.to_pybytes()) if results else b""

    def act_in_parts(self, name: str, body: bytes) -> Iterator[bytes]:
        """The parts of an answer, as they come."""
        with told_by(self._whom):
            parts = None if self._local is None else self._local.act_in_parts(name, body)
            yield from self._flight_parts(name, body) if parts is None else parts

    def act_in_bunches(self, name: str, body: bytes, most: int) -> Iterator[list[bytes]]:
        """Those of an answer that does not end by itself: what has come by now, again and again."""
        with told_by(self._whom):
            bunches = None if self._local is None else self._local.act_in_bunches(name, body, most)
            yield from together(self._flight_parts(name, body, endless=True), most) if bunches is None else bunches

    def _flight_parts(self, name: str, body: bytes, endless: bool = False) -> Iterator[bytes]:
        for result in self._connected().do_action((name, body), self._options(endless)):
            yield bytes(result.body.to_pybytes())

    def get(self, ticket: bytes) -> pa.Table:
        with told_by(self._whom):
            raw = None if self._local is None else self._local.act(protocol.TABLE, ticket)
            if raw is not None:
                return protocol.decode_table(raw)
            return self._connected().do_get(flight.Ticket(ticket), self._options()).read_all()

    def close(self) -> None:
        if self._local is not None:
            self._local.close()
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _options(self, endless: bool = False) -> flight.FlightCallOptions:
        headers = [
            (b"authorization", f"Bearer {self._token}".encode()),
            (protocol.VERSION.encode(), str(FORMAT).encode()),
        ]
        if self._site is not None:
            headers.append((protocol.SITE.encode(), quote(self._site).encode()))
        return flight.FlightCallOptions(timeout=None if endless else self._timeout_s, headers=headers)

    def _connected(self) -> flight.FlightClient:
        with self._lock:
            if self._client is None:
                location, tls = client_options(self._address)
                self._client = flight.FlightClient(location, generic_options=_OPTIONS, **tls)
            return self._client
