"""The processes that test_tree_changes_faults.py kills: those of kill_runner.py, in a tree that changes.

cloud
  region1, region2   edge1 is below one of them, and goes to the other; the keys of two cars follow it
    edge1            has the cars, and the key of one
  edge2              has other cars
"""

import logging
import sys
from functools import partial
from pathlib import Path

from kill_runner import (
    CARS,
    CLOUD,
    EDGE1,
    EDGE2,
    MOVING,
    PATIENCE_S,
    commands,
    devices,
    owner,
    pids,
    prove,
    say,
    tell,
    until,
)

from peregrine.control.driver import Told
from peregrine.control.local import Deployment, local
from peregrine.core.keyspace import KeySet
from peregrine.core.redeploying import Redeployed
from peregrine.core.topology import Link, Topology
from peregrine.errors import TransportError
from peregrine.plan.redeploy.events import SiteMoved
from peregrine.types import PlaceId, SiteId, SourceId
from peregrine.workloads import tm

REGION1, REGION2 = SiteId("region1"), SiteId("region2")
LINK = Link(40.0, 1000.0)  # a change of the tree takes long enough to kill something in the middle
FOLLOWING = MOVING[1:]


def caller(directory: Path) -> None:
    parents = {REGION1: (CLOUD, LINK), REGION2: (CLOUD, LINK), EDGE1: (REGION1, LINK), EDGE2: (CLOUD, LINK)}
    initial = [
        (tm.MOV_AVG, KeySet.of_keys(tm.GROUPS, MOVING[:1]), PlaceId(EDGE1)),
        (tm.MOV_AVG, KeySet.of_keys(tm.GROUPS, FOLLOWING), PlaceId(REGION1)),
    ]
    topology = Topology.tree(CLOUD, parents)
    more = {"snapshot_mb": 0.25, "keep_journal": True}
    with local(topology, tm.specs(roaming=False), tm.operators(), initial, directory, watch=_hear, **more) as up:
        for car in CARS:
            up.driver.feed(SourceId(car), ((tm.MOV_AVG, KeySet.of_keys(tm.GROUPS, [car])),))
        say(ready=True)
        for command in commands():
            match command:
                case {"change": version, "source": source, "target": target}:
                    for car in CARS:  # keys of a car that the manager does not know yet would stay
                        up.driver.wait_attached(SourceId(car), EDGE1 if car in MOVING else EDGE2, PATIENCE_S)
                    up.tell(SiteMoved(EDGE1, SiteId(source), SiteId(target), LINK, version))
                    say(told=version)
                case {"until_open": True}:
                    until(lambda: _is_open(up))
                    say(opened=_is_open(up), parent=_parent(up))
                case {"follow": target}:
                    until(lambda target=target: _has_followed(up, target))
                    say(followed=_has_followed(up, target))
                case {"pids": True}:
                    say(pids=pids(up))
                case {"prove": counts}:
                    say(proof=prove(up, counts, initial), given_up=up.supervisor.given_up)


def _hear(told: Told) -> None:
    if isinstance(told, Redeployed):
        say(redeployed=told.number, outcome=told.outcome, left_out=told.left_out, wrong=told.wrong)
    else:
        tell(told)


def _is_open(up: Deployment) -> bool:
    """Is the site on its way from one parent to the other?"""
    return up.driver.ask(lambda manager: bool(manager.redeploying and manager.redeploying.rehomer.commands()))


def _parent(up: Deployment) -> str:
    try:
        return up.clients[EDGE1].status().parent
    except TransportError:
        return ""  # it was killed, and is not back yet


def _has_followed(up: Deployment, target: str) -> bool:
    at_target = all(owner(up, car) == target for car in FOLLOWING)
    return at_target and _parent(up) == target == up.topology.parent(EDGE1) and up.driver.idle


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it tells at length that Spark has died
    # Devices stay at their sites: keys follow because a site moves.
    {"caller": caller, "devices": partial(devices, roaming=False)}[sys.argv[1]](Path(sys.argv[2]))
