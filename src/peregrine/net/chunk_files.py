"""The chunk store of a site: a directory that its router and its hosts share.

    <directory>/ab/ab12...      a chunk, under the first byte of its name and its name

A chunk is written aside and renamed, so it is whole or not there; reading verifies its name. Whoever begins to refer to
a chunk touches it: the collector (net/chunk_collector.py) leaves alone what was touched a short time ago, and looks
again, with the directory locked, before it removes anything.
"""

import fcntl
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from errno import EDQUOT, ENOSPC
from itertools import count
from pathlib import Path

from peregrine.core.chunks import NAME_BYTES, chunk_name, missing
from peregrine.errors import DiskFull, MissingChunk, StorageError

_ASIDE = ".new"
_number = count()


class ChunkFiles:
    """A `ChunkStore`. Processes and threads may share a directory; what it holds can be pickled."""

    def __init__(self, directory: Path, durable: bool = True) -> None:
        """`durable`: a chunk is on the disk, and found there, after `put` and `sync`."""
        self.directory = directory
        self.durable = durable
        self._unsynced: set[Path] = set()

    def put(self, data: bytes) -> bytes:
        name = chunk_name(data)
        if not self.claim(name):
            with _disk(self.directory):
                self._write(self._path(name), data)
        return name

    def get(self, name: bytes) -> bytes:
        with _disk(self.directory):
            try:
                data = self._path(name).read_bytes()
            except FileNotFoundError:
                raise missing(name, str(self.directory)) from None
        if chunk_name(data) != name:
            raise MissingChunk(
                f"chunk {name.hex()} in {self.directory} is damaged",
                "remove its file and restore it from a copy: another site may have it under the same name",
            )
        return data

    def has(self, name: bytes) -> bool:
        return self._path(name).exists()

    def size(self, name: bytes) -> int:
        """In bytes; 0 for a chunk that is not there."""
        with suppress(FileNotFoundError):
            return self._path(name).stat().st_size
        return 0

    def claim(self, name: bytes) -> bool:
        """As `has`; one that is there stays for a while."""
        with _disk(self.directory):
            try:
                with locked(self.directory, fcntl.LOCK_SH):
                    os.utime(self._path(name))
            except FileNotFoundError:
                return False
        return True

    def claim_all(self, names: Iterable[bytes]) -> None:
        """Raises MissingChunk."""
        for name in names:
            if not self.claim(name):
                raise missing(name, str(self.directory))

    def sync(self) -> None:
        """Chunks that were put are found after a power loss."""
        unsynced, self._unsynced = self._unsynced, set()
        with _disk(self.directory):
            for directory in unsynced:
                sync_path(directory)

    def older_than(self, time_s: float) -> Iterator[bytes]:
        """The chunks that nobody has touched since; what a crash has left half written goes at once."""
        for bucket in sorted(self.directory.glob("[0-9a-f][0-9a-f]")):
            with os.scandir(bucket) as files:
                for file in files:
                    with suppress(FileNotFoundError):
                        if file.stat().st_mtime >= time_s:
                            continue
                        if file.name.endswith(_ASIDE):
                            os.unlink(file.path)
                        elif len(file.name) == 2 * NAME_BYTES:
                            yield bytes.fromhex(file.name)

    def remove_unless_touched(self, name: bytes, since_s: float) -> int:
        """Returns the bytes that this has freed."""
        path = self._path(name)
        try:
            with locked(self.directory, fcntl.LOCK_EX):
                found = path.stat()
                if found.st_mtime >= since_s:
                    return 0
                path.unlink()
        except FileNotFoundError:
            return 0
        return found.st_size

    def _path(self, name: bytes) -> Path:
        assert len(name) == NAME_BYTES, f"{name!r} names no chunk"
        text = name.hex()
        return self.directory / text[:2] / text

    def _write(self, path: Path, data: bytes) -> None:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._unsynced.add(self.directory)
        write_aside(path, data, self.durable)
        if self.durable:
            self._unsynced.add(path.parent)

    def __getstate__(self) -> tuple[Path, bool]:
        return self.directory, self.durable

    def __setstate__(self, state: tuple[Path, bool]) -> None:
        self.__init__(*state)  # type: ignore[misc]


def write_aside(path: Path, data: bytes, durable: bool) -> None:
    """A file that is whole or not there, also if several write it."""
    aside = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}-{next(_number)}{_ASIDE}")
    try:
        with open(aside, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise


def sync_path(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(directory: Path, how: int) -> Iterator[None]:
    """Between processes and between threads: each time another open file."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, how)
        yield
    finally:
        os.close(handle)


@contextmanager
def _disk(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (ENOSPC, EDQUOT):
            raise DiskFull(f"no room for a chunk in {directory}", "make room; the same is written again") from error
        raise StorageError(f"chunks in {directory}: {error}", "see that it can be read and written") from error
