"""In which order sites change their parents: from one tree to another, and a tree all the way.

New sites come first, each below a parent that is there; sites that leave are last. In between, a site goes below its
new parent when that and all above it are where they will stay, so it never goes below itself. `meets` is where its old
way and its new one meet: there what went the one way is put in order with what goes the other (docs/decisions/0022).
The rehomings of a wave may happen in any order, because none of them changes another's ways. Which of them may happen
at the same time is found when they are carried out (`core/redeploying.py`).
"""

from collections.abc import Iterator
from itertools import groupby

from peregrine.core.rehoming import Rehoming
from peregrine.plan.redeploy.world import Shift, World
from peregrine.types import SiteId

Wave = tuple[Rehoming, ...]


def all_waves(world: World, shift: Shift) -> tuple[Wave, ...]:
    """Of sites that join, that change their parents, and that leave."""
    old_depth = {site: len(list(shift.old_ancestors(site, world))) for site in shift.left}
    joining = sorted(shift.joined, key=lambda each: (world.depth(each), each))
    leaving = sorted(shift.left, key=lambda each: (-old_depth[each], each))
    return (
        *(
            tuple(Rehoming(site, None, world.parent[site], world.root) for site in level)
            for _, level in groupby(joining, world.depth)
        ),
        *waves(world, shift),
        *(
            tuple(Rehoming(site, shift.left[site], None, world.root) for site in level)
            for _, level in groupby(leaving, old_depth.__getitem__)
        ),
    )


def waves(world: World, shift: Shift) -> tuple[Wave, ...]:
    """Of those that change their parents."""
    settled: dict[SiteId, SiteId] = {}  # new parents of what earlier waves have rehomed

    def chain(site: SiteId) -> Iterator[SiteId]:
        """From a site up to the root, as the tree is before the next wave."""
        here: SiteId | None = site
        while here is not None:
            yield here
            here = settled.get(here) or shift.old_parent(here, world)

    found: list[Wave] = []
    wave: list[Rehoming] = []
    ways: set[SiteId] = set()  # on which any of this wave depends
    for site in sorted(shift.rehomed, key=lambda each: (world.depth(each), each)):
        source, target = shift.rehomed[site]
        while True:
            old, new = list(chain(source)), list(chain(target))
            if site not in ways and {each.site for each in wave}.isdisjoint((*old, *new)) and site not in new:
                break
            assert wave, "what is nearer to the root has been rehomed"
            found.append(tuple(wave))
            settled.update((each.site, each.target) for each in wave if each.target is not None)
            wave, ways = [], set()
        above = set(old)
        wave.append(Rehoming(site, source, target, next(each for each in new if each in above)))
        ways.update(old, new)
    return (*found, tuple(wave)) if wave else tuple(found)
