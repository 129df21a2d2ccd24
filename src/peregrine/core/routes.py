"""Where a rule can send a row. Routes are values: equal routes share one number in the rule table."""

from dataclasses import dataclass

from peregrine.core.migrate import Role
from peregrine.types import MigrationId, PlaceId, SiteId


@dataclass(frozen=True, slots=True)
class Local:
    """To a host of this site."""

    place: PlaceId


@dataclass(frozen=True, slots=True)
class Up:
    """To the parent: nobody here or below claims the key."""


@dataclass(frozen=True, slots=True)
class Down:
    """To a child, whose subtree owns the key."""

    child: SiteId


@dataclass(frozen=True, slots=True)
class InLeg:
    """A migration decides, in the role that this router plays in it."""

    migration: MigrationId
    role: Role


@dataclass(frozen=True, slots=True)
class InRehoming:
    """Down to a site that is changing its parent: how far that is decides."""

    number: int


@dataclass(frozen=True, slots=True)
class Sink:
    """Into the results log."""


Route = Local | Up | Down | InLeg | InRehoming | Sink
