"""Reconfigurations are stages of Migrate and nothing else (Falcon III-D, figure 4); chunks keep their order."""

import pytest

from harness import AT_CLOUD, AT_EDGE1, AT_EDGE2, AT_REGION, EDGE2, GROUPS, OP, keys, sink, spec, tree
from peregrine.core.keyspace import KeySet
from peregrine.core.placement import Placement
from peregrine.core.reconfigure import (
    Move,
    Plan,
    Stage,
    even_chunks,
    in_chunks,
    merge,
    move,
    redistribute,
    sideways,
    sideways_direct,
    split,
)
from peregrine.errors import PlanError

EVERYTHING = KeySet.everything(GROUPS)


def placement() -> Placement:
    """car1 and car2 at edge1, van1 at edge2, the rest at the cloud."""
    placed = Placement(tree(), {OP: spec(), sink().op: sink()})
    placed.move(OP, keys("car1", "car2"), AT_CLOUD, AT_EDGE1)
    placed.move(OP, keys("van1"), AT_CLOUD, AT_EDGE2)
    return placed


def carried_out(placed: Placement, stages: tuple[Stage, ...]) -> Placement:
    for stage in stages:
        for each in stage:
            placed.move(each.op, each.keys, each.source, each.target)
    return placed


def test_to_move_an_instance_is_to_migrate_all_of_its_keys() -> None:
    """Falcon III-D, figure 4a."""
    assert move(placement(), OP, AT_EDGE1, AT_CLOUD) == ((Move(OP, keys("car1", "car2"), AT_EDGE1, AT_CLOUD),),)


def test_an_instance_that_does_not_exist_cannot_be_moved() -> None:
    with pytest.raises(PlanError) as error:
        move(placement(), OP, AT_REGION, AT_CLOUD)
    assert "region" in error.value.what
    assert all(name in error.value.remedy for name in ("cloud", "edge1", "edge2"))


def test_to_split_an_instance_is_to_migrate_some_of_its_keys() -> None:
    """Falcon III-D, figure 4b."""
    stages = split(OP, keys("car1"), AT_EDGE1, AT_REGION)
    after = carried_out(placement(), stages)
    assert len(stages) == 1
    assert after.instances(OP)[AT_EDGE1] == keys("car2")
    assert after.instances(OP)[AT_REGION] == keys("car1")


def test_to_merge_instances_is_to_migrate_all_of_them_to_one_place_at_the_same_time() -> None:
    """Falcon III-D: their keys are disjoint, so nothing needs to wait."""
    (stage,) = merge(placement(), OP, [AT_EDGE1, AT_EDGE2], AT_REGION)
    assert stage == (
        Move(OP, keys("car1", "car2"), AT_EDGE1, AT_REGION),
        Move(OP, keys("van1"), AT_EDGE2, AT_REGION),
    )
    assert carried_out(placement(), (stage,)).instances(OP)[AT_REGION] == keys("car1", "car2", "van1")


def test_two_instances_give_each_other_keys_at_the_same_time() -> None:
    """Falcon III-D, redistribution: one up, one down."""
    (stage,) = redistribute(OP, (AT_EDGE1, keys("car1")), (AT_CLOUD, keys("bus1")))
    after = carried_out(placement(), (stage,))
    assert after.instances(OP)[AT_EDGE1] == keys("car2", "bus1")
    assert after.owner(OP, "car1") == AT_CLOUD


def test_sideways_is_up_to_where_the_paths_meet_and_then_down() -> None:
    """Falcon III-D, figure 4c."""
    assert sideways(placement(), OP, keys("car1"), AT_EDGE1, AT_EDGE2) == (
        (Move(OP, keys("car1"), AT_EDGE1, AT_REGION),),
        (Move(OP, keys("car1"), AT_REGION, AT_EDGE2),),
    )


def test_sideways_between_places_on_one_path_is_one_leg() -> None:
    assert sideways(placement(), OP, keys("car1"), AT_EDGE1, AT_CLOUD) == split(OP, keys("car1"), AT_EDGE1, AT_CLOUD)


def test_sideways_direct_is_one_leg_with_the_new_edge_as_anchor() -> None:
    """Falcon III-F notes that edges with a connection of their own need no second leg."""
    assert sideways_direct(OP, keys("car1"), AT_EDGE1, AT_EDGE2) == (
        (Move(OP, keys("car1"), AT_EDGE1, AT_EDGE2, anchor=EDGE2),),
    )


# --- chunks ---


def test_chunks_move_one_after_the_other_in_the_given_order() -> None:
    """Spacker III-C1: grouping into chunks does not change the order that was set before."""
    stages = split(OP, keys("car1", "car2", "van1"), AT_EDGE1, AT_CLOUD)
    chunked = in_chunks(stages, [keys("van1"), keys("car1", "car2")])
    assert [stage[0].keys for stage in chunked] == [keys("van1"), keys("car1", "car2")]
    assert all(stage[0].source == AT_EDGE1 and stage[0].target == AT_CLOUD for stage in chunked)


def test_keys_that_no_chunk_names_come_last() -> None:
    chunked = in_chunks(split(OP, EVERYTHING, AT_CLOUD, AT_REGION), [keys("van1"), KeySet.of_groups(GROUPS, [2])])
    assert [stage[0].keys for stage in chunked] == [
        keys("van1"),
        KeySet.of_groups(GROUPS, [2]),
        KeySet.of_groups(GROUPS, [0, 1, 3]) - keys("van1"),
    ]


def test_no_key_moves_twice_though_chunks_overlap_and_none_is_forgotten() -> None:
    """Spacker III-B1: chunks do not overlap; here the first that names a key has it."""
    given = [keys("van1"), KeySet.of_groups(GROUPS, [0]), KeySet.of_groups(GROUPS, [0, 1])]
    chunked = in_chunks(split(OP, EVERYTHING, AT_CLOUD, AT_REGION), given)
    parts = [stage[0].keys for stage in chunked]
    for i, part in enumerate(parts):
        assert all(part.isdisjoint(other) for other in parts[:i])
    union = KeySet.nothing(GROUPS)
    for part in parts:
        union |= part
    assert union == EVERYTHING


def test_chunks_that_name_nothing_of_a_stage_make_no_stage() -> None:
    assert in_chunks(split(OP, keys("car1"), AT_EDGE1, AT_CLOUD), [keys("bus1"), keys("car1")]) == split(
        OP, keys("car1"), AT_EDGE1, AT_CLOUD
    )


def test_each_stage_is_chunked_by_itself_so_that_the_second_leg_follows_the_whole_first() -> None:
    """Falcon III-D, figure 4c, in chunks: nothing goes down that has not come up."""
    stages = sideways(placement(), OP, keys("car1", "car2"), AT_EDGE1, AT_EDGE2)
    chunked = in_chunks(stages, [keys("car2"), keys("car1")])
    assert [(stage[0].target, stage[0].keys) for stage in chunked] == [
        (AT_REGION, keys("car2")),
        (AT_REGION, keys("car1")),
        (AT_EDGE2, keys("car2")),
        (AT_EDGE2, keys("car1")),
    ]
    carried_out(placement(), chunked)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9])
def test_even_chunks_are_disjoint_complete_and_of_about_one_size(count: int) -> None:
    """Spacker III-B1, progressiveness: the number of chunks is the knob."""
    for whole in (
        EVERYTHING,
        keys("car1", "car2", "van1"),
        EVERYTHING - keys("car1"),
        KeySet.of_groups(GROUPS, [1]) | keys("car1"),
    ):
        chunks = even_chunks(whole, count)
        parts = len(whole.whole) + len(whole.plus)
        assert len(chunks) == min(count, parts)
        sizes = [len(chunk.whole) + len(chunk.plus) for chunk in chunks]
        assert sum(sizes) == parts and max(sizes) - min(sizes) <= 1
        union = KeySet.nothing(GROUPS)
        for chunk in chunks:
            assert union.isdisjoint(chunk)
            union |= chunk
        assert union == whole


def test_fewer_than_one_chunk_is_refused() -> None:
    with pytest.raises(PlanError, match="0 chunks"):
        even_chunks(EVERYTHING, 0)


def test_a_note_does_not_make_two_plans_different() -> None:
    stages = split(OP, keys("car1"), AT_EDGE1, AT_CLOUD)
    assert Plan("p", stages, note="why") == Plan("p", stages)
    assert list(Plan("p", (*stages, *stages)).moves()) == [stages[0][0], stages[0][0]]
