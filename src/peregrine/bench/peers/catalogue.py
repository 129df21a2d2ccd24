"""The runs of the experiment `peers`: which system, and what is done with it. Pure, but for looking what is built.

A run is named `system/way`, as the experiment's file says it where other experiments name a mechanism.
"""

import os
from pathlib import Path

from peregrine.errors import ConfigurationError

HOME = "PEREGRINE_PEERS"  # the folder that `make peers` fills, if it is another one
ENVIRONMENTS = {"flink-process": "flink", "flink-thread": "flink", "bytewax": "bytewax"}
PACKAGES = {"flink": "pyflink", "bytewax": "bytewax"}
STAMP = ".installed"  # the last that an installation writes

STEADY, SATURATED = "steady", "saturated"  # at the rate of the experiment; as fast as it goes
_WAYS = {
    "peregrine": ("live", "restart", SATURATED),
    "spark": ("restart", "repartition", SATURATED),
    "flink-process": ("savepoint", "rescale", SATURATED),
    "flink-thread": ("savepoint", "rescale", SATURATED),
    "bytewax": (STEADY, SATURATED),
}
RUNS = tuple(f"{system}/{way}" for system, ways in _WAYS.items() for way in ways)


def parts(name: str) -> tuple[str, str]:
    system, _, way = name.partition("/")
    return system, way


def home() -> Path:
    return Path(os.environ.get(HOME, ".venv-peers"))


def python_of(system: str) -> Path:
    """The Python of the system's own virtual environment."""
    if why := not_built(system):
        raise ConfigurationError(why, "make peers")
    return (home() / ENVIRONMENTS[system] / "bin" / "python").absolute()  # not resolved: that would leave it


def package_of(system: str) -> Path:
    """Where the system's package is."""
    environment = ENVIRONMENTS[system]
    (found,) = (home() / environment).absolute().glob(f"lib/python3*/site-packages/{PACKAGES[environment]}")
    return found


def not_built(system: str) -> str:
    """Why a system cannot run here; empty if it can."""
    environment = ENVIRONMENTS.get(system)
    if environment is None:
        return ""  # it is part of Peregrine's own
    where = home() / environment
    if (where / STAMP).exists():
        return ""
    return f"skipped: {PACKAGES[environment]} is not built in {where}: run make peers"
