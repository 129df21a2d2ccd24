"""Who has which keys of one operator, asked both ways: the place of keys, and the keys of a place.

A rule table (`core/rules.py`) answers the first question for columns of rows. A planner also asks the second, and must
not pay for keys that it does not ask about: there may be a million of them. The rule: each group has a place, and a key
has an entry of its own only while it is somewhere else than its group.
"""

from collections.abc import Iterator

from peregrine.core.keyspace import KeySet, group_of, stable_hash
from peregrine.plan.redeploy.changes import Changes
from peregrine.types import PlaceId


class Owners:
    def __init__(self, groups: int, home: PlaceId, changes: Changes) -> None:
        """All keys are at `home`."""
        self.groups = groups
        self._changes = changes
        self._group: dict[int, PlaceId] = {}
        self._named: dict[str, PlaceId] = {}
        self._named_in: dict[int, dict[str, None]] = {}
        self._groups_at: dict[PlaceId, dict[int, None]] = {}
        self._names_at: dict[PlaceId, dict[str, None]] = {}
        for group in range(groups):
            self._put_group(group, home)

    def places(self) -> Iterator[PlaceId]:
        """Every place that has keys, those with whole groups first."""
        yield from self._groups_at
        yield from (place for place in self._names_at if place not in self._groups_at)

    def __contains__(self, place: PlaceId) -> bool:
        return place in self._groups_at or place in self._names_at

    def owner(self, key: str) -> PlaceId:
        own = self._named.get(key)
        return self._group[group_of(stable_hash(key), self.groups)] if own is None else own

    def keys_at(self, place: PlaceId) -> KeySet:
        whole = self._groups_at.get(place, {})
        minus = [name for group in whole for name in self._named_in.get(group, ())]
        return KeySet(self.groups, frozenset(whole), frozenset(self._names_at.get(place, ())), frozenset(minus))

    def partition(self, keys: KeySet) -> dict[PlaceId, KeySet]:
        """The keys by where they are. Costs these keys, and those that are not with their group in whole groups."""
        whole: dict[PlaceId, list[int]] = {}
        plus: dict[PlaceId, list[str]] = {}
        minus: dict[PlaceId, list[str]] = {}
        for group in keys.whole:
            place = self._group[group]
            whole.setdefault(place, []).append(group)
            for name in self._named_in.get(group, ()):
                minus.setdefault(place, []).append(name)
                if name not in keys.minus:
                    plus.setdefault(self._named[name], []).append(name)
        for name in keys.minus:
            if name not in self._named:
                minus.setdefault(self._group[group_of(stable_hash(name), self.groups)], []).append(name)
        for name in keys.plus:
            plus.setdefault(self.owner(name), []).append(name)
        none = frozenset[str]()
        return {
            place: KeySet(
                self.groups,
                frozenset(whole.get(place, ())),
                frozenset(plus.get(place, none)),
                frozenset(minus.get(place, none)),
            )
            for place in sorted(whole.keys() | plus.keys())
        }

    def assign(self, keys: KeySet, target: PlaceId) -> None:
        spared = {name: self.owner(name) for name in keys.minus}
        for group in keys.whole:
            for name in list(self._named_in.get(group, ())):
                self._forget_name(group, name)
            self._changes.remove_in(self._groups_at, self._group[group], group)
            self._put_group(group, target)
        for name, place in spared.items():
            self._put_name(name, place)
        for name in keys.plus:
            self._put_name(name, target)

    def _put_group(self, group: int, place: PlaceId) -> None:
        self._changes.put(self._group, group, place)
        self._changes.put_in(self._groups_at, place, group, None)

    def _put_name(self, name: str, place: PlaceId) -> None:
        group = group_of(stable_hash(name), self.groups)
        self._forget_name(group, name)
        if self._group[group] != place:
            self._changes.put(self._named, name, place)
            self._changes.put_in(self._named_in, group, name, None)
            self._changes.put_in(self._names_at, place, name, None)

    def _forget_name(self, group: int, name: str) -> None:
        place = self._named.get(name)
        if place is not None:
            self._changes.remove(self._named, name)
            self._changes.remove_in(self._named_in, group, name)
            self._changes.remove_in(self._names_at, place, name)
