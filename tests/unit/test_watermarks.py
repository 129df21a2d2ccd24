"""Watermarks that one operator passes on to the next: in parts, behind outputs, through gates, with keys that move."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness import AT_CLOUD, AT_EDGE2, CLOUD, GROUPS, OP, SINK, Net, keys, migration, row
from peregrine.core import journal
from peregrine.core.chain import Chain
from peregrine.core.host import Emission, GroupEntry, Part, apply
from peregrine.core.keyspace import KeySet, stable_hash
from peregrine.core.legs import Legs
from peregrine.core.messages import Append, Emitted, FromHost
from peregrine.core.migrate import Role
from peregrine.core.operator import timing_of
from peregrine.core.rows import Clock, DropKeys, RestoreKeys, Row, Rows, StateRows, TakeSnapshot, rows_of
from peregrine.core.state import decode
from peregrine.core.watermarks import Watermarks
from peregrine.sim.operators import Clean, Tumbling
from peregrine.types import MigrationId, OpId, SourceId

NEXT = OpId("app/next")
GROUP = stable_hash("car1") % GROUPS
MINE = KeySet.of_groups(GROUPS, [GROUP])
S, HEARD = SourceId("s"), SourceId(f"{OP}/s")
FIRST_STAGE = Tumbling(NEXT, OP, 100, lambda key: ("s",), clocks_to=((NEXT, 2),), delay_ms=100)
SECOND_STAGE = Tumbling(SINK, OP, 100, lambda key: (HEARD,), time_from_rows=False)


def run(operator: Any, *entries: GroupEntry | Row, state: bytes = b"") -> tuple[list[Emission], bytes]:
    given = [(i, Part([i], [each]) if isinstance(each, Row) else each) for i, each in enumerate(entries)]
    return apply(operator, state, given)


def clock(time_ms: int, keys: KeySet = MINE, part: KeySet | None = None, **more: Any) -> Clock:
    return Clock(OP, keys, HEARD if part else S, time_ms, part=part, **more)


def part(time_ms: int, *groups: int, of: int = 3, **more: Any) -> Clock:
    return clock(time_ms, part=KeySet.of_groups(of, groups), **more)


def closed(emissions: list[Emission]) -> list[int]:
    return [out.seq for e in emissions if isinstance(e.item, Rows) for out in rows_of(e.item.batch)]


def marks(state: bytes, key: str = "car1") -> dict[str, int]:
    found: dict[str, int] = decode(state)[key].books.marks
    return found


# --- at the host that passes a clock on ---


def test_a_clock_is_passed_on_behind_the_outputs_that_it_caused() -> None:
    emissions, _ = run(FIRST_STAGE, row("car1", 0, source="s", time_ms=50), clock(150))
    assert [type(e.item).__name__ for e in emissions] == ["Rows", "Clock"]
    assert emissions[1].offsets.tolist() == [1]
    assert emissions[1].item == Clock(NEXT, KeySet.everything(2), HEARD, 50, part=MINE)


def test_a_group_without_keys_passes_clocks_on_for_the_part_that_it_was_told() -> None:
    emissions, _ = run(FIRST_STAGE, clock(150, keys("car1"), gate=MigrationId("m")))
    assert [e.item for e in emissions] == [
        Clock(NEXT, KeySet.everything(2), HEARD, 50, gate=MigrationId("m"), part=keys("car1"))
    ]


def test_a_muted_clock_and_a_tick_are_not_passed_on() -> None:
    assert run(FIRST_STAGE, clock(150, muted=True), Clock(OP, MINE, None, 500))[0] == []


def test_operators_behind_a_chain_hear_what_its_head_passes_on() -> None:
    assert timing_of(Chain(FIRST_STAGE, {})) == timing_of(FIRST_STAGE)
    assert timing_of(Clean(SINK)).time_from_rows and timing_of(Clean(SINK)).clocks_to == ()


# --- at the host that hears it ---


def test_a_watermark_advances_when_parts_of_all_keys_have_reached_it() -> None:
    fed = row("car1", 0, source="s>car1", time_ms=50)
    emissions, state = run(SECOND_STAGE, fed, part(200, 0), part(300, 2))
    assert closed(emissions) == [] and marks(state) == {}
    emissions, state = run(SECOND_STAGE, part(150, 1), state=state)
    assert closed(emissions) == [100] and marks(state) == {HEARD: 150}
    assert marks(run(SECOND_STAGE, part(400, 1), state=state)[1]) == {HEARD: 200}


def test_parts_of_a_group_add_up_and_older_ones_take_nothing_back() -> None:
    some, others = KeySet.of_keys(2, ["a", "b"]), KeySet.everything(2) - KeySet.of_keys(2, ["a", "b"])
    heard = Watermarks()
    assert heard.hear(clock(200, part=some)) == []
    assert heard.hear(clock(100, part=KeySet.of_keys(2, ["a"]))) == []
    assert heard.hear(clock(300, part=others)) == [(MINE, 200)]
    assert heard.hear(clock(250, part=others)) == []
    assert Watermarks.decode(heard.encode()).stretches == heard.stretches


def test_a_key_that_comes_late_has_heard_what_its_group_has() -> None:
    _, state = run(SECOND_STAGE, part(90, 0, 1, 2), row("car1", 0, source="s>car1", time_ms=95))
    assert marks(state) == {HEARD: 90}


def test_rows_of_other_operators_do_not_fill_the_books() -> None:
    assert marks(run(SECOND_STAGE, row("car1", 0, source="s>car9", time_ms=5))[1]) == {}


def test_a_third_operator_hears_when_the_second_knows() -> None:
    middle = replace(SECOND_STAGE, clocks_to=((NEXT, 1),))
    emissions, _ = run(middle, part(200, 0), part(200, 2), part(300, 1))
    assert [e.item for e in emissions] == [Clock(NEXT, KeySet.everything(1), SourceId(f"{OP}/{HEARD}"), 200, part=MINE)]


# --- when keys move ---


@pytest.mark.parametrize("drop", [False, True])
def test_parts_that_have_come_move_with_the_keys(drop: bool) -> None:
    _, here = run(SECOND_STAGE, part(200, 0, 1))
    ask = TakeSnapshot(OP, GROUP, keys("car1"), AT_CLOUD, CLOUD, drop=drop)
    (sent,), here = run(SECOND_STAGE, ask, state=here)
    assert isinstance(sent.item, StateRows) and sent.item.images == ()
    _, there = run(SECOND_STAGE, RestoreKeys(OP, GROUP, (), clocks=sent.item.clocks))
    fed = row("car1", 0, source="s>car1", time_ms=50)
    assert closed(run(SECOND_STAGE, fed, part(200, 2, keys=keys("car1")), state=there)[0]) == [100]
    stayed = Watermarks.decode(decode(here).clocks)
    assert [stretch.keys for stretch in stayed.stretches] == [MINE - keys("car1") if drop else MINE]


def test_keys_that_are_dropped_have_heard_nothing_and_one_that_hears_the_same_again_is_no_stretch_of_its_own() -> None:
    _, state = run(SECOND_STAGE, part(200, 0, 1, 2), DropKeys(OP, GROUP, keys("car1")))
    assert Watermarks.decode(decode(state).clocks).of("car1") == {}
    _, state = run(SECOND_STAGE, part(300, 0, 1, 2), state=state)
    assert len(Watermarks.decode(decode(state).clocks).stretches) == 1


# --- at routers ---


def passed_on(gate: str | None = None) -> FromHost:
    item = Clock(OP, KeySet.everything(GROUPS), HEARD, 5, gate=MigrationId(gate) if gate else None, part=MINE)
    return FromHost(AT_CLOUD, NEXT, 0, (Emission(np.array([3], np.int64), item),))


def test_a_clock_of_a_host_is_routed_once_and_is_no_output() -> None:
    net = Net()
    event = journal.decode(journal.encode(passed_on()))
    effects = net.routers[CLOUD].step(event)
    assert [effect.entry.part for effect in effects if isinstance(effect, Append)] == [MINE]  # type: ignore[union-attr]
    assert not [effect for effect in effects if isinstance(effect, Emitted)]
    assert net.routers[CLOUD].step(event) == []


def test_a_clock_waits_at_the_gate_of_its_migration() -> None:
    net = Net()
    router = net.routers[CLOUD]
    moved = migration(keys("car1"), AT_EDGE2, AT_CLOUD, CLOUD)
    leg = router.legs.book.open(moved, Role.GATE)
    assert leg is not None and isinstance(router.legs, Legs)
    leg.closed = True
    assert router.step(passed_on(moved.id)) == []
    assert [item.gate for item in leg.behind_gate] == [moved.id]
