"""Which places a host serves, and where: a file that its query looks into before every batch.

The file is replaced whole. So a site may join or leave while the query runs: from some batch on its log is read, or is
no longer read.
"""

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from peregrine.errors import ConfigurationError
from peregrine.net.chunk_files import write_aside
from peregrine.types import PlaceId

Runner = Literal["microbatch", "continuous"]
MICROBATCH: Runner = "microbatch"
CONTINUOUS: Runner = "continuous"


class Served(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A place, as its host sees it."""

    address: str  # of the router of its site
    chunks: str | None = None  # the chunk store of its site, if it has one
    runner: Runner = MICROBATCH


_decoder = msgspec.json.Decoder(dict[str, Served])


def publish(file: Path, places: Mapping[PlaceId, Served]) -> None:
    """These are the places from now on."""
    if not places:
        raise ConfigurationError("a host of no places", "give at least one place")
    write_aside(file, msgspec.json.format(msgspec.json.encode(dict(places))), durable=True)


def served_by(file: str) -> Mapping[PlaceId, Served]:
    """The places, as the file has them now."""
    try:
        found = os.stat(file)
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"there is no file of places {file}", "publish the places of the host first"
        ) from error
    return _load(file, found.st_mtime_ns, found.st_ino)


@lru_cache(maxsize=16)
def _load(file: str, changed_ns: int, inode: int) -> Mapping[PlaceId, Served]:
    try:
        return {PlaceId(place): served for place, served in _decoder.decode(Path(file).read_bytes()).items()}
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{file}: {error}", "publish the places of the host again") from error
