"""The difference between two deployments: a context for each fragment that is another one afterwards.

A fragment is what one application has on one site: operators and attached sources. A context says what becomes of it,
from one version to the next (ISQD 4.1). When it becomes so, routers find out in the stream, by the markers of
migrations and by the messages of rehomings (docs/decisions/0021): a context is for whoever wants to know what is
touched. Consumers that stay where they are get none, although their rows come another way: rules are looked up by key,
nobody knows its producers.
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
    """What a fragment does when the word of it comes, in the stream, behind all rows that went before (ISQD 4.2)."""

    DRAIN = "drain"  # finish what is there, and end: the mechanism `drain`, for what has no state
    UPDATE = "update"  # finish what is there, and go on as the next version: rules and parents change
    UPDATE_THEN_DRAIN = "update then drain"  # send the state away, working on, then end: the mechanism `live`


@dataclass(frozen=True, slots=True)
class Fragment:
    operators: tuple[OpId, ...]
    sources: tuple[SourceId, ...]
    up: SiteId | None  # where its rows go that nobody claims here

    def __bool__(self) -> bool:
        return bool(self.operators or self.sources)


NOTHING = Fragment((), (), None)


@dataclass(frozen=True, slots=True)
class Context:
    site: SiteId
    app: AppId
    state: State
    version: int  # from now on; of one that goes, its last
    before: Fragment  # as it is until then: empty, if there is none
    after: Fragment  # as it will be: empty, if it goes
    gains: Share  # keys that come, with their state
    loses: Share  # keys that go
    action: Action | None = None  # None: it is new, and begins with the first row or state that comes

    @property
    def version_before(self) -> int | None:
        """None: there is none until then."""
        match self.state:
            case State.TO_BE_DEPLOYED:
                return None
            case State.TO_BE_UPDATED:
                return self.version - 1
            case State.TO_BE_UNDEPLOYED:
                return self.version

    @property
    def version_after(self) -> int | None:
        """None: it ends."""
        return None if self.state is State.TO_BE_UNDEPLOYED else self.version

    @property
    def came(self) -> tuple[OpId, ...]:
        return tuple(op for op in self.after.operators if op not in self.before.operators)

    @property
    def went(self) -> tuple[OpId, ...]:
        return tuple(op for op in self.before.operators if op not in self.after.operators)


@dataclass(frozen=True, slots=True)
class RunningFragment:
    """What an application has on a site."""

    site: SiteId
    app: AppId
    version: int
    operators: tuple[OpId, ...]
    sources: tuple[SourceId, ...]  # that have said what they feed


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
    relocations: Iterable[Relocation],
    old: Mapping[Spot, Fragment],
    versions: Mapping[Spot, int],
    afresh: bool = False,
) -> tuple[Context, ...]:
    """`afresh`: every fragment is taken away and deployed again, whether it has changed or not."""
    gains: dict[Spot, list[tuple[OpId, KeySet]]] = {}
    loses: dict[Spot, list[tuple[OpId, KeySet]]] = {}
    for each in relocations:
        gains.setdefault((site_of(each.target), app_of(each.op)), []).append((each.op, each.keys))
        loses.setdefault((site_of(each.source), app_of(each.op)), []).append((each.op, each.keys))
    contexts: list[Context] = []
    new = fragments(layout, old, lambda site: world.parent.get(site))
    for spot in sorted(old):
        (site, app), before, after = spot, old[spot], new[spot]
        version = versions.get(spot, first_version(before))
        comes, goes = tuple(gains.get(spot, ())), tuple(loses.get(spot, ()))
        if before and (afresh or not after):
            stateful = any(not layout.operators[op].stateless for op, _ in goes)
            action = Action.UPDATE_THEN_DRAIN if stateful else Action.DRAIN
            contexts.append(Context(site, app, State.TO_BE_UNDEPLOYED, version, before, NOTHING, (), goes, action))
        if after and (afresh or not before):
            contexts.append(Context(site, app, State.TO_BE_DEPLOYED, version + 1, NOTHING, after, comes, ()))
        elif after and (after != before or comes or goes):
            at = version + 1
            contexts.append(Context(site, app, State.TO_BE_UPDATED, at, before, after, comes, goes, Action.UPDATE))
    return tuple(contexts)


def first_version(fragment: Fragment) -> int:
    """Of a fragment that no redeployment has touched; 0, if there is none."""
    return 1 if fragment else 0
