"""What the host asks of an operator: pure functions over one key's value.

An operator reads no clock and draws no random number: time comes as rows' event times and as clocks in the log, so that
a replay gives the same value and the same outputs (Falcon III: operators are deterministic).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from peregrine.core.rows import Row
from peregrine.types import OpId, SourceId


class Out(msgspec.Struct, frozen=True, gc=False):
    """One output. It becomes a row of the operator `op`, for its key `key`."""

    op: OpId
    key: str
    source: SourceId
    seq: int
    time_ms: int
    payload: bytes


Marks = Mapping[str, int]


class Operator(Protocol):
    """`value` is anything msgpack can carry; None for a key that was never seen. Functions return the new value.

    An operator of event time may have the attributes of `Timing` too, and one with windows `beside_windows` and
    `with_windows` (see the functions of these names).
    """

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        """`marks` already counts this row: its source has reached the row's event time (unless `time_from_rows` is
        False).
        """
        ...

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        """A watermark advanced, or, with `now_ms`, the wall clock ticked."""
        ...

    def open_ends(self, value: Any) -> list[int]:
        """The ends of the windows that are open. Only windowed operators have any. A window that can grow gives the end
        that it had when it began: it must not pass for one that began later.
        """
        ...


@dataclass(frozen=True, slots=True)
class Timing:
    """What an operator does with event time, by the attributes that it has."""

    time_from_rows: bool = True  # a row advances its source's watermark for the key; else only clocks do
    clocks_to: tuple[tuple[OpId, int], ...] = ()  # (operator that it feeds, its groups): who hears clocks in turn
    delay_ms: int = 0  # how much older than the watermark its outputs may be


def timing_of(operator: Operator) -> Timing:
    return Timing(
        getattr(operator, "time_from_rows", True),
        getattr(operator, "clocks_to", ()),
        getattr(operator, "delay_ms", 0),
    )


def beside_windows(operator: Operator, value: Any) -> Any:
    """What a value holds beside its windows: counters, how far time has come. All of an operator that does not say is
    windows.
    """
    given = getattr(operator, "beside_windows", None)
    return None if given is None else given(value)


def with_windows(operator: Operator, beside: Any, value: Any) -> Any:
    """The value that has the windows of `value` (None: none yet), and beside them what another place has."""
    given = getattr(operator, "with_windows", None)
    return value if given is None else given(beside, value)


@dataclass(frozen=True, slots=True)
class OpSpec:
    """What routers and the planner know about an operator; they never see its code."""

    op: OpId
    groups: int
    stateless: bool = False
    inline: bool = False  # runs within the operators that feed it (core/chain.py)
    windowed: bool = False
    roaming: bool = False  # its sources may move between sites
    ticks: bool = False  # wants the wall clock
    sink: bool = False  # not an operator: where results of an application land
    feeds: tuple[OpId, ...] = ()
