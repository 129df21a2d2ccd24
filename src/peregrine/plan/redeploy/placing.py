"""Where keys go that cannot stay: what a change of the tree affects, and a new place for each part of it.

The rule of every placement is Falcon's (III-B): an instance is at or above all producers of its keys. A way to the root
changes only for sites that were rehomed and those below, so only what they produce can break the rule, and only sites
that leave, shrink or lose a host must be left. All else is kept as it is.

What must move goes to the lowest site at or above all its producers that is no deeper than where it was, and has room;
else to the next above with room. So keys follow a train from edge to edge instead of ending at the root. Keys with very
many producers only climb: to ask all of these producers would cost more than what is affected.

An operator that is on a host of its own is served nowhere else: it stays on hosts of that name, and a site without one
is none where it could go.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice

from peregrine.core.keyspace import KeySet
from peregrine.errors import PlanError
from peregrine.plan.redeploy.layout import Layout, own_host
from peregrine.plan.redeploy.world import Shift, World, places_of
from peregrine.types import OpId, PlaceId, SiteId, host_of, site_of

MANY_PRODUCERS = 32


@dataclass(frozen=True, slots=True)
class Relocation:
    """Keys that live elsewhere in the new layout."""

    op: OpId
    keys: KeySet
    source: PlaceId
    target: PlaceId


@dataclass(frozen=True, slots=True)
class _Need:
    """These keys must be at or above a producer, or (`leave`) must leave this place."""

    keys: KeySet
    producer: SiteId | None = None
    leave: PlaceId | None = None


def place_like(op: OpId, place: PlaceId, places: Sequence[PlaceId]) -> PlaceId | None:
    """Which of these gets keys of an operator that are at `place`: the host of the same name, else the first. None if
    there is none, or if the operator is on a host of its own, and there is no other of that name.
    """
    host = host_of(place)
    for each in places:
        if host and host_of(each) == host:
            return each
    return None if host == own_host(op) or not places else places[0]


def refuge(world: World, shift: Shift, op: OpId, place: PlaceId) -> PlaceId | None:
    """The nearest place above that is there before and after: keys that must leave can wait there."""
    for places in shift.refuges(site_of(place), world):
        found = place_like(op, place, places)
        if found is not None:
            return found
    return None


class Placing:
    """One new layout. The layout is changed in place: mark it first."""

    def __init__(self, world: World, layout: Layout, shift: Shift) -> None:
        self._world = world
        self._layout = layout
        self._shift = shift
        self._needs: dict[OpId, list[_Need]] = {}
        self._look_at: dict[OpId, dict[PlaceId, None]] = {}  # instances whose consumers may not be above them
        self._turns: list[tuple[int, OpId]] = []
        self._moved: dict[OpId, KeySet] = {}

    def place_affected(self) -> None:
        """Everything valid again, with as little as possible moved."""
        layout = self._layout
        for site in sorted(self._shift.left):
            self._leave(site)
        for site in sorted(self._shift.changed):
            if site in self._world:
                self._shrink(site)
        for site in sorted(self._shift.moved):
            for source in layout.feeding.at(site):
                for op, keys in layout.feeding.feeds(source):
                    if op in layout.operators:
                        self._need(op, _Need(keys, producer=site))
            for op, place in layout.instances_at(site):
                self._look(op, place)
        self._take_turns()

    def place_doubted(self, doubts: Mapping[OpId, KeySet]) -> None:
        """Of these keys, those that are not above what produces for them now; and what they feed, where that is not
        above them. (Keys of sources that roam follow by themselves: `core/mobility.py`.)
        """
        for op, keys in doubts.items():
            for place, part in self._layout.partition(op, keys).items():
                if self._world.has_place(place):
                    for need in self._needs_of(op, part):
                        self._need(op, need)
                    self._look(op, place)
        self._take_turns()

    def place_all(self) -> None:
        """As if nothing had a place yet (the holistic baselines): every instance goes where it would go today."""
        for op in self._layout.operators:
            for place in self._layout.places(op):
                self._need(op, _Need(self._layout.keys_at(op, place), leave=place))
        self._take_turns()

    @property
    def moved(self) -> Mapping[OpId, KeySet]:
        return self._moved

    def relocations(self, mark: int) -> list[Relocation]:
        """What has changed since the mark, which is undone: the layout is then as it was."""
        layout, found = self._layout, []
        new = {op: layout.partition(op, keys) for op, keys in self._moved.items()}
        layout.changes.undo_to(mark)
        for op, keys in sorted(self._moved.items()):
            for source, had in layout.partition(op, keys).items():
                for target, gets in new[op].items():
                    if source != target and (both := had & gets):
                        found.append(Relocation(op, both, source, target))
        return found

    # --- what must move ---

    def _leave(self, site: SiteId) -> None:
        """A site without a way to the root: fine if it is empty, or is removed while its old way still stands."""
        layout, world = self._layout, self._world
        if not layout.in_use(site):
            return
        if site in world.stations:
            raise PlanError(
                f"no path leads from {site} to the root {world.root}, and it is in use",
                "add a link; until there is one, its rows wait there and the last valid deployment is kept",
            )
        if sources := layout.feeding.at(site):
            raise PlanError(f"{site} was removed, but {', '.join(sources)} is attached there", "move the sources first")
        below = site
        for above in self._shift.old_ancestors(site, world):
            if above not in world.links.get(below, {}):
                raise PlanError(
                    f"{site} was removed, but its state cannot leave: the link {below} - {above} is gone",
                    "bring the link back until the site is empty, or tell that the site stays (SiteSet)",
                )
            if above in world:
                break
            below = above
        for op, place in layout.instances_at(site):
            self._check_refuge(op, place, f"{site} was removed")
            self._need(op, _Need(layout.keys_at(op, place), leave=place))

    def _shrink(self, site: SiteId) -> None:
        """Hosts that are gone, and instances that are too many: consumers go first, because they force nobody."""
        layout, slots = self._layout, self._world.stations[site].slots
        before = self._shift.changed[site]
        if (
            site == self._world.root
            and before is not None
            and places_of(before.site)[0] != self._world.main_place(site)
        ):
            raise PlanError(
                f"the first host of the root {site} has changed", "keep it: keys that nobody claims are there"
            )
        instances = sorted(layout.instances_at(site), key=lambda each: (-layout.rank[each[0]], each))
        too_many = 0 if slots is None else max(len(instances) - slots, 0)
        for nth, (op, place) in enumerate(instances):
            gone = not self._world.has_place(place)
            if gone:
                self._check_refuge(op, place, f"{place} is gone")
            if gone or nth < too_many:
                self._need(op, _Need(layout.keys_at(op, place), leave=place))

    def _check_refuge(self, op: OpId, place: PlaceId, why: str) -> None:
        if refuge(self._world, self._shift, op, place) is None:
            raise PlanError(
                f"{why}, and {op} at {place} has nowhere to wait",
                f"keep a host{_of_its_own(op, place)} of a site above it",
            )

    def _needs_of(self, op: OpId, keys: KeySet) -> Iterator[_Need]:
        """Of all that produces for them, where it can be reached."""
        layout, feeding = self._layout, self._layout.feeding
        for feeder in layout.feeders[op]:
            for place in layout.places(feeder):
                if site_of(place) in self._world:
                    yield _Need(keys, producer=site_of(place))
        for source in feeding.sources_of(op, keys) if not layout.operators[op].roaming else ():
            if (site := feeding.site(source)) in self._world:
                fed = (its_keys & keys for mine, its_keys in feeding.feeds(source) if mine == op)
                yield from (_Need(both, producer=site) for both in fed if both)

    def _need(self, op: OpId, need: _Need) -> None:
        self._turn(op)
        self._needs.setdefault(op, []).append(need)

    def _look(self, op: OpId, place: PlaceId) -> None:
        self._turn(op)
        self._look_at.setdefault(op, {})[place] = None

    def _turn(self, op: OpId) -> None:
        if op not in self._needs and op not in self._look_at:
            heappush(self._turns, (self._layout.rank[op], op))

    # --- operators take turns, producers first ---

    def _take_turns(self) -> None:
        while self._turns:
            _, op = heappop(self._turns)
            for need in self._needs.pop(op, ()):
                for place, part in self._layout.partition(op, need.keys).items():
                    if place == need.leave or (need.producer is not None and not self._is_above(place, need.producer)):
                        self._relocate(op, part, place, need.producer)
            for place in self._look_at.pop(op, ()):
                self._see_consumers(op, place)

    def _see_consumers(self, op: OpId, place: PlaceId) -> None:
        layout, site = self._layout, site_of(place)
        if site not in self._world or not layout.has(op, place):
            return
        for consumer in layout.consumers[op]:
            for above in layout.places(consumer):
                if not self._is_above(above, site):
                    self._need(consumer, _Need(layout.keys_at(consumer, above), producer=site))

    def _is_above(self, place: PlaceId, site: SiteId) -> bool:
        return site_of(place) in self._world and self._world.is_at_or_above(site_of(place), site)

    def _relocate(self, op: OpId, keys: KeySet, place: PlaceId, producer: SiteId | None) -> None:
        target = self._target(op, place, self._lowest(op, keys, place, producer))
        if target != place:
            self._layout.assign(op, keys, target)
            self._moved[op] = self._moved[op] | keys if op in self._moved else keys
            self._look(op, target)

    def _lowest(self, op: OpId, keys: KeySet, place: PlaceId, producer: SiteId | None) -> SiteId:
        """The lowest site that could have these keys, no deeper than where they are."""
        world, old = self._world, site_of(place)
        stays = old in world
        # (A source may have come to a site that was to join, and has not: nothing comes from there now.)
        producers: Iterable[SiteId] = (site for site in self._layout.producers(op, keys) if site in world)
        if stays:
            producers = list(islice(producers, MANY_PRODUCERS + 1))
            if len(producers) > MANY_PRODUCERS:
                return old if producer is None else world.lca(old, producer)
        above = list(self._shift.old_ancestors(old, world))
        lowest = world.meeting_point(producers)
        if lowest is None:
            return old if stays else next(site for site in above if site in world)
        while world.depth(lowest) > len(above):
            lowest = world.parent[lowest]
        return lowest

    def _target(self, op: OpId, place: PlaceId, lowest: SiteId) -> PlaceId:
        world, layout = self._world, self._layout
        for site in (lowest, *world.ancestors(lowest)):
            here = [each for each in world.places(site) if each != place and layout.has(op, each)]
            if here:
                return here[0]  # an instance that there is already takes no further slot
            free = place_like(op, place, world.places(site))
            slots = world.stations[site].slots
            if free is not None and (slots is None or layout.load(site) - int(site == site_of(place)) < slots):
                return place if world.has_place(place) and site == site_of(place) else free
        raise PlanError(
            f"{op} must leave {place}, and no site from {lowest} up to the root has room for it",
            f"give a site on the way{_of_its_own(op, place, ' that has a host')} more slots, or move an operator away",
        )


def _of_its_own(op: OpId, place: PlaceId, what: str = "") -> str:
    """For the remedy, if the host is not any host."""
    return f"{what} {own_host(op)!r}" if host_of(place) == own_host(op) else ""
