"""Which version of the format a directory is of: said in its file `format`, before there is anything else in it.

Routers, managers, devices and hosts ask before they read anything: what another version has written is brought to this
one, step by step, or refused with what to do. It is not even opened, as a log cuts off what it takes for damage.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from peregrine.core.format_version import FORMAT
from peregrine.errors import StorageError
from peregrine.net.chunk_files import sync_path, write_aside

FILE = "format"
REMEDY = "run the version that wrote it until all sites are at rest and start the new one from empty directories"
Owner = str  # router, manager, device or host

# From a version to the one after it. A step that died is done again from its beginning, so it must bear that. A version
# after which a directory reads as before has a step that does nothing; one without a step is refused.
MIGRATIONS: Mapping[int, Callable[[Path, Owner], None]] = {}


def check_format(directory: Path, owner: Owner, has_begun: str = "journal", durable: bool = True) -> None:
    """`has_begun`: what is in every directory of this owner that was used, also before there were versions."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = directory / FILE
    if not path.exists():
        if (directory / has_begun).exists():
            raise StorageError(
                f"{directory} has no format: a version before format 1 wrote it, and this one reads format {FORMAT}",
                REMEDY,
            )
        _write(path, owner, FORMAT, durable)
    whose, version = _read(path)
    if whose != owner:
        raise StorageError(f"{directory} belongs to a {whose}, not to a {owner}", f"give the {owner} another directory")
    while version != FORMAT:
        step = MIGRATIONS.get(version)
        if version > FORMAT or step is None:
            raise StorageError(f"{directory} is of format {version}, and this version reads format {FORMAT}", REMEDY)
        step(directory, owner)
        version += 1
        _write(path, owner, version, durable)


def _read(path: Path) -> tuple[Owner, int]:
    owner, _, version = path.read_text().strip().partition(" ")
    if not version.isdigit():
        raise StorageError(f"{path} says no version", "restore it from a copy of the directory")
    return owner, int(version)


def _write(path: Path, owner: Owner, version: int, durable: bool) -> None:
    write_aside(path, f"{owner} {version}\n".encode(), durable)
    if durable:
        sync_path(path.parent)
