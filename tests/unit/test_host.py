"""The host's one function: log order, flags, control rows, and rows that come by two paths."""

from typing import Any

import pytest

from harness import AT_CLOUD, AT_EDGE2, CLOUD, EDGE1, GROUPS, OP, SINK, keys, migration, row, rows
from peregrine.core.host import Emission, GroupEntry, Part, apply, by_group
from peregrine.core.keyspace import KeySet, stable_hash
from peregrine.core.mechanisms.program import On
from peregrine.core.migrate import Role
from peregrine.core.rows import (
    FIRST,
    AskRipe,
    Clock,
    DropKeys,
    ForgetSent,
    Marker,
    RestoreKeys,
    Row,
    Rows,
    StateRows,
    TakeSnapshot,
    rows_of,
)
from peregrine.core.state import canonical, decode
from peregrine.sim.operators import Ledger, Tumbling
from peregrine.types import MigrationId, OpId, PlaceId, SourceId

M = migration(keys("car1"), PlaceId("edge1"), AT_CLOUD, EDGE1)
LEDGER = Ledger(SINK)
TUMBLING = Tumbling(SINK, OP, 100, lambda key: ("s",))


def given(offset: int, what: Row, muted: bool = False, sample: bool = False, gate: str | None = None) -> Part:
    return Part([offset], [what], muted, sample, MigrationId(gate) if gate else None)


def run(*entries: GroupEntry, state: bytes = b"", operator: Any = LEDGER) -> tuple[list[Emission], bytes]:
    """Entries at the offsets 0, 1, 2, ... (a row has its own)."""
    return apply(operator, state, [(e.offsets[0] if isinstance(e, Part) else i, e) for i, e in enumerate(entries)])


def chained(*links: tuple[int, int], **flags: Any) -> list[Part]:
    """Rows (seq, prev) of a roaming source, at offsets in the order in which they are given."""
    return [given(i, row("car1", seq, prev), **flags) for i, (seq, prev) in enumerate(links)]


def seqs(emissions: list[Emission]) -> list[int]:
    return [each.seq for e in emissions if isinstance(e.item, Rows) for each in rows_of(e.item.batch)]


def offsets(emissions: list[Emission]) -> list[int]:
    return [int(offset) for e in emissions for offset in e.offsets]


def snapshot(*names: str, **more: Any) -> TakeSnapshot:
    group = stable_hash(names[0]) % GROUPS
    return TakeSnapshot(OP, group, keys(*names), AT_CLOUD, CLOUD, **more)


# --- rows and flags ---


def test_rows_of_a_key_are_applied_in_the_order_of_the_log() -> None:
    """Falcon II-B: state correctness needs arrival order. The ledger's state is a hash chain over it."""
    there = run(given(0, row("car1", 0)), given(1, row("car1", 1)))
    back = run(given(0, row("car1", 1)), given(1, row("car1", 0)))
    assert seqs(there[0]) == [0, 1]
    assert canonical(there[1]) != canonical(back[1])


def test_every_output_carries_the_offset_of_the_row_that_caused_it() -> None:
    """Falcon III-G: repeats after a replay are recognised by where they came from."""
    emissions, _ = run(given(4, row("car1", 0)), given(9, row("car1", 1)))
    assert offsets(emissions) == [4, 9]


def test_a_muted_row_changes_the_state_and_emits_nothing() -> None:
    """Falcon III-E phase 3: the emission filter."""
    loud, quiet = run(given(0, row("car1", 0))), run(given(0, row("car1", 0), muted=True))
    assert quiet[0] == []
    assert quiet[1] == loud[1]


def test_a_sampled_row_leaves_no_trace() -> None:
    """Shepherd IV: warm-up runs the operator without an effect."""
    _, before = run(given(0, row("car1", 0)))
    emissions, after = run(given(1, row("car1", 1), sample=True), given(2, row("new", 0), sample=True), state=before)
    assert emissions == [] and after == before


def test_the_gate_of_a_row_is_copied_onto_its_outputs_and_splits_them() -> None:
    """Falcon III-E phase 6: only what rows behind T emit waits."""
    emissions, _ = run(given(0, row("car1", 0)), given(1, row("car1", 1), gate="m"), given(2, row("car1", 2)))
    assert [(e.item.gate, seqs([e])) for e in emissions if isinstance(e.item, Rows)] == [
        (None, [0]),
        ("m", [1]),
        (None, [2]),
    ]


def test_keys_of_one_group_do_not_share_state() -> None:
    """Falcon III-B: state is per key, the group is only how it is stored."""
    _, both = run(given(0, row("car1", 0)), given(1, row("van1", 1)))
    _, alone = run(given(0, row("car1", 0)))
    assert canonical(both)["car1"] == canonical(alone)["car1"]


# --- rows that come by two paths (Falcon III-F, ping-pong) ---


def test_rows_of_a_roaming_source_are_applied_in_its_order_whatever_path_was_faster() -> None:
    """Falcon III-F: what was produced first is applied first."""
    in_order, state = run(*chained((0, FIRST), (1, 0), (4, 1)))
    mixed, same = run(*chained((4, 1), (0, FIRST), (1, 0)))
    assert seqs(mixed) == seqs(in_order) == [0, 1, 4]
    assert canonical(same) == canonical(state)


def test_a_row_behind_a_gap_waits_and_leaves_under_the_offset_of_the_row_that_fills_it() -> None:
    emissions, state = run(*chained((0, FIRST), (2, 1)))
    assert seqs(emissions) == [0]
    assert decode(state)["car1"].books.waiting.keys() == {"s"}
    emissions, state = run(given(7, row("car1", 1, 0)), state=state)
    assert (seqs(emissions), offsets(emissions)) == ([1, 2], [7, 7])
    assert decode(state)["car1"].books.waiting == {}


def test_a_row_that_comes_again_is_dropped() -> None:
    """Falcon III-F: a source resends what was not acknowledged; the copies must not count."""
    emissions, state = run(*chained((0, FIRST), (1, 0), (0, FIRST), (1, 0)))
    _, once = run(*chained((0, FIRST), (1, 0)))
    assert seqs(emissions) == [0, 1]
    assert canonical(state) == canonical(once)


def test_a_row_that_waits_twice_is_applied_once() -> None:
    emissions, _ = run(*chained((2, 1), (2, 1), (1, 0), (1, 0), (0, FIRST), (2, 1)))
    assert seqs(emissions) == [0, 1, 2]


def test_a_row_that_comes_again_while_it_waits_does_not_make_the_state_grow() -> None:
    _, often = run(*chained((2, 1), (2, 1), (2, 1)))
    _, once = run(*chained((2, 1)))
    assert often == once


def test_a_partly_filled_gap_lets_only_the_rows_before_the_next_gap_go() -> None:
    emissions, state = run(*chained((4, 3), (1, 0), (0, FIRST)))
    assert seqs(emissions) == [0, 1]
    assert [waiting[2] for waiting in decode(state)["car1"].books.waiting["s"]] == [4]


@pytest.mark.parametrize(("flags", "emitted"), [({"muted": True}, []), ({"gate": "m"}, [0, 1])])
def test_the_flags_of_the_row_that_fills_the_gap_count(flags: dict[str, Any], emitted: list[int]) -> None:
    """Falcon III-E with III-F: a waiting row is applied where the gap closes, so S or D emits it, never both."""
    emissions, _ = run(given(0, row("car1", 1, 0)), given(1, row("car1", 0, FIRST), **flags))
    assert seqs(emissions) == emitted
    assert all(e.item.gate == flags.get("gate") for e in emissions if isinstance(e.item, Rows))


def test_a_waiting_muted_row_is_emitted_when_an_unmuted_row_fills_the_gap() -> None:
    emissions, _ = run(given(0, row("car1", 1, 0), muted=True), given(1, row("car1", 0, FIRST)))
    assert seqs(emissions) == [0, 1]


def test_gaps_of_one_source_do_not_hold_up_another() -> None:
    emissions, _ = run(given(0, row("car1", 1, 0, "a")), given(1, row("car1", 5, FIRST, "b")))
    assert seqs(emissions) == [5]


def test_gaps_of_one_key_do_not_hold_up_another() -> None:
    emissions, _ = run(given(0, row("car1", 3, 2)), given(1, row("van1", 4, FIRST)))
    assert seqs(emissions) == [4]


def test_the_duplicate_check_and_the_waiting_rows_move_with_the_key() -> None:
    """Falcon III-F: what is known of a source belongs to the key's state, or D would take resent rows again."""
    (state_rows,), _ = run(*chained((0, FIRST), (2, 1), muted=True), snapshot("car1"))
    _, there = run(RestoreKeys(OP, 0, state_rows.item.images))  # type: ignore[union-attr]
    emissions, _ = run(*chained((0, FIRST), (1, 0)), state=there)
    assert seqs(emissions) == [1, 2]


# --- snapshot, restore, drop ---


def images(emission: Emission) -> Any:
    assert isinstance(emission.item, StateRows)
    return emission.item.images


def test_a_snapshot_is_the_state_at_its_position_and_lies_between_the_outputs() -> None:
    """Falcon III-E phase 3."""
    emissions, _ = run(given(0, row("car1", 0)), snapshot("car1"), given(2, row("car1", 1)))
    assert [type(e.item) for e in emissions] == [Rows, StateRows, Rows]
    assert [image.version for image in images(emissions[1])] == [1]
    assert offsets(emissions) == [0, 1, 2]


def test_a_snapshot_of_keys_without_state_says_so() -> None:
    """Design section 4: D must learn that a key has no state, or its rows would be held for ever."""
    (emission,), _ = run(snapshot("car1"))
    assert images(emission) == ()
    assert isinstance(emission.item, StateRows) and emission.item.covers == keys("car1")


def test_a_snapshot_takes_only_the_keys_that_it_names() -> None:
    emissions, state = run(given(0, row("car1", 0)), given(1, row("van1", 1)), snapshot("car1", drop=True))
    assert [image.key for image in images(emissions[-1])] == ["car1"]
    assert decode(state).keys() == {"van1"}


def test_a_restored_key_goes_on_as_if_it_had_not_moved() -> None:
    """Falcon III-E, state correctness."""
    whole, state = run(*(given(i, row("car1", i)) for i in range(4)))
    first, left = run(given(0, row("car1", 0)), given(1, row("car1", 1)), snapshot("car1", drop=True))
    second, moved = run(RestoreKeys(OP, 0, images(first[-1])), given(2, row("car1", 2)), given(3, row("car1", 3)))
    assert left == b""
    assert moved == state
    payloads = [
        [r.payload for e in es if isinstance(e.item, Rows) for r in rows_of(e.item.batch)]
        for es in (whole, first + second)
    ]
    assert payloads[0] == payloads[1]


def test_a_drop_forgets_and_acknowledges_behind_the_last_output() -> None:
    """Falcon III-E phase 6."""
    emissions, state = run(given(0, row("car1", 0)), given(1, row("van1", 1)), DropKeys(OP, 0, keys("car1"), ack=M))
    assert seqs(emissions[:-1]) == [0, 1]
    assert emissions[-1].item == Marker(On.ACK, Role.GATE, M, keys("car1"))
    assert decode(state).keys() == {"van1"}


def test_a_drop_of_an_abort_acknowledges_nothing() -> None:
    emissions, state = run(given(0, row("car1", 0), muted=True), DropKeys(OP, 0, keys("car1")))
    assert (emissions, state) == ([], b"")


def test_keys_below_the_utility_are_shed_with_what_they_had_seen_and_keep_their_books() -> None:
    """Survey IV-E, state shedding: the least useful states stay behind; which ones is reported exactly."""
    entries = [given(0, row("car1", 0, FIRST)), *(given(1 + i, row("van1", i)) for i in range(3))]
    emissions, _ = run(*entries, snapshot("car1", "van1", drop=True, shed_below=2))
    state = emissions[-1].item
    assert isinstance(state, StateRows)
    assert state.shed == (("car1", 1),)
    _, there = run(RestoreKeys(OP, 0, state.images))
    assert [decode(there)[key].version for key in ("car1", "van1")] == [0, 3]
    assert decode(there)["car1"].value is None
    assert decode(there)["car1"].books.seen == {"s": 0}


# --- replicas ---


def big(count: int, start: int = 0) -> list[Part]:
    """Rows of many sources: the ledger's value grows by one entry for each, at its end."""
    return [given(i, row("car1", 0, source=f"source-{i:04}")) for i in range(start, start + count)]


def test_a_delta_snapshot_ships_only_chunks_that_the_place_lacks() -> None:
    """Spacker III-C1, survey IV-F: an incremental checkpoint has what has changed since the last."""

    def apply_small(state: bytes, *entries: GroupEntry) -> tuple[list[Emission], bytes]:
        numbered = [(e.offsets[0] if isinstance(e, Part) else 1000, e) for e in entries]
        return apply(LEDGER, state, numbered, chunk_bytes=64)

    first, state = apply_small(b"", *big(20), snapshot("car1", delta=True, static=True))
    (whole,) = images(first[-1])
    assert len(whole.data) == len(whole.chunks) > 5
    second, state = apply_small(state, snapshot("car1", delta=True, static=True))
    assert second == []  # nothing has changed: nothing is sent
    third, state = apply_small(state, *big(1, start=5), snapshot("car1", delta=True, static=True))
    assert 0 < len(images(third[-1])[0].data) < len(whole.chunks)
    elsewhere, state = apply_small(state, TakeSnapshot(OP, 0, keys("car1"), AT_EDGE2, CLOUD, delta=True))
    (other,) = images(elsewhere[-1])
    assert len(other.data) == len(set(other.chunks))
    forgotten, _ = apply_small(state, ForgetSent(OP, 0, keys("car1"), AT_CLOUD), snapshot("car1", delta=True))
    (again,) = images(forgotten[-1])
    assert len(again.data) == len(set(again.chunks))


# --- time ---


def clock(time_ms: int, *names: str, source: str | None = "s", **more: Any) -> Clock:
    return Clock(OP, keys(*names), SourceId(source) if source else None, time_ms, **more)


def test_a_watermark_closes_windows_of_the_keys_that_it_names_alone() -> None:
    """Falcon III-B: a window closes when its key's sources have passed its end."""
    entries = [given(0, row("car1", 0, time_ms=10)), given(1, row("van1", 1, time_ms=10))]
    emissions, state = run(*entries, clock(100, "car1"), operator=TUMBLING)
    assert [(r.key, r.seq) for e in emissions for r in rows_of(e.item.batch)] == [("car1", 100)]  # type: ignore[union-attr]
    assert decode(state)["van1"].value != {}


def test_a_clock_obeys_mute_and_gate_like_a_row() -> None:
    """Falcon III-E phases 3 and 6 hold for what time causes, too."""
    first = given(0, row("car1", 0, time_ms=10))
    muted, one = run(first, clock(100, "car1", muted=True), operator=TUMBLING)
    gated, two = run(first, clock(100, "car1", gate=MigrationId("m")), operator=TUMBLING)
    assert muted == [] and one == two
    assert [e.item.gate for e in gated if isinstance(e.item, Rows)] == ["m"]


def test_a_clock_makes_no_keys() -> None:
    emissions, state = run(clock(100, "car1"), clock(100, "van1", source=None))
    assert not emissions and not decode(state)


def test_watermarks_never_go_back() -> None:
    _, state = run(given(0, row("car1", 0, time_ms=50)), clock(40, "car1"), given(2, row("car1", 1, time_ms=30)))
    assert decode(state)["car1"].books.marks == {"s": 50}


def test_what_a_key_knows_of_its_sources_time_moves_with_it() -> None:
    """Design section 3, Time: a window closes at D exactly as it would have closed at S."""
    first, _ = run(given(0, row("car1", 0, time_ms=10)), clock(90, "car1"), snapshot("car1"), operator=TUMBLING)
    _, there = run(RestoreKeys(OP, 0, images(first[-1])), operator=TUMBLING)
    assert decode(there)["car1"].books.marks == {"s": 90}


def test_a_place_is_ripe_when_the_windows_that_were_open_at_the_first_question_have_closed() -> None:
    """Survey IV-C: the hand-over is due when S's old windows are empty; younger ones do not count."""

    def ask(until_ms: int | None) -> AskRipe:
        return AskRipe(OP, 0, keys("car1"), M, until_ms)

    first, state = run(given(0, row("car1", 0, time_ms=10)), ask(None), operator=TUMBLING)
    assert [e.item.until_ms for e in first if isinstance(e.item, Marker)] == [100]
    again, state = run(ask(100), state=state, operator=TUMBLING)
    assert [e.item.until_ms for e in again if isinstance(e.item, Marker)] == [100]
    last, _ = run(given(0, row("car1", 1, time_ms=150)), ask(100), state=state, operator=TUMBLING)
    answer = last[-1].item
    assert isinstance(answer, Marker) and answer.until_ms is None and answer.role is Role.SOURCE


def test_what_is_beside_windows_moves_without_them() -> None:
    """Survey IV-C: no window moves, but a source that had said its last word must be heard at D (decision 0008)."""
    both = Tumbling(SINK, OP, 100, lambda key: ("s", "t"))
    beside = snapshot("car1", beside_windows=True)
    away, _ = run(given(0, row("car1", 0, time_ms=10, source="t")), clock(300, "car1"), beside, operator=both)
    told = RestoreKeys(OP, 0, images(away[-1]), beside_windows=True)
    emissions, fresh = run(told, operator=both)
    assert emissions == []
    there = decode(fresh)["car1"]
    assert (there.value, there.books.marks, there.version) == (None, {"s": 300, "t": 10}, 1)
    _, state = run(given(0, row("car1", 5, time_ms=20, source="t"), muted=True), told, operator=both)
    there = decode(state)["car1"]
    assert list(there.value) == [100]
    assert (there.books.marks, there.version) == ({"s": 300, "t": 10}, 1)


# --- a stretch of the log, by group ---


def test_each_group_gets_its_own_rows_with_their_offsets_in_log_order() -> None:
    """Spark hands each group its rows; offsets are those of the log, so that order can be restored."""
    op2 = OpId("app/other")
    log = [
        (10, rows(row("car1", 0), row("car2", 1), row("van1", 2), muted=True)),
        (13, Clock(OP, KeySet.everything(GROUPS), None, 5)),
        (14, rows(row("car1", 3), op=op2)),
        (15, DropKeys(OP, 1, keys("car2"))),
        (16, rows(row("car1", 4))),
    ]
    parts = by_group(log, {OP: GROUPS, op2: 1})
    assert [offset for offset, _ in parts[OP, 0]] == [10, 13, 16]
    assert [offset for offset, _ in parts[OP, 1]] == [11, 13, 15]
    assert [offset for offset, _ in parts[OP, 2]] == [13]
    assert [offset for offset, _ in parts[op2, 0]] == [14]
    mine = [entry for _, entry in parts[OP, 0] if isinstance(entry, Part)]
    assert [(part.offsets, part.muted) for part in mine] == [([10, 12], True), ([16], False)]
