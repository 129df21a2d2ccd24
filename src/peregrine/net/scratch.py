"""Directories for what a process puts aside: gone when it ends, or when another one looks, if it was killed.

Its owner holds a lock in it for as long as it lives, so that whoever clears up knows what nobody needs any more,
whatever became of process numbers.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_LOCK = ".owner"


class Scratch:
    """A new directory of this process."""

    def __init__(self, prefix: str, parent: Path) -> None:
        clear_up(prefix, parent)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        unlocked = self.path / f"{_LOCK}.new"
        self._handle = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        os.replace(unlocked, self.path / _LOCK)  # nobody ever sees it without its owner

    def remove(self) -> None:
        """May be called again."""
        if self._handle >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._handle)
            self._handle = -1


def clear_up(prefix: str, parent: Path) -> None:
    """Remove the directories with this prefix whose owners are gone."""
    for left in parent.glob(f"{prefix}*/{_LOCK}"):
        try:
            handle = os.open(left, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # gone just now, or somebody else's
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue  # its owner lives
        else:
            shutil.rmtree(left.parent, ignore_errors=True)
        finally:
            os.close(handle)
