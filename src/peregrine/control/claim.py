"""A deployment's directory belongs to one process at a time, and to nobody while one of the last still runs.

A Spark that outlives its caller for a moment would write into the checkpoint from which the next one has gone on. So
the processes of a deployment are noted in its directory, and the next caller waits until they are gone.
"""

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from peregrine.errors import ConfigurationError, StorageError

PROCESSES = "processes.json"
PATIENCE_S = 20.0


@contextmanager
def claimed(directory: Path, mine: frozenset[int] = frozenset()) -> Iterator[None]:
    """`mine`: processes that this one started and goes on with."""
    handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigurationError(
                f"the deployment in {directory} is running in another process",
                "stop that one first, or use another directory",
            ) from error
        for pid, born in _noted(directory):
            if pid not in mine:
                _outlive(pid, born)
        yield
    finally:
        os.close(handle)


def note(directory: Path, pids: Iterable[int]) -> None:
    """Whom the next one has to wait for."""
    aside = directory / f"{PROCESSES}.new"
    aside.write_text(json.dumps([(pid, _born(pid)) for pid in pids]))
    os.replace(aside, directory / PROCESSES)


def _noted(directory: Path) -> list[tuple[int, str]]:
    try:
        return [(int(pid), str(born)) for pid, born in json.loads((directory / PROCESSES).read_text())]
    except FileNotFoundError:
        return []


def _outlive(pid: int, born: str) -> None:
    """Its caller is gone, so it ends by itself; if it does not, it is ended."""
    for number in (0, signal.SIGKILL):
        if number and _runs(pid, born):
            os.kill(pid, number)
        deadline_s = time.monotonic() + PATIENCE_S
        while _runs(pid, born) and time.monotonic() < deadline_s:
            time.sleep(0.05)
    if _runs(pid, born):
        raise StorageError(f"process {pid} of the last run does not end", f"kill -9 {pid}, then start again")


def _runs(pid: int, born: str) -> bool:
    return born != "" and _born(pid) == born


def _born(pid: int) -> str:
    """When a process began; empty if there is none. (A number is given again, at another time.)"""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
