"""A host's log as columns: what each group has to apply, ready for a runner that shuffles by group.

An entry of rows becomes one slice for each group in it, still columnar; a clock one slice for each group that it
touches; a control row is one slice. A runner may hand a group its slices in any number of pieces, in order of
`first_offset`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from peregrine.core import wire
from peregrine.core.host import GroupEntry, Input
from peregrine.core.rows import Clock, Entry, Rows, rows_of
from peregrine.core.rules import split
from peregrine.types import OpId


class Slice(NamedTuple):
    op: str
    group: int
    first_offset: int
    offsets: bytes  # int64, one for each row
    body: bytes  # an entry, as core/wire.py writes it


def slices(offset: int, entry: Entry, groups: Mapping[OpId, int]) -> Iterator[Slice]:
    if isinstance(entry, Rows):
        numbers = (entry.hashes % np.uint64(groups[entry.op])).astype(np.int32)
        offsets = np.arange(offset, offset + len(entry), dtype=np.int64)
        for group, batch in split(entry.batch, numbers):
            mine = offsets[numbers == group]
            body = wire.encode(replace(entry, batch=batch))
            yield Slice(entry.op, group, int(mine[0]), mine.tobytes(), body)
        return
    at = np.array([offset], np.int64).tobytes()
    if isinstance(entry, Clock):
        for group in entry.keys.touched_groups():
            yield Slice(entry.op, group, offset, at, wire.encode(replace(entry, keys=entry.keys.in_group(group))))
    else:
        yield Slice(entry.op, entry.group, offset, at, wire.encode(entry))


def entries_of(parts: Iterable[tuple[int, bytes, bytes]]) -> Iterator[tuple[int, GroupEntry]]:
    """What `apply` takes, from (first_offset, offsets, body) of one group."""
    for _, offsets, body in sorted(parts, key=lambda part: part[0]):
        numbers = np.frombuffer(offsets, np.int64).tolist()
        entry = wire.decode_entry(body)
        if isinstance(entry, Rows):
            for offset, row in zip(numbers, rows_of(entry.batch), strict=True):
                yield offset, Input(offset, row, entry.muted, entry.sample, entry.gate)
        else:
            yield numbers[0], entry
