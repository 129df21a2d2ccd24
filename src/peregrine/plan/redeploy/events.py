"""What is told about the topology, as facts: a site or a link is so, or is gone, as of a version.

Each subject (a site, or the link between two sites) has a version that grows with each change of it; whoever observes
it counts (one counter for everything does as well). The rules:

- Added and changed are one fact, `SiteSet` or `LinkSet`: whether it is new follows from what is known.
- Of two facts about a subject the one with the higher version holds, whichever comes first. A fact at or below the
  version that is known is ignored. So order and repetition do not matter.
- Two different facts about a subject with one version contradict each other: neither is believed, and what was told
  with a lower version holds, whichever comes first. If one of the two has been deployed already, it stays. A higher
  version settles it.
- A link whose ends are not both there is a fact, but no way; it becomes one when they are.
- The root is never removed.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from peregrine.core.topology import Link, Site
from peregrine.errors import ConfigurationError
from peregrine.types import SiteId

Subject: TypeAlias = tuple[SiteId] | tuple[SiteId, SiteId]


@dataclass(frozen=True, slots=True)
class Station:
    """A site as planning sees it: `slots` is how many instances of operators it may run; None: as many as there are."""

    site: Site
    slots: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.slots is not None and self.slots < 0:
            raise ConfigurationError(f"site {self.site.id!r} with {self.slots} slots", "give 0 slots or more")


@dataclass(frozen=True, slots=True)
class SiteSet:
    """A site was added or has changed."""

    station: Station
    version: int


@dataclass(frozen=True, slots=True)
class SiteRemoved:
    """A site is to leave. It still runs: what is on it is moved away first. (A site that is just silent is links that
    are removed.)
    """

    site: SiteId
    version: int


@dataclass(frozen=True, slots=True)
class LinkSet:
    """A link was added or has changed."""

    a: SiteId
    b: SiteId
    link: Link
    version: int


@dataclass(frozen=True, slots=True)
class LinkRemoved:
    a: SiteId
    b: SiteId
    version: int


@dataclass(frozen=True, slots=True)
class SiteMoved:
    """A site has lost its link to one site and has one to another: two facts, told at once."""

    site: SiteId
    source: SiteId
    target: SiteId
    link: Link
    version: int


TopologyEvent = SiteSet | SiteRemoved | LinkSet | LinkRemoved | SiteMoved


@dataclass(frozen=True, slots=True)
class Fact:
    """`value` None: it is gone."""

    subject: Subject
    version: int
    value: Station | Link | None

    @property
    def place_in_batch(self) -> tuple[int, Subject]:
        """What adds comes before what takes away, so that a way that is replaced is never missing between."""
        is_link = len(self.subject) == 2
        return (int(is_link) if self.value is not None else 3 - int(is_link)), self.subject

    def __str__(self) -> str:
        what = " - ".join(self.subject)
        return f"{'link' if len(self.subject) == 2 else 'site'} {what} {'is gone' if self.value is None else 'is set'}"


def between(a: SiteId, b: SiteId) -> Subject:
    """A link is the same in both directions."""
    if a == b:
        raise ConfigurationError(f"a link joins site {a!r} to itself", "join two different sites")
    return (a, b) if a < b else (b, a)


def facts_of(event: TopologyEvent) -> tuple[Fact, ...]:
    match event:
        case SiteSet(station, version):
            return (Fact((station.site.id,), version, station),)
        case SiteRemoved(site, version):
            return (Fact((site,), version, None),)
        case LinkSet(a, b, link, version):
            return (Fact(between(a, b), version, link),)
        case LinkRemoved(a, b, version):
            return (Fact(between(a, b), version, None),)
        case SiteMoved(site, source, target, link, version):
            if source == target:
                return (Fact(between(site, target), version, link),)
            return Fact(between(site, source), version, None), Fact(between(site, target), version, link)
