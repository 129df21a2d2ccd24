"""The groups of an operator at a place that are kept as one, and what a continuous host has of them in memory.

What a host keeps in memory is a cache of what was committed, and of what came since. Whoever commits takes what has
changed since the state that is committed, with the offset up to which it holds. That may be ahead of what is committed
of the log: applying the rest from there gives the same.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from peregrine.core.host import GroupEntry
from peregrine.core.large import Spill
from peregrine.core.messages import FromHost


class Shard(msgspec.Struct, array_like=True):
    upto: int = 0  # what lies before this offset has been applied, also if less of the log is committed
    groups: dict[int, bytes] = {}

    @classmethod
    def decode(cls, raw: bytes) -> "Shard":
        found = _decoder.decode(raw)
        return found if isinstance(found, Shard) else Shard(0, found)  # as it was written before it had an offset

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)

    def take_over(self, newer: "Shard") -> None:
        """What `Unit.take` gives, into what is committed."""
        self.upto = newer.upto
        for group, blob in newer.groups.items():
            if blob:
                self.groups[group] = blob
            else:
                self.groups.pop(group, None)


_decoder = msgspec.msgpack.Decoder(Shard | dict[int, bytes])


class Applied(NamedTuple):
    output: FromHost | None
    after: bytes
    spill: Spill | None


_Chunks = Mapping[int, frozenset[bytes]]  # that the states of groups refer to
_NONE: frozenset[bytes] = frozenset()
Apply = Callable[[int, bytes, Sequence[tuple[int, GroupEntry]], frozenset[bytes]], Applied]


class Unit:
    def __init__(self, loaded: Shard, apply: Apply) -> None:
        """`apply` is given a group, its state, entries, and the chunks that must be kept besides."""
        self.upto = loaded.upto  # what lies before this offset has been applied, and its outputs have been accepted
        self._groups = dict(loaded.groups)
        self._changed: dict[int, int] = {}  # group -> offset of the last entry for it
        self._apply = apply
        # Chunks stay until no committed state refers to them: the log may have to be applied again from there.
        self._now: dict[int, frozenset[bytes]] = {}
        self._taken: tuple[int, _Chunks] = (loaded.upto, {})  # of what was taken last, which may be committed by now
        self._committed: _Chunks = {}

    def apply(self, group: int, entries: Sequence[tuple[int, GroupEntry]]) -> FromHost | None:
        held = self._taken[1].get(group, _NONE) | self._committed.get(group, _NONE)
        output, after, spill = self._apply(group, self._groups.get(group, b""), entries, held)
        if spill is not None:
            if group not in self._now and spill.before:  # as it was loaded
                self._committed = {**self._committed, group: frozenset(spill.before)}
            self._now[group] = frozenset(spill.after)
        self._groups[group] = after
        self._changed[group] = entries[-1][0]
        return output

    def take(self, held: int) -> Shard:
        """What has changed since the committed state, which holds up to there; a group that is empty has gone."""
        if held == self._taken[0] and self._taken[1]:
            self._committed = self._taken[1]
        self._taken = self.upto, dict(self._now)
        changed = {group for group, offset in self._changed.items() if offset >= held}
        return Shard(self.upto, {group: self._groups[group] for group in changed})
