"""kill -9 of each part in each phase of a live migration: nothing is lost, repeated or out of order, states are right.

The parts are real processes. One deployment serves all cells: keys go down and up, something dies on each way, and the
proof is made over everything that was ever sent. A few cells run every time, all of them with `make test-kills`.
"""

import os
from collections.abc import Iterator

import pytest
from kill_course import Course, needs_spark

from peregrine.control.hosts import PER_SITE

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
# A car drives: its key goes up to the cloud, and down to the edge where the car is now.
ROAMING_EVERY_TIME = [("devices", "up", "snapshot")]
ROAMING_ALL = [
    *(("old", "up", "snapshot"), ("cloud", "up", "restored"), ("new", "up", "begun"), ("caller", "up", "switched")),
    *(
        ("old", "down", "begun"),
        ("cloud", "down", "snapshot"),
        ("new", "down", "restored"),
        ("worker", "down", "begun"),
    ),
    *(("devices", "up", "snapshot"), ("devices", "down", "switched"), ("spark", "down", "snapshot")),
]
# Each site with a Spark application of its own; spark: the JVMs of all of them at once.
OWN_SPARK = [
    *(("host of source", "snapshot"), ("host of target", "restored"), ("host of source", "switched")),
    *(("target", "snapshot"), ("worker", "restored"), ("spark", "begun"), ("caller", "restored")),
]
# Rows are applied in the process of the host, which tasks of Spark attach to.
CONTINUOUS_EVERY_TIME = [("process", "restored"), ("source", "snapshot")]
CONTINUOUS_ALL = [(victim, phase) for victim in ("process", *VICTIMS[:-1]) for phase in PHASES]
EVERYTHING = os.environ.get("PEREGRINE_KILLS") == "all"


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Course]:
    needs_spark()
    made = Course(tmp_path_factory.mktemp("kills") / "deployment")
    yield made
    made.close()


@pytest.fixture(scope="module")
def per_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Course]:
    needs_spark()
    made = Course(tmp_path_factory.mktemp("kills") / "per-site", hosts=PER_SITE)
    yield made
    made.close()


@pytest.fixture(scope="module")
def continuous(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Course]:
    needs_spark()
    made = Course(tmp_path_factory.mktemp("kills") / "continuous", runner="continuous")
    yield made
    made.close()
    assert not made.host_processes()


@pytest.mark.parametrize(("kill", "when"), ALL if EVERYTHING else EVERY_TIME)
def test_whatever_is_killed_while_keys_move_the_proof_holds(course: Course, kill: str, when: str) -> None:
    course.migrate(kill, when)
    check(course)


@pytest.mark.parametrize(("kill", "leg", "when"), ROAMING_ALL if EVERYTHING else ROAMING_EVERY_TIME)
def test_whatever_is_killed_while_a_key_follows_its_source_the_proof_holds(
    course: Course, kill: str, leg: str, when: str
) -> None:
    course.roam(kill, leg, when)
    check(course)


@pytest.mark.parametrize(("kill", "when"), CONTINUOUS_ALL if EVERYTHING else CONTINUOUS_EVERY_TIME)
def test_whatever_is_killed_while_keys_move_between_continuous_hosts_the_proof_holds(
    continuous: Course, kill: str, when: str
) -> None:
    continuous.migrate(kill, when)
    check(continuous)


@pytest.mark.skipif(not EVERYTHING, reason="takes minutes: make test-kills")
@pytest.mark.parametrize(("kill", "when"), OWN_SPARK)
def test_whatever_is_killed_where_each_site_has_its_own_spark_the_proof_holds(
    per_site: Course, kill: str, when: str
) -> None:
    per_site.migrate(kill, when)
    check(per_site)


def check(course: Course) -> None:
    answer = course.proof()
    found = answer["proof"]
    assert found["holds"] and not any(found["leftovers"]) and not answer["given_up"], answer
    assert found["rows_in"] == found["rows_out"] > 0
