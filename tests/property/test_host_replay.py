"""A host that applies its log again, cut differently, gives the same outputs under the same offsets (Falcon III-G)."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import AT_CLOUD, CLOUD, EDGE1, GROUPS, OP, SINK, keys, migration, row, rows, sink, spec, tree
from peregrine.core.host import Emission, GroupEntry, apply, by_group
from peregrine.core.keyspace import KeySet
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.messages import Deliver, FromHost
from peregrine.core.operator import Operator
from peregrine.core.router import Router, RouterConfig
from peregrine.core.rows import (
    FIRST,
    UNCHAINED,
    AskRipe,
    Clock,
    DropKeys,
    Entry,
    ForgetSent,
    KeyImage,
    RestoreKeys,
    Row,
    Rows,
    TakeSnapshot,
    length,
    rows_of,
)
from peregrine.core.state import Books, KeyState, decode
from peregrine.sim.operators import Ledger, Tumbling
from peregrine.types import MigrationId, OpId, PlaceId, SourceId

NAMES = ("car1", "van1", "x7")  # all of group 0
GROUP = 0
M = migration(keys(*NAMES), PlaceId("edge1"), AT_CLOUD, EDGE1)
OPERATORS: list[Operator] = [
    Ledger(SINK),
    Tumbling(SINK, OP, 50, lambda key: ("a", "b"), clocks_to=((OpId("app/next"), 2),)),
]

names = st.sampled_from(NAMES)
key_sets = st.one_of(
    st.sets(names, min_size=1).map(lambda chosen: keys(*chosen)), st.just(KeySet.of_groups(GROUPS, [GROUP]))
)
times = st.integers(0, 400)
gates = st.sampled_from([None, MigrationId("m")])


@st.composite
def a_row(draw: st.DrawFn) -> Row:
    """Chained or not; numbers from a small range, so that repeats, gaps and fills are frequent."""
    seq = draw(st.integers(0, 6))
    prev = draw(st.sampled_from([UNCHAINED, seq - 1 if seq else FIRST]))
    return row(draw(names), seq, prev, draw(st.sampled_from("ab")), draw(times))


@st.composite
def an_image(draw: st.DrawFn) -> KeyImage:
    books = Books({"a": draw(st.integers(0, 4))}, {}, {"a": draw(times)})
    value = draw(st.sampled_from([None, {}]))
    return KeyState(value, books, draw(st.integers(0, 9))).image(draw(names))


batches = st.builds(
    lambda given, muted, sample, gate: rows(*given, muted=muted, sample=sample, gate=gate),
    st.lists(a_row(), min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from([False, False, False, True]),
    gates,
)
chained_clocks = st.builds(
    lambda seq, chosen, source, time_ms, muted, gate: Clock(
        *(OP, KeySet.of_groups(GROUPS, [GROUP]), source, time_ms),
        muted=muted,
        gate=gate,
        seq=seq,
        behind=tuple((name, seq - 1) for name in sorted(chosen)),
    ),
    st.integers(0, 6),
    st.sets(names, min_size=1),
    st.sampled_from([SourceId("a"), SourceId("b")]),
    times,
    st.booleans(),
    gates,
)
clocks = st.builds(
    lambda chosen, part, source, time_ms, muted, gate: Clock(
        OP, chosen, source, time_ms, muted=muted, gate=gate, part=part and KeySet.of_groups(3, part)
    ),
    key_sets,
    st.one_of(st.none(), st.sets(st.integers(0, 2), min_size=1)),
    st.sampled_from([None, SourceId("a"), SourceId("b")]),
    times,
    st.booleans(),
    gates,
)
snapshots = st.builds(
    lambda chosen, drop, delta, static, shed: TakeSnapshot(
        OP, GROUP, chosen, AT_CLOUD, CLOUD, None, drop, delta, static, shed
    ),
    key_sets,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2),
)
controls = st.one_of(
    snapshots,
    st.builds(
        lambda images, marks: RestoreKeys(OP, GROUP, tuple(images), marks),
        st.lists(an_image(), max_size=2),
        st.booleans(),
    ),
    st.builds(lambda chosen, ack: DropKeys(OP, GROUP, chosen, ack), key_sets, st.sampled_from([None, M])),
    st.builds(lambda chosen, until: AskRipe(OP, GROUP, chosen, M, until), key_sets, st.sampled_from([None, 100])),
    st.builds(lambda chosen: ForgetSent(OP, GROUP, chosen, AT_CLOUD), key_sets),
)
logs = st.lists(st.one_of(batches, batches, clocks, chained_clocks, controls), max_size=12)


def numbered(log: Sequence[Entry]) -> list[tuple[int, Entry]]:
    offset, entries = 0, []
    for entry in log:
        entries.append((offset, entry))
        offset += length(entry)
    return entries


def in_batches(
    operator: Operator, entries: Sequence[tuple[int, GroupEntry]], cuts: Sequence[int]
) -> tuple[list[Emission], list[bytes]]:
    """Applied stretch by stretch; the state goes through bytes after each, as it does in a state store."""
    emissions: list[Emission] = []
    states = [b""]
    bounds = [0, *sorted(cut % (len(entries) + 1) for cut in cuts), len(entries)]
    for first, last in pairwise(bounds):
        some, state = apply(operator, states[-1], entries[first:last], chunk_bytes=16)
        emissions += some
        states.append(state)
    return emissions, states


def told(emissions: Sequence[Emission]) -> list[tuple[int, Any]]:
    """Each output by itself, under its offset: how they are packed may differ."""
    lines: list[tuple[int, Any]] = []
    for emission in emissions:
        if isinstance(emission.item, Rows):
            item = emission.item
            lines += [
                (int(offset), (item.op, item.gate, out))
                for offset, out in zip(emission.offsets, rows_of(item.batch), strict=True)
            ]
        else:
            lines.append((int(emission.offsets[0]), emission.item))
    return lines


def of_group(log: Sequence[Entry]) -> list[tuple[int, GroupEntry]]:
    return by_group(numbered(log), {OP: GROUPS}).get((OP, GROUP), [])


cut_lists = st.lists(st.integers(0, 40), max_size=5)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(OPERATORS), logs, cut_lists)
def test_cuts_do_not_show_in_outputs_or_state(operator: Operator, log: list[Entry], cuts: list[int]) -> None:
    entries = of_group(log)
    whole, (*_, state) = in_batches(operator, entries, [])
    parts, (*_, same) = in_batches(operator, entries, cuts)
    assert told(parts) == told(whole)
    assert decode(same) == decode(state)
    assert decode(same).clocks == decode(state).clocks


def test_an_image_is_the_same_bytes_whether_its_watermarks_were_heard_in_this_batch_or_before() -> None:
    everything = KeySet.of_groups(GROUPS, [GROUP])
    beats = [Clock(OP, everything, SourceId(source), 7) for source in "ba"]
    entries = of_group(
        [*beats, rows(row("x7", 0, UNCHAINED, "a")), TakeSnapshot(OP, GROUP, keys("x7"), AT_CLOUD, CLOUD)]
    )
    (whole, _), (cut, _) = in_batches(OPERATORS[0], entries, []), in_batches(OPERATORS[0], entries, [2])
    assert told(whole) == told(cut)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(OPERATORS), logs)
def test_outputs_leave_in_the_order_of_their_offsets(operator: Operator, log: list[Entry]) -> None:
    """One number for each group is then enough to recognise repeats."""
    emissions, _ = in_batches(operator, of_group(log), [])
    offsets = [int(offset) for emission in emissions for offset in emission.offsets]
    assert offsets == sorted(offsets)


@settings(max_examples=100, deadline=None)
@given(logs, cut_lists, cut_lists, st.integers(0, 40))
def test_a_router_takes_each_output_once_however_often_a_host_dies(
    log: list[Entry], cuts: list[int], others: list[int], dies_at: int
) -> None:
    """The host dies before a commit, begins again from the start of what it had, and cuts its batches differently."""
    plain = [entry for entry in log if isinstance(entry, Rows)]
    entries = of_group(plain)
    calm, _ = in_batches(OPERATORS[0], entries, [])
    first, _ = in_batches(OPERATORS[0], entries[: dies_at % (len(entries) + 1)], cuts)
    again, _ = in_batches(OPERATORS[0], entries, others)
    router = Router(RouterConfig(CLOUD, tree(), {each.op: each for each in (spec(), sink())}, MECHANISMS))
    accepted = [
        out
        for emission in [*first, *again]
        for effect in router.step(FromHost(AT_CLOUD, OP, GROUP, (emission,)))
        if isinstance(effect, Deliver)
        for out in rows_of(effect.rows.batch)
    ]
    assert accepted == [out for _, (_, _, out) in told(calm)]


def test_the_keys_of_this_file_share_a_group() -> None:
    assert all(set(keys(name).touched_groups()) == {GROUP} for name in NAMES)
    assert np.array_equal(rows(*(row(name, 0) for name in NAMES)).hashes % np.uint64(GROUPS), np.zeros(3))
