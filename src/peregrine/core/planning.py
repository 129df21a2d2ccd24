"""What the manager asks of whoever plans redeployments (`plan/redeploy/`), and what it gets.

The manager's machine (`core/redeploying.py`) knows facts and contexts only as things that it hands on.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from peregrine.core.keyspace import KeySet
from peregrine.core.placement import Placement
from peregrine.core.reconfigure import Plan
from peregrine.core.rehoming import Rehoming
from peregrine.core.topology import Link, Topology
from peregrine.core.waves import Obstacles, Told
from peregrine.errors import PlanError
from peregrine.types import OpId, PlaceId, SiteId, SourceId


class Redeployment(Protocol):
    @property
    def number(self) -> int: ...
    @property
    def before(self) -> tuple[Plan, ...]: ...
    @property
    def rehomings(self) -> tuple[tuple[Rehoming, ...], ...]: ...
    @property
    def after(self) -> tuple[Plan, ...]: ...
    @property
    def contexts(self) -> tuple[object, ...]:
        """What changes where, in the words of whoever plans."""

    @property
    def facts(self) -> tuple[object, ...]:
        """For which it is. None: it puts right where keys are that others have moved."""


class Planning(Told, Protocol):
    """What plans redeployments."""

    def tell(self, fact: object) -> bool:
        """A fact about the topology. What contradicts another is an error, and neither is believed. True if it needs no
        other to be carried out.
        """

    def plan(self, obstacles: Obstacles) -> Redeployment | None: ...
    def detour(self, site: SiteId, above: SiteId) -> tuple[SiteId, Link] | None:
        """By way of whom a site can reach one above it, if it was told that it has lost its link to it."""

    def why_not(self) -> Sequence[tuple[str, PlanError]]:
        """What the last `plan` had to put off."""

    def succeeded(self) -> None: ...
    def failed(self) -> None: ...
    def attached(self, source: SourceId, site: SiteId) -> bool:
        """False if it was known to be there."""

    def detached(self, source: SourceId) -> None: ...
    def moved(self, op: OpId, keys: KeySet, place: PlaceId) -> None:
        """By a plan of somebody else. Keys that are not above their producers now are planned again."""

    def arrived(self, op: OpId, keys: KeySet, place: PlaceId) -> None:
        """By a redeployment, or not: where keys are that it was to move. Likewise, but once."""

    def stirred(self) -> None:
        """Something has happened: what could not be planned may be possible now."""

    def deployed(
        self, redeployment: Redeployment, carried_out: Topology, late: Collection[SiteId]
    ) -> tuple[Topology, Sequence[str]]:
        """The tree when everything is carried out: what rehomings have made of it, and what else is otherwise at what
        is affected. And where rehomings have not made of it what was planned, but for sites that are late. To be asked
        before `succeeded`.
        """

    def wrong(self, redeployment: Redeployment, placement: Placement, taken_back: bool) -> Sequence[str]:
        """What is not valid where a redeployment has changed something. To be asked when it has ended."""
