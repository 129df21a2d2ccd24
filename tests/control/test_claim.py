"""One process at a time has a deployment, and none has it while Spark of the last one still writes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from peregrine.control import claim
from peregrine.control.claim import claimed, note
from peregrine.errors import ConfigurationError

ENDS_SOON = "import time; time.sleep(0.5)"
NEVER_ENDS = "import time; time.sleep(600)"


@pytest.fixture
def started() -> Iterator[list["subprocess.Popen[bytes]"]]:
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for process in made:
        process.kill()
        process.wait()


def orphan(code: str, started: list["subprocess.Popen[bytes]"]) -> "subprocess.Popen[bytes]":
    started.append(subprocess.Popen([sys.executable, "-c", code]))
    return started[-1]


def test_a_deployment_belongs_to_one_process_at_a_time(tmp_path: Path) -> None:
    other = (
        "import sys\n"
        "from pathlib import Path\n"
        "from peregrine.control.claim import claimed\n"
        "with claimed(Path(sys.argv[1])):\n"
        "    print('mine', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    arguments = [sys.executable, "-c", other, str(tmp_path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"mine\n"
        with pytest.raises(ConfigurationError, match="running in another process"), claimed(tmp_path):
            pass
        holder.kill()
    with claimed(tmp_path):  # the dead have nothing
        pass


def test_a_process_of_the_last_run_is_waited_for(tmp_path: Path, started: list["subprocess.Popen[bytes]"]) -> None:
    last = orphan(ENDS_SOON, started)
    note(tmp_path, [last.pid])
    with claimed(tmp_path):
        assert last.poll() == 0


def test_one_that_does_not_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list["subprocess.Popen[bytes]"]
) -> None:
    monkeypatch.setattr(claim, "PATIENCE_S", 0.3)
    last = orphan(NEVER_ENDS, started)
    note(tmp_path, [last.pid])
    with claimed(tmp_path):
        assert last.poll() == -9


def test_neither_an_own_process_nor_a_stranger_with_the_same_number_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list["subprocess.Popen[bytes]"]
) -> None:
    monkeypatch.setattr(claim, "PATIENCE_S", 0.0)
    own, stranger = orphan(NEVER_ENDS, started), orphan(NEVER_ENDS, started)
    note(tmp_path, [own.pid, stranger.pid])
    noted = json.loads((tmp_path / claim.PROCESSES).read_text())
    noted[1][1] = "1"  # the number was another process's
    (tmp_path / claim.PROCESSES).write_text(json.dumps(noted))
    with claimed(tmp_path, frozenset({own.pid})):
        assert own.poll() is None and stranger.poll() is None
