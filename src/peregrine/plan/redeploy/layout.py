"""What runs where: the keys of every operator and the sources of every application, by site.

The physical plan as `core/placement.py` has it, but changed in place and back, and asked what a planner asks: what is
at a site, and who produces for these keys? Each answer costs what it is about.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NewType

from peregrine.core.keyspace import KeySet
from peregrine.core.operator import OpSpec
from peregrine.core.placement import Initial
from peregrine.core.validity import Feeds
from peregrine.errors import ConfigurationError, UnknownName
from peregrine.plan.redeploy.changes import Changes
from peregrine.plan.redeploy.feeding import Feeding
from peregrine.plan.redeploy.owners import Owners
from peregrine.types import OpId, PlaceId, SiteId, SourceId, site_of

AppId = NewType("AppId", str)
Instance = tuple[OpId, PlaceId]


def app_of(op: OpId) -> AppId:
    return AppId(op.partition("/")[0])


def own_host(op: OpId) -> str:
    """The host that an operator has for itself at every site, if it is one of those that have one: DataFrame operators
    (control/transform_places.py).
    """
    return op.partition("/")[2]


class Layout:
    def __init__(
        self,
        operators: Mapping[OpId, OpSpec],
        home: PlaceId,
        changes: Changes,
        initial: Initial = (),
        sources: Mapping[SourceId, SiteId] | None = None,
        feeds: Feeds | None = None,
    ) -> None:
        """All keys are at `home`, but for those that `initial` puts elsewhere."""
        self.changes = changes
        self.operators = {op: spec for op, spec in operators.items() if not spec.sink}
        self.consumers = {
            op: tuple(f for f in spec.feeds if f in self.operators) for op, spec in self.operators.items()
        }
        self.feeders: dict[OpId, tuple[OpId, ...]] = dict.fromkeys(self.operators, ())
        for op, consumers in self.consumers.items():
            for consumer in consumers:
                self.feeders[consumer] = (*self.feeders[consumer], op)
        self.rank = _ranks(self.feeders)
        self.apps: dict[AppId, tuple[OpId, ...]] = {}
        for op in sorted(self.operators, key=lambda each: (self.rank[each], each)):
            self.apps[app_of(op)] = (*self.apps.get(app_of(op), ()), op)
        self.circle = _circles(self.consumers)
        self._owners: dict[OpId, Owners] = {}
        self._at: dict[SiteId, dict[AppId, dict[Instance, None]]] = {}
        self._load: dict[SiteId, int] = {}
        for op, spec in self.operators.items():
            self._owners[op] = Owners(spec.groups, home, changes)
            self._note(op, home)
        for op, keys, place in initial:
            self.assign(op, keys, place)
        self.feeding = Feeding(changes)
        for source, site in (sources or {}).items():
            self.feeding.attach(source, site, (feeds or {}).get(source, ()))
        changes.keep()

    # --- keys ---

    def places(self, op: OpId) -> list[PlaceId]:
        return list(self._owners[op].places())

    def has(self, op: OpId, place: PlaceId) -> bool:
        return place in self._owners[op]

    def keys_at(self, op: OpId, place: PlaceId) -> KeySet:
        return self._owners[op].keys_at(place)

    def partition(self, op: OpId, keys: KeySet) -> dict[PlaceId, KeySet]:
        return self._owners[op].partition(keys)

    def assign(self, op: OpId, keys: KeySet, place: PlaceId) -> None:
        if op not in self.operators:
            raise UnknownName("operator", op, list(self.operators))
        before = self._owners[op].partition(keys)
        self._owners[op].assign(keys, place)
        for each in (*before, place):
            self._note(op, each)

    def _note(self, op: OpId, place: PlaceId) -> None:
        """Is there an instance here (still, now)?"""
        site, app, instance = site_of(place), app_of(op), (op, place)
        known = instance in self._at.get(site, {}).get(app, {})
        there = place in self._owners[op]
        if known == there:
            return
        self.changes.put(self._load, site, self.load(site) + (1 if there else -1))
        if there:
            if site not in self._at:
                self.changes.put(self._at, site, {})
            self.changes.put_in(self._at[site], app, instance, None)
        else:
            self.changes.remove_in(self._at[site], app, instance)
            if not self._at[site]:
                self.changes.remove(self._at, site)

    # --- sites ---

    def sites(self) -> set[SiteId]:
        """Where anything is. Costs what all of it costs."""
        return {*self._at, *self.feeding.sites()}

    def in_use(self, site: SiteId) -> bool:
        return site in self._at or bool(self.feeding.at(site))

    def load(self, site: SiteId) -> int:
        """How many instances are there."""
        return self._load.get(site, 0)

    def instances_at(self, site: SiteId) -> list[Instance]:
        return sorted(instance for instances in self._at.get(site, {}).values() for instance in instances)

    def ops_at(self, site: SiteId, app: AppId) -> tuple[OpId, ...]:
        return tuple(sorted({op for op, _ in self._at.get(site, {}).get(app, ())}))

    def apps_at(self, site: SiteId) -> set[AppId]:
        """That have instances or sources there."""
        fed = {app_of(op) for source in self.feeding.at(site) for op, _ in self.feeding.feeds(source)}
        return fed.union(self._at.get(site, ()))

    def sources_at(self, site: SiteId, app: AppId) -> tuple[SourceId, ...]:
        feeding = self.feeding
        return tuple(s for s in feeding.at(site) if any(app_of(op) == app for op, _ in feeding.feeds(s)))

    # --- producers ---

    def producers(self, op: OpId, keys: KeySet) -> Iterator[SiteId]:
        """The sites of all that produces for these keys: an instance that feeds an operator may feed any key of it."""
        for feeder in self.feeders[op]:
            yield from map(site_of, self._owners[feeder].places())
        for source in self.feeding.sources_of(op, keys):
            yield self.feeding.site(source)


def _ranks(feeders: Mapping[OpId, Iterable[OpId]]) -> dict[OpId, int]:
    """For each operator the length of the longest chain that leads to it."""
    rank: dict[OpId, int] = {}
    rest = dict(feeders)
    while rest:
        ready = [op for op, before in rest.items() if all(each in rank for each in before)]
        if not ready:
            raise ConfigurationError(
                f"operators feed each other in a ring: {', '.join(sorted(rest))}", "break the ring"
            )
        for op in ready:
            rank[op] = max((rank[each] + 1 for each in rest.pop(op)), default=0)
    return rank


def _circles(consumers: Mapping[OpId, Iterable[OpId]]) -> dict[OpId, AppId]:
    """The applications that hang together because they share operators, each by the name of the first of them."""
    linked: dict[OpId, list[OpId]] = {op: [] for op in consumers}
    first: dict[AppId, OpId] = {}
    for op, fed in consumers.items():
        for other in (*fed, first.setdefault(app_of(op), op)):
            linked[op].append(other)
            linked[other].append(op)
    circle: dict[OpId, AppId] = {}
    for start in sorted(consumers, key=app_of):
        stack = [start] if start not in circle else []
        while stack:
            op = stack.pop()
            if op not in circle:
                circle[op] = app_of(start)
                stack += linked[op]
    return circle
