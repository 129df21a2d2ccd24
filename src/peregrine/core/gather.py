"""Small batches are joined before they are routed: looking up ten rows costs as much as looking up a thousand.

Joined are rows of one operator that came the same way with the same flags. Rows of an operator keep their order; rows
of different operators may pass each other, and nothing passes a marker or a state: they say what came before them.
Parts of one watermark are joined too. They may wait for rows that came behind them: a promise can be told later.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, TypeVar

from peregrine.core.keyspace import KeySet
from peregrine.core.messages import Ahead, Attach, Committed, Event, FromAnyHost, FromLink, FromSource
from peregrine.core.rows import Clock, Item, Rows, concat
from peregrine.types import OpId

T = TypeVar("T")


@dataclass(slots=True)
class _Waiting:
    came: Hashable
    first: Rows
    more: list[Rows] = field(default_factory=list)

    def joins(self, came: Hashable, item: Rows) -> bool:
        return came == self.came and _flags(item) == _flags(self.first) and item.batch.schema == self.first.batch.schema

    def joined(self) -> Rows:
        if not self.more:
            return self.first
        return replace(self.first, batch=concat([self.first.batch, *(rows.batch for rows in self.more)]))


def gathered(items: Iterable[tuple[Any, Item]]) -> Iterator[tuple[Any, Item]]:
    """(way, item) in order, with rows joined."""
    waiting: dict[OpId, _Waiting] = {}
    promised: dict[tuple[Any, Clock], KeySet] = {}  # (way, clock without its part) -> the parts so far
    for came, item in items:
        if isinstance(item, Rows):
            before = waiting.get(item.op)
            if before is not None and before.joins(came, item):
                before.more.append(item)
                continue
            if before is not None:
                yield before.came, before.joined()
            waiting[item.op] = _Waiting(came, item)
            continue
        if isinstance(item, Clock) and item.part is not None:
            at = came, replace(item, part=None)
            promised[at] = promised[at] | item.part if at in promised else item.part
            continue
        if isinstance(item, Clock):
            before = waiting.pop(item.op, None)
            if before is not None:
                yield before.came, before.joined()
        else:
            yield from _all_of(waiting, promised)
            waiting.clear()
            promised.clear()
        yield came, item
    yield from _all_of(waiting, promised)


def _all_of(waiting: dict[OpId, _Waiting], promised: dict[tuple[Any, Clock], KeySet]) -> Iterator[tuple[Any, Item]]:
    for each in waiting.values():
        yield each.came, each.joined()
    for (came, clock), part in promised.items():
        yield came, replace(clock, part=part)


def _flags(rows: Rows) -> tuple[object, ...]:
    return rows.stamp, rows.dest, rows.detour, rows.muted, rows.sample, rows.gate


def bundles(handed: Iterable[T], event_of: Callable[[T], Event]) -> Iterator[list[T]]:
    """What came at the same time, cut so that each piece is one record of the journal, to be stepped at once.

    What only says that rows came or went goes together; a command goes alone, because it may be refused.
    """
    for goes_together, run in groupby(handed, lambda each: isinstance(event_of(each), _BUNDLED)):
        if goes_together:
            yield list(run)
        else:
            yield from ([each] for each in run)


_BUNDLED = FromSource | FromLink | FromAnyHost | Committed | Ahead | Attach
