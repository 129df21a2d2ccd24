"""What the manager is asked, as `ManagerDriver.ask` takes it: functions of the machine, which stands still meanwhile.

An answer is frozen or a copy, so that it stays as it was when the machine goes on; no answer is a part of the machine.
A question waits for nothing and sends nothing: while it is asked, nothing happens.
"""

from collections.abc import Collection, Iterable, Mapping

from peregrine.core.coordinator import plan_of
from peregrine.core.keyspace import KeySet
from peregrine.core.manager import Manager
from peregrine.core.migrate import Migration
from peregrine.core.reconfigure import Plan
from peregrine.core.redeploying import Introduction
from peregrine.core.rehoming import Rehoming
from peregrine.core.topology import Topology
from peregrine.errors import Unreachable
from peregrine.plan.redeploy.delta import RunningFragment
from peregrine.plan.redeploy.planning import PlannedChanges
from peregrine.types import MigrationId, OpId, PlaceId, SiteId, SourceId

Instances = Mapping[PlaceId, KeySet]

# --- where keys are ---


def owner(manager: Manager, op: OpId, key: str) -> PlaceId:
    return manager.coordinator.placement.owner(op, key)


def owners(manager: Manager, op: OpId, keys: Iterable[str]) -> Mapping[str, PlaceId]:
    """Of many keys at once: that is quicker than one after the other."""
    wanted = KeySet.of_keys(manager.coordinator.placement.operators[op].groups, keys)
    return {key: place for place, some in where(manager, op, wanted) for key in some.plus}


def where(manager: Manager, op: OpId, keys: KeySet) -> tuple[tuple[PlaceId, KeySet], ...]:
    """These keys by where they are."""
    return tuple(manager.coordinator.placement.where(op, keys))


def instances(manager: Manager, op: OpId) -> Instances:
    return dict(manager.coordinator.placement.instances(op))


def all_instances(manager: Manager) -> Mapping[OpId, Instances]:
    """Of every operator, at one moment."""
    return {op: instances(manager, op) for op in manager.coordinator.placement.operators}


def places(manager: Manager, ops: Collection[OpId]) -> set[PlaceId]:
    """Where these operators are, and where running plans bring them."""
    there = {place for op in ops for place in instances(manager, op)}
    moves = (move for run in manager.coordinator.running.values() for move in run.plan.moves())
    return there | {move.target for move in moves if move.op in ops}


# --- plans ---


def idle(manager: Manager) -> bool:
    """Nothing runs and no key is on a trip."""
    return manager.idle


def running(manager: Manager) -> tuple[str, ...]:
    """The plans that run."""
    return tuple(manager.coordinator.running)


def knows(manager: Manager, plan_id: str) -> bool:
    """Was it submitted, now or before a restart?"""
    return manager.coordinator.knows(plan_id)


def plan(manager: Manager, plan_id: str) -> Plan | None:
    """One that runs."""
    run = manager.coordinator.running.get(plan_id)
    return None if run is None else run.plan


def progress(manager: Manager, plan_id: str) -> tuple[int, int] | None:
    """Of a plan that runs: the stage that it is at, and how many bytes it has moved."""
    run = manager.coordinator.running.get(plan_id)
    return None if run is None else (run.stage, run.state.bytes_moved)


def migration(manager: Manager, id: MigrationId) -> Migration | None:
    """One that has begun and not ended."""
    run = manager.coordinator.running.get(plan_of(id))
    return None if run is None else run.open.get(id)


# --- sources ---


def attached(manager: Manager, source: SourceId) -> SiteId | None:
    """Where it is connected, as far as the manager has heard."""
    return manager.attachments.at(source)


def next_nth(manager: Manager, source: SourceId) -> int:
    """For a device that was dismissed, and comes back."""
    return manager.mobility.next_nth(source)


# --- the tree ---


def topology(manager: Manager) -> Topology:
    return manager.coordinator.placement.topology


def sites(manager: Manager) -> tuple[SiteId, ...]:
    """That there are now, and that are just joining or leaving."""
    commands = manager.redeploying.rehomer.commands() if manager.redeploying is not None else []
    return tuple(dict.fromkeys((*topology(manager).sites, *(command.rehoming.site for command in commands))))


def hosts(manager: Manager, site: SiteId) -> tuple[str, ...]:
    """Of a site that there is, or that is just joining."""
    if site in topology(manager) or manager.redeploying is None:
        return topology(manager).site(site).hosts
    return manager.redeploying.hosts(site)


def changing(manager: Manager) -> bool:
    """Is a topology change under way?"""
    return manager.redeploying is not None and manager.redeploying.under_way


def introductions(manager: Manager, rehoming: Rehoming) -> list[Introduction]:
    """For a site that changes its parent; `Unreachable` if it has, and the link may be gone."""
    redeploying = manager.redeploying
    if redeploying is None or not redeploying.is_open(rehoming):
        raise Unreachable(f"{rehoming} has been carried out", "nothing has to be done for it any more")
    return redeploying.introductions(rehoming)


def fragments(manager: Manager) -> tuple[RunningFragment, ...]:
    """What each application has at each site."""
    planning = manager.redeploying.planning if manager.redeploying is not None else None
    assert isinstance(planning, PlannedChanges), "this manager keeps the topology that it began with"
    return tuple(planning.planner.fragments())
