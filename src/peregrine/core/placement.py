"""Which keys live where: the physical plan, as the manager knows it, and what makes one valid.

An instance must be at or above every producer of its keys (Falcon III-B): rows flow up until somebody claims them.
A million explicit keys are as quick to move as ten: a question or a move costs what its own keys cost.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from peregrine.core.keyspace import KeySet
from peregrine.core.operator import OpSpec
from peregrine.core.rules import RuleTable
from peregrine.core.topology import Topology
from peregrine.errors import PlanError, UnknownName
from peregrine.types import OpId, PlaceId, SiteId, site_of

Initial = Sequence[tuple[OpId, KeySet, PlaceId]]  # where keys are at first that are not at the root


class Placement:
    def __init__(self, topology: Topology, operators: Mapping[OpId, OpSpec], initial: Initial = ()) -> None:
        """All keys are at the root, but for those that `initial` puts elsewhere."""
        self.topology = topology  # replaced when it changes: read it here
        self.operators = {op: spec for op, spec in operators.items() if not spec.sink}
        self._owners: RuleTable[PlaceId] = RuleTable(topology.main_place(topology.root))
        for op, spec in self.operators.items():
            self._owners.add_op(op, spec.groups)
        self._instances: dict[OpId, dict[PlaceId, KeySet]] = {}  # until the operator's next move
        self._trial: list[tuple[OpId, KeySet, PlaceId]] | None = None  # where keys were that were moved on trial
        for op, keys, place in initial:
            self.move(op, keys, topology.main_place(topology.root), place)

    def instances(self, op: OpId) -> Mapping[PlaceId, KeySet]:
        """Every instance with all its keys: costs what all keys of the operator cost."""
        if op not in self._instances:
            everything = KeySet.everything(self._owners.groups_of(op))
            self._instances[op] = dict(self._owners.partition(op, everything))
        return self._instances[op]

    def where(self, op: OpId, keys: KeySet) -> list[tuple[PlaceId, KeySet]]:
        """These keys by where they are."""
        return self._owners.partition(op, keys)

    def owner(self, op: OpId, key: str) -> PlaceId:
        return self._owners.lookup_one(op, key)

    def move(self, op: OpId, keys: KeySet, source: PlaceId, target: PlaceId) -> None:
        """Keys of an instance go to another, which exists from now on; an instance without keys is gone."""
        owners = [place for place, _ in self._owners.partition(op, keys)]
        if any(place != source for place in owners):
            raise PlanError(
                f"{op} {{{keys.describe()}}} is not all at {source}: it is at {', '.join(owners)}",
                "name the place where the keys are, or leave out the keys that are elsewhere",
            )
        self._owners.assign(op, keys, target)
        self._instances.pop(op, None)
        if self._trial is not None:
            self._trial.append((op, keys, source))

    @contextmanager
    def trial(self) -> Iterator[None]:
        """What is moved inside is taken back at the end. (To copy a million keys for each question would be slow.) The
        caller sees to it that no other thread looks meanwhile.
        """
        moved = self._trial = []
        try:
            yield
        finally:
            self._trial = None
            for op, keys, source in reversed(moved):
                self._owners.assign(op, keys, source)
                self._instances.pop(op, None)

    def check_above(self, op: OpId, place: PlaceId, producers: Iterable[tuple[str, SiteId]]) -> None:
        """Is `place` at or above all `producers` of the keys that it is to have, and below who consumes them?"""
        if op not in self.operators:
            raise UnknownName("operator", op, list(self.operators))
        site = site_of(place)
        for name, at in producers:
            if at in self.topology and not self.topology.is_at_or_above(site, at):  # else nothing comes from there now
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
            for place in self._owners.routes_of(feeder)
        ]

    def downstream(self, op: OpId) -> list[tuple[OpId, PlaceId]]:
        return [
            (fed, place)
            for fed in self.operators[op].feeds
            if fed in self.operators
            for place in self._owners.routes_of(fed)
        ]
