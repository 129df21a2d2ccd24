"""Outputs of several groups on their way to the router: all of a group in one event, and few events."""

import numpy as np

from harness import AT_CLOUD, OP, SINK
from peregrine.core.host import Emission, Output, Outs
from peregrine.core.keyspace import KeySet
from peregrine.core.messages import FromGroups, FromHost
from peregrine.core.operator import Out
from peregrine.core.outgoing import outgoing
from peregrine.core.rows import Clock, rows_of
from peregrine.types import MigrationId, OpId, SourceId

OTHER = OpId("app/other")
CLOCK = Emission(np.array([9], np.int64), Clock(SINK, KeySet.everything(1), SourceId("s"), 5))


def outs(*offsets: int, to: OpId = SINK, gate: str | None = None) -> Output:
    rows = [(offset, Out(to, f"car{offset}", SourceId("s"), offset, 0, b""), 0) for offset in offsets]
    return Outs(to, None if gate is None else MigrationId(gate), rows)


def test_groups_that_emit_for_one_operator_alone_go_in_one_batch() -> None:
    (event,) = outgoing(AT_CLOUD, OP, [(0, [outs(3, 7)]), (2, []), (1, [outs(4)])])
    assert isinstance(event, FromGroups)
    assert (event.groups, event.offsets.tolist()) == (((0, 2), (1, 1)), [3, 7, 4])
    assert [row.seq for row in rows_of(event.rows.batch)] == [3, 7, 4]


def test_what_must_pass_different_gates_is_not_mixed() -> None:
    found = outgoing(AT_CLOUD, OP, [(0, [outs(3)]), (1, [outs(4, gate="m")]), (2, [outs(5, gate="m")])])
    groups = [(event.groups, event.rows.gate) for event in found if isinstance(event, FromGroups)]
    assert groups == [(((0, 1),), None), (((1, 1), (2, 1)), "m")]


def test_a_group_that_emits_anything_else_comes_alone_and_whole() -> None:
    """The second of two events with one offset would pass for a repeat."""
    mixed: list[Output] = [outs(3), outs(3, to=OTHER), CLOCK]
    alone, together = outgoing(AT_CLOUD, OP, [(0, mixed), (1, [outs(4)])])
    assert isinstance(alone, FromHost) and isinstance(together, FromGroups)
    assert (alone.group, [each.offsets.tolist() for each in alone.emissions]) == (0, [[3], [3], [9]])
    assert alone.emissions[2] is CLOCK
    assert together.groups == ((1, 1),)


def test_nothing_is_handed_over_when_nothing_came_out() -> None:
    assert outgoing(AT_CLOUD, OP, [(0, []), (1, [])]) == []
