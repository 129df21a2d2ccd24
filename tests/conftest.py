"""Makes `harness` importable (pytest runs in importlib mode, which leaves sys.path alone), and sees to it that a
session leaves nothing behind: no file where temporary files go, and no process.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

import left_behind

# How long an example takes says something about the machine, not about the code. What fails once fails everywhere;
# who looks for more says PEREGRINE_EXAMPLES=fresh.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("fresh", deadline=None)
settings.load_profile(os.environ.get("PEREGRINE_EXAMPLES", "same"))

OURS = pytest.StashKey[Path]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """A place of this session's own for temporary files, which everything that it starts inherits."""
    if hasattr(config, "workerinput"):
        return  # of xdist: it has that of the session
    config.stash[OURS] = ours = Path(tempfile.mkdtemp(prefix="pgt-"))
    os.environ["TMPDIR"] = tempfile.tempdir = str(ours)
    # Java does not ask TMPDIR. What Peregrine starts says so itself; this is for what it might forget.
    os.environ["JAVA_TOOL_OPTIONS"] = left_behind.java_options()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    yield  # workers have ended when this returns
    ours = session.config.stash.get(OURS, None)
    if ours is None:
        return
    found = left_behind.look(ours)
    for line in found:
        print(f"\nleft behind: {line}", end="", file=sys.stderr)
    if found and not session.exitstatus:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if session.testsfailed:
        print(f"\nwhat the tests have written: {ours}", file=sys.stderr)
    else:
        shutil.rmtree(ours, ignore_errors=True)
