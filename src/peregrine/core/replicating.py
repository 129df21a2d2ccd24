"""Keeping replicas fresh: what the router beside the keys does during normal processing (Spacker III-B; Falcon's HB).

A refresh asks the host for the keys that something has come for since the last one; of these the host sends what has
changed (core/host.py). The next is not asked for before the last one is applied where it went: a slow host or link
makes replicas older, but no queue. Where nothing comes, nothing is asked and nothing is sent.

A key that leaves has used up its replicas: they are kept no longer, wherever it went. These and those that are stopped
are given up, and the place that has them is told so behind the last refresh. That may still be ahead in the host's log,
so nothing is told before the host has committed so far.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from peregrine.core.keyspace import KeySet
from peregrine.core.messages import KeepReplicas
from peregrine.core.routes import Local
from peregrine.core.rows import Clock, Entry, ForgetSent, RestoreKeys, Rows, StateRows, TakeSnapshot
from peregrine.types import OpId, PlaceId, site_of

if TYPE_CHECKING:
    from peregrine.core.fetching import Fetching
    from peregrine.core.leg import Ports
    from peregrine.core.primitives import Halts

MOST_NAMED = 10_000  # keys that are touched between two refreshes; of more, all are asked for
At = tuple[OpId, PlaceId, PlaceId]  # operator, source, target


@dataclass(slots=True)
class Kept:
    keys: KeySet
    every_ms: int
    touched: KeySet  # since the last refresh; `named` as well
    named: set[str] = field(default_factory=set)
    due_ms: int = 0
    asked_to: int = 0  # where the host's log ended when it was last asked

    def saw(self, entry: Entry, target: PlaceId) -> None:
        """Something enters the log of the place."""
        if self.touched is self.keys:
            return
        match entry:
            case Rows(sample=True):
                pass
            case Rows():
                mine = entry.batch.column(0).filter(self.keys.contains(entry.hashes))
                self.named.update(mine.to_pylist())
            case RestoreKeys(images=images):
                self.named.update(image.key for image in images if image.key in self.keys)
            case Clock(keys=keys):
                self.touched |= self.keys & keys
            case ForgetSent(keys=keys, place=place) if place == target:
                self.touched |= self.keys & keys
            case _:
                pass
        if len(self.named) > MOST_NAMED:
            self.touched = self.keys
            self.named.clear()

    def add(self, keys: KeySet) -> None:
        new = keys - self.keys
        self.keys, self.touched = self.keys | keys, self.touched | new

    def remove(self, keys: KeySet) -> None:
        self.keys, self.touched = self.keys - keys, self._all_touched() - keys

    def due(self) -> KeySet:
        self.touched = self._all_touched()
        return self.touched

    def _all_touched(self) -> KeySet:
        if not self.named:
            return self.touched
        named, self.named = self.named, set()
        return self.touched | KeySet.of_keys(self.keys.groups, named)


@dataclass(frozen=True, slots=True)
class Ending:
    """Replicas that are given up as soon as the host of their source has come to this offset."""

    at: At
    offset: int
    keys: KeySet


class Replicating:
    def __init__(self, router: "Ports", fetching: "Fetching", halts: "Halts") -> None:
        self._router = router
        self._fetching = fetching
        self._halts = halts
        self._kept: dict[At, Kept] = {}
        self._endings: list[Ending] = []

    # --- commands ---

    def keep(self, asked: KeepReplicas) -> None:
        """Said twice, kept once."""
        nothing = KeySet.nothing(asked.keys.groups)
        kept = self._kept.setdefault((asked.op, asked.source, asked.target), Kept(nothing, asked.every_ms, nothing))
        kept.every_ms = asked.every_ms
        kept.add(asked.keys)

    def stop(self, op: OpId, keys: KeySet, source: PlaceId, target: PlaceId) -> None:
        gone = self._end((op, source, target), keys)
        if gone:
            self._router.ask(source, gone, lambda group, part: ForgetSent(op, group, part, target))
            self._give_up((op, source, target), gone)

    # --- what the router notices ---

    def saw(self, place: PlaceId, entry: Entry) -> None:
        for (op, source, target), kept in self._kept.items():
            if source == place and op == entry.op:
                kept.saw(entry, target)

    def leave(self, op: OpId, keys: KeySet, source: PlaceId) -> None:
        """These keys have moved away."""
        for at in [at for at in self._kept if at[:2] == (op, source)]:
            gone = self._end(at, keys)
            if gone:
                self._give_up(at, gone)

    def refresh(self, now_ms: int) -> None:
        for at, kept in self._kept.items():
            if now_ms >= kept.due_ms and at[1] not in self._halts and not self._under_way(at, kept):
                self._ask(at, kept, now_ms)

    def on_commit(self, place: PlaceId) -> None:
        ready = [each for each in self._endings if each.at[1] == place and self._committed(each.at, each.offset)]
        self._endings = [each for each in self._endings if each not in ready]
        for each in ready:
            op, source, target = each.at
            told = StateRows(op, target, site_of(target), each.keys, (), source=source)
            self._router.send(self._fetching.depart(told), told.dest)

    # --- what others may ask ---

    def stale(self) -> int:
        """Of how many operators, sources and targets something is on its way or will be with the next refresh."""
        return sum(bool(kept.touched or kept.named) or self._under_way(at, kept) for at, kept in self._kept.items())

    @property
    def keeps_any(self) -> bool:
        return bool(self._kept)

    def keeps(self, op: OpId, source: PlaceId, target: PlaceId, key: str) -> bool:
        kept = self._kept.get((op, source, target))
        return kept is not None and key in kept.keys

    # --- one by one ---

    def _ask(self, at: At, kept: Kept, now_ms: int) -> None:
        op, source, target = at
        dest = site_of(target)
        touched = kept.due()
        for route, keys in self._router.table.partition(op, touched) if touched else ():
            if route == Local(source):
                self._router.ask(
                    source, keys, lambda g, part: TakeSnapshot(op, g, part, target, dest, delta=True, static=True)
                )
                kept.touched -= keys
                kept.due_ms = now_ms + kept.every_ms
                kept.asked_to = self._router.ends[source]

    def _under_way(self, at: At, kept: Kept) -> bool:
        return (
            not self._committed(at, kept.asked_to)
            or self._fetching.refreshing(*at)
            or any(ending.at == at for ending in self._endings)
        )

    def _end(self, at: At, keys: KeySet) -> KeySet:
        """Which of these were kept."""
        kept = self._kept.get(at)
        if kept is None:
            return KeySet.nothing(keys.groups)
        gone = kept.keys & keys
        kept.remove(gone)
        if not kept.keys:
            del self._kept[at]
        return gone

    def _give_up(self, at: At, keys: KeySet) -> None:
        self._endings.append(Ending(at, self._router.ends.get(at[1], 0), keys))
        self.on_commit(at[1])

    def _committed(self, at: At, offset: int) -> bool:
        return self._router.commits.get(at[1], 0) >= offset
