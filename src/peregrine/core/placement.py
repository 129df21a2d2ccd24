"""Which keys live where: the physical plan, as the manager knows it, and what makes one valid.

An instance must be at or above every producer of its keys (Falcon III-B): rows flow up until somebody claims them.
"""

from collections.abc import Iterable, Mapping

from peregrine.core.keyspace import KeySet
from peregrine.core.operator import OpSpec
from peregrine.core.topology import Topology
from peregrine.errors import PlanError, UnknownName
from peregrine.types import OpId, PlaceId, SiteId, site_of


class Placement:
    def __init__(self, topology: Topology, operators: Mapping[OpId, OpSpec]) -> None:
        self.topology = topology
        self.operators = {op: spec for op, spec in operators.items() if not spec.sink}
        home = topology.main_place(topology.root)
        self._keys: dict[OpId, dict[PlaceId, KeySet]] = {
            op: {home: KeySet.everything(spec.groups)} for op, spec in self.operators.items()
        }

    def copy(self) -> "Placement":
        twin = Placement(self.topology, self.operators)
        twin._keys = {op: dict(places) for op, places in self._keys.items()}
        return twin

    def instances(self, op: OpId) -> dict[PlaceId, KeySet]:
        if op not in self._keys:
            raise UnknownName("operator", op, list(self._keys))
        return self._keys[op]

    def owner(self, op: OpId, key: str) -> PlaceId:
        return next(place for place, keys in self.instances(op).items() if key in keys)

    def move(self, op: OpId, keys: KeySet, source: PlaceId, target: PlaceId) -> None:
        """Keys of an instance go to another, which exists from now on; an instance without keys is gone."""
        instances = self.instances(op)
        here = instances.get(source, KeySet.nothing(keys.groups))
        if not keys <= here:
            owners = ", ".join(place for place, owned in instances.items() if not owned.isdisjoint(keys))
            raise PlanError(
                f"{op} {{{keys.describe()}}} is not all at {source}: it is at {owners or 'no place'}",
                "name the place where the keys are, or leave out the keys that are elsewhere",
            )
        instances[source] = here - keys
        instances[target] = instances.get(target, KeySet.nothing(keys.groups)) | keys
        if not instances[source]:
            del instances[source]

    def check_above(self, op: OpId, place: PlaceId, producers: Iterable[tuple[str, SiteId]]) -> None:
        """Is `place` at or above all `producers` of the keys that it is to have, and below who consumes them?"""
        if op not in self.operators:
            raise UnknownName("operator", op, list(self.operators))
        site = site_of(place)
        for name, at in producers:
            if not self.topology.is_at_or_above(site, at):
                raise PlanError(
                    f"{op} at {place} would not be above {name}, which produces for it at {at}",
                    f"choose {self.topology.lca(site, at)} or a site above it, or move {name} first",
                )

    def upstream(self, op: OpId) -> list[tuple[str, SiteId]]:
        """Instances of operators that feed `op`."""
        return [
            (feeder, site_of(place))
            for feeder, spec in sorted(self.operators.items())
            if op in spec.feeds
            for place in self._keys[feeder]
        ]

    def downstream(self, op: OpId) -> list[tuple[OpId, PlaceId]]:
        return [(fed, place) for fed in self.operators[op].feeds if fed in self._keys for place in self._keys[fed]]
