"""The names that every layer shares: identifiers, nothing else.

A place is `site` or `site/host`; an operator is `app/op`. Keeping them as NewTypes of `str` makes them free at run
time and impossible to mix up in a type checker.
"""

from typing import Literal, NewType

OpId = NewType("OpId", str)
SiteId = NewType("SiteId", str)
PlaceId = NewType("PlaceId", str)
SourceId = NewType("SourceId", str)
MigrationId = NewType("MigrationId", str)

Runner = Literal["microbatch", "continuous"]  # how a host runs (spark/host.py, spark/continuous.py)


def site_of(place: PlaceId) -> SiteId:
    """The site on which a place is."""
    return SiteId(place.partition("/")[0])


def host_of(place: PlaceId) -> str:
    """The host of its site that a place is; empty for a site that is one place."""
    return place.partition("/")[2]
