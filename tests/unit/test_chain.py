"""Operators that run inline: the same results as with a place of their own, and nobody has to place them."""

from dataclasses import dataclass
from typing import Any

import pytest

from peregrine import proof
from peregrine.core.chain import chained, deployed
from peregrine.core.operator import Marks, Operator, OpSpec, Out
from peregrine.core.rows import UNCHAINED, Row
from peregrine.errors import ConfigurationError
from peregrine.types import OpId, SourceId
from peregrine.workloads import tm

HEAD, MIDDLE, TAIL, SINK = OpId("a/head"), OpId("a/middle"), OpId("a/tail"), OpId("a/sink")


@dataclass(frozen=True)
class Twice:
    """Says everything twice, to one operator or to two of them."""

    to: tuple[OpId, ...]

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        count = (value or 0) + 1
        outs = [
            Out(to, key, row.source, 2 * row.seq + i, row.time_ms, row.payload + b"%d" % i)
            for i in (0, 1)
            for to in self.to
        ]
        return count, outs

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        return value, [Out(self.to[0], key, SourceId("clock"), now_ms or 0, now_ms or 0, b"tick")]

    def open_ends(self, value: Any) -> list[int]:
        return [7] if value else []


def specs(*inline: OpId) -> dict[OpId, OpSpec]:
    return {
        HEAD: OpSpec(HEAD, 4, feeds=(MIDDLE, SINK)),
        MIDDLE: OpSpec(MIDDLE, 4, stateless=True, inline=MIDDLE in inline, feeds=(TAIL,)),
        TAIL: OpSpec(TAIL, 4, stateless=True, inline=TAIL in inline, feeds=(SINK,)),
        SINK: OpSpec(SINK, 4, sink=True),
    }


OPERATORS: dict[OpId, Operator] = {HEAD: Twice((MIDDLE, SINK)), MIDDLE: Twice((TAIL,)), TAIL: Twice((SINK,))}
SENT = [Row(f"k{i % 5}", SourceId("s"), i, UNCHAINED, i, i, b"%d:" % i) for i in range(50)]


def test_inline_operators_give_the_results_that_they_give_at_places_of_their_own() -> None:
    apart, states = proof.expected(specs(), OPERATORS, {HEAD: SENT})
    one = specs(MIDDLE, TAIL)
    inline, inline_states = proof.expected(deployed(one), chained(one, OPERATORS), {HEAD: SENT})
    assert sum(map(len, inline.values())) == 50 * (2 + 8)
    assert {line: sorted(outs) for line, outs in inline.items()} == {line: sorted(outs) for line, outs in apart.items()}
    assert inline_states == {at: value for at, value in states.items() if at[0] == HEAD}


def test_clocks_go_through_the_chain_and_windows_are_those_of_its_head() -> None:
    one = specs(MIDDLE, TAIL)
    head = chained(one, OPERATORS)[HEAD]
    value, outs = head.on_clock("k", 1, {}, 5)
    assert (value, [out.op for out in outs]) == (1, [SINK] * 4)
    assert head.open_ends(1) == [7]


def test_routers_and_the_manager_do_not_see_what_is_inline() -> None:
    one = deployed(specs(MIDDLE, TAIL))
    assert set(one) == {HEAD, SINK}
    assert one[HEAD].feeds == (SINK,)
    assert deployed(specs(MIDDLE))[HEAD].feeds == (SINK, TAIL)
    assert deployed(specs()) == specs()


def test_what_is_not_inline_stays_as_it_is() -> None:
    assert chained(specs(), OPERATORS) == OPERATORS
    assert set(chained(tm.specs(), tm.operators())) == {tm.MOV_AVG}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({HEAD: OpSpec(HEAD, 4, feeds=(TAIL,)), TAIL: OpSpec(TAIL, 4, inline=True)}, "has state"),
        ({TAIL: OpSpec(TAIL, 4, stateless=True, inline=True)}, "nothing feeds it"),
        ({TAIL: OpSpec(TAIL, 4, stateless=True, inline=True, feeds=(TAIL,))}, "feeds itself"),
        (
            {HEAD: OpSpec(HEAD, 4, feeds=(TAIL,)), TAIL: OpSpec(TAIL, 4, stateless=True, inline=True, ticks=True)},
            "wants clocks",
        ),
    ],
)
def test_what_cannot_run_inline_is_refused(wrong: dict[OpId, OpSpec], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        deployed(wrong)
