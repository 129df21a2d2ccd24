"""Operators of these tests, in a module of their own: they travel to Spark's workers by value."""

import sys
from dataclasses import dataclass
from typing import Any

from peregrine.core.big_map import BigMap
from peregrine.core.operator import Marks, Out
from peregrine.core.rows import Row
from peregrine.types import OpId

try:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
except ImportError:
    pass


@dataclass(frozen=True)
class Picky:
    """Counts the rows of a key in place, and raises (after it has counted) for one payload."""

    to: OpId
    refuses: bytes
    step: int = 1

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        value = value or {"count": 0}
        value["count"] += self.step
        if row.payload == self.refuses:
            raise ValueError(f"not this one: {row.payload!r}")
        return value, [Out(self.to, key, row.source, row.seq, row.time_ms, b"%d" % value["count"])]

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        if now_ms is not None and now_ms < 0:
            raise ValueError("time runs backwards")
        return value, []

    def open_ends(self, value: Any) -> list[int]:
        return []


@dataclass(frozen=True)
class Archive:
    """Keeps the payloads of a key in a map beside much else, and (for a key of that name) in a plain list; counts."""

    to: OpId
    entries: int
    plain: str

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        if value is None:
            filler = {f"old{i}": f"{key} {i} " * 100 for i in range(self.entries)}
            value = list(filler.values()) if key == self.plain else BigMap(filler)
        if isinstance(value, list):
            value.append(row.payload)
        else:
            value[f"row{row.seq}"] = row.payload
        return value, [Out(self.to, key, row.source, row.seq, row.time_ms, b"%d" % len(value))]

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        return value, []

    def open_ends(self, value: Any) -> list[int]:
        return []
