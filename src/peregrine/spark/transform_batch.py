"""One batch of a DataFrame operator: rows and control rows of its log in, outputs out.

A stretch of rows goes through the function whole. If that fails it is halved and halved again: the rows at fault become
dead letters, the others go on. It knows nothing of Spark: `run` does.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from peregrine.core.host import Emission, GroupEntry, Part, apply
from peregrine.core.operator import Marks, Out
from peregrine.core.rows import Row, Rows, batch_of
from peregrine.core.slices import entries_of
from peregrine.spark.feed import ITEM_ROWS
from peregrine.spark.guard import REASON_CHARACTERS, Failure, dead_letters_of
from peregrine.spark.typed_rows import Reader, Taken, Unread, Writer, numbers_from
from peregrine.types import OpId, PlaceId

RUNS = 64  # of the function on parts of a batch; then what is left of it fails together

Run = Callable[[pa.Table], pa.Table]


class Refused(Exception):
    """The user's function has raised, or gives what it should not."""


class Batch:
    """One batch: its stretches of rows go through the function, its control rows are obeyed, all in log order."""

    def __init__(self, op: OpId, place: PlaceId, reader: Reader, writer: Writer, run: Run) -> None:
        self._op = op
        self._place = place
        self._reader = reader
        self._writer = writer
        self._run = run
        self._runs = 0

    def apply(self, slices: Iterable[tuple[int, bytes, bytes]]) -> list[Emission]:
        items: list[Any] = []
        last = -1
        for offset, entry in in_order(entries_of(slices)):
            if isinstance(entry, Part):
                last = entry.offsets[-1]
                outputs = list(self._outputs(entry)) if not entry.muted else []
                items += outputs if not entry.sample else []  # it has run, which is what warms it up
            else:
                last = offset
                items += [emission.item for emission in apply(_NOTHING, b"", [(offset, entry)])[0]]
        return [Emission(np.full(len(item) if isinstance(item, Rows) else 1, last), item) for item in items]

    def _outputs(self, part: Part) -> Iterator[Rows]:
        """What must pass a gate says so, as the rows did from which it comes."""
        taken, unread = self._reader.read(part.offsets, part.rows)
        rows: dict[OpId, list[Row]] = {}
        for failed in unread:
            self._refuse(failed, rows)
        numbers = numbers_from(part.offsets[0])
        for given, result in self._results(taken):
            if isinstance(result, str):
                for each in given:
                    self._refuse(Unread(each.offset, each.row, result), rows)
                continue
            for written in self._writer.write(result, given, numbers):
                if isinstance(written, Unread):
                    self._refuse(written, rows)
                else:
                    rows.setdefault(written[0], []).append(written[1])
        for op, of_op in rows.items():
            for at in range(0, len(of_op), ITEM_ROWS):
                yield Rows(op, batch_of(of_op[at : at + ITEM_ROWS]), gate=part.gate)

    def _results(
        self, taken: Sequence[Taken], failed_before: bool = False
    ) -> Iterator[tuple[Sequence[Taken], pa.Table | str]]:
        """Of all rows at once, or, if that fails, of halves of them: each with its result, or why it has none.
        A row that is given up has failed twice at least.
        """
        if not taken:
            return
        self._runs += 1
        try:
            result = self._run(self._reader.table(taken))
        except Refused as refused:
            if failed_before and (len(taken) == 1 or self._runs >= RUNS):
                yield taken, str(refused)
                return
            middle = len(taken) // 2
            for half in (taken[:middle], taken[middle:]):
                yield from self._results(half, failed_before=True)
        else:
            yield taken, result

    def _refuse(self, failed: Unread, rows: dict[OpId, list[Row]]) -> None:
        op, row = self._op, failed.row
        reason = failed.reason[:REASON_CHARACTERS]
        failure = Failure(op, row.key, self._place, failed.offset, reason, row.source, row.seq, row.payload)
        letter = msgspec.structs.replace(row, payload=msgspec.json.encode(failure))
        rows.setdefault(dead_letters_of(op), []).append(letter)


def in_order(entries: Iterable[tuple[int, GroupEntry]]) -> Iterator[tuple[int, GroupEntry]]:
    """What lies between two control rows as one part again, in the order of the log: slices are of single groups."""
    for flags, alike in groupby(entries, _flags):
        if isinstance(flags, int):
            yield from alike
            continue
        parts = [part for _, part in alike if isinstance(part, Part)]
        by_offset = {at: row for part in parts for at, row in zip(part.offsets, part.rows, strict=True)}
        offsets = sorted(by_offset)
        yield offsets[0], replace(parts[0], offsets=offsets, rows=[by_offset[at] for at in offsets])


def _flags(entry: tuple[int, GroupEntry]) -> Any:
    offset, what = entry
    return (what.muted, what.sample, what.gate) if isinstance(what, Part) else offset


class Nothing:
    """An operator without state: for control rows, which ask for it."""

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        return None, []

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        return None, []

    def open_ends(self, value: Any) -> list[int]:
        return []


_NOTHING = Nothing()
