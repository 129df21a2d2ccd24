"""The door of every listener: who has no token, or speaks another version, does not come in."""

import hmac
from typing import Any
from urllib.parse import unquote

import pyarrow.flight as flight

from peregrine.core.format_version import FORMAT
from peregrine.net import protocol
from peregrine.net.faults import told_to_the_client
from peregrine.types import SiteId


class Door(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets in who has the token, and is at the right door: after restarts an address may be another router's."""

    def __init__(self, token: str, site: SiteId | None = None) -> None:
        """Without a `site` it is nobody's door who is looked for by site."""
        super().__init__()
        self._expected = f"Bearer {token}".encode()
        self._site = site

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> None:
        said = {name.lower(): values for name, values in headers.items()}
        given = said.get("authorization", [])
        if len(given) != 1 or not hmac.compare_digest(str(given[0]).encode(), self._expected):
            raise flight.FlightUnauthenticatedError("a call without the token of this listener")
        told_version = said.get(protocol.VERSION, ["none"])[0]
        if told_version != str(FORMAT):
            here = "this listener" if self._site is None else f"the router of {self._site}"
            with told_to_the_client():
                raise protocol.other_version(here, told_version)
        if any(unquote(site) != self._site for site in said.get(protocol.SITE, [])):
            here = "somebody who is no router" if self._site is None else f"the router of {self._site}"
            raise flight.FlightUnavailableError(f"{here} listens there now")
