"""A machine on disk, so that its journal can be cut: (position, machine), the newest only.

A snapshot is written aside, synced and renamed: there is always a whole one. What is in it, and what is refused, is the
matter of core/snapshot.py.
"""

import os
import struct
from binascii import crc32
from pathlib import Path
from typing import Any

from peregrine.core import snapshot
from peregrine.errors import PeregrineError, StorageError
from peregrine.net.directory_format import REMEDY

_HEAD = struct.Struct("<8sqI")  # magic, position, checksum
_MAGIC = b"PGRNSNP1"


def save(directory: Path, position: int, machine: object, durable: bool = True) -> int:
    """What the machine is after the first `position` events. Returns the size."""
    body = snapshot.encode(machine)
    aside = directory / "snapshot.new"
    with open(aside, "wb") as file:
        file.write(_HEAD.pack(_MAGIC, position, crc32(body)))
        file.write(body)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    os.replace(aside, directory / "snapshot")
    if durable:
        sync_directory(directory)
    return len(body)


def load(directory: Path) -> tuple[int, Any] | None:
    """None if there is no snapshot yet."""
    path = directory / "snapshot"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        magic, position, checksum = _HEAD.unpack_from(data)
        body = data[_HEAD.size :]
        if magic != _MAGIC or crc32(body) != checksum:
            raise ValueError("its checksum does not fit")
        return position, snapshot.decode(body)
    except Exception as error:  # whatever a pickle that does not fit raises
        why = error.what if isinstance(error, PeregrineError) else error
        raise StorageError(f"the snapshot {path} cannot be read: {why}", REMEDY) from error


def check_shape(directory: Path, found: object, fresh: object) -> None:
    """A pickle of another version may load and lack what this one needs: refused now, not missed while stepping."""
    lacks = sorted(_lacking(found, fresh, set()))
    if lacks:
        raise StorageError(
            f"the snapshot {directory / 'snapshot'} is of another version: it lacks {', '.join(lacks)}", REMEDY
        )


def _lacking(found: object, fresh: object, seen: set[type[Any]]) -> set[str]:
    kind = type(fresh)
    if kind in seen or not kind.__module__.startswith("peregrine.") or not hasattr(fresh, "__dict__"):
        return set()
    if type(found) is not kind:
        return {f"a {kind.__name__}"}
    seen.add(kind)
    lacks = {f"{kind.__name__}.{name}" for name in vars(fresh) if name not in vars(found)}
    return lacks.union(
        *(_lacking(vars(found)[name], value, seen) for name, value in vars(fresh).items() if name in vars(found))
    )


def sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
