"""Is a deployment valid (ISQD 2, Falcon III-B)? An independent look, before and after every redeployment.

- every instance is at a place that is there, and no site has more instances than slots;
- from every producer a path leads to its consumer, and the consumer's instance is at or above it (but for sources that
  roam: rows find their keys by a detour, and the keys follow, `core/mobility.py`);
- state is complete: every key that was to move has arrived, at one place.

Asked for some sites it looks at what these produce; asked for all, at everything.
"""

from collections.abc import Callable, Iterable, Iterator

from peregrine.core.keyspace import KeySet
from peregrine.plan.redeploy.layout import Layout
from peregrine.plan.redeploy.placing import MANY_PRODUCERS, Relocation
from peregrine.plan.redeploy.world import World
from peregrine.types import OpId, PlaceId, SiteId, site_of


def violations(world: World, layout: Layout, sites: Iterable[SiteId]) -> Iterator[str]:
    """What is wrong with what is at these sites, and with who consumes from it."""
    for site in sites:
        if not layout.in_use(site):
            continue
        if site not in world:
            yield f"no path leads from {site} to the root, and it is in use"
            continue
        slots = world.stations[site].slots
        if slots is not None and layout.load(site) > slots:
            yield f"{site} has more instances than slots ({slots})"  # the same text as long as it is so
        for source in layout.feeding.at(site):
            for op, keys in layout.feeding.feeds(source):
                if op in layout.operators and not layout.operators[op].roaming:
                    for place in layout.partition(op, keys):
                        yield from _above(world, op, place, str(source), site)
        for op, at in layout.instances_at(site):
            if not world.has_place(at):
                yield f"{op} is at {at}, which is not there"
            for consumer in layout.consumers[op]:
                for place in layout.places(consumer):
                    yield from _above(world, consumer, place, op, site)


def moved_wrongly(world: World, layout: Layout, relocations: Iterable[Relocation]) -> Iterator[str]:
    """Has everything that was to move arrived, and is it above its producers?"""
    for each in relocations:
        if list(layout.partition(each.op, each.keys)) != [each.target]:
            yield f"{each.op} {{{each.keys.describe()}}} is not all at {each.target}"
        for nth, site in enumerate(layout.producers(each.op, each.keys)):
            if nth > MANY_PRODUCERS:
                break
            yield from _above(world, each.op, each.target, "a producer", site)


def elsewhere(
    layout: Layout, relocations: Iterable[Relocation], where: Callable[[OpId, KeySet], list[tuple[PlaceId, KeySet]]]
) -> Iterator[str]:
    """Does whoever carries plans out have these keys where the planner has them? (The two keep books of their own.)"""
    for each in relocations:
        for place, keys in where(each.op, each.keys):
            if list(planned := layout.partition(each.op, keys)) != [place]:
                yield f"{each.op} {{{keys.describe()}}} is at {place}, and was thought to be at {', '.join(planned)}"


def _above(world: World, op: OpId, place: PlaceId, producer: str, at: SiteId) -> Iterator[str]:
    if at not in world:  # a source has come to a site that was to join, and has not
        yield f"no path leads to the root from {at}, where {producer} produces for {op}"
    elif site_of(place) not in world or not world.is_at_or_above(site_of(place), at):
        yield f"{op} at {place} is not above {producer}, which produces for it at {at}"
