"""What the processes of a deployment use: memory, and time of the processor."""

import os
from collections.abc import Iterable
from pathlib import Path

from peregrine.control.deployment import Deployment

HOST = b"peregrine.spark.continuous"
PROC = Path("/proc")


def hosts(up: Deployment) -> list[int]:
    """The processes of continuous hosts; they are nobody's children."""
    mine = str(up.directory).encode()
    return [pid for pid in _all() if HOST in (line := _read(pid, "cmdline")) and mine in line]


def spark() -> list[int]:
    """The JVM that this process has started, and all that came of it, but for hosts."""
    parents = {pid: parent for pid in _all() if (parent := _stat(pid)[1:2])}
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if int(parent[0]) in found} - found:
        found |= more
    return [pid for pid in found if b"spark" in (line := _read(pid, "cmdline")) and HOST not in line]


def rss_mb(pids: Iterable[int]) -> float:
    pages = [int(told[1]) for pid in pids if (told := _read(pid, "statm").split())]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_s(pids: Iterable[int]) -> float:
    """So far; one that has ended has used nothing."""
    ticks = [int(told[11]) + int(told[12]) for pid in pids if (told := _stat(pid))]
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def _all() -> list[int]:
    return [int(each.name) for each in PROC.iterdir() if each.name.isdigit()]


def _stat(pid: int) -> list[bytes]:
    """From the state on: what lies before may have blanks in it."""
    return _read(pid, "stat").rpartition(b")")[2].split()


def _read(pid: int, what: str) -> bytes:
    try:
        return (PROC / str(pid) / what).read_bytes()
    except OSError:
        return b""  # it has ended
