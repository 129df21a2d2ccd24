"""Routes of single keys, for many at a time: the part of the rule table that may hold a million entries."""

import numpy as np
import numpy.typing as npt

from peregrine.core.keyspace import Hashes

RouteIds = npt.NDArray[np.int32]

NO_ROUTE = -1
_FEWEST_SLOTS = 32
_SPREAD = 0x9E3779B97F4A7C15  # odd, and near 2**64 over the golden ratio (Knuth 6.4)
_ALL_BITS = (1 << 64) - 1


class Overrides:
    """Route ids of single keys: a hash table with open addressing whose probes are vectorised.

    Entries are columns in order of arrival; `slots` holds entry numbers. Entry 0 stands for "no entry", so that an
    empty slot needs no test: it has no route. An entry whose key lost its override gets no route either and waits for
    the next rebuild; it keeps chains of probes whole until then, and is there when the key comes back.
    """

    __slots__ = ("hashes", "ids", "live", "names", "shift", "slots")

    def __init__(self) -> None:
        self._allocate(_FEWEST_SLOTS)

    def _allocate(self, slot_count: int) -> None:
        # At most a quarter of the slots is taken: nearly every hash is decided by its first probe.
        capacity = slot_count // 4
        self.hashes: Hashes = np.zeros(capacity, dtype=np.uint64)
        self.ids: RouteIds = np.full(capacity, NO_ROUTE, dtype=np.int32)
        self.names = [""]
        self.slots: RouteIds = np.zeros(slot_count, dtype=np.int32)
        self.shift = 64 - (slot_count.bit_length() - 1)
        self.live = 0

    def lookup(self, hashes: Hashes) -> RouteIds:
        """The route id of each hash, negative where it has none of its own."""
        return self.ids.take(self._find(hashes))

    def lookup_one(self, key_hash: int) -> int:
        at, last = (key_hash * _SPREAD & _ALL_BITS) >> self.shift, len(self.slots) - 1
        while (entry := self.slots[at]) and self.hashes[entry] != key_hash:
            at = (at + 1) & last
        return int(self.ids[entry])

    def renumber(self, new_ids: RouteIds) -> None:
        taken = self.ids >= 0
        self.ids[taken] = new_ids[self.ids[taken]]

    def put(self, hashes: Hashes, names: list[str], ids: RouteIds) -> None:
        """Set the route ids of keys, `NO_ROUTE` for no override; the hashes are in ascending order."""
        entries = self._find(hashes)
        known = entries != 0
        if known.any():
            self._set(entries[known], ids[known])
        fresh = np.flatnonzero(~known & (ids >= 0))
        if len(fresh) > 1:  # of keys with the same hash one entry stands for all
            fresh = fresh[np.append(True, hashes[fresh[1:]] != hashes[fresh[:-1]])]
        if len(fresh):
            self._append(hashes[fresh], [names[i] for i in fresh.tolist()], ids[fresh])
        self._compact()

    def forget_groups(self, chosen: npt.NDArray[np.bool_]) -> None:
        """No key of the chosen groups has an override any more."""
        if self.live:
            used = self.hashes[: len(self.names)]
            gone = np.flatnonzero(chosen[used % len(chosen)])
            self._set(gone, np.full(len(gone), NO_ROUTE, dtype=np.int32))
            self._compact()

    def in_groups(self, wanted: frozenset[int], groups: int) -> list[tuple[str, int, int]]:
        """(key, group, route id) of the overrides in these groups, in the order in which they came."""
        entries = np.flatnonzero(self.ids[: len(self.names)] >= 0)
        rows = zip(entries.tolist(), (self.hashes[entries] % groups).tolist(), self.ids[entries].tolist(), strict=True)
        return [(self.names[entry], g, route_id) for entry, g, route_id in rows if g in wanted]

    def _find(self, hashes: Hashes) -> npt.NDArray[np.int32]:
        """The entry of each hash, 0 where there is none."""
        at = self._home(hashes)
        entries = self.slots.take(at)
        wrong = (self.hashes.take(entries) != hashes) & (entries != 0)
        if not wrong.any():
            return entries
        (astray,) = wrong.nonzero()
        at, last = at[astray], len(self.slots) - 1
        while len(astray):
            at = (at + 1) & last
            found = self.slots.take(at)
            entries[astray] = found
            wrong = (self.hashes.take(found) != hashes[astray]) & (found != 0)
            at, astray = at[wrong], astray[wrong]
        return entries

    def _home(self, hashes: Hashes) -> npt.NDArray[np.int64]:
        """The slot at which the search for a hash begins.

        Neither by its low bits, which are those of its group, nor by its high bits, by which hosts keep their keys:
        what moves together is often alike in one of them, and would want the same few slots.
        """
        return ((hashes * np.uint64(_SPREAD)) >> np.uint64(self.shift)).view(np.int64)

    def _set(self, entries: npt.NDArray[np.integer], ids: RouteIds) -> None:
        self.live += int(np.count_nonzero(ids >= 0)) - int(np.count_nonzero(self.ids[entries] >= 0))
        self.ids[entries] = ids

    def _append(self, hashes: Hashes, names: list[str], ids: RouteIds) -> None:
        if len(self.names) + len(names) > len(self.hashes):
            self._rebuild(len(names))
        first, end = len(self.names), len(self.names) + len(names)
        self.hashes[first:end] = hashes
        self.ids[first:end] = ids
        self.names += names
        self.live += len(names)
        self._place(np.arange(first, end, dtype=np.int32))

    def _place(self, entries: npt.NDArray[np.int32]) -> None:
        """Give new entries their slots: all try at once, and who finds a slot taken goes on to the next."""
        at = self._home(self.hashes[entries])
        last = len(self.slots) - 1
        while len(entries):
            free = self.slots[at] == 0
            self.slots[at[free]] = entries[free]
            lost = self.slots[at] != entries
            entries, at = entries[lost], (at[lost] + 1) & last

    def _compact(self) -> None:
        if len(self.names) > 2 * self.live + _FEWEST_SLOTS:
            self._rebuild(0)

    def _rebuild(self, more: int) -> None:
        """Drop entries without a route and make room for more, with so much to spare that this stays rare."""
        kept = np.flatnonzero(self.ids[: len(self.names)] >= 0)
        hashes, ids, names = self.hashes[kept], self.ids[kept], self.names
        self._allocate(max(_FEWEST_SLOTS, 1 << (6 * (len(kept) + more + 1) - 1).bit_length()))
        if len(kept):
            self._append(hashes, [names[entry] for entry in kept.tolist()], ids)

    def check(self) -> None:
        used = len(self.names)
        assert used <= len(self.hashes) == len(self.slots) // 4, "the table is too full"
        assert self.live == np.count_nonzero(self.ids >= 0), "the count of overrides is wrong"
        assert (self._find(self.hashes[1:used]) == np.arange(1, used)).all(), "an entry cannot be found"
