"""What is kept of a shard, what is taken from one in memory, and which chunks must stay meanwhile."""

from collections.abc import Sequence

from peregrine.core.chunks import MemoryChunks, chunk_name
from peregrine.core.host import GroupEntry, Part
from peregrine.core.large import Spill
from peregrine.core.shard import Applied, Shard, Shards, Unit
from peregrine.types import OpId, PlaceId

A = chunk_name(b"was;")


def entries(*offsets: int) -> list[tuple[int, GroupEntry]]:
    return [(offset, Part([offset], [])) for offset in offsets]


class Words:
    """Stands for the host function: a state is the offsets that it has had, in a chunk of its own if it is large."""

    def __init__(self, large: bool = False) -> None:
        self._large = large

    def apply(self, group: int, before: bytes, given: Sequence[tuple[int, GroupEntry]]) -> Applied:
        after = before + b"".join(b"%d;" % offset for offset, _ in given)
        spill = Spill(MemoryChunks(), after={chunk_name(after)}) if self._large else None
        return Applied([], after, spill)


def test_a_shard_is_read_as_it_was_written() -> None:
    assert Shard.decode(Shard(7, {3: b"x"}).encode()) == Shard(7, {3: b"x"})


def test_what_has_changed_since_the_committed_state_is_taken() -> None:
    unit = Unit(Shard(10, {0: b"a", 1: b"b", 2: b"c"}), Words().apply)
    unit.apply(0, entries(10))
    unit.apply(1, entries(11, 12))
    unit.upto = 13
    first = unit.take(10)
    assert first == Shard(13, {0: b"a10;", 1: b"b11;12;"})
    unit.apply(1, entries(13))
    unit.upto = 14
    assert unit.take(13) == Shard(14, {1: b"b11;12;13;"})
    # A task that has the older state gets all that came since.
    assert unit.take(10) == Shard(14, {0: b"a10;", 1: b"b11;12;13;"})
    committed = Shard(10, {0: b"a", 1: b"b", 2: b"c"})
    committed.take_over(Shard(15, {0: b"", 3: b"d"}))
    assert committed == Shard(15, {1: b"b", 2: b"c", 3: b"d"})


def test_what_states_refer_to_goes_with_them() -> None:
    unit = Unit(Shard(0, {0: b"was;", 1: b"x"}, {0: A}), Words(large=True).apply)
    unit.apply(0, entries(1))
    unit.upto = 2
    taken = unit.take(0)
    assert taken == Shard(2, {0: b"was;1;"}, {0: chunk_name(b"was;1;")})
    committed = Shard(0, {0: b"was;", 1: b"x"}, {0: A})
    assert committed.chunks(0) | taken.chunks(0) == {A, chunk_name(b"was;1;")}
    committed.take_over(taken)
    assert committed.chunks(0) == {chunk_name(b"was;1;")} and committed.chunks(1) == set()
    committed.take_over(Shard(3, {0: b""}))
    assert committed == Shard(3, {1: b"x"}, {})


CLOUD, EDGE = PlaceId("cloud"), PlaceId("edge1")
ONE, OTHER = OpId("one"), OpId("other")


def test_the_shards_of_operators_at_places_are_kept_apart_in_one_state() -> None:
    shards = Shards()
    shards.put(CLOUD, ONE, Shard(0, {1: b"a"}))
    shards.put(CLOUD, OTHER, Shard(7, {1: b"b"}, {1: A}))
    shards.put(EDGE, ONE, Shard(0, {1: b"c"}))
    again = Shards(shards.encode())
    assert again.get(CLOUD, OTHER) == Shard(7, {1: b"b"}, {1: A})
    assert [(place, op, shard.groups[1]) for place, op, shard in again.items()] == [
        (CLOUD, ONE, b"a"),
        (CLOUD, OTHER, b"b"),
        (EDGE, ONE, b"c"),
    ]


def test_what_was_not_touched_is_written_as_it_was_read() -> None:
    written = Shards()
    written.put(CLOUD, ONE, Shard(0, {1: b"a"}))
    written.put(EDGE, ONE, Shard(0, {2: b"x"}))
    read = Shards(written.encode())
    read.put(EDGE, ONE, Shard(0, {2: b"y"}))
    again = Shards(read.encode())
    assert again.get(CLOUD, ONE) == Shard(0, {1: b"a"})
    assert again.get(EDGE, ONE) == Shard(0, {2: b"y"})


def test_a_shard_that_is_empty_goes_and_the_last_one_leaves_nothing() -> None:
    shards = Shards()
    assert not shards and shards.get(CLOUD, ONE) == Shard()
    shards.put(CLOUD, ONE, Shard(0, {1: b"a"}))
    shards.put(CLOUD, ONE, Shard())
    shards.put(EDGE, ONE, Shard())
    assert not shards
    shards.put(CLOUD, ONE, Shard(5))
    assert shards, "it has been applied up to there"
