"""The proof can fail: each kind of damage to the results or the states is told."""

from peregrine import proof
from peregrine.core.host import apply, by_group
from peregrine.core.rows import UNCHAINED, Row, Rows, batch_of
from peregrine.types import SourceId
from peregrine.workloads import tm

SENT = [
    Row(car, SourceId(car), seq, UNCHAINED, 0, 0, payload)
    for car in tm.vehicles(3)
    for seq, payload in zip(range(20), tm.readings(car), strict=False)
]
SHOULD, STATES = proof.expected(tm.specs(), tm.operators(), {tm.MOV_AVG: SENT})
LINE = next(iter(SHOULD))


def changed(outputs: list[tuple[int, bytes]]) -> proof.Proof:
    return proof.prove(len(SENT), {**SHOULD, LINE: outputs}, SHOULD, STATES, STATES)


def test_every_row_has_a_result_and_every_vehicle_a_state() -> None:
    assert sum(map(len, SHOULD.values())) == len(SENT)
    assert {key for op, key in STATES if op == tm.MOV_AVG} == set(tm.vehicles(3))
    assert proof.prove(len(SENT), SHOULD, SHOULD, STATES, STATES).holds


def test_a_lost_a_repeated_and_a_reordered_result_are_told_apart() -> None:
    outputs = SHOULD[LINE]
    assert (changed(outputs[1:]).lost, changed(outputs[1:]).holds) == (1, False)
    assert (changed([*outputs, outputs[-1]]).repeated, changed([*outputs, outputs[-1]]).holds) == (1, False)
    assert (changed(outputs[::-1]).out_of_order, changed(outputs[::-1]).holds) == (len(outputs) - 1, False)


def test_a_state_that_differs_or_is_at_two_places_is_told() -> None:
    """Values come from the states of hosts, as bytes."""
    parts = by_group([(0, Rows(tm.MOV_AVG, batch_of(SENT)))], {tm.MOV_AVG: tm.GROUPS})
    blobs = [(tm.MOV_AVG, apply(tm.MovingAverage(), b"", entries)[1]) for entries in parts.values()]
    assert proof.values(blobs) == {at: value for at, value in STATES.items() if at[0] == tm.MOV_AVG}
    twice = proof.prove(0, {}, {}, proof.values([*blobs, blobs[0]]), proof.values(blobs))
    assert twice.states_that_differ
