"""Changes to mappings that can be taken back: what makes a trial cost what it touches, and not what exists.

Whoever plans changes the one world in place; if the plan turns out to be impossible, or fails when it is carried out,
the changes since a mark are undone, newest first. The rule: mappings of a world are written through `put` and
`remove`, never directly.
"""

from collections.abc import MutableMapping
from enum import Enum
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class _Absent(Enum):
    """There was nothing. (The one member is the same one after a restart, from a snapshot.)"""

    ABSENT = "absent"


_ABSENT: Any = _Absent.ABSENT


class Changes:
    def __init__(self) -> None:
        self._undo: list[tuple[MutableMapping[Any, Any], Any, Any]] = []

    def put(self, mapping: MutableMapping[K, V], key: K, value: V) -> None:
        self._undo.append((mapping, key, mapping.get(key, _ABSENT)))
        mapping[key] = value

    def remove(self, mapping: MutableMapping[K, V], key: K) -> None:
        """It need not be there."""
        if key in mapping:
            self._undo.append((mapping, key, mapping.pop(key)))

    def put_in(self, mapping: MutableMapping[K, dict[Any, Any]], key: K, inner: object, value: object) -> None:
        """Into a mapping of a mapping, which begins with its first key."""
        if key not in mapping:
            self.put(mapping, key, {})
        self.put(mapping[key], inner, value)

    def remove_in(self, mapping: MutableMapping[K, dict[Any, Any]], key: K, inner: object) -> None:
        """Out of a mapping of a mapping, which ends with its last key."""
        if key in mapping:
            self.remove(mapping[key], inner)
            if not mapping[key]:
                self.remove(mapping, key)

    def mark(self) -> int:
        return len(self._undo)

    def undo_to(self, mark: int) -> None:
        while len(self._undo) > mark:
            mapping, key, before = self._undo.pop()
            if before is _ABSENT:
                del mapping[key]
            else:
                mapping[key] = before

    def keep(self) -> None:
        """There is no way back any more."""
        self._undo.clear()
