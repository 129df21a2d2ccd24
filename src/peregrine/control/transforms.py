"""The DataFrame operators of a deployment: where they can be, and the queries that serve them there.

Each has a place of its own at every site, `site/name`, because its log is read by a query of its own. A query is
started where the operator is, and where it is going to be before it moves there.
"""

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from peregrine.app.plan import SourceNode, TransformNode
from peregrine.app.shell import Target
from peregrine.control.deployment import Deployment
from peregrine.control.hosts import PER_SITE
from peregrine.core.reconfigure import Plan
from peregrine.core.topology import Topology
from peregrine.errors import ConfigurationError, PlanError, Unreachable
from peregrine.types import OpId, PlaceId, site_of

if TYPE_CHECKING:
    from peregrine.spark.transform import TransformQuery

Definitions = Mapping[OpId, tuple[TransformNode, tuple[Target, ...]]]

SESSION_S = 120.0  # the host's query comes back first, with a session


def check(transforms: Definitions, hosts: str | None) -> None:
    """Raises an error for what cannot run."""
    if transforms and hosts == PER_SITE:
        raise ConfigurationError(
            f'DataFrame operators ({", ".join(transforms)}) with hosts="{PER_SITE}"', "run them in one session for now"
        )
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


def with_places(topology: Topology, transforms: Definitions) -> Topology:
    for op in transforms:
        topology = topology.with_host(_host_of(op))
    return topology


def places_apart(topology: Topology, transforms: Definitions) -> frozenset[PlaceId]:
    """The places that the host does not serve."""
    return frozenset(place_of(op, site) for op in transforms for site in topology.sites)


def place_of(op: OpId, site: str) -> PlaceId:
    return PlaceId(f"{site}/{_host_of(op)}")


def _host_of(op: OpId) -> str:
    return op.partition("/")[2]


class Transforms:
    def __init__(self, deployment: Deployment, transforms: Definitions) -> None:
        self.queries: dict[PlaceId, TransformQuery] = {}
        self._deployment = deployment
        self._transforms = transforms
        self._apart = places_apart(deployment.topology, transforms)
        self._lock = threading.Lock()
        deployment.before_submit = self.prepare

    def start(self) -> None:
        """Queries for where operators are, and for where they have been or were about to be when this ended before."""
        placement = self._deployment.driver.manager.coordinator.placement
        for op in self._transforms:
            owners = set(placement.instances(op))
            for site in self._deployment.topology.sites:
                place = place_of(op, site)
                if place in owners or self._checkpoint(place).exists():
                    self.deploy(op, place)

    def prepare(self, plan: Plan) -> None:
        """Called before a plan is submitted: raises an error if it moves anything to where it is not served."""
        moves = [move for stage in plan.stages for move in stage]
        for move in moves:
            site = site_of(move.target)
            own = place_of(move.op, site)
            if move.op in self._transforms and move.target != own:
                raise PlanError(f"{move.op} cannot run at {move.target}", f"move it to {own}")
            if move.op not in self._transforms and move.target in self._apart:
                raise PlanError(f"{move.op} cannot run at {move.target}", f"move it to {site}")
        for move in moves:
            if move.op in self._transforms:
                self.deploy(move.op, move.target)

    def deploy(self, op: OpId, place: PlaceId) -> None:
        """Returns when the query of this place runs."""
        from peregrine.spark.transform import TransformConfig, TransformQuery

        with self._lock:
            if place in self.queries:
                return
            node, targets = self._transforms[op]
            config = TransformConfig(
                op,
                node.transform,
                node.inputs[0].schema,
                node.outputs[0].schema,
                targets,
                place,
                self._deployment.clients[site_of(place)],
                self._deployment.directory / "token",
                self._checkpoint(place),
            )
            query = self.queries[place] = TransformQuery(self._session, config)
            self._deployment.supervisor.watch_over(query)

    def stop(self) -> None:
        for query in self.queries.values():
            query.stop()

    def _checkpoint(self, place: PlaceId) -> Any:
        return self._deployment.directory / "transforms" / quote(place, safe="")

    def _session(self) -> Any:
        """The session belongs to the host's query: when Spark has died, that one brings it back."""
        deadline_s = time.monotonic() + SESSION_S
        while not _runs(self._deployment.host):
            if time.monotonic() > deadline_s:
                raise Unreachable("there is no Spark session", "see spark.log")
            time.sleep(0.1)
        return self._deployment.spark


def _runs(host: Any) -> bool:
    try:
        return host.failure() is None
    except Exception:  # whatever a call into a process raises that has died
        return False
