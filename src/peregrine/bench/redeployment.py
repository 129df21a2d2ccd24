"""What one topology change costs: a train goes from edge to edge, in worlds of 10 to 10,000 sites.

The rule: what is timed is the same change in every world, once as the planner sees it (facts, tree, layout, stages,
contexts, checks) and once as the whole manager does (from the fact that it is told until it says that it has
redeployed, with routers that answer at once). There are ten applications; each has the keys of a tenth of all trains at
their edges, and an operator at the root that all of these feed. So an application has operators at a tenth of all
edges or more, and only one of them is affected. The baseline plans all applications again.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

from peregrine.core.attachments import Attachments
from peregrine.core.coordinator import ToRouter
from peregrine.core.keyspace import KeySet
from peregrine.core.manager import Manager, ManagerEffect, ManagerEvent
from peregrine.core.messages import Begin, Rehome, Rehomed, Report
from peregrine.core.operator import OpSpec
from peregrine.core.placement import Placement
from peregrine.core.redeploying import Redeployed, TopologyChanged
from peregrine.core.topology import Link, Topology
from peregrine.core.validity import AttachedProducers, FedKeys, IndexedFeeds
from peregrine.plan.redeploy.changes import Changes
from peregrine.plan.redeploy.events import SiteMoved
from peregrine.plan.redeploy.layout import Layout
from peregrine.plan.redeploy.planner import Planner, Redeployment, Scope
from peregrine.plan.redeploy.planning import PlannedChanges
from peregrine.plan.redeploy.queue import TopologyQueue
from peregrine.plan.redeploy.world import World
from peregrine.types import OpId, PlaceId, SiteId, SourceId

SITE_COUNTS = (10, 100, 1_000, 10_000)
APPS = 10
GROUPS = 16
LINK = Link(5.0)
ROOT = SiteId("root")


def run(repetitions: int = 200, baseline_repetitions: int = 3) -> dict[str, object]:
    """Milliseconds for a change in each world, the best of many, and by how much the largest world costs more."""
    result = manager_step(repetitions)
    for scope in Scope:
        count = repetitions if scope is Scope.INCREMENTAL else baseline_repetitions
        result |= _figures(scope.replace(" ", "_"), [_planned(railway(sites, scope)) for sites in SITE_COUNTS], count)
    return result


def manager_step(repetitions: int = 200) -> dict[str, object]:
    """The whole change, as the manager carries it out."""
    return _figures("manager_change", [_carried_out(managed_railway(sites)) for sites in SITE_COUNTS], repetitions)


@dataclass(slots=True)
class Railway:
    """A root, edges below it (every third site, four for each region where there are many), and trains below edges."""

    topology: Topology
    specs: dict[OpId, OpSpec] = field(default_factory=dict)
    initial: list[tuple[OpId, KeySet, PlaceId]] = field(default_factory=list)
    attached: dict[SourceId, SiteId] = field(default_factory=dict)
    feeds: dict[SourceId, FedKeys] = field(default_factory=dict)

    @classmethod
    def of(cls, sites: int) -> "Railway":
        edges = [SiteId(f"edge{i}") for i in range(max(2, sites // 3))]
        regions = [SiteId(f"region{i}") for i in range(len(edges) // 4)]
        trains = [SiteId(f"train{i}") for i in range(sites - 1 - len(edges) - len(regions))]
        parents = dict.fromkeys(regions, (ROOT, LINK))
        parents |= {edge: (regions[i % len(regions)] if regions else ROOT, LINK) for i, edge in enumerate(edges)}
        parents |= {train: (edges[i % len(edges)], LINK) for i, train in enumerate(trains)}
        made = cls(Topology.tree(ROOT, parents))
        for app in range(APPS):
            whole = OpId(f"app{app}/whole")
            made.specs[whole] = OpSpec(whole, GROUPS)
            made.specs[partial(app)] = OpSpec(partial(app), GROUPS, feeds=(whole,))
        for i, train in enumerate(trains):
            op, keys = partial(i % APPS), KeySet.of_keys(GROUPS, [train])
            made.initial.append((op, keys, PlaceId(edges[i % len(edges)])))
            made.attached[SourceId(train)] = train
            made.feeds[SourceId(train)] = ((op, keys),)
        return made

    def planner(self, scope: Scope) -> Planner:
        changes = Changes()
        world = World.of(self.topology, changes)
        layout = Layout(self.specs, PlaceId(ROOT), changes, self.initial, self.attached, self.feeds)
        return Planner(world, layout, TopologyQueue(ROOT), scope)

    def manager(self) -> Manager:
        attachments = Attachments()
        for source, site in self.attached.items():
            attachments.attach(source, site)
        return Manager(
            Placement(self.topology, self.specs, self.initial),
            self.specs,
            attachments,
            AttachedProducers(IndexedFeeds(self.feeds), attachments),
            planning=PlannedChanges(self.planner(Scope.INCREMENTAL), self.feeds),
        )


def railway(sites: int, scope: Scope = Scope.INCREMENTAL) -> Planner:
    return Railway.of(sites).planner(scope)


def managed_railway(sites: int) -> Manager:
    return Railway.of(sites).manager()


def partial(app: int) -> OpId:
    return OpId(f"app{app}/partial")


def moved(version: int) -> SiteMoved:
    """The first train leaves its edge for the next one, or comes back."""
    here, there = (SiteId("edge0"), SiteId("edge1"))[:: 1 if version % 2 else -1]
    return SiteMoved(SiteId("train0"), here, there, LINK, version)


def change(planner: Planner, version: int) -> Redeployment:
    planner.queue.offer(moved(version))
    redeployment = planner.plan()
    assert redeployment is not None and len(redeployment.relocations) == 1, "the train's keys follow it"
    return redeployment


def carry_out(manager: Manager, version: int) -> Redeployed:
    """The manager is told, and its routers do at once what it wants of them."""
    heard = obey(manager, TopologyChanged(moved(version)))
    (redeployed,) = [effect for effect in heard if isinstance(effect, Redeployed)]
    assert redeployed.complete and not redeployed.wrong and len(redeployed.rehomed) == 1, "the train goes"
    return redeployed


def obey(manager: Manager, *events: ManagerEvent) -> list[ManagerEffect]:
    """These come first, then what routers answer; all that the manager wants on the way."""
    todo, heard = deque(events), list[ManagerEffect]()
    while todo:
        effects = manager.step(todo.popleft())
        heard += effects
        for effect in effects:
            match effect:
                case ToRouter(site, Rehome(rehoming)):
                    todo.append(Rehomed(site, rehoming.number))
                case ToRouter(site, Begin(migration)):
                    todo.append(Report(site, migration.id, "done"))
    return heard


Change = Callable[[int], object]  # by its version: of one world


def _planned(planner: Planner) -> Change:
    def plan(version: int) -> None:
        change(planner, version)
        planner.succeeded()

    return plan


def _carried_out(manager: Manager) -> Change:
    return lambda version: carry_out(manager, version)


def _figures(name: str, changes: list[Change], repetitions: int) -> dict[str, object]:
    best_ms = [round(best * 1000, 3) for best in _best_s(changes, repetitions)]
    figures: dict[str, object] = {
        f"{name}_ms_{sites}_sites": best for sites, best in zip(SITE_COUNTS, best_ms, strict=True)
    }
    figures[f"{name}_ratio_{SITE_COUNTS[0]}_to_{SITE_COUNTS[-1]}"] = round(best_ms[-1] / best_ms[0], 2)
    return figures


def _best_s(changes: list[Change], repetitions: int) -> list[float]:
    """The worlds take turns, so that a busy moment of the machine hits all alike."""
    best = [float("inf")] * len(changes)
    for version in range(1, repetitions + 1):
        for i, change in enumerate(changes):
            start = perf_counter()
            change(version)
            best[i] = min(best[i], perf_counter() - start)
    return best


if __name__ == "__main__":
    for name, value in run().items():
        print(f"{name} = {value}")
