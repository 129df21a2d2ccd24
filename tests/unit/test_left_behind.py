"""What tests leave behind is found, what is not theirs is left alone, and what a killed process left is cleared up."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import left_behind
from peregrine.net.scratch import Scratch, clear_up

SLEEPS = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


def start(command: list[str], ours: Path) -> "subprocess.Popen[bytes]":
    started = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(ours)})
    assert started.stdout is not None
    assert started.stdout.readline() == b"up\n"
    return started


def test_a_session_that_has_left_nothing_is_clean(tmp_path: Path) -> None:
    (tmp_path / "pytest-of-me").mkdir()
    assert left_behind.look(tmp_path, 0.0) == []


def test_a_file_that_is_left_is_found(tmp_path: Path) -> None:
    (tmp_path / "artifacts-1").mkdir()
    assert left_behind.look(tmp_path, 0.0) == [str(tmp_path / "artifacts-1")]


def test_a_process_that_is_left_is_found_and_ended_and_others_go_on(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "mine-not"
    mine.mkdir()
    with start(SLEEPS, mine) as left, start(SLEEPS, other) as theirs:
        (found,) = left_behind.look(mine, 0.0)
        assert found.startswith(f"process {left.pid}: ")
        assert left.wait() == -signal.SIGKILL
        assert theirs.poll() is None
        theirs.kill()


def test_a_process_that_a_process_has_left_is_found(tmp_path: Path) -> None:
    parent = start([sys.executable, "-c", f"import subprocess; subprocess.Popen({SLEEPS})"], tmp_path)
    assert parent.wait() == 0
    (found,) = left_behind.look(tmp_path, 0.0)
    assert "time.sleep(600)" in found
    parent.communicate()  # returns when nobody has its output any more


HAS_SCRATCH = """
import sys, time
from pathlib import Path
from peregrine.net.scratch import Scratch
scratch = Scratch("run-", Path(sys.argv[1]))
(scratch.path / "file").touch()
print("up", flush=True)
time.sleep(600)
"""


def test_the_scratch_of_a_process_is_cleared_up_when_it_was_killed_and_not_before(tmp_path: Path) -> None:
    (tmp_path / "run-of-somebody-else").mkdir()
    with start([sys.executable, "-c", HAS_SCRATCH, str(tmp_path)], tmp_path) as owner:
        (kept,) = tmp_path.glob("run-*/file")
        clear_up("run-", tmp_path)
        assert kept.exists()
        owner.kill()
    mine = Scratch("run-", tmp_path)
    assert not kept.parent.exists()
    mine.remove()
    mine.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["run-of-somebody-else"]
