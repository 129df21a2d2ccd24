"""Several applications in one deployment: which of their operators run once for all of them.

Decided when a deployment begins, and then a part of it: its operators have state by their names. So the decision is
noted in the directory before anything is started, and a deployment that goes on keeps to it, whatever its caller says
now. If operators that are one are not equal any more, it is refused.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from peregrine.app.compile import compile_app, compile_apps
from peregrine.app.model import App
from peregrine.app.sharing import twins_of
from peregrine.control.naming import At, Names, check_code
from peregrine.errors import ConfigurationError
from peregrine.net.chunk_files import write_aside
from peregrine.types import OpId

TWINS = "shared.json"


def names_of(apps: Sequence[App], at: At, share: bool, directory: Path | None = None) -> Names:
    """What runs, by its names. Raises an error for applications that cannot run."""
    apart = Names([compile_app(app) for app in apps])
    for app in apps:
        check_code(app)
    if directory is not None and _has_begun(directory):
        twins = _kept(apps, directory)
    else:
        twins = _found(apps, apart, at) if share and len(apps) > 1 else {}
    return Names(compile_apps(apps, twins), twins) if twins else apart


def note(twins: Mapping[OpId, OpId], directory: Path | None) -> None:
    """Called before the deployment begins, or goes on. Returns when what it has to know again is on the disk."""
    if directory is None or _has_begun(directory):
        return
    directory.mkdir(parents=True, exist_ok=True)
    write_aside(directory / TWINS, msgspec.json.encode(twins), durable=True)


def _found(apps: Sequence[App], apart: Names, at: At) -> dict[OpId, OpId]:
    from peregrine.spark.registry import dumps

    return twins_of(apps, lambda one, other: apart.begins(one, at) == apart.begins(other, at), dumps)


def _kept(apps: Sequence[App], directory: Path) -> dict[OpId, OpId]:
    """What was shared when it began: then the places were the same, and the rest must be so still."""
    from peregrine.spark.registry import dumps

    file = directory / TWINS
    noted = msgspec.json.decode(file.read_bytes(), type=dict[OpId, OpId]) if file.exists() else {}
    if noted and twins_of(apps, lambda one, other: noted.get(other) == one, dumps) != noted:
        pairs = ", ".join(f"{op} by {runs}" for op, runs in sorted(noted.items()))
        raise ConfigurationError(
            f"in {directory} operators run for others that are equal ({pairs}), and now not all of these are",
            "go on with the applications that ran there, or take another directory",
        )
    return noted


def _has_begun(directory: Path) -> bool:
    return (directory / "manager").exists()
