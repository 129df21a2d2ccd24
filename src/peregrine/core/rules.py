"""Where rows go: for each operator the route of every key, looked up a column of hashes at a time.

The rule: `assign` is the only thing that changes a route, and it changes the routes of exactly the keys it names. An
operator has one entry per group and, for keys that go elsewhere than their group, overrides; an override that says the
same as its group does not exist, so moving keys back and forth does not make the table grow.

What a route is (a link, a host, nothing yet) is the caller's: here it is any hashable value.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from peregrine.core.keyspace import Hashes, KeySet, stable_hash
from peregrine.core.overrides import NO_ROUTE, Overrides, RouteIds
from peregrine.errors import ConfigurationError, UnknownName
from peregrine.types import OpId

R = TypeVar("R", bound=Hashable)
_FEW_ROUTES = 1024  # so many are kept without a look whether they are still used


class RuleTable(Generic[R]):
    """Maps (operator, key) to a route. Routes are numbered in the order of first appearance; 0 is the default."""

    def __init__(self, default: R) -> None:
        self._routes: list[R] = [default]
        self._ids: dict[R, int] = {default: 0}
        self._rules: dict[OpId, _Rules] = {}
        self._renumber_at = _FEW_ROUTES

    def add_op(self, op: OpId, groups: int) -> None:
        """Make an operator known; all its keys take the default route. Known already: nothing happens."""
        if groups < 1:
            raise ConfigurationError(f"operator {op!r} with {groups} groups", "give it at least 1 group")
        rules = self._rules.setdefault(op, _Rules(groups))
        if rules.groups != groups:
            raise ConfigurationError(
                f"operator {op!r} has {rules.groups} groups, not {groups}",
                "keep the number of groups of an operator, or give the operator a new name",
            )

    def ops(self) -> tuple[OpId, ...]:
        """The operators in the order in which they were added."""
        return tuple(self._rules)

    def groups_of(self, op: OpId) -> int:
        return self._rules_of(op).groups

    def assign(self, op: OpId, keys: KeySet, route: R) -> None:
        """From now on exactly these keys go to `route`."""
        rules = self._rules_of(op, keys)
        if len(self._routes) > self._renumber_at:
            self._renumber()
        route_id = self._ids.setdefault(route, len(self._routes))
        if route_id == len(self._routes):
            self._routes.append(route)
        rules.assign(keys, route_id)

    def replace(self, old: R, new: R) -> None:
        """Every key that goes to `old` now goes to `new`; keys of which something else was learnt stay as they are."""
        if old not in self._ids:
            return
        into = self._ids.setdefault(new, len(self._routes))
        if into == len(self._routes):
            self._routes.append(new)
        new_ids = np.arange(len(self._routes), dtype=np.int32)
        new_ids[self._ids[old]] = into
        for rules in self._rules.values():
            rules.replace(new_ids)

    def _renumber(self) -> None:
        """Forget routes that no key takes any more: each migration has routes of its own, and goes."""
        used = sorted({0}.union(*(rules.ids_in_use() for rules in self._rules.values())))
        new_ids = np.zeros(len(self._routes), dtype=np.int32)
        new_ids[used] = np.arange(len(used), dtype=np.int32)
        for rules in self._rules.values():
            rules.renumber(new_ids)
        self._routes = [self._routes[i] for i in used]
        self._ids = {route: i for i, route in enumerate(self._routes)}
        self._renumber_at = max(_FEW_ROUTES, 2 * len(self._routes))

    def lookup(self, op: OpId, hashes: Hashes) -> RouteIds:
        """The id of the route of each hash."""
        return self._rules_of(op).lookup(hashes)

    def lookup_one(self, op: OpId, key: str) -> R:
        return self._routes[self._rules_of(op).lookup_one(stable_hash(key))]

    def route(self, route_id: int) -> R:
        """Ids are good until the next `assign`."""
        return self._routes[route_id]

    def partition(self, op: OpId, keys: KeySet) -> list[tuple[R, KeySet]]:
        """The key set split by route: disjoint, not empty, together all of `keys`.

        The order follows from the parts alone (their first whole group, then their first key), not from the history of
        the table.
        """
        parts = self._rules_of(op, keys).partition(keys)
        if len(parts) > 1:
            parts.sort(key=_first_of)
        return [(self._routes[route_id], part) for route_id, part in parts]

    def only_route(self, op: OpId) -> R | None:
        """The route of every key, whichever it is: None if keys take different routes."""
        only = self._rules_of(op).only
        return None if only < 0 else self._routes[only]

    def routes_of(self, op: OpId) -> list[R]:
        """The routes that some key of the operator takes, in the order of their first appearance."""
        return [self._routes[route_id] for route_id in self._rules_of(op).ids_in_use()]

    def override_count(self, op: OpId) -> int:
        """How many keys have a route of their own: what the table costs beyond its groups."""
        return self._rules_of(op).overrides.live

    def check(self) -> None:
        """Assert what must hold between two calls."""
        for rules in self._rules.values():
            rules.check(len(self._routes))

    def _rules_of(self, op: OpId, keys: KeySet | None = None) -> "_Rules":
        rules = self._rules.get(op)
        if rules is None:
            raise UnknownName("operator", op, list(self._rules))
        if keys is not None and keys.groups != rules.groups:
            raise ConfigurationError(
                f"a key set of {keys.groups} groups for operator {op!r} with {rules.groups}",
                "make the key set with the operator's number of groups",
            )
        return rules


def split(batch: pa.RecordBatch, route_ids: RouteIds) -> list[tuple[int, pa.RecordBatch]]:
    """The rows of each route in ascending order of id; within a part the rows keep their order.

    The parts are slices of one batch and share its memory: who keeps one part for long should copy it.
    """
    if not len(route_ids):
        return []
    if (route_ids == route_ids[0]).all():
        return [(int(route_ids[0]), batch)]
    counts = np.bincount(route_ids)
    # One `take` in the order of the ids beats one per id by far where batches are small or ids many. Numpy sorts 16-bit
    # numbers by radix, others by comparison.
    narrow = route_ids.astype(np.int16) if len(counts) <= 1 << 15 else route_ids
    ordered = batch.take(pa.array(narrow.argsort(kind="stable")))
    ends = counts.cumsum()
    return [(i, ordered.slice(int(ends[i] - counts[i]), int(counts[i]))) for i in counts.nonzero()[0].tolist()]


class _Rules:
    """The rules of one operator."""

    __slots__ = ("by_group", "groups", "only", "overrides")

    def __init__(self, groups: int) -> None:
        self.groups = groups
        self.by_group: RouteIds = np.zeros(groups, dtype=np.int32)
        self.overrides = Overrides()
        self.only = 0  # the one route of all keys, if there is just one

    def lookup(self, hashes: Hashes) -> RouteIds:
        ids = self.by_group.take((hashes % self.groups).view(np.int64))
        if not self.overrides.live:
            return ids
        own = self.overrides.lookup(hashes)
        np.copyto(ids, own, where=own >= 0)
        return ids

    def lookup_one(self, key_hash: int) -> int:
        if self.overrides.live:
            own = self.overrides.lookup_one(key_hash)
            if own >= 0:
                return own
        return int(self.by_group[key_hash % self.groups])

    def assign(self, keys: KeySet, route_id: int) -> None:
        if keys.whole:
            self._assign_groups(keys, route_id)
        if keys.plus:
            hashes, names = keys.plus_by_hash
            self._override(hashes, names, np.full(len(names), route_id, dtype=np.int32))
        self.only = self._the_only()

    def _the_only(self) -> int:
        first = int(self.by_group[0])
        return NO_ROUTE if self.overrides.live or (self.by_group != first).any() else first

    def _assign_groups(self, keys: KeySet, route_id: int) -> None:
        spared, names = keys.minus_by_hash
        spared_ids = self.lookup(spared)
        chosen = np.zeros(self.groups, dtype=np.bool_)
        chosen[list(keys.whole)] = True
        self.overrides.forget_groups(chosen)
        self.by_group[chosen] = route_id
        if names:
            self._override(spared, names, spared_ids)

    def _override(self, hashes: Hashes, names: list[str], ids: RouteIds) -> None:
        same = self.by_group.take((hashes % self.groups).view(np.int64)) == ids
        self.overrides.put(hashes, names, np.where(same, np.int32(NO_ROUTE), ids))

    def renumber(self, new_ids: RouteIds) -> None:
        self.by_group = new_ids[self.by_group]
        self.overrides.renumber(new_ids)
        self.only = self._the_only()

    def replace(self, new_ids: RouteIds) -> None:
        """As `renumber`, but two routes may become one: then overrides that say the same as their group go."""
        self.renumber(new_ids)
        own = self.overrides.in_groups(frozenset(range(self.groups)), self.groups)
        same = sorted((stable_hash(name), name) for name, g, route_id in own if route_id == self.by_group[g])
        if same:
            hashes = np.array([key_hash for key_hash, _ in same], dtype=np.uint64)
            self.overrides.put(hashes, [name for _, name in same], np.full(len(same), NO_ROUTE, dtype=np.int32))
            self.only = self._the_only()

    def ids_in_use(self) -> list[int]:
        # Entry by entry: -1 (no route) is counted at 0.
        counts = np.bincount(self.overrides.ids[: len(self.overrides.names)] + 1)
        used = set((counts[1:].nonzero()[0]).tolist()).union(self.by_group.tolist())
        return sorted(used)

    def partition(self, keys: KeySet) -> list[tuple[int, KeySet]]:
        if len(keys.plus) == 1 and not keys.whole:
            (key,) = keys.plus
            return [(self.lookup_one(stable_hash(key)), keys)]
        whole: dict[int, list[int]] = {}
        plus: dict[int, list[str]] = {}
        minus: dict[int, list[str]] = {}
        hashes, names = keys.plus_by_hash
        if names:
            ids_of = self.lookup(hashes)
            if not keys.whole and (ids_of == ids_of[0]).all():
                return [(int(ids_of[0]), keys)]
            for name, route_id in zip(names, ids_of.tolist(), strict=True):
                plus.setdefault(route_id, []).append(name)
        if keys.whole:
            by_group: list[int] = self.by_group.tolist()
            for g in keys.whole:
                whole.setdefault(by_group[g], []).append(g)
            for name in keys.minus:
                minus.setdefault(by_group[stable_hash(name) % self.groups], []).append(name)
            # A key that goes elsewhere than its group leaves the group's part and is explicit in its own.
            for name, g, route_id in self.overrides.in_groups(keys.whole, self.groups):
                if not keys.minus or name in keys:
                    minus.setdefault(by_group[g], []).append(name)
                    plus.setdefault(route_id, []).append(name)
        ids = sorted(whole.keys() | plus.keys())
        if len(ids) == 1:
            return [(ids[0], keys)]
        none = frozenset[str]()
        parts = [(i, frozenset(whole.get(i, ())), plus.get(i, none), minus.get(i, none)) for i in ids]
        return [(i, KeySet(self.groups, w, frozenset(p), frozenset(m))) for i, w, p, m in parts]

    def check(self, route_count: int) -> None:
        assert ((self.by_group >= 0) & (self.by_group < route_count)).all(), "a group goes to an unknown route"
        assert self.only == self._the_only(), "all keys are said to take one route"
        self.overrides.check()
        for name, g, route_id in self.overrides.in_groups(frozenset(range(self.groups)), self.groups):
            assert stable_hash(name) % self.groups == g, f"override of {name!r} is filed under another key's hash"
            assert 0 <= route_id < route_count, f"key {name!r} goes to the unknown route {route_id}"
            assert route_id != self.by_group[g], f"override of {name!r} says the same as its group"


def _first_of(part: tuple[int, KeySet]) -> tuple[int, str]:
    keys = part[1]
    return min(keys.whole, default=keys.groups), min(keys.plus, default="")
