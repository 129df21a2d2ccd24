"""Large state and replays: where values are kept and how a log is cut shows neither in outputs nor in state.

After each batch everything is collected that the host has not written down, and any batch may be applied twice.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from harness import AT_CLOUD, CLOUD, EDGE1, GROUPS, OP, SINK, keys, migration, row, rows
from peregrine.core.chunks import MemoryChunks
from peregrine.core.host import GroupEntry, apply, by_group
from peregrine.core.large import Sizes, Spill
from peregrine.core.rows import Clock, DropKeys, Entry, Rows, StateRows, TakeSnapshot, length, rows_of
from peregrine.core.state import canonical, restored
from peregrine.sim.operators import Ledger
from peregrine.types import PlaceId, SourceId

NAMES = ("car1", "van1", "x7")  # all of group 0
K = keys(*NAMES)
M = migration(K, PlaceId("edge1"), AT_CLOUD, EDGE1)
OPERATORS = [Ledger(SINK), Ledger(SINK, big=True)]
SIZES = [Sizes(40, 24, 64), Sizes(200, 64, 100), Sizes(60, 24, 64, 50)]

batches = st.lists(
    st.builds(
        lambda key, seq, source: row(key, seq, source=source),
        st.sampled_from(NAMES),
        st.integers(0, 99),
        st.text("ab", min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=4,
).map(lambda given: rows(*given))
controls = st.one_of(
    st.just(TakeSnapshot(OP, 0, K, AT_CLOUD, CLOUD, M)),
    st.just(TakeSnapshot(OP, 0, K, AT_CLOUD, CLOUD, static=True, delta=True)),
    st.builds(lambda name: TakeSnapshot(OP, 0, keys(name), AT_CLOUD, CLOUD, M, drop=True), st.sampled_from(NAMES)),
    st.builds(lambda name: DropKeys(OP, 0, keys(name)), st.sampled_from(NAMES)),
    st.just(Clock(OP, K, SourceId("a"), 5)),
)
logs = st.lists(st.one_of(batches, batches, controls), max_size=10)


def of_group(log: Sequence[Entry]) -> list[tuple[int, GroupEntry]]:
    offset, entries = 0, []
    for entry in log:
        entries.append((offset, entry))
        offset += length(entry)
    return by_group(entries, {OP: GROUPS}).get((OP, 0), [])


def run(operator: Ledger, entries: list[tuple[int, GroupEntry]], cuts: Sequence[int], sizes: Sizes | None) -> Any:
    """Results, what snapshots describe, and the state in the end."""
    chunks = MemoryChunks()
    state, told = b"", []
    bounds = [0, *sorted(cut % (len(entries) + 1) for cut in cuts), len(entries)]
    for first, last in pairwise(bounds):
        for _ in range(2):  # once more, as after a crash before the commit
            spill = Spill(chunks, sizes) if sizes else None
            emissions, after = apply(operator, state, entries[first:last], 16, spill)
            if spill is not None:
                chunks.keep_only(spill.needed)
        state = after
        for emission in emissions:
            if isinstance(emission.item, Rows):
                told += [(out.source, out.seq, out.payload) for out in rows_of(emission.item.batch)]
            elif isinstance(emission.item, StateRows):
                told += _described(emission.item, chunks)
    return told, canonical(state, chunks)


def _described(state: StateRows, chunks: MemoryChunks) -> list[Any]:
    if state.static:  # a delta builds on what was sent before
        return []
    images = [(image.key, restored(image, Spill(chunks))) for image in state.images]
    return [(key, image.version, dict(image.value)) for key, image in images]


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(OPERATORS), st.sampled_from(SIZES), logs, st.lists(st.integers(0, 40), max_size=5))
def test_where_values_are_kept_does_not_show(operator: Ledger, sizes: Sizes, log: list[Entry], cuts: list[int]) -> None:
    entries = of_group(log)
    assert run(operator, entries, cuts, sizes) == run(operator, entries, [], None)


def test_the_values_of_this_file_are_large_enough_to_spill() -> None:
    entries = of_group([rows(*(row(name, i) for i, name in enumerate(NAMES)))])
    for operator in OPERATORS:
        chunks = MemoryChunks()
        apply(operator, b"", entries, 16, Spill(chunks, SIZES[0]))
        assert len(chunks.chunks) > 3
