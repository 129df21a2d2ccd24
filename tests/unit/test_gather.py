"""Small batches are joined on their way through a router, and nothing else changes."""

import random

from harness import AT_CLOUD, CLOUD, EDGE1, GROUPS, OP, SINK, keys, migration, row, rows, sink, spec, tree
from peregrine.core import journal
from peregrine.core.gather import bundles, gathered
from peregrine.core.keyspace import KeySet
from peregrine.core.mechanisms.program import On
from peregrine.core.messages import (
    Ahead,
    Append,
    Attach,
    Committed,
    Event,
    FromHost,
    FromSource,
    SetOwner,
    Single,
    Tick,
    Together,
)
from peregrine.core.migrate import Role
from peregrine.core.router import Router, RouterConfig
from peregrine.core.rows import Clock, Item, Marker, Rows, rows_of
from peregrine.types import MigrationId, OpId, PlaceId, SourceId

OTHER = OpId("app/other")
MARKER = Marker(On.ACK, Role.TARGET, migration(keys("car1"), PlaceId("edge1"), AT_CLOUD, EDGE1), keys("car1"))


def seqs(item: Item) -> list[int]:
    return [each.seq for each in rows_of(item.batch)] if isinstance(item, Rows) else []


def test_rows_of_one_operator_that_came_the_same_way_become_one_batch() -> None:
    items = [(None, rows(row("car1", 0))), (None, rows(row("car2", 1), row("car1", 2))), (None, rows(row("car1", 3)))]
    assert [(way, seqs(item)) for way, item in gathered(items)] == [(None, [0, 1, 2, 3])]


def test_what_differs_is_not_joined_and_keeps_its_order() -> None:
    muted = rows(row("car1", 1), muted=True)
    gated = rows(row("car1", 2), gate=MigrationId("m"))
    items: list[tuple[str | None, Item]] = [(None, rows(row("car1", 0))), (None, muted), (None, gated)]
    items += [("edge1", rows(row("car1", 3))), (None, rows(row("car1", 4)))]
    assert [seqs(item) for _, item in gathered(items)] == [[0], [1], [2], [3], [4]]


def test_nothing_passes_a_marker_and_no_row_passes_a_clock_of_its_operator() -> None:
    clock = Clock(OP, KeySet.everything(GROUPS), SourceId("s"), 5)
    mine, theirs = (None, rows(row("car1", 0))), (None, rows(row("car1", 1), op=OTHER))
    assert [item for _, item in gathered([mine, theirs, (None, MARKER), mine])][2] is MARKER
    found = [item for _, item in gathered([theirs, mine, (None, clock), mine, theirs])]
    assert [type(item).__name__ for item in found] == ["Rows", "Clock", "Rows", "Rows"]
    assert [seqs(item) for item in found] == [[0], [], [1, 1], [0]]


def test_parts_of_a_watermark_are_joined_behind_the_rows_that_they_followed() -> None:
    def part(group: int, time_ms: int = 5, gate: str | None = None) -> Clock:
        of = KeySet.of_groups(2, [group])
        flag = MigrationId(gate) if gate else None
        return Clock(OP, KeySet.everything(GROUPS), SourceId("app/before/s"), time_ms, gate=flag, part=of)

    first, second = rows(row("car1", 0)), rows(row("car1", 1))
    items = [first, part(0), second, part(1), part(0, 9), part(1, gate="m"), MARKER, part(1, 9)]
    found = [item for _, item in gathered((None, item) for item in items)]
    whole = [item.part for item in found if isinstance(item, Clock)]
    zero, one = KeySet.of_groups(2, [0]), KeySet.of_groups(2, [1])
    assert [type(item).__name__ for item in found] == ["Rows", "Clock", "Clock", "Clock", "Marker", "Clock"]
    assert seqs(found[0]) == [0, 1] and whole == [KeySet.everything(2), zero, one, one]


def test_any_sequence_keeps_the_order_of_each_operator() -> None:
    joined = 0
    for seed in range(200):
        rng = random.Random(seed)
        items: list[tuple[str | None, Item]] = []
        for i in range(30):
            op = rng.choice((OP, OTHER))
            if rng.random() < 0.8:
                item: Item = rows(row("car1", i), op=op, muted=rng.random() < 0.3)
            elif rng.random() < 0.5:
                item = Clock(op, KeySet.everything(GROUPS), SourceId("s"), i)
            else:
                item = MARKER
            items.append((rng.choice((None, "edge1")), item))
        found = list(gathered(items))
        joined += len(items) - len(found)
        for op in (OP, OTHER):
            assert story(found, op) == story(items, op), f"seed {seed}"
    assert joined > 200


def story(items: list[tuple[str | None, Item]], op: OpId) -> list[tuple[object, ...]]:
    told: list[tuple[object, ...]] = []
    for way, item in items:
        if isinstance(item, Rows) and item.op == op:
            told += [(way, item.muted, seq) for seq in seqs(item)]
        elif isinstance(item, Clock) and item.op == op:
            told.append(("clock", item.time_ms))
        elif isinstance(item, Marker):
            told.append(("marker",))
    return told


def test_commands_go_alone_and_everything_else_together() -> None:
    a, b = FromSource(SourceId("a"), ()), FromHost(AT_CLOUD, OP, 0, ())
    events: list[Single] = [
        a,
        b,
        Committed(AT_CLOUD, 0),
        Ahead(AT_CLOUD, 0),
        SetOwner(OP, keys("car1"), AT_CLOUD),
        Tick(1),
        Attach(SourceId("a")),
        a,
    ]
    assert [len(run) for run in bundles(events, lambda event: event)] == [4, 1, 1, 2]


def test_a_router_that_takes_events_together_appends_one_batch_and_acknowledges_each() -> None:
    router = Router(RouterConfig(CLOUD, tree(), {OP: spec(), SINK: sink()}))
    events: tuple[Single, ...] = tuple(
        FromSource(SourceId(name), ((0, rows(row("car1", 0, source=name))),)) for name in ("a", "b", "c")
    )
    one: Event = Together(events)
    assert journal.decode(journal.encode(one)) is not None
    effects = router.step(journal.decode(journal.encode(one)))
    appended = [effect for effect in effects if isinstance(effect, Append)]
    assert len(appended) == 1 and isinstance(appended[0].entry, Rows) and len(appended[0].entry) == 3
    assert [router.acked_source(SourceId(name)) for name in ("a", "b", "c")] == [0, 0, 0]
    assert not [effect for effect in router.step(one) if isinstance(effect, Append)], "all of it was seen"
