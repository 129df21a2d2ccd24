"""What has to stay as it is meanwhile: sites are late on their way to new parents, and plans use sites.

Two rehomings that share routers are not carried out at the same time (docs/decisions/0022). A fact for which somebody
would have to change parents by way of the routers of one that is late is put off, so that it holds up nobody else.
"""

from collections.abc import Iterable, Iterator

from peregrine.core.keyspace import KeySet
from peregrine.core.rehoming import Rehoming
from peregrine.core.waves import Obstacles
from peregrine.errors import PlanError
from peregrine.plan.redeploy.layout import Layout
from peregrine.plan.redeploy.mending import Doubts, note
from peregrine.plan.redeploy.world import Shift, World
from peregrine.types import SiteId


class Held:
    def __init__(self, world: World, obstacles: Obstacles) -> None:
        self._world, self._obstacles = world, obstacles
        self._ways: dict[SiteId, Rehoming] = {}  # nobody changes parents by way of these
        self._above: dict[SiteId, Rehoming] = {}  # these keep their parents
        for late in obstacles.late:
            self._hold(late)

    def _hold(self, late: Rehoming) -> None:
        """By the tree as it is and as it is planned: they differ only where somebody is late."""
        self._ways[late.site] = late
        for end in (late.source, late.target):
            for way in self._ways_up(end) if end is not None else ():
                if late.source is None or late.target is None:  # only the way is learnt or forgotten
                    self._above.update(dict.fromkeys(way, late))
                else:
                    meets = way.index(late.meets) if late.meets in way else len(way)
                    self._ways.update(dict.fromkeys(way[:meets], late))
                    self._above.update(dict.fromkeys(way[meets:], late))

    def _ways_up(self, site: SiteId) -> Iterator[list[SiteId]]:
        """To below the root, which is never in anybody's way."""
        topology, world = self._obstacles.topology, self._world
        if site in topology:
            yield [each for each in (site, *topology.ancestors(site)) if each != world.root]
        if site in world:
            yield [each for each in (site, *world.ancestors(site)) if each != world.root]

    def awaited(self, layout: Layout) -> Doubts:
        """Keys of which something is produced at a site that is late, or below it: where they belong is not decided by
        where that is now.
        """
        found: Doubts = {}
        sites = {
            site for late in self._obstacles.late if late.site in self._world for site in self._world.subtree(late.site)
        }
        for site in sites:
            fed = [(op, keys) for source in layout.feeding.at(site) for op, keys in layout.feeding.feeds(source)]
            fed += [
                (op, KeySet.everything(layout.operators[op].groups))
                for producer, _ in layout.instances_at(site)
                for op in layout.consumers[producer]
            ]
            for op, keys in fed:
                note(found, op, keys)
        return found

    def check(self, shift: Shift) -> None:
        """Can a change of the tree, which the world has by now, be carried out beside what is late?"""
        for site in shift.left:
            if self._obstacles.used(site):
                raise PlanError(
                    f"a plan that runs moves keys to or from {site}", "wait until it has ended, or cancel it"
                )
        if self._obstacles.late:
            for site in (*shift.rehomed, *shift.joined, *shift.left):
                self._check(site, self._above, [site])
                self._check(site, self._ways, [site, *shift.old_ancestors(site, self._world)])
                if site in self._world:
                    self._check(site, self._ways, self._world.ancestors(site))

    def _check(self, site: SiteId, held: dict[SiteId, Rehoming], sites: Iterable[SiteId]) -> None:
        for each in sites:
            if each in held:
                late = held[each]
                raise PlanError(
                    f"{site} cannot change its parent: {late}, by {late.meets}, is not over, and needs {each}",
                    f"see that {' and '.join(filter(None, (late.site, late.target)))} run and can reach each other",
                )
