"""The physical plan: catch-all, instances that come and go with their keys, and what makes a plan valid."""

import pytest

from harness import AT_CLOUD, AT_EDGE1, AT_REGION, CLOUD, EDGE1, EDGE2, GROUPS, OP, REGION, keys, sink, spec, tree
from peregrine.core.keyspace import KeySet
from peregrine.core.operator import OpSpec
from peregrine.core.placement import Placement
from peregrine.errors import ConfigurationError, PlanError, UnknownName
from peregrine.types import OpId, PlaceId

CLEAN = OpId("app/clean")
SPECS = {CLEAN: OpSpec(CLEAN, GROUPS, stateless=True, feeds=(OP,)), OP: spec(), sink().op: sink()}
EVERYTHING = KeySet.everything(GROUPS)


def placement() -> Placement:
    return Placement(tree(), SPECS)


def test_at_first_the_root_has_every_key() -> None:
    """Falcon III-B: the catch-all is at the root."""
    placed = placement()
    assert placed.instances(OP) == {AT_CLOUD: EVERYTHING}
    assert placed.owner(OP, "nobody-knows-me") == AT_CLOUD


def test_with_several_hosts_the_catch_all_is_the_first_of_the_root() -> None:
    placed = Placement(tree({"cloud": ("a", "b")}), SPECS)
    assert placed.owner(OP, "car1") == PlaceId("cloud/a")


def test_an_instance_is_created_with_its_first_key_and_gone_with_its_last() -> None:
    """Falcon III-D: the destination is created if need be, a source without keys is deleted."""
    placed = placement()
    placed.move(OP, keys("car1", "car2"), AT_CLOUD, AT_EDGE1)
    assert placed.instances(OP) == {AT_CLOUD: EVERYTHING - keys("car1", "car2"), AT_EDGE1: keys("car1", "car2")}
    placed.move(OP, keys("car1"), AT_EDGE1, AT_REGION)
    assert placed.instances(OP)[AT_EDGE1] == keys("car2")
    placed.move(OP, keys("car2"), AT_EDGE1, AT_REGION)
    assert AT_EDGE1 not in placed.instances(OP)
    assert placed.instances(OP)[AT_REGION] == keys("car1", "car2")
    assert placed.instances(CLEAN) == {AT_CLOUD: EVERYTHING}


def test_keys_that_are_elsewhere_cannot_be_moved_and_stay() -> None:
    placed = placement()
    placed.move(OP, keys("car1"), AT_CLOUD, AT_EDGE1)
    before = dict(placed.instances(OP))
    with pytest.raises(PlanError) as error:
        placed.move(OP, keys("car1", "car2"), AT_CLOUD, AT_REGION)
    assert "car1" in error.value.what and "cloud" in error.value.what and "edge1" in error.value.what
    assert "leave out" in error.value.remedy
    assert placed.instances(OP) == before


def test_a_key_set_with_another_number_of_groups_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="groups"):
        placement().move(OP, keys("car1", groups=GROUPS + 1), AT_CLOUD, AT_EDGE1)


def test_an_instance_that_is_not_above_a_producer_is_refused_with_all_names_and_a_remedy() -> None:
    """Falcon III-B: rows flow up only, so an instance must be at or above every producer of its keys."""
    with pytest.raises(PlanError) as error:
        placement().check_above(OP, AT_EDGE1, [("camera1", EDGE1), ("camera2", EDGE2)])
    assert all(name in error.value.what for name in (OP, "edge1", "camera2", "edge2"))
    assert "camera1" not in error.value.what
    assert "region" in error.value.remedy and "move camera2" in error.value.remedy


@pytest.mark.parametrize("place", [AT_REGION, AT_CLOUD])
def test_an_instance_above_all_producers_is_allowed(place: PlaceId) -> None:
    """Falcon III-B."""
    placement().check_above(OP, place, [("camera1", EDGE1), ("camera2", EDGE2), ("region itself", REGION)])


def test_an_instance_below_a_producer_is_refused() -> None:
    with pytest.raises(PlanError, match="would not be above"):
        placement().check_above(OP, AT_REGION, [("feed", CLOUD)])


def test_operators_that_feed_another_are_its_producers_at_every_place_they_have() -> None:
    """Falcon III-B: producers are sources and upstream operators alike."""
    placed = placement()
    placed.move(CLEAN, keys("car1"), AT_CLOUD, AT_EDGE1)
    assert sorted(placed.upstream(OP)) == [(CLEAN, CLOUD), (CLEAN, EDGE1)]
    assert placed.upstream(CLEAN) == []
    assert placed.downstream(CLEAN) == [(OP, AT_CLOUD)]
    assert placed.downstream(OP) == []  # a sink is not an operator


def test_an_unknown_operator_is_named_with_those_that_exist() -> None:
    with pytest.raises(UnknownName) as error:
        placement().check_above(OpId("app/typo"), AT_CLOUD, [])
    assert "app/typo" in error.value.what
    assert OP in error.value.remedy and CLEAN in error.value.remedy


def test_what_is_moved_on_trial_is_taken_back() -> None:
    placed = placement()
    placed.move(OP, keys("car1"), AT_CLOUD, AT_EDGE1)
    before = dict(placed.instances(OP))
    with placed.trial():
        placed.move(OP, keys("car1"), AT_EDGE1, AT_REGION)
        placed.move(OP, keys("car1"), AT_REGION, AT_CLOUD)
        placed.move(OP, EVERYTHING, AT_CLOUD, AT_REGION)
        assert placed.instances(OP) == {AT_REGION: EVERYTHING}
    assert placed.instances(OP) == before


def test_a_trial_that_fails_is_taken_back_too() -> None:
    placed = placement()
    with pytest.raises(PlanError), placed.trial():
        placed.move(OP, keys("car1"), AT_CLOUD, AT_EDGE1)
        placed.move(OP, keys("car1"), AT_CLOUD, AT_EDGE1)
    assert placed.instances(OP) == {AT_CLOUD: EVERYTHING}
