"""A manager with its planner and a small railway, for tests: routers do what they are told when a test lets them."""

from collections.abc import Mapping

from peregrine.core.attachments import Attachments
from peregrine.core.coordinator import ToRouter
from peregrine.core.keyspace import KeySet
from peregrine.core.manager import Manager, ManagerEffect, ManagerEvent
from peregrine.core.messages import Begin, Rehome, Rehomed, Report, Tick
from peregrine.core.operator import OpSpec
from peregrine.core.placement import Initial, Placement
from peregrine.core.redeploying import PATIENCE_MS, PutOff, Redeployed, TopologyChanged
from peregrine.core.topology import Link, Topology
from peregrine.core.validity import AttachedProducers, Feeds
from peregrine.plan.redeploy.changes import Changes
from peregrine.plan.redeploy.layout import Layout
from peregrine.plan.redeploy.planner import Planner
from peregrine.plan.redeploy.planning import PlannedChanges
from peregrine.plan.redeploy.queue import TopologyQueue
from peregrine.plan.redeploy.world import World
from peregrine.types import MigrationId, OpId, PlaceId, SiteId, SourceId

GROUPS = 4
COUNT, SINK = OpId("app/count"), OpId("app/results")
OTHER = OpId("other/count")
CLOUD, EDGE1, EDGE2, TRAIN = SiteId("cloud"), SiteId("edge1"), SiteId("edge2"), SiteId("train")
K = KeySet.of_keys(GROUPS, ["k"])


def managed(
    topology: Topology,
    specs: Mapping[OpId, OpSpec],
    initial: Initial,
    sources: Mapping[SourceId, SiteId],
    feeds: Feeds,
    patience_ms: int = PATIENCE_MS,
) -> tuple[Planner, Manager]:
    changes, attachments = Changes(), Attachments()
    for source, at in sources.items():
        attachments.attach(source, at)
    layout = Layout(specs, PlaceId(topology.root), changes, initial, sources, feeds)
    planner = Planner(World.of(topology, changes), layout, TopologyQueue(topology.root))
    placement, producers = Placement(topology, specs, initial), AttachedProducers(feeds, attachments)
    planning = PlannedChanges(planner, feeds)
    return planner, Manager(placement, specs, attachments, producers, planning=planning, patience_ms=patience_ms)


class Railway:
    """cloud over edge1 and edge2, a train below edge1 with a source of k, which lives at edge1. With another
    application: that has its k there as well.
    """

    def __init__(self, with_another: bool = False) -> None:
        link = Link(10.0)
        topology = Topology.tree(CLOUD, {EDGE1: (CLOUD, link), EDGE2: (CLOUD, link), TRAIN: (EDGE1, Link(1.0))})
        specs = {COUNT: OpSpec(COUNT, GROUPS, feeds=(SINK,)), SINK: OpSpec(SINK, GROUPS, sink=True)}
        initial = [(COUNT, K, PlaceId(EDGE1))]
        if with_another:
            specs[OTHER] = OpSpec(OTHER, GROUPS, feeds=(SINK,))
            initial.append((OTHER, K, PlaceId(EDGE1)))
        sources, feeds = {SourceId("s"): TRAIN}, {SourceId("s"): ((COUNT, K),)}
        self.planner, self.manager = managed(topology, specs, initial, sources, feeds)
        self._now_ms = 0
        self._told: list[ManagerEffect] = []

    @property
    def topology(self) -> Topology:
        return self.manager.coordinator.placement.topology

    def owner(self, op: OpId = COUNT) -> PlaceId:
        """As the manager and its planner have it, which keep books of their own."""
        owner = self.manager.coordinator.placement.owner(op, "k")
        if self.planner.open is None:
            assert list(self.planner.layout.partition(op, K)) == [owner]
        return owner

    def step(self, event: ManagerEvent) -> list[ManagerEffect]:
        return self.manager.step(event)

    def step_with(self, fact: object) -> list[ManagerEffect]:
        return self.step(TopologyChanged(fact))

    def tell(self, fact: object) -> list[ManagerEffect]:
        """What is to be done about it at once comes with the next tick."""
        told = self.step_with(fact)
        self._told += [each for each in told if not isinstance(each, PutOff)]
        return told

    def tick(self) -> list[ManagerEffect]:
        if self._told:
            told, self._told = self._told, []
            return told
        self._now_ms += 2000
        return self.step(Tick(self._now_ms))

    def obey(self, effects: list[ManagerEffect]) -> list[ManagerEffect]:
        """Routers do at once what they are told, until nothing is left to do; all that was wanted on the way."""
        seen = list(effects)
        queue = list(effects)
        while queue:
            match queue.pop(0):
                case ToRouter(site, Rehome(rehoming)):
                    more = self.step(Rehomed(site, rehoming.number))
                case ToRouter(site, Begin(migration)):
                    more = self.step(Report(site, MigrationId(migration.id), "done"))
                case _:
                    more = []
            seen += more
            queue += more
        return seen


NAMES = {COUNT: "k", OTHER: "other k"}


def redeployed(effects: list[ManagerEffect]) -> list[Redeployed]:
    return [effect for effect in effects if isinstance(effect, Redeployed)]


def wanted(effects: list[ManagerEffect]) -> list[str]:
    texts = []
    for effect in effects:
        match effect:
            case ToRouter(_, Rehome(rehoming)):
                texts.append(f"{rehoming.site}: {rehoming.source} -> {rehoming.target}")
            case ToRouter(_, Begin(migration)):
                texts.append(f"{NAMES[migration.op]}: {migration.source} -> {migration.target}")
            case Redeployed(_, outcome):
                texts.append(str(outcome))
            case PutOff():
                texts.append("put off")
            case _:
                pass
    return texts
