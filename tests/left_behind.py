"""What a session of tests has left: processes that it started, directly or not, and files where temporary files go.

They are known by the session's own TMPDIR, so that nothing else on the machine is taken for them.
"""

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import resource_tracker
from pathlib import Path

PATIENCE_S = 20.0  # the last processes may just be ending
OF_PYTEST = "pytest-of-"


def java_options(*more: str) -> str:
    """For JAVA_TOOL_OPTIONS: what is said on a command line comes before it."""
    return " ".join([f"-Djava.io.tmpdir={tempfile.gettempdir()}", *more])


def look(ours: Path, patience_s: float = PATIENCE_S) -> list[str]:
    """What is left, one line for each; processes that do not end are ended."""
    deadline_s = time.monotonic() + patience_s
    while any(processes(ours)) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    found = []
    for pid, command in processes(ours):
        found.append(f"process {pid}: {command}")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found + [str(path) for path in sorted(ours.iterdir()) if not path.name.startswith(OF_PYTEST)]


def processes(ours: Path) -> Iterator[tuple[int, str]]:
    """Those that were started with this TMPDIR, and those below: their environment is as it was at their start."""
    wanted = f"TMPDIR={ours}".encode()
    own = getattr(resource_tracker._resource_tracker, "_pid", None)  # of this process: ends with it
    for entry in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError):  # it has just ended, or is somebody else's
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    if int(entry.name) != own:
                        yield int(entry.name), command[:200]
