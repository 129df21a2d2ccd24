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

    An operator of event time may have the attributes of `Timing` too.
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
        """The ends of the windows that are open. Only windowed operators have any."""
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
