"""By way of whom two neighbours can talk, if it was told that the link between them is gone.

A site that has begun to change its parent cannot be sent elsewhere before that is over: only its new parent knows what
it has of the site (docs/decisions/0022). What waits because of that has not been deployed, but is known: the site has
another link, and whoever is there passes on what the two have to tell each other. So it arrives where it no longer can
stay, and then goes on like any other.
"""

from peregrine.core.topology import Link
from peregrine.plan.redeploy.events import between
from peregrine.plan.redeploy.queue import TopologyQueue
from peregrine.plan.redeploy.world import World
from peregrine.types import SiteId

Way = tuple[SiteId, Link]  # somebody else, and what the whole way is like


def detour(world: World, queue: TopologyQueue, site: SiteId, above: SiteId) -> Way | None:
    """The shortest from a site to one above it; None if their link is there, or there is no other way."""
    gone = queue.told(between(site, above))
    if gone is None or gone.value is not None or above not in world:
        return None
    links: dict[SiteId, Link | None] = {**world.links.get(site, {}), **dict(queue.told_of_links(site))}
    below = set(world.subtree(site)) if site in world else {site}
    ways = [
        (by, _and(link, world, by, above))
        for by, link in links.items()
        if link is not None and by in world and by not in below and by != above
    ]
    return min(ways, key=lambda way: (way[1].latency_ms, way[0]), default=None)


def _and(link: Link, world: World, by: SiteId, above: SiteId) -> Link:
    """A link, and behind it the way through the tree."""
    top = world.lca(by, above)
    links = [link]
    for end in (by, above):
        while end != top:
            links.append(world.links[end][world.parent[end]])
            end = world.parent[end]
    return Link(sum(each.latency_ms for each in links), min(each.bandwidth_mbps for each in links))
