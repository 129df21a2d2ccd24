"""The planner as the manager's machine knows it (`Planning` of `core/redeploying.py`)."""

from peregrine.core.keyspace import KeySet
from peregrine.core.topology import Link, Site, Topology
from peregrine.errors import PlanError
from peregrine.plan.redeploy.events import SiteMoved, TopologyEvent
from peregrine.plan.redeploy.planner import Planner, Redeployment
from peregrine.types import OpId, PlaceId, SiteId, SourceId


class PlannedChanges:
    def __init__(self, planner: Planner) -> None:
        self.planner = planner

    def tell(self, fact: object) -> bool:
        assert isinstance(fact, TopologyEvent)
        self.planner.queue.offer(fact)
        return isinstance(fact, SiteMoved)

    def plan(self) -> Redeployment | None:
        return self.planner.plan()

    def why_not(self) -> list[tuple[str, PlanError]]:
        return [(str(each.fact), each.error) for each in self.planner.postponed]

    def succeeded(self) -> None:
        self.planner.succeeded()

    def failed(self) -> None:
        self.planner.failed()

    def attached(self, source: SourceId, site: SiteId) -> bool:
        known = source in self.planner.layout.feeding and site in self.planner.world
        if not known or self.planner.is_attached(source, site):
            return False
        self.planner.attached(source, site)
        return True

    def detached(self, source: SourceId) -> None:
        self.planner.detached(source)

    def moved(self, op: OpId, keys: KeySet, place: PlaceId) -> None:
        self.planner.moved(op, keys, place)

    def site(self, site: SiteId) -> Site:
        return self.planner.world.stations[site].site

    def link(self, a: SiteId, b: SiteId) -> Link:
        return self.planner.world.links[a][b]

    def topology(self) -> Topology:
        return self.planner.world.topology()
