"""kill -9 of the parts of Spark and of the caller while a site changes its parent and keys follow it.

As test_kills.py: real processes, and one deployment for all cells. The site goes to the other region and back, and
something dies on each way. Two cells run every time, all of them with PEREGRINE_KILLS=all.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kill_course import Course, needs_spark
from test_kills import EVERYTHING, check

from left_behind import java_options

ON_ITS_WAY = "on its way"  # the site has been told to change its parent, and is not settled
# From `begun`: of the migration of the keys that follow.
PHASES = ("before", ON_ITS_WAY, "begun", "snapshot", "restored", "switched", "done")
VICTIMS = ("spark", "worker", "reader", "caller", "devices")
EVERY_TIME = [("spark", ON_ITS_WAY), ("worker", "snapshot")]
ROUTERS = [("region1", ON_ITS_WAY), ("region2", "snapshot"), ("edge1", ON_ITS_WAY), ("cloud", "restored")]
ALL = [*((victim, phase) for victim in VICTIMS for phase in PHASES), *ROUTERS]


class TreeCourse(Course):
    """Rows flow and the site changes its parent, whatever is killed."""

    program = Path(__file__).parent / "tree_kill_runner.py"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._version = 0
        self._parent, self._next = "region1", "region2"

    def change(self, kill: str, when: str) -> None:
        """The site goes to where it is not, and something is killed when the change is so far."""
        self._begin()
        self._version += 1
        self.devices.tell(go=True)
        if when == "before":
            self.kill(kill)
        said = self.caller.tell(change=self._version, source=self._parent, target=self._next)
        self.caller.hear(lambda said: said.get("told") == self._version, said)
        if when == ON_ITS_WAY:
            assert self.caller.ask("opened", until_open=True)["opened"]
        elif when != "before":

            def so_far(said: dict) -> bool:
                name = said.get("migration", "")
                return name.startswith("redeploy") and "-after" in name and said["phase"] == when

            self.caller.hear(so_far, said)
        if when != "before":
            self.kill(kill)
        assert self.caller.ask("followed", follow=self._next)["followed"]
        self._parent, self._next = self._next, self._parent


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TreeCourse]:
    needs_spark()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "JAVA_TOOL_OPTIONS", java_options("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        )  # it starts again and again
        made = TreeCourse(tmp_path_factory.mktemp("tree") / "deployment")
        yield made
        made.close()


@pytest.mark.parametrize(("kill", "when"), ALL if EVERYTHING else EVERY_TIME)
def test_whatever_is_killed_while_a_site_changes_its_parent_the_proof_holds(
    course: TreeCourse, kill: str, when: str
) -> None:
    course.change(kill, when)
    check(course)
