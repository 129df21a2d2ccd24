"""What planning one topology change costs: a train goes from edge to edge, in worlds of 10 to 10,000 sites.

The rule: what is timed is a whole redeployment as the manager plans it (facts, tree, layout, stages, contexts, markers,
checks), for the same change in every world. There are ten applications; each has the keys of a tenth of all trains at
their edges, and an operator at the root that all of these feed. So an application has operators at a tenth of all
edges or more, and only one of them is affected. The baselines plan all applications again.
"""

from time import perf_counter

from peregrine.core.keyspace import KeySet
from peregrine.core.operator import OpSpec
from peregrine.core.topology import Link, Topology
from peregrine.core.validity import FedKeys
from peregrine.plan.redeploy.changes import Changes
from peregrine.plan.redeploy.events import SiteMoved
from peregrine.plan.redeploy.layout import Layout
from peregrine.plan.redeploy.planner import Planner, Redeployment, Scope
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
    result: dict[str, object] = {}
    for scope in Scope:
        count = repetitions if scope is Scope.INCREMENTAL else baseline_repetitions
        name = scope.replace(" ", "_")
        best_ms = [round(best * 1000, 3) for best in _best_s(scope, count)]
        for sites, best in zip(SITE_COUNTS, best_ms, strict=True):
            result[f"{name}_ms_{sites}_sites"] = best
        result[f"{name}_ratio_{SITE_COUNTS[0]}_to_{SITE_COUNTS[-1]}"] = round(best_ms[-1] / best_ms[0], 2)
    return result


def railway(sites: int, scope: Scope = Scope.INCREMENTAL) -> Planner:
    """A root, edges below it (every third site, four for each region where there are many), and trains below edges."""
    edges = [SiteId(f"edge{i}") for i in range(max(2, sites // 3))]
    regions = [SiteId(f"region{i}") for i in range(len(edges) // 4)]
    trains = [SiteId(f"train{i}") for i in range(sites - 1 - len(edges) - len(regions))]
    parents = dict.fromkeys(regions, (ROOT, LINK))
    parents |= {edge: (regions[i % len(regions)] if regions else ROOT, LINK) for i, edge in enumerate(edges)}
    parents |= {train: (edges[i % len(edges)], LINK) for i, train in enumerate(trains)}
    specs: dict[OpId, OpSpec] = {}
    for app in range(APPS):
        whole = OpId(f"app{app}/whole")
        specs[whole] = OpSpec(whole, GROUPS)
        specs[_partial(app)] = OpSpec(_partial(app), GROUPS, feeds=(whole,))
    initial, attached, feeds = [], {}, {}
    for i, train in enumerate(trains):
        op, keys = _partial(i % APPS), KeySet.of_keys(GROUPS, [train])
        initial.append((op, keys, PlaceId(edges[i % len(edges)])))
        attached[SourceId(train)] = train
        fed: FedKeys = ((op, keys),)
        feeds[SourceId(train)] = fed
    changes = Changes()
    world = World.of(Topology.tree(ROOT, parents), changes)
    layout = Layout(specs, PlaceId(ROOT), changes, initial, attached, feeds)
    return Planner(world, layout, TopologyQueue(ROOT), scope)


def _partial(app: int) -> OpId:
    return OpId(f"app{app}/partial")


def change(planner: Planner, version: int) -> Redeployment:
    """The first train leaves its edge for the next one, or comes back."""
    here, there = (SiteId("edge0"), SiteId("edge1"))[:: 1 if version % 2 else -1]
    planner.queue.offer(SiteMoved(SiteId("train0"), here, there, LINK, version))
    redeployment = planner.plan()
    assert redeployment is not None and len(redeployment.relocations) == 1, "the train's keys follow it"
    return redeployment


def _best_s(scope: Scope, repetitions: int) -> list[float]:
    """The worlds take turns, so that a busy moment of the machine hits all alike."""
    planners = [railway(sites, scope) for sites in SITE_COUNTS]
    best = [float("inf")] * len(planners)
    for version in range(1, repetitions + 1):
        for i, planner in enumerate(planners):
            start = perf_counter()
            change(planner, version)
            planner.succeeded()
            best[i] = min(best[i], perf_counter() - start)
    return best


if __name__ == "__main__":
    for name, value in run().items():
        print(f"{name} = {value}")
