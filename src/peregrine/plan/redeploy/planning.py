"""The planner as the manager's machine knows it (`core/planning.py`)."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from peregrine.core.keyspace import KeySet
from peregrine.core.operator import OpSpec
from peregrine.core.placement import Initial, Placement
from peregrine.core.topology import Link, Site, Topology
from peregrine.core.validity import Feeds
from peregrine.core.waves import Obstacles
from peregrine.errors import PlanError
from peregrine.plan.redeploy.changes import Changes
from peregrine.plan.redeploy.detour import Way, detour
from peregrine.plan.redeploy.events import SiteMoved, TopologyEvent
from peregrine.plan.redeploy.layout import Layout
from peregrine.plan.redeploy.planner import Planner, Redeployment
from peregrine.plan.redeploy.queue import TopologyQueue, Verdict
from peregrine.plan.redeploy.validity import elsewhere, moved_wrongly, violations
from peregrine.plan.redeploy.world import World
from peregrine.types import OpId, PlaceId, SiteId, SourceId, site_of


class PlannedChanges:
    def __init__(self, planner: Planner, feeds: Feeds) -> None:
        """`feeds` grows as sources are made known: what one feeds the planner is told when it is heard."""
        self.planner = planner
        self._feeds = feeds

    def tell(self, fact: object) -> bool:
        assert isinstance(fact, TopologyEvent)
        if self.planner.queue.offer(fact) is Verdict.TAKEN:
            self.planner.mending.stirred()
        return isinstance(fact, SiteMoved)

    def plan(self, obstacles: Obstacles | None = None) -> Redeployment | None:
        return self.planner.plan(obstacles)

    def stirred(self) -> None:
        self.planner.mending.stirred()

    def why_not(self) -> list[tuple[str, PlanError]]:
        postponed = [(str(each.fact), each.error) for each in self.planner.postponed]
        return [*postponed, *self.planner.mending.refused]

    def succeeded(self) -> None:
        self.planner.succeeded()

    def failed(self) -> None:
        self.planner.failed()

    def attached(self, source: SourceId, site: SiteId) -> bool:
        planner, feeding, feeds = self.planner, self.planner.layout.feeding, self._feeds.get(source, ())
        if site not in planner.world:
            return False
        if source in feeding and planner.is_attached(source, site) and feeding.feeds(source) == feeds:
            return False
        planner.attached(source, site, feeds)
        return True

    def detached(self, source: SourceId) -> None:
        self.planner.detached(source)

    def moved(self, op: OpId, keys: KeySet, place: PlaceId) -> None:
        self.planner.moved(op, keys, place)

    def arrived(self, op: OpId, keys: KeySet, place: PlaceId) -> None:
        self.planner.arrived(op, keys, place)

    def site(self, site: SiteId) -> Site:
        return self.planner.world.stations[site].site

    def link(self, a: SiteId, b: SiteId) -> Link:
        return self.planner.world.links[a][b]

    def detour(self, site: SiteId, above: SiteId) -> Way | None:
        return detour(self.planner.world, self.planner.queue, site, above)

    def deployed(
        self, redeployment: object, carried_out: Topology, late: Collection[SiteId] = ()
    ) -> tuple[Topology, list[str]]:
        """What rehomings have made of the tree, with the hosts and links that have changed in their places."""
        assert isinstance(redeployment, Redeployment)
        # It was made for the old links: those that no tree uses are known to the planner alone. A value of its own in
        # any case: whoever planned for an older tree looks again.
        topology = replace(carried_out, unused=())
        world, wrong = self.planner.world, []
        for site in _touched(redeployment):
            if site in late:
                continue
            parent = topology.parent(site) if site in topology else None
            if (site in topology) != (site in world) or parent != world.parent.get(site):
                wrong.append(f"{site} is below {parent or 'nobody'}, and was to be below {world.parent.get(site)}")
            elif site in topology:
                topology = topology.with_details(self.site(site))
                topology = topology if parent is None else topology.with_link(site, self.link(site, parent))
        return (world.topology() if wrong and not late else topology), wrong

    def wrong(self, redeployment: object, placement: Placement, taken_back: bool) -> list[str]:
        assert isinstance(redeployment, Redeployment)
        world, layout, relocations = self.planner.world, self.planner.layout, redeployment.relocations
        if taken_back:
            relocations = tuple(replace(each, source=each.target, target=each.source) for each in relocations)
        sites = _touched(redeployment)
        sites.update(dict.fromkeys(site_of(place) for each in relocations for place in (each.source, each.target)))
        found = [
            *violations(world, layout, sorted(sites)),
            *moved_wrongly(world, layout, relocations),
            *elsewhere(layout, relocations, placement.where),
        ]
        return list(dict.fromkeys(found))


def planning_of(topology: Topology, specs: Mapping[OpId, OpSpec], initial: Initial, feeds: Feeds) -> PlannedChanges:
    """Of a deployment that begins: it learns of its sources as they come."""
    changes = Changes()
    world = World.of(topology, changes)
    layout = Layout(specs, world.main_place(world.root), changes, initial)
    return PlannedChanges(Planner(world, layout, TopologyQueue(world.root)), feeds)


def _touched(redeployment: Redeployment) -> dict[SiteId, None]:
    """The sites of which a redeployment says that something changes: they, their links, or their ways to the root."""
    shift = redeployment.shift
    told = (site for fact in redeployment.facts for site in fact.subject)
    return dict.fromkeys(sorted({*told, *shift.moved, *shift.joined, *shift.left, *shift.changed}))
