"""Where DataFrame operators can be, and which of them can run at all.

Each has a place of its own at every site, `site/name`, because its log is read by a query of its own.
"""

from collections.abc import Iterable, Mapping

from peregrine.app.checks import check_pickles
from peregrine.app.plan import SourceNode, TransformNode
from peregrine.app.shell import Target
from peregrine.control.hosts import PER_SITE
from peregrine.core.topology import Topology
from peregrine.errors import ConfigurationError
from peregrine.plan.redeploy.layout import own_host
from peregrine.types import OpId, PlaceId, host_of

Definitions = Mapping[OpId, tuple[TransformNode, tuple[Target, ...]]]


def check(transforms: Definitions, hosts: str | None) -> None:
    """Raises an error for what cannot run."""
    names: dict[str, OpId] = {}
    for op, (node, _) in transforms.items():
        if node.name in names:
            raise ConfigurationError(f"two DataFrame operators of one name: {names[node.name]}, {op}", "rename one")
        names[node.name] = op
        for given in node.inputs:
            if isinstance(given.node, SourceNode) and given.node.roaming:
                raise ConfigurationError(
                    f"{node.where}: {node.name!r} is behind devices that roam, and keeps no books of what has come",
                    f"put a map between {given.node.name!r} and it: that puts their rows in order",
                )
    if transforms and hosts == PER_SITE:
        from peregrine.spark.registry import dumps

        for node, _ in transforms.values():
            check_pickles(f"{node.name} ({node.where})", node.transform, dumps)


def with_places(topology: Topology, transforms: Definitions) -> Topology:
    for op in transforms:
        topology = topology.with_host(own_host(op))
    return topology


def place_of(op: OpId, site: str) -> PlaceId:
    return PlaceId(f"{site}/{own_host(op)}")


class PlacesApart:
    """The places that the host does not serve, also of sites that join later."""

    def __init__(self, transforms: Iterable[OpId]) -> None:
        self._hosts = frozenset(map(own_host, transforms))

    def __contains__(self, place: object) -> bool:
        return isinstance(place, str) and host_of(PlaceId(place)) in self._hosts
