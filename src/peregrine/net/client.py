"""How everybody else talks to a router: devices, hosts, neighbouring routers, the manager.

A call either has happened (what was offered is durable) or raises; after an error the same may be offered again, a
router recognises repeats. A client holds settings only: it can be pickled, and connects when it is first used and again
after an error. Threads may share one.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa

from peregrine.core import journal
from peregrine.core.messages import FromSource, Single
from peregrine.errors import PeregrineError
from peregrine.net import protocol
from peregrine.net.connection import Connection
from peregrine.net.faults import Told, as_it_was
from peregrine.net.protocol import Detour, Neighbour, News, Status, Ticket
from peregrine.types import PlaceId, SiteId

CALL_S = 30.0
MOST_FRAMES = 64  # at a time, each of a megabyte at most
_answers = msgspec.msgpack.Decoder(list[tuple[int | None, Told | None]])
_records = msgspec.msgpack.Decoder(list[tuple[int, bytes]])


class RouterClient:
    def __init__(self, address: str, token: str, timeout_s: float = CALL_S, site: SiteId | None = None) -> None:
        """`address` is `host:port`, with TLS as net/tls.py writes it. With a `site`, a router of another one that is
        found there is not talked to.
        """
        self.address = address
        self.site = site
        self._token = token
        self._timeout_s = timeout_s
        self._connection = Connection("router", address, token, timeout_s, site)

    @staticmethod
    def by_way_of(detour: Detour, site: SiteId, token: str, timeout_s: float) -> "RouterClient":
        """For what neighbours tell each other (net/relay.py), and nothing else."""
        return _Relayed(detour, site, token, timeout_s)

    # --- handing over ---

    def offer(self, event: Single) -> int | None:
        """Returns when the event is durable. For rows of a source: the last of its rows that is safe there.

        Raises `Busy` for rows of a source while the router's hosts are too far behind.
        """
        answer = self._act(protocol.OFFER, journal.encode(event))
        return msgspec.msgpack.decode(answer, type=int) if isinstance(event, FromSource) else None

    def offer_all(self, events: Sequence[Single]) -> list[int | PeregrineError | None]:
        """As `offer` for each of them, in one call: the answer to each, or the error that it would have raised."""
        answer = self._act(protocol.OFFERS, protocol.encode([journal.encode(event) for event in events]))
        return [as_it_was(fault) if fault is not None else acked for acked, fault in _answers.decode(answer)]

    def advance(
        self, committed: Mapping[PlaceId, int], wait_s: float = 0.0
    ) -> tuple[dict[PlaceId, int], list[PlaceId]]:
        """A host tells how far it has durably applied the logs of its places; returns where each of them ends, and
        those that nobody follows.

        With `wait_s`, one that has applied everything waits a little for more.
        """
        answer = self._act(protocol.ADVANCE, protocol.encode((dict(committed), wait_s)))
        return msgspec.msgpack.decode(answer, type=tuple[dict[PlaceId, int], list[PlaceId]])

    def frame(self, neighbour: SiteId, first_seq: int, messages: list[bytes], session: int = 0) -> int:
        """Items of a neighbouring router as core/wire.py writes them; returns the last that is safe there."""
        answer = self._act(protocol.FRAME, protocol.encode((neighbour, first_seq, messages, session)))
        return msgspec.msgpack.decode(answer, type=int)

    def tell_neighbours(self, neighbours: Mapping[SiteId, Neighbour]) -> None:
        """Where routers listen that are neighbours, or will be. It keeps that, also over a restart."""
        self._act(protocol.NEIGHBOURS, protocol.encode(dict(neighbours)))

    def tell_pressure(self, pressed: bool) -> None:
        self._act(protocol.PRESSURE, protocol.encode(pressed))

    # --- reading ---

    def read_log(self, place: PlaceId, offset: int, max_rows: int = 100_000) -> tuple[pa.Table, int]:
        """Slices (`SLICE_SCHEMA`) of whole entries from `offset` on, and the offset to read on from."""
        return self._get(Ticket(protocol.LOG, place, offset, max_rows))

    def read_results(self, position: int, max_rows: int = 100_000, wait_s: float = 0.0) -> tuple[pa.Table, int]:
        """`RESULT_SCHEMA`: what landed in sinks here, in the order in which it landed.

        When there is nothing new it is waited for, `wait_s` at most.
        """
        answer = self._act(protocol.RESULTS, protocol.encode((position, max_rows, wait_s)))
        table = protocol.results_of(_records.decode(answer))
        return table, table.column("position")[-1].as_py() + 1 if len(table) else position

    def read_dead(self, position: int, max_rows: int = 1000) -> tuple[pa.Table, int]:
        """`DEAD_SCHEMA`: what could not be routed, and why."""
        return self._get(Ticket(protocol.DEAD, "", position, max_rows))

    def chunks(self, origin: SiteId, names: Sequence[bytes], via: SiteId | None = None) -> Iterator[bytes]:
        """Chunks of the store of a site, in this order, as they come; the router asks for them where it must.

        `via` is the router that asks, if it is one: the way on may depend on it while sites change their parents.
        """
        return self._connection.act_in_parts(protocol.CHUNKS, protocol.encode((origin, list(names), via)))

    def follow(self, place: PlaceId, offset: int) -> Iterator[list[bytes]]:
        """The entries of a host's log from `offset` on, as they come (net/push.py), until somebody else follows: all
        frames that have come, again and again.
        """
        return self._connection.act_in_bunches(protocol.FOLLOW, protocol.encode((place, offset)), MOST_FRAMES)

    def release(self, place: PlaceId) -> None:
        """Whoever follows the log of this place is to stop."""
        self._act(protocol.RELEASE, protocol.encode(place))

    def news(self, after: int = 0, wait_s: float = protocol.NEWS_WAIT_S) -> tuple[int, list[News]]:
        """What the router has to tell its manager since index `after`; waits a little when there is nothing.

        The index never goes back, also when the router restarts; some news may then come again.
        """
        return protocol.decode_news(self._act(protocol.NEWS, protocol.encode((after, wait_s))))

    def status(self) -> Status:
        return msgspec.msgpack.decode(self._act(protocol.STATUS, b""), type=Status)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> "RouterClient":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getstate__(self) -> tuple[str, str, float, SiteId | None]:
        return self.address, self._token, self._timeout_s, self.site

    def __setstate__(self, state: tuple[str, str, float, SiteId | None]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    # --- calls ---

    def _act(self, name: str, body: bytes) -> bytes:
        return self._connection.act(name, body)

    def _get(self, ticket: Ticket) -> tuple[pa.Table, int]:
        table = self._connection.get(protocol.encode(ticket))
        return table, protocol.next_of(table.schema)


class _Relayed(RouterClient):
    def __init__(self, detour: Detour, site: SiteId, token: str, timeout_s: float) -> None:
        super().__init__(detour.address, token, timeout_s, detour.site)
        self._passed_on = (site, detour.onward)

    def _act(self, name: str, body: bytes) -> bytes:
        return super()._act(protocol.RELAY, protocol.encode((*self._passed_on, name, body)))
