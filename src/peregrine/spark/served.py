"""Which places a host serves, and where: a file that its query looks into before every batch.

The file is replaced whole. So a site may join or leave while the query runs: from some batch on its log is read, or is
no longer read.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from peregrine.errors import ConfigurationError
from peregrine.net.chunk_files import write_aside
from peregrine.spark.published import current
from peregrine.types import PlaceId, Runner

MICROBATCH: Runner = "microbatch"
CONTINUOUS: Runner = "continuous"


class Served(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A place, as its host sees it."""

    address: str  # of the router of its site
    chunks: str | None = None  # the chunk store of its site, if it has one
    runner: Runner = MICROBATCH


_decode = msgspec.json.Decoder(dict[PlaceId, Served]).decode


def publish(file: Path, places: Mapping[PlaceId, Served]) -> None:
    """These are the places from now on."""
    if not places:
        raise ConfigurationError("a host of no places", "give at least one place")
    write_aside(file, msgspec.json.format(msgspec.json.encode(dict(places))), durable=True)


def fall_back(file: Path, place: PlaceId) -> None:
    """From the next batch on this place runs in micro-batches."""
    places = dict(served_by(str(file)))
    if place in places and places[place].runner != MICROBATCH:
        publish(file, places | {place: msgspec.structs.replace(places[place], runner=MICROBATCH)})


def served_by(file: str) -> Mapping[PlaceId, Served]:
    """The places, as the file has them now."""
    return current(file, "places", _decode)
