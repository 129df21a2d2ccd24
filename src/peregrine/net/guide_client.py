"""How routers, devices and anybody else talk to a guide."""

from collections.abc import Iterable

from peregrine.net import guide_protocol as says
from peregrine.net.connection import Connection
from peregrine.net.protocol import encode
from peregrine.plan.guide import Notice, Sighting, Use
from peregrine.plan.nearest import Position, Whereabouts
from peregrine.types import SiteId

CALL_S = 10.0


class GuideClient:
    def __init__(self, address: str, token: str, timeout_s: float = CALL_S) -> None:
        """`address` is `host:port`, with TLS as net/tls.py writes it."""
        self.address = address
        self._connection = Connection("guide", address, token, timeout_s)

    def register(self, router: Whereabouts) -> float:
        """Returns for how many seconds; then it is gone, unless it registers again."""
        return says.lease.decode(self._connection.act(says.REGISTER, encode(router)))

    def withdraw(self, site: SiteId) -> None:
        self._connection.act(says.WITHDRAW, encode(site))

    def see(self, sightings: Iterable[Sighting]) -> None:
        self._connection.act(says.SEE, encode(list(sightings)))

    def follow(self, sightings: Iterable[Sighting], uses: Iterable[Use], wait_s: float = 0.0) -> list[Notice]:
        """What to tell those that use these routers, as soon as there is something, `wait_s` at most."""
        body = encode((list(sightings), list(uses), wait_s))
        return says.notices.decode(self._connection.act(says.FOLLOW, body))

    def nearest(self, position: Position) -> Whereabouts | None:
        return says.perhaps_whereabouts.decode(self._connection.act(says.NEAREST, encode(position)))

    def routers(self) -> list[Whereabouts]:
        return says.all_whereabouts.decode(self._connection.act(says.ROUTERS, b""))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> "GuideClient":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
