"""Applying a group's entries with an operator that may raise: the row becomes a dead letter and the stream goes on.

Operators change values in place, so after an exception the value may be half changed. Keeping a copy before each row
would cost every row; so the entries are applied without a net, and once more with one if anything went wrong. Both are
functions of state and entries alone: a replay fails at the same rows, and the router drops the repeats.
"""

import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from peregrine.core.host import GroupEntry, Output, Part, work_off
from peregrine.core.large import Sealer, Spill, unseal
from peregrine.core.operator import Marks, Operator, Out, beside_windows, timing_of, with_windows
from peregrine.core.rows import Row
from peregrine.errors import ConfigurationError, StorageError
from peregrine.types import OpId, PlaceId, SourceId

REASON_CHARACTERS = 1000


class Failure(msgspec.Struct, frozen=True):
    """The payload of a dead letter: which row (or clock) could not be applied, where, and why."""

    op: str
    key: str
    place: str
    position: int  # its offset in the log of the place
    reason: str
    source: str = ""
    seq: int = -1
    payload: bytes = b""


def dead_letters_of(op: OpId) -> OpId:
    """Nobody deploys an operator of this name, so the router where the output arrives makes it a dead letter.

    As an output it has an offset and passes gates: it is told once, and by one place, also while its key moves.
    """
    return OpId(f"{op}!failed")


def apply_guarded(
    operator: Operator,
    place: PlaceId,
    op: OpId,
    state: bytes,
    entries: Sequence[tuple[int, GroupEntry]],
    chunk_bytes: int,
    spill: Spill | None = None,
) -> tuple[list[Output], bytes]:
    """As `core.host.work_off`, for operators of users."""
    try:
        return work_off(operator, state, entries, chunk_bytes, spill)
    except (MemoryError, StorageError):
        raise
    except Exception:  # whatever an operator may raise; what is not its fault raises again below
        guard = Guard(operator, place, op, spill)
        return work_off(guard, state, guard.watch(entries), chunk_bytes, spill)


class Missing:
    """Stands for an operator that this host does not have: its rows become dead letters, and all others go on."""

    def __init__(self, op: OpId, place: PlaceId) -> None:
        self._op = op
        self._place = place

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        raise self._error()

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        return value, []  # a clock for a key that nothing can be known of

    def open_ends(self, value: Any) -> list[int]:
        raise self._error()

    def _error(self) -> ConfigurationError:
        return ConfigurationError(
            f"the host of {self._place} does not have operator {self._op}",
            "move its keys to where it runs (a DataFrame operator: to site/name), or publish its code",
        )


class Guard:
    """An operator that answers an exception with the value as it was, and a dead letter."""

    def __init__(self, operator: Operator, place: PlaceId, op: OpId, spill: Spill | None = None) -> None:
        self._sealer = Sealer(spill)
        self._chunks = spill.store if spill else None
        self._operator = operator
        self._place = place
        self._op = op
        self._position = -1
        timing = timing_of(operator)
        self.time_from_rows, self.clocks_to, self.delay_ms = timing.time_from_rows, timing.clocks_to, timing.delay_ms

    def watch(self, entries: Iterable[tuple[int, GroupEntry]]) -> Iterator[tuple[int, GroupEntry]]:
        """One row at a time, so that it is known at which one it was."""
        for position, entry in entries:
            if isinstance(entry, Part):
                for self._position, row in zip(entry.offsets, entry.rows, strict=True):
                    yield self._position, replace(entry, offsets=[self._position], rows=[row])
            else:
                self._position = position
                yield position, entry

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        before, _ = self._sealer.seal(value)
        try:
            return self._checked(*self._operator.on_row(key, value, row, marks))
        except StorageError:
            raise
        except Exception as error:
            failure = self._failure(key, error, row)
            out = Out(dead_letters_of(self._op), key, row.source, row.seq, row.time_ms, failure)
            return unseal(before, self._chunks), [out]

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        before, _ = self._sealer.seal(value)
        try:
            return self._checked(*self._operator.on_clock(key, value, marks, now_ms))
        except StorageError:
            raise
        except Exception as error:
            time_ms = max(marks.values(), default=0) if now_ms is None else now_ms
            source = SourceId(self._op)
            failure = self._failure(key, error, None)
            return unseal(before, self._chunks), [
                Out(dead_letters_of(self._op), key, source, self._position, time_ms, failure)
            ]

    def open_ends(self, value: Any) -> list[int]:
        # Not guarded: a wrong answer would lose open windows in a move. The host stops, with everything kept.
        return self._operator.open_ends(value)

    def beside_windows(self, value: Any) -> Any:
        return beside_windows(self._operator, value)

    def with_windows(self, beside: Any, value: Any) -> Any:
        return with_windows(self._operator, beside, value)

    def _failure(self, key: str, error: Exception, row: Row | None) -> bytes:
        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno} of {where.filename})"
        failure = Failure(self._op, key, self._place, self._position, reason[:REASON_CHARACTERS])
        if row is not None:
            failure = msgspec.structs.replace(failure, source=row.source, seq=row.seq, payload=row.payload)
        return msgspec.json.encode(failure)

    def _checked(self, value: Any, outs: list[Out]) -> tuple[Any, list[Out]]:
        """What cannot be stored or sent is the fault of the row that brought it, not of the batch that holds it."""
        self._sealer.seal(value)
        for out in outs:
            msgspec.convert(out, Out, strict=True)
        return value, outs
