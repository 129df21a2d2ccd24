"""Operators that notice everything: a lost, repeated or reordered row changes their state and every later output.

Where several sources feed one key their rows may interleave in any way, so what these operators compute depends on the
order within each source only. The source of an output ends with `>key`: checkers read from it which key emitted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from peregrine.core.big_map import BigMap
from peregrine.core.operator import Marks, Out
from peregrine.core.rows import Row
from peregrine.types import OpId, SourceId

Rekey = Callable[[str], str]


def emitter(source: str) -> str:
    """The key whose operator emitted a row with this source."""
    return source.rpartition(">")[2]


@dataclass(frozen=True)
class Ledger:
    """A hash chain for each source: the state is a proof of which rows were applied, and in which order."""

    to: OpId
    rekey: Rekey = str
    running: bool = True  # outputs tell the chain so far; otherwise only of their own row (order does not show)
    big: bool = False  # the value is a map that is loaded and written bucket by bucket

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        if not value:  # a part that never changes, so that a replica is worth something
            value = BigMap({f"about{i}": key * 8 for i in range(8)}) if self.big else {"about": key * 8}
        count, chain = value.get(row.source, (0, b""))
        chain = blake2b(chain + row.payload, digest_size=8).digest()
        value[row.source] = (count + 1, chain)
        told = (
            b"%d:%s" % (count + 1, chain.hex().encode())
            if self.running
            else blake2b(row.payload, digest_size=8).digest()
        )
        return value, [Out(self.to, self.rekey(key), SourceId(f"{row.source}>{key}"), row.seq, row.time_ms, told)]

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        return value, []

    def open_ends(self, value: Any) -> list[int]:
        return []


@dataclass(frozen=True)
class Tally:
    """As Ledger, but blind to order: for what follows a mechanism that promises none."""

    to: OpId

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        value = value or {}
        count, mix = value.get(row.source, (0, 0))
        value[row.source] = (count + 1, mix ^ _number(row.payload))
        return value, [Out(self.to, key, SourceId(f"{row.source}>{key}"), row.seq, row.time_ms, row.payload)]

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        return value, []

    def open_ends(self, value: Any) -> list[int]:
        return []


@dataclass(frozen=True)
class Clean:
    """Stateless: hands each row on."""

    to: OpId

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        return None, [Out(self.to, key, SourceId(f"{row.source}>{key}"), row.seq, row.time_ms, row.payload)]

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        return None, []

    def open_ends(self, value: Any) -> list[int]:
        return []


@dataclass(frozen=True)
class Tumbling:
    """Counts and mixes the rows of each event-time window; a window closes when all sources of its key have
    passed it. A row that comes later opens it again, and is seen as a result too many.
    """

    to: OpId
    op: OpId
    size_ms: int
    sources_of: Callable[[str], tuple[str, ...]]
    rekey: Rekey = str
    time_from_rows: bool = True
    clocks_to: tuple[tuple[OpId, int], ...] = ()
    delay_ms: int = 0  # how long before the end of its window an output is dated

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        value = value or {}
        end = (row.time_ms // self.size_ms + 1) * self.size_ms
        count, mix = value.get(end, (0, 0))
        value[end] = (count + 1, mix ^ _number(f"{row.source}{row.seq}".encode() + row.payload))
        return self._close(key, value, marks)

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        return self._close(key, value or {}, marks)

    def _close(self, key: str, value: dict[int, Any], marks: Marks) -> tuple[Any, list[Out]]:
        sources = self.sources_of(key)
        if any(source not in marks for source in sources):
            return value, []
        watermark = min(marks[source] for source in sources)
        outs = []
        for end in sorted(end for end in value if end <= watermark):
            count, mix = value.pop(end)
            source, dated_ms = SourceId(f"{self.op}>{key}"), end - self.delay_ms
            outs.append(Out(self.to, self.rekey(key), source, end, dated_ms, b"%d:%d" % (count, mix)))
        return value, outs

    def open_ends(self, value: Any) -> list[int]:
        return sorted(value or {})


def _number(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=6).digest(), "big")
