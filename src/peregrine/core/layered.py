"""A mapping that is another one but for a few entries: what makes a changed copy cost what is changed.

The rule: a mapping that was made is never changed, so any number of copies may share what they have in common. The few
entries are copied with every change; when their number reaches the square root of what lies below them, the two are
folded into one plain dict. So ten thousand entries are copied once in a hundred changes, and a question asks two
mappings at most.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class _Not(Enum):
    """What stands where a value would. (The members are the same ones after a restart, from a snapshot.)"""

    SAID = "said"  # the mapping below knows
    THERE = "there"


_SAID: Any = _Not.SAID
_THERE: Any = _Not.THERE


def changed(mapping: Mapping[K, V], put: Mapping[K, V], gone: Sequence[K] = ()) -> Mapping[K, V]:
    """The mapping with these entries, and without those. Keys that go must be there."""
    if not put and not gone:
        return mapping
    below, few = (mapping.below, mapping.few) if isinstance(mapping, Layered) else (mapping, {})
    few = {**few, **put, **dict.fromkeys(gone, _THERE)}
    if len(few) ** 2 < len(below):
        return Layered(below, few)
    folded = {**below, **few}
    for key in [key for key, value in few.items() if value is _THERE]:
        del folded[key]
    return folded


class Layered(Mapping[K, V]):
    """Made by `changed`."""

    __slots__ = ("below", "few")

    def __init__(self, below: Mapping[K, V], few: Mapping[K, Any]) -> None:
        self.below = below
        self.few = few

    def __getitem__(self, key: K) -> V:
        value: V = self.few.get(key, _SAID)
        if value is _SAID:
            return self.below[key]
        if value is _THERE:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        value = self.few.get(key, _SAID)  # type: ignore[arg-type]
        return key in self.below if value is _SAID else value is not _THERE

    def __iter__(self) -> Iterator[K]:
        yield from (key for key in self.below if self.few.get(key) is not _THERE)
        yield from (key for key, value in self.few.items() if value is not _THERE and key not in self.below)

    def __len__(self) -> int:
        return len(self.below) + sum((value is not _THERE) - (key in self.below) for key, value in self.few.items())
