"""The difference between two deployments, as it is sent out: contexts for fragments, a marker for each application.

A fragment is what one application has on one site: operators and attached sources. A context brings a fragment from
one version to the next (ISQD 4.1); a reconfiguration marker says, in the stream, when (4.2). Consumers that stay where
they are get no context, although their rows come another way: rules are looked up by key, nobody knows its producers.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from peregrine.core.keyspace import KeySet
from peregrine.plan.redeploy.layout import AppId, Layout, app_of
from peregrine.plan.redeploy.placing import Relocation
from peregrine.plan.redeploy.world import Shift, World
from peregrine.types import OpId, SiteId, SourceId, site_of

Spot = tuple[SiteId, AppId]
Share = tuple[tuple[OpId, KeySet], ...]


class State(StrEnum):
    TO_BE_DEPLOYED = "to be deployed"
    TO_BE_UPDATED = "to be updated"
    TO_BE_UNDEPLOYED = "to be undeployed"


class Action(StrEnum):
    """What a fragment does when the marker reaches it, behind all rows that went before."""

    DRAIN = "drain"  # finish what is there, and end
    UPDATE = "update"  # finish what is there, and go on as the next version
    UPDATE_THEN_DRAIN = "update then drain"  # go on as a version that sends its state away, then end


@dataclass(frozen=True, slots=True)
class Fragment:
    operators: tuple[OpId, ...]
    sources: tuple[SourceId, ...]
    up: SiteId | None  # where its rows go that nobody claims here

    def __bool__(self) -> bool:
        return bool(self.operators or self.sources)


@dataclass(frozen=True, slots=True)
class Context:
    site: SiteId
    app: AppId
    state: State
    version: int  # from now on; of one that goes, its last
    fragment: Fragment  # as it will be; of one that goes, as it was
    gains: Share  # keys that come, with their state
    loses: Share  # keys that go


@dataclass(frozen=True, slots=True)
class Entry:
    site: SiteId
    version: int  # of the fragment that is to act: any other ignores the marker
    action: Action
    next_version: int | None  # None: it ends


@dataclass(frozen=True, slots=True)
class ReconfigurationMarker:
    """New fragments are not in it: they start when their context is there, or when their state is."""

    app: AppId
    entries: tuple[Entry, ...]
    enters_at: tuple[SiteId, ...]  # the lowest of its sites: from there it follows the rows up


@dataclass(frozen=True, slots=True)
class Delta:
    contexts: tuple[Context, ...]
    markers: tuple[ReconfigurationMarker, ...]


def touched_spots(layout: Layout, shift: Shift, relocations: Iterable[Relocation]) -> set[Spot]:
    """Whatever gains or loses keys, and whoever sends rows over a link that is another one now."""
    spots = {(site_of(place), app_of(each.op)) for each in relocations for place in (each.source, each.target)}
    spots.update((site, app) for site in shift.rehomed for app in layout.apps_at(site))
    return spots


def fragments(layout: Layout, spots: Iterable[Spot], up: Callable[[SiteId], SiteId | None]) -> dict[Spot, Fragment]:
    return {
        (site, app): Fragment(layout.ops_at(site, app), layout.sources_at(site, app), up(site)) for site, app in spots
    }


def delta(
    world: World,
    layout: Layout,
    shift: Shift,
    relocations: Iterable[Relocation],
    old: Mapping[Spot, Fragment],
    versions: Mapping[Spot, int],
    afresh: bool = False,
) -> Delta:
    """`afresh`: every fragment is taken away and deployed again, whether it has changed or not."""
    gains: dict[Spot, list[tuple[OpId, KeySet]]] = {}
    loses: dict[Spot, list[tuple[OpId, KeySet]]] = {}
    for each in relocations:
        gains.setdefault((site_of(each.target), app_of(each.op)), []).append((each.op, each.keys))
        loses.setdefault((site_of(each.source), app_of(each.op)), []).append((each.op, each.keys))
    contexts: list[Context] = []
    entries: dict[AppId, list[Entry]] = {}
    new = fragments(layout, old, lambda site: world.parent.get(site))
    for spot in sorted(old):
        (site, app), version = spot, versions.get(spot, 1 if old[spot] else 0)
        comes, goes = tuple(gains.get(spot, ())), tuple(loses.get(spot, ()))
        stateful = any(not layout.operators[op].stateless for op, _ in goes)
        taken_away = bool(old[spot]) and (afresh or not new[spot])
        if taken_away:
            contexts.append(Context(site, app, State.TO_BE_UNDEPLOYED, version, old[spot], (), goes))
            action = Action.UPDATE_THEN_DRAIN if stateful else Action.DRAIN
            next_version = version + 1 if stateful else None
            entries.setdefault(app, []).append(Entry(site, version, action, next_version))
        if new[spot] and (not old[spot] or afresh):
            # The version in between is the one that sends the state away.
            at = version + 2 if taken_away and stateful else version + 1
            contexts.append(Context(site, app, State.TO_BE_DEPLOYED, at, new[spot], comes, ()))
        elif new[spot] and (new[spot] != old[spot] or comes or goes):
            contexts.append(Context(site, app, State.TO_BE_UPDATED, version + 1, new[spot], comes, goes))
            entries.setdefault(app, []).append(Entry(site, version, Action.UPDATE, version + 1))
    markers = [
        ReconfigurationMarker(app, tuple(found), _lowest(world, shift, [entry.site for entry in found]))
        for app, found in sorted(entries.items())
    ]
    return Delta(tuple(contexts), tuple(markers))


def _lowest(world: World, shift: Shift, sites: list[SiteId]) -> tuple[SiteId, ...]:
    """The sites above none of the others, on the ways that rows still take: those of the old tree."""
    above = {site for each in sites for site in shift.old_ancestors(each, world)}
    return tuple(site for site in sites if site not in above)
