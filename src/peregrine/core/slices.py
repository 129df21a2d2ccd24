"""A host's log as columns: what each group has to apply, ready for a runner that shuffles by group.

Rows become one slice for each group, still columnar, however small the batches are in which they came; a clock becomes
one slice for each group that it touches, and a control row is one slice. A runner may hand a group its slices in any
number of pieces, in order of `first_offset`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from peregrine.core import wire
from peregrine.core.host import GroupEntry, Part
from peregrine.core.rows import Clock, Control, Entry, Rows, concat, rows_of
from peregrine.core.rules import split
from peregrine.types import OpId


class Slice(NamedTuple):
    op: str
    group: int
    first_offset: int
    offsets: bytes  # int64, one for each row
    body: bytes  # an entry, as core/wire.py writes it


def slices(entries: Iterable[tuple[int, Entry]], groups: Mapping[OpId, int]) -> Iterator[Slice]:
    """Of a stretch of a log. Rows of an operator with the same flags are gathered until something else comes for it."""
    gathered: dict[OpId, list[tuple[int, Rows]]] = {}
    for offset, entry in entries:
        waiting = gathered.setdefault(entry.op, [])
        if waiting and not (isinstance(entry, Rows) and _alike(waiting[0][1], entry)):
            yield from _of_rows(waiting, groups)
            waiting.clear()
        if isinstance(entry, Rows):
            waiting.append((offset, entry))
        else:
            yield from _of_control(offset, entry)
    for waiting in gathered.values():
        if waiting:
            yield from _of_rows(waiting, groups)


def _alike(one: Rows, other: Rows) -> bool:
    return one.muted == other.muted and one.gate == other.gate and one.sample == other.sample


def _of_rows(waiting: list[tuple[int, Rows]], groups: Mapping[OpId, int]) -> Iterator[Slice]:
    first = waiting[0][1]
    batch = concat([rows.batch for _, rows in waiting]) if len(waiting) > 1 else first.batch
    offsets = np.concatenate([np.arange(at, at + len(rows), dtype=np.int64) for at, rows in waiting])
    gathered = replace(first, batch=batch)
    numbers = (gathered.hashes % np.uint64(groups[first.op])).astype(np.int32)
    for group, part in split(batch, numbers):
        mine = offsets[numbers == group]
        yield Slice(first.op, group, int(mine[0]), mine.tobytes(), wire.encode(replace(first, batch=part)))


def _of_control(offset: int, entry: Clock | Control) -> Iterator[Slice]:
    at = np.array([offset], np.int64).tobytes()
    if isinstance(entry, Clock):
        for group in entry.keys.touched_groups():
            yield Slice(entry.op, group, offset, at, wire.encode(entry.only(entry.keys.in_group(group))))
    else:
        yield Slice(entry.op, entry.group, offset, at, wire.encode(entry))


def entries_of(parts: Iterable[tuple[int, bytes, bytes]]) -> Iterator[tuple[int, GroupEntry]]:
    """What `apply` takes, from (first_offset, offsets, body) of one group."""
    for _, offsets, body in sorted(parts, key=lambda part: part[0]):
        numbers = np.frombuffer(offsets, np.int64).tolist()
        entry = wire.decode_entry(body)
        if isinstance(entry, Rows):
            yield numbers[0], Part(numbers, rows_of(entry.batch), entry.muted, entry.sample, entry.gate)
        else:
            yield numbers[0], entry
