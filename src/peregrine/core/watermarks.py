"""What clocks have told a group, for all of its keys: those that are there and those that may come.

A key's own watermarks are in its books. The group keeps them as well, because a promise that it has passed on binds
keys that it has not seen yet: such a key begins with the watermarks that it would have heard, or its first window would
close behind the promise. A watermark that comes in parts is put together here, once for all keys that heard the same.
All of it moves with the keys (decision 0017).
"""

from collections.abc import Iterable
from functools import reduce
from operator import or_

import msgspec

from peregrine.core.keyspace import KeySet
from peregrine.core.rows import Clock

NEVER = -(1 << 63)


class Stretch(msgspec.Struct, array_like=True):
    """Keys of a group that have heard the same."""

    keys: KeySet
    marks: dict[str, int] = {}  # source -> its watermark
    parts: dict[str, list[tuple[int, KeySet]]] = {}  # source in parts -> how far which keys of the operator before are

    def of(self, keys: KeySet) -> "Stretch":
        return Stretch(keys, dict(self.marks), dict(self.parts))

    def hear(self, source: str, time_ms: int) -> None:
        self.marks[source] = max(time_ms, self.marks.get(source, time_ms))

    def hear_part(self, source: str, time_ms: int, part: KeySet) -> int | None:
        """The source's watermark if this part has advanced it: the earliest time that any part has reached."""
        reached: dict[int, KeySet] = {}
        coming = part
        for at_ms, keys in self.parts.get(source, ()):
            if at_ms >= time_ms:
                coming -= keys
            else:
                keys -= part
            if keys:
                reached[at_ms] = keys
        if coming:
            reached[time_ms] = reached[time_ms] | coming if time_ms in reached else coming
        self.parts[source] = sorted(reached.items(), key=lambda each: each[0])
        mark = min(reached)
        if mark <= self.marks.get(source, NEVER) or reduce(or_, reached.values()) != KeySet.everything(part.groups):
            return None
        self.marks[source] = mark
        return mark


class Watermarks:
    """Of one group at one place. Stretches do not overlap; as long as nothing moves there is one."""

    def __init__(self, stretches: Iterable[Stretch] = ()) -> None:
        self.stretches = list(stretches)

    @staticmethod
    def decode(data: bytes) -> "Watermarks":
        return Watermarks(_decoder.decode(data) if data else ())

    def encode(self) -> bytes:
        return _encoder.encode(self.stretches) if self.stretches else b""

    def hear(self, clock: Clock) -> list[tuple[KeySet, int]]:
        """For which keys a watermark is known now that was not before. What a source itself says is always told on."""
        assert clock.source is not None
        told = [] if clock.part is not None else [(clock.keys, clock.time_ms)]
        for stretch in self._cut(clock.keys):
            if clock.part is None:
                stretch.hear(clock.source, clock.time_ms)
            elif (mark := stretch.hear_part(clock.source, clock.time_ms, clock.part)) is not None:
                told.append((stretch.keys, mark))
        self._join()
        return told

    def add(self, others: Iterable[Stretch]) -> None:
        """What these keys have heard elsewhere."""
        for other in others:
            for stretch in self._cut(other.keys):
                for source, mark in other.marks.items():
                    stretch.hear(source, mark)
                for source, parts in other.parts.items():
                    for time_ms, part in parts:
                        stretch.hear_part(source, time_ms, part)
        self._join()

    def only(self, keys: KeySet) -> "Watermarks":
        return Watermarks(each.of(inside) for each in self.stretches if (inside := each.keys & keys))

    def drop(self, keys: KeySet) -> None:
        self.stretches = [each.of(rest) for each in self.stretches if (rest := each.keys - keys)]

    def of(self, key: str) -> dict[str, int]:
        return next((dict(each.marks) for each in self.stretches if key in each.keys), {})

    def _cut(self, keys: KeySet) -> list[Stretch]:
        """The stretches that make up these keys and no others, a new one for those that have heard nothing included."""
        inside: list[Stretch] = []
        outside: list[Stretch] = []
        for stretch in self.stretches:
            if stretch.keys == keys:
                inside.append(stretch)
                keys = KeySet.nothing(keys.groups)
            elif mine := stretch.keys & keys:
                inside.append(stretch.of(mine))
                if rest := stretch.keys - keys:
                    outside.append(stretch.of(rest))
                keys -= mine
            else:
                outside.append(stretch)
        if keys:
            inside.append(Stretch(keys))
        self.stretches = inside + outside
        return inside

    def _join(self) -> None:
        """Keys that have heard the same by now are one stretch again."""
        joined: list[Stretch] = []
        for stretch in self.stretches:
            same = next((o for o in joined if o.marks == stretch.marks and o.parts == stretch.parts), None)
            if same is None:
                joined.append(stretch)
            else:
                same.keys |= stretch.keys
        self.stretches = joined


_decoder = msgspec.msgpack.Decoder(list[Stretch])
_encoder = msgspec.msgpack.Encoder(order="deterministic")
