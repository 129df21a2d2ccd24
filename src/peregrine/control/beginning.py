"""What `run` begins with: what a configuration says of sites and hosts, and where keys are at first."""

import functools
from typing import Any

from peregrine.config import Config
from peregrine.control.naming import At, Names
from peregrine.control.transform_places import place_of
from peregrine.core.keyspace import KeySet
from peregrine.core.placement import Initial
from peregrine.core.topology import Topology
from peregrine.errors import ConfigurationError


def topology_of(settings: Config, topology: Topology | None) -> Topology:
    if topology is not None:
        raise ConfigurationError("a topology, and a configuration that has one", "give one of them")
    return settings.topology


def options_of(settings: Config) -> dict[str, Any]:
    """What else a configuration says, as options of a deployment. What the caller says counts more."""
    found: dict[str, Any] = {
        "dwell_ms": settings.mobility.dwell_ms,
        "host_lag_rows": settings.limits.host_lag_rows,
        "trigger_ms": settings.batches.trigger_ms,
    }
    return found | ({"runner": settings.runners} if settings.runners else {})


def initial_of(names: Names, at: At, topology: Topology) -> Initial:
    """Keys that `at` does not name are at the root; those of a DataFrame operator at its own place there."""
    transforms = names.transforms
    initial = [
        (op, keys, topology.place(place_of(op, site) if op in transforms else site))
        for op, keys, site in names.beginnings(at)
    ]
    for op in transforms:
        elsewhere = [keys for of, keys, _ in initial if of == op]
        rest = functools.reduce(KeySet.__sub__, elsewhere, KeySet.everything(names.specs[op].groups))
        if rest:
            initial.append((op, rest, place_of(op, topology.root)))
    return initial
