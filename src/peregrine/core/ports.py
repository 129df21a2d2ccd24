"""What rehomings need of their router, whichever part this router has in them (of legs: `core/leg.py`)."""

from typing import Protocol

from peregrine.core.intake import Intake
from peregrine.core.legs import Legs
from peregrine.core.messages import HandBack
from peregrine.core.routes import Route
from peregrine.core.rows import Clock, Item, Rows
from peregrine.core.rules import RuleTable
from peregrine.core.trail import Trail
from peregrine.core.ways import Ways
from peregrine.errors import ProtocolError
from peregrine.types import SiteId

Came = tuple[Item, SiteId | None]  # an item, and the neighbour that it came from


class Ports(Protocol):
    site: SiteId
    trail: Trail
    table: RuleTable[Route]
    ways: Ways
    intake: Intake
    legs: Legs

    def receive(self, item: Item, via: SiteId | None) -> None: ...
    def route(self, item: Rows | Clock, via: SiteId | None = None) -> None: ...
    def to_neighbour(self, neighbour: SiteId, item: Item) -> None: ...
    def up(self, item: Item) -> None: ...
    def hand_back(self, wanted: HandBack) -> None: ...
    def rehomed(self, number: int) -> None: ...
    def protocol_error(self, what: str) -> ProtocolError: ...
