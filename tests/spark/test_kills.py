"""kill -9 of each part in each phase of a live migration: nothing is lost, repeated or out of order, states are right.

The parts are real processes. One deployment serves all cells: keys go down and up, something dies on each way, and the
proof is made over everything that was ever sent. A few cells run every time, all of them with `make test-kills`.
"""

import os
from collections.abc import Iterator

import pytest
from kill_course import Course, needs_spark

PHASES = ("before", "begun", "snapshot", "restored", "switched", "done")
# The routers of the old and the new place: one of them is the anchor, one the gate. The caller has manager and driver.
# Spark: its JVM; a worker: what runs its tasks; the reader: what asks routers for offsets.
VICTIMS = ("source", "target", "caller", "spark", "worker", "reader", "devices")
EVERY_TIME = [
    *(("source", "snapshot"), ("caller", "restored"), ("worker", "restored"), ("target", "switched")),
    *(("devices", "begun"), ("reader", "begun"), ("spark", "snapshot")),
]
# Keys go down and up in turn: a router has been the source and the target, the anchor and the gate of each phase.
ALL = [(victim, phase) for victim in VICTIMS for phase in PHASES for _ in range(2 if victim in VICTIMS[:2] else 1)]
CELLS = ALL if os.environ.get("PEREGRINE_KILLS") == "all" else EVERY_TIME


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Course]:
    needs_spark()
    made = Course(tmp_path_factory.mktemp("kills") / "deployment")
    yield made
    made.close()


@pytest.mark.parametrize(("kill", "when"), CELLS)
def test_whatever_is_killed_while_keys_move_the_proof_holds(course: Course, kill: str, when: str) -> None:
    course.migrate(kill, when)
    answer = course.proof()
    found = answer["proof"]
    assert found["holds"] and not any(found["leftovers"]) and not answer["given_up"], answer
    assert found["rows_in"] == found["rows_out"] > 0
