"""Files that the processes of Spark look into before every batch: they are replaced whole, and read when they have
changed.
"""

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from peregrine.errors import ConfigurationError

T = TypeVar("T")


def current(file: str, things: str, decode: Callable[[bytes], T]) -> T:
    """What the file says now; `things` are what it is about."""
    try:
        found = os.stat(file)
    except FileNotFoundError as error:
        raise ConfigurationError(f"there is no file of {things} {file}", f"publish the {things} first") from error
    try:
        loaded: T = _load(file, found.st_mtime_ns, found.st_ino, decode)
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{file}: {error}", f"publish the {things} again") from error
    return loaded


@lru_cache(maxsize=32)
def _load(file: str, changed_ns: int, inode: int, decode: Callable[[bytes], Any]) -> Any:
    return decode(Path(file).read_bytes())
