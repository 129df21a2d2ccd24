"""Topology changes of a deployment that runs: who plans them, and how what is told about them is written down.

A deployment learns of its sources as they come, so the planner is told what a source feeds when the source is first
heard, and not when the deployment begins.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from peregrine.core.manager import Manager
from peregrine.core.operator import OpSpec
from peregrine.core.placement import Initial
from peregrine.core.redeploying import PutOff, Redeployed, TopologyChanged
from peregrine.core.topology import Topology
from peregrine.core.validity import Feeds
from peregrine.plan.redeploy.changes import Changes
from peregrine.plan.redeploy.events import LinkRemoved, LinkSet, SiteMoved, SiteRemoved, SiteSet
from peregrine.plan.redeploy.layout import Layout
from peregrine.plan.redeploy.planner import Planner
from peregrine.plan.redeploy.planning import PlannedChanges
from peregrine.plan.redeploy.queue import TopologyQueue
from peregrine.plan.redeploy.world import World
from peregrine.types import OpId, SiteId, SourceId

_EVENTS: dict[str, Any] = {
    kind.__name__: msgspec.msgpack.Decoder(kind) for kind in (SiteSet, SiteRemoved, LinkSet, LinkRemoved, SiteMoved)
}
_event = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Changed:
    """What has come of topology changes. What was put off is considered again with the next ones."""

    redeployed: tuple[Redeployed, ...]
    put_off: tuple[PutOff, ...]


class FedPlanning(PlannedChanges):
    def __init__(self, planner: Planner, feeds: Feeds) -> None:
        """`feeds` grows as sources are made known."""
        super().__init__(planner)
        self._feeds = feeds

    def attached(self, source: SourceId, site: SiteId) -> bool:
        planner, feeding, feeds = self.planner, self.planner.layout.feeding, self._feeds.get(source, ())
        if site not in planner.world:
            return False
        if source in feeding and planner.is_attached(source, site) and feeding.feeds(source) == feeds:
            return False
        planner.attached(source, site, feeds)
        return True


def planning_of(topology: Topology, specs: Mapping[OpId, OpSpec], initial: Initial, feeds: Feeds) -> FedPlanning:
    changes = Changes()
    world = World.of(topology, changes)
    layout = Layout(specs, world.main_place(world.root), changes, initial)
    return FedPlanning(Planner(world, layout, TopologyQueue(world.root)), feeds)


def sites_of(manager: Manager) -> tuple[SiteId, ...]:
    """That there are now, and that are just joining or leaving."""
    here = manager.coordinator.placement.topology.sites
    current = manager.redeploying.current if manager.redeploying is not None else None
    opened = [command.rehoming.site for command in current.open.values()] if current is not None else []
    return tuple(dict.fromkeys((*here, *opened)))


def encode(changed: TopologyChanged) -> bytes:
    return msgspec.msgpack.encode((type(changed.fact).__name__, changed.fact), order="deterministic")


def decode(raw: bytes) -> TopologyChanged:
    kind, body = _event.decode(raw)
    return TopologyChanged(_EVENTS[kind].decode(body))
