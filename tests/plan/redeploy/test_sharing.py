"""Equal sub-plans of several applications run once."""

import pytest

from peregrine.core.keyspace import KeySet
from peregrine.core.operator import OpSpec
from peregrine.core.topology import Link, Topology
from peregrine.errors import ConfigurationError
from peregrine.plan.redeploy.events import SiteMoved
from peregrine.plan.redeploy.sharing import Input, Shape, shared
from peregrine.types import OpId, SourceId
from redeploy_worlds import GROUPS, all_violations, carry_out, owned, planner_of, site

SENSOR = SourceId("sensor")
A1, A2, B1, B2, C1 = (OpId(name) for name in ("a/1", "a/2", "b/1", "b/2", "c/1"))


def shape(op: OpId, code: bytes, *producers: OpId | SourceId, how: str = "", groups: int = GROUPS) -> Shape:
    return Shape(op, code, groups, tuple(Input(producer, how) for producer in producers))


def anywhere(one: OpId, other: OpId) -> bool:
    return True


def test_operators_that_do_the_same_with_the_same_input_are_shared_and_what_they_feed_is_not() -> None:
    shapes = [
        shape(B2, b"max", B1),
        shape(A1, b"filter", SENSOR),
        shape(B1, b"filter", SENSOR),
        shape(A2, b"min", A1),
        shape(C1, b"filter", SourceId("other")),
    ]
    assert shared(shapes, anywhere) == {A1: A1, B1: A1, A2: A2, B2: B2, C1: C1}


def test_equal_chains_are_shared_to_their_end() -> None:
    shapes = [shape(A1, b"f", SENSOR), shape(A2, b"g", A1), shape(B1, b"f", SENSOR), shape(B2, b"g", B1)]
    assert shared(shapes, anywhere) == {A1: A1, A2: A2, B1: A1, B2: A2}


def test_equal_operators_of_one_application_both_run() -> None:
    shapes = [shape(op, b"f", SENSOR) for op in (A1, A2, B1, B2, C1)]
    assert shared(shapes, anywhere) == {A1: A1, A2: A2, B1: A1, B2: A2, C1: A1}


@pytest.mark.parametrize(
    "other",
    [
        shape(B1, b"g", SENSOR),
        shape(B1, b"f", SENSOR, how="by another key"),
        shape(B1, b"f", SENSOR, groups=GROUPS + 1),
        shape(B1, b"f", SENSOR, SENSOR),
    ],
)
def test_what_differs_in_anything_is_not_shared(other: Shape) -> None:
    assert shared([shape(A1, b"f", SENSOR), other], anywhere)[B1] == B1


def test_operators_at_different_places_are_not_shared() -> None:
    shapes = [shape(A1, b"f", SENSOR), shape(B1, b"f", SENSOR), shape(C1, b"f", SENSOR)]
    assert shared(shapes, lambda one, other: {one, other} == {B1, C1}) == {A1: A1, B1: B1, C1: B1}


def test_a_ring_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="ring"):
        shared([shape(A1, b"f", A2), shape(A2, b"f", A1)], anywhere)


def test_applications_that_share_an_operator_are_redeployed_in_one_order() -> None:
    everything = KeySet.everything(GROUPS)
    operators = [OpSpec(A1, GROUPS, feeds=(A2, B2)), OpSpec(A2, GROUPS), OpSpec(B2, GROUPS)]  # A1 runs for b as well
    edge1, edge2, train, root = (site(name) for name in ("edge1", "edge2", "train", "root"))
    topology = Topology.tree(root, {edge1: (root, Link(1)), edge2: (root, Link(1)), train: (edge1, Link(1))})
    planner = planner_of(
        topology,
        operators,
        {SENSOR: (train, ((A1, everything),))},
        [(spec.op, everything, edge1) for spec in operators],
    )
    start = owned(planner.layout)
    planner.queue.offer(SiteMoved(train, edge1, edge2, Link(1), 1))
    redeployment = planner.plan()
    assert redeployment is not None
    assert redeployment.apps == ("a", "b")
    assert len(redeployment.after) == 1  # one plan, in which B2 waits for A1
    assert carry_out(planner.world.topology(), planner, start, redeployment.after) == owned(planner.layout)
    planner.succeeded()
    assert all_violations(planner) == []
    assert all(planner.layout.places(spec.op) == [edge2] for spec in operators)
