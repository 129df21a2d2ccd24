"""The keyspace of an operator: the hash of a key, the group of a hash, and sets of keys.

The rule: a hash is the same on every machine, in every Python and for every PYTHONHASHSEED, because it decides where a
row goes and what is written in logs. A key set has exactly one normal form, so that two sets are equal as values when
they hold the same keys. What is visible (text, pickles, arrays) is sorted, never in the order of a set.

Nothing here knows routes, places or migrations.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from json import JSONDecodeError, dumps, loads

import numpy as np
import numpy.typing as npt

from peregrine.errors import ConfigurationError

Hashes = npt.NDArray[np.uint64]

# From here on keys are hashed past the cache, which a bulk would only empty of the keys that come again and again.
_BULK_KEYS = 1 << 17
_SHOWN_KEYS = 8


@lru_cache(maxsize=1 << 20)
def stable_hash(key: str) -> int:
    """The unsigned 64-bit hash of a key."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "little")


def hash_keys(keys: Sequence[str]) -> Hashes:
    """The hashes of many keys, in their order."""
    if len(keys) < _BULK_KEYS:
        return np.fromiter(map(stable_hash, keys), dtype=np.uint64, count=len(keys))
    digests = b"".join([blake2b(key.encode(), digest_size=8).digest() for key in keys])
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def group_of(hash: int, groups: int) -> int:
    """The group to which a hash belongs."""
    return hash % groups


def as_stored(keys: Iterable[str], groups: int) -> list[str]:
    """Keys in the order in which hosts keep them: by group, then by hash. What goes together should lie together."""

    def place(key: str) -> tuple[int, int, str]:
        key_hash = stable_hash(key)
        return group_of(key_hash, groups), key_hash, key

    return sorted(keys, key=place)


@dataclass(frozen=True)
class KeySet:
    """Keys of one operator: the groups `whole`, and the keys `plus` outside of these, without the keys `minus` in them.

    Use the constructors below: they and the algebra keep the normal form that `check` describes. A group has endlessly
    many possible keys, so a whole group is never empty and never equals any number of explicit keys.

    Membership is decided by the 64-bit hash: a row carries its hash, and two keys with the same hash always move
    together (among a million keys there is such a pair with a probability of 3e-8). `in` and `contains` agree on that;
    the algebra works on names.
    """

    groups: int
    whole: frozenset[int]
    plus: frozenset[str]
    minus: frozenset[str]

    @staticmethod
    def of_keys(groups: int, keys: Iterable[str]) -> "KeySet":
        if isinstance(keys, str):  # else a lone key would silently become the set of its letters
            raise ConfigurationError(f"a key set of one bare string {keys!r}", "give a list of keys")
        return KeySet(_check_groups(groups), _NO_GROUPS, frozenset(keys), _NO_KEYS)

    @staticmethod
    def of_groups(groups: int, group_numbers: Iterable[int]) -> "KeySet":
        whole = frozenset(group_numbers)
        for g in sorted(whole):
            _check_group(groups, g)
        return KeySet(_check_groups(groups), whole, _NO_KEYS, _NO_KEYS)

    @staticmethod
    @lru_cache
    def everything(groups: int) -> "KeySet":
        return KeySet(_check_groups(groups), frozenset(range(groups)), _NO_KEYS, _NO_KEYS)

    @staticmethod
    @lru_cache
    def nothing(groups: int) -> "KeySet":
        return KeySet(_check_groups(groups), _NO_GROUPS, _NO_KEYS, _NO_KEYS)

    @staticmethod
    def parse(groups: int, text: str) -> "KeySet":
        """Read `*`, `g:3`, `g:3-7`, `car1`, or a list of them; `-` before an item takes it out of the others.

        A key that looks like anything else is written as a JSON string: `"g:3"`, `"a,b"`.
        """
        if text.strip() == _NOTHING:
            return KeySet.nothing(groups)
        chosen = excluded = KeySet.nothing(groups)
        for item in _items(text):
            if item.startswith("-"):
                excluded |= _parse_item(groups, item[1:].lstrip())
            else:
                chosen |= _parse_item(groups, item)
        if not chosen:
            raise ConfigurationError(f"key set {text!r} only takes keys out", "say out of what, for example *,-car1")
        return chosen - excluded

    def __str__(self) -> str:
        return ",".join(self._groups_text() + self._keys_text()) or _NOTHING

    def describe(self) -> str:
        """As `str`, but short however many keys there are; `parse` does not read it."""
        keys = self._keys_text()
        if len(keys) > _SHOWN_KEYS:
            keys = [*keys[:_SHOWN_KEYS], f"... {len(keys) - _SHOWN_KEYS} more"]
        return ",".join(self._groups_text() + keys) or _NOTHING

    def _groups_text(self) -> list[str]:
        if len(self.whole) == self.groups:
            return ["*"]
        runs: list[list[int]] = []
        for g in sorted(self.whole):
            if runs and runs[-1][1] == g - 1:
                runs[-1][1] = g
            else:
                runs.append([g, g])
        return [f"g:{first}" if first == last else f"g:{first}-{last}" for first, last in runs]

    def _keys_text(self) -> list[str]:
        return [_quote(key) for key in sorted(self.plus)] + ["-" + _quote(key) for key in sorted(self.minus)]

    def __or__(self, other: "KeySet") -> "KeySet":
        self._check_same(other)
        if not self.whole and not other.whole:
            return KeySet(self.groups, _NO_GROUPS, self.plus | other.plus, _NO_KEYS)
        whole = self.whole | other.whole
        plus = self._select(self.plus | other.plus, lambda g: g not in whole)
        minus = [k for k in self.minus if not other._names(k)] + [k for k in other.minus if not self._names(k)]
        return KeySet(self.groups, whole, plus, frozenset(minus))

    def __and__(self, other: "KeySet") -> "KeySet":
        self._check_same(other)
        if not self.whole and not other.whole:
            return KeySet(self.groups, _NO_GROUPS, self.plus & other.plus, _NO_KEYS)
        whole = self.whole & other.whole
        plus = [k for k in self.plus if other._names(k)] + [k for k in other.plus if self._names(k)]
        minus = self._select(self.minus | other.minus, whole.__contains__)
        return KeySet(self.groups, whole, frozenset(plus), minus)

    def __sub__(self, other: "KeySet") -> "KeySet":
        self._check_same(other)
        if not self.whole and not other.whole:
            return KeySet(self.groups, _NO_GROUPS, self.plus - other.plus, _NO_KEYS)
        whole = self.whole - other.whole
        # What `other` left out of a group that it takes away stays, as explicit keys.
        plus = [k for k in self.plus if not other._names(k)] + [k for k in other.minus if self._names(k)]
        minus = self._select(self.minus | other.plus, whole.__contains__)
        return KeySet(self.groups, whole, frozenset(plus), minus)

    def isdisjoint(self, other: "KeySet") -> bool:
        self._check_same(other)
        if not self.whole and not other.whole:
            return self.plus.isdisjoint(other.plus)
        if not self.whole.isdisjoint(other.whole):
            return False
        return not any(map(other._names, self.plus)) and not any(map(self._names, other.plus))

    def __le__(self, other: "KeySet") -> bool:
        self._check_same(other)
        if not self.whole <= other.whole:
            return False
        return all(map(other._names, self.plus)) and not any(map(self._names, other.minus))

    def __bool__(self) -> bool:
        return bool(self.whole or self.plus)

    def __contains__(self, key: str) -> bool:
        if key in self.plus:
            return True
        if key in self.minus:
            return False
        key_hash = stable_hash(key)
        if key_hash % self.groups in self.whole:
            return not (self.minus and _has(self.minus_by_hash[0], key_hash))
        return bool(self.plus) and _has(self.plus_by_hash[0], key_hash)

    def contains(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """For each hash whether its key is in the set."""
        if not self.whole:
            return _is_in(hashes, self.plus_by_hash[0])
        if len(self.whole) == self.groups:
            inside = np.ones(len(hashes), dtype=np.bool_)
        else:
            inside = self._whole_mask[hashes % self.groups]
        # Keys of `plus` lie outside of whole groups and keys of `minus` inside: the two cannot get in each other's way.
        if self.plus:
            inside |= _is_in(hashes, self.plus_by_hash[0])
        if self.minus:
            inside &= ~_is_in(hashes, self.minus_by_hash[0])
        return inside

    def touched_groups(self) -> tuple[int, ...]:
        """The groups in which the set may have keys, in order."""
        return tuple(sorted(self.whole.union(self._explicit_by_group)))

    def in_group(self, g: int) -> "KeySet":
        """The part of the set that lies in one group."""
        _check_group(self.groups, g)
        keys = self._explicit_by_group.get(g, _NO_KEYS)
        if g in self.whole:
            return KeySet(self.groups, frozenset((g,)), _NO_KEYS, keys)
        return KeySet(self.groups, _NO_GROUPS, keys, _NO_KEYS)

    @cached_property
    def plus_by_hash(self) -> tuple[Hashes, list[str]]:
        """The keys of `plus` in the order of their hashes, which come first."""
        return _by_hash(self.plus)

    @cached_property
    def minus_by_hash(self) -> tuple[Hashes, list[str]]:
        return _by_hash(self.minus)

    @cached_property
    def _whole_mask(self) -> npt.NDArray[np.bool_]:
        mask = np.zeros(self.groups, dtype=np.bool_)
        mask[list(self.whole)] = True
        return mask

    @cached_property
    def _explicit_by_group(self) -> dict[int, frozenset[str]]:
        # The keys of one group are all in `plus` or all in `minus`, so one index serves both.
        found: dict[int, list[str]] = {}
        for key in self.plus | self.minus:
            found.setdefault(stable_hash(key) % self.groups, []).append(key)
        return {g: frozenset(keys) for g, keys in found.items()}

    def check(self) -> None:
        """Assert the normal form."""
        assert all(0 <= g < self.groups for g in self.whole), f"group out of range in {self!r}"
        assert self._select(self.minus, self.whole.__contains__) == self.minus, f"minus outside of whole in {self!r}"
        assert not self._select(self.plus, self.whole.__contains__), f"plus inside of whole in {self!r}"

    def __reduce__(self) -> tuple[object, ...]:
        # Without the caches, and in an order that does not depend on PYTHONHASHSEED.
        return _restore, (self.groups, sorted(self.whole), sorted(self.plus), sorted(self.minus))

    def _check_same(self, other: "KeySet") -> None:
        if self.groups != other.groups:
            raise ConfigurationError(
                f"key sets of {self.groups} and of {other.groups} groups cannot be combined",
                "combine key sets of one operator only",
            )

    def _names(self, key: str) -> bool:
        if key in self.plus:
            return True
        return bool(self.whole) and key not in self.minus and stable_hash(key) % self.groups in self.whole

    def _select(self, keys: frozenset[str], wanted: Callable[[int], bool]) -> frozenset[str]:
        """The keys whose group is wanted."""
        return frozenset([k for k in keys if wanted(stable_hash(k) % self.groups)]) if keys else keys


_NO_GROUPS: frozenset[int] = frozenset()
_NO_KEYS: frozenset[str] = frozenset()
_NOTHING = "-*"
_ITEM = re.compile(r'\s*(-?\s*(?:"(?:[^"\\]|\\.)*"|[^",\s][^",]*?))\s*(,|\Z)')
_GROUP_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def _check_groups(groups: int) -> int:
    if groups < 1:
        raise ConfigurationError(f"a keyspace of {groups} groups", "give at least 1 group")
    return groups


def _restore(groups: int, whole: list[int], plus: list[str], minus: list[str]) -> KeySet:
    return KeySet(groups, frozenset(whole), frozenset(plus), frozenset(minus))


def _check_group(groups: int, g: int) -> None:
    if not 0 <= g < groups:
        raise ConfigurationError(f"group {g} of a keyspace of {groups} groups", f"use groups 0 to {groups - 1}")


def _by_hash(keys: frozenset[str]) -> tuple[Hashes, list[str]]:
    names = sorted(keys)
    hashes = hash_keys(names)
    if len(names) < 2:
        return hashes, names
    order = hashes.argsort(kind="stable")
    return hashes[order], [names[i] for i in order.tolist()]


def _has(ordered: Hashes, key_hash: int) -> bool:
    at = int(ordered.searchsorted(np.uint64(key_hash)))
    return at < len(ordered) and int(ordered[at]) == key_hash


def _is_in(hashes: Hashes, ordered: Hashes) -> npt.NDArray[np.bool_]:
    if not len(ordered):
        return np.zeros(len(hashes), dtype=np.bool_)
    # A hash past the end is greater than the last one, so comparing it with the last one (mode="clip") says no.
    nearest = ordered.take(ordered.searchsorted(hashes), mode="clip") if len(ordered) > 1 else ordered
    return np.equal(hashes, nearest)


def _items(text: str) -> list[str]:
    items = []
    at, more = 0, True
    while more:
        found = _ITEM.match(text, at)
        if found is None:
            raise ConfigurationError(
                f"key set {text!r} has an empty or unfinished item at character {at + 1}",
                'separate items with single commas, and write unusual keys as JSON strings: "a,b"',
            )
        items.append(found[1])
        at, more = found.end(), found[2] == ","
    return items


def _parse_item(groups: int, item: str) -> KeySet:
    if item == "*":
        return KeySet.everything(groups)
    if item.startswith("g:"):
        bounds = _GROUP_RANGE.fullmatch(item, 2)
        if bounds is None:
            raise ConfigurationError(f"{item!r} names no group", f'write g:3, g:3-7, or "{item}" for the key')
        first, last = int(bounds[1]), int(bounds[2] or bounds[1])
        _check_group(groups, first)
        _check_group(groups, last)
        if last < first:
            raise ConfigurationError(f"{item!r} ends before it starts", f"write g:{last}-{first}")
        return KeySet.of_groups(groups, range(first, last + 1))
    if item.startswith(("-", "*")):
        raise ConfigurationError(f"{item!r} is no key", f"write {dumps(item)} if this is the name of a key")
    if not item.startswith('"'):
        return KeySet.of_keys(groups, [item])
    try:
        return KeySet.of_keys(groups, [loads(item)])
    except JSONDecodeError as error:
        raise ConfigurationError(f"{item} is no JSON string: {error.msg}", "write the key as JSON would") from error


def _quote(key: str) -> str:
    """The key as `parse` reads it: bare where nothing else could be meant."""
    special = key.startswith(("-", "*", "g:")) or "," in key or '"' in key or not key.isprintable()
    return dumps(key, ensure_ascii=True) if special or key != key.strip() or not key else key
