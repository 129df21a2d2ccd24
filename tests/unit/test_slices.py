"""A stretch of a log as slices for each group says the same as the log itself."""

import random

from harness import OP, keys, row, rows
from peregrine.core.host import GroupEntry, Part, by_group
from peregrine.core.rows import Clock, DropKeys, Entry, length
from peregrine.core.slices import entries_of, slices
from peregrine.types import MigrationId, OpId, SourceId

GROUPS = 4
OTHER = OpId("app/other")


def random_log(seed: int) -> list[tuple[int, Entry]]:
    rng = random.Random(seed)
    entries: list[tuple[int, Entry]] = []
    offset = 0
    for number in range(40):
        entry: Entry
        if rng.random() < 0.15:
            entry = Clock(OP, keys("car1", "car2", "car3"), SourceId("s"), number)
        elif rng.random() < 0.1:
            entry = DropKeys(OP, rng.randrange(GROUPS), keys("car1"))
        else:
            count = rng.randint(1, 4)
            entry = rows(
                *(row(f"car{rng.randrange(6)}", number * 10 + i) for i in range(count)), op=rng.choice((OP, OTHER))
            )
            if rng.random() < 0.2:
                entry = type(entry)(entry.op, entry.batch, muted=True, gate=MigrationId("m"))
        entries.append((offset, entry))
        offset += length(entry)
    return entries


def plain(entries: list[tuple[int, GroupEntry]]) -> list[tuple[int, str]]:
    return [
        each
        for at, e in entries
        for each in (
            [(offset, f"{row.key}#{row.seq} {e.muted} {e.gate}") for offset, row in zip(e.offsets, e.rows, strict=True)]
            if isinstance(e, Part)
            else [(at, type(e).__name__)]
        )
    ]


def test_each_group_gets_the_same_entries_in_the_same_order_as_from_the_log() -> None:
    for seed in range(60):
        log = random_log(seed)
        parts: dict[tuple[str, int], list[tuple[int, bytes, bytes]]] = {}
        for each in slices(log, {OP: GROUPS, OTHER: GROUPS}):
            parts.setdefault((each.op, each.group), []).append((each.first_offset, each.offsets, each.body))
        expected = by_group(log, {OP: GROUPS, OTHER: GROUPS})
        assert parts.keys() == expected.keys()
        for group, entries in expected.items():
            assert plain(list(entries_of(reversed(parts[group])))) == plain(entries), f"seed {seed}, {group}"


def test_small_batches_are_gathered() -> None:
    log = [(i, rows(row("car1", i))) for i in range(100)]
    assert len(list(slices(log, {OP: GROUPS}))) == 1
