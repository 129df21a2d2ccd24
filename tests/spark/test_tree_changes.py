"""The tree of a deployment on Spark changes while rows flow: sites change their parents, join with a host, and leave.

cloud
  region1   the first parent of edge
    edge    moves to region2, with a car
      kiosk joins with a host, gets cars and keys, moves on its own, and leaves when its cars have left
  region2
"""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from peregrine import proof
from peregrine.control import questions
from peregrine.control.auditing import audit_deployment
from peregrine.control.hosts import ONE_SESSION, PER_SITE
from peregrine.control.local import Deployment, local
from peregrine.core.coordinator import Status
from peregrine.core.keyspace import KeySet
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.rows import Row
from peregrine.core.state import canonical
from peregrine.core.topology import Link, Site, Topology
from peregrine.errors import PeregrineError
from peregrine.log.record_log import Fsync
from peregrine.net.device import Device
from peregrine.net.protocol import Neighbour
from peregrine.plan.redeploy.events import LinkSet, SiteMoved, SiteRemoved, SiteSet, Station, TopologyEvent
from peregrine.types import PlaceId, SiteId, SourceId, site_of
from peregrine.workloads import road, tm

CLOUD, REGION1, REGION2 = SiteId("cloud"), SiteId("region1"), SiteId("region2")
EDGE, KIOSK = SiteId("edge"), SiteId("kiosk")
LINK = Link(1.0, 100.0)
TREE = Topology.tree(CLOUD, {REGION1: (CLOUD, LINK), REGION2: (CLOUD, LINK), EDGE: (REGION1, LINK)})
CARS = 6
PATIENCE_S = 180.0
PAGE = Path(__file__).parents[2] / "docs" / "mobility.md"


class Run:
    """Cars below the edge and later below the kiosk, each a device with a key of its own."""

    def __init__(self, up: Deployment) -> None:
        self.up = up
        self.devices: dict[int, Device] = {}
        self.sent: list[Row] = []

    def drive(self, cars: range, site: SiteId) -> None:
        for car in cars:
            feeds = tm.MOV_AVG, KeySet.of_keys(tm.GROUPS, [road.vehicle(car, CARS)])
            self.devices[car] = self.up.device(f"device{car}", site, roaming=True, feeds=feeds)

    def flow(self, rounds: int = 20) -> None:
        for _ in range(rounds):
            for car, device in self.devices.items():
                row = road.row(device.taken * CARS + car, CARS)
                self.sent.append(structs.replace(row, source=SourceId(f"device{car}"), seq=device.taken))
                device.send(tm.MOV_AVG, row.key, row.payload)
            time.sleep(0.005)

    def changed(self, *events: TopologyEvent) -> None:
        """While rows flow."""
        for event in events:
            self.up.tell(event)
        self.until(lambda: not self.up.driver.changing)

    def moved(self, keys: KeySet, target: SiteId) -> None:
        """From the cloud, while rows flow."""
        plan = f"to-{target}"
        self.up.submit(Plan(plan, ((Move(tm.MOV_AVG, keys, PlaceId(CLOUD), PlaceId(target)),),)))
        self.until(lambda: self._is_done(plan))

    def _is_done(self, plan: str) -> bool:
        try:
            return self.up.wait(plan, 0.0).outcome is Status.DONE
        except PeregrineError:
            return False

    def until(self, done: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < deadline_s, "it takes too long"
            self.flow(2)
            time.sleep(0.02)

    def proves(self) -> proof.Proof:
        for device in self.devices.values():
            assert device.flush(PATIENCE_S)
        deadline_s = time.monotonic() + PATIENCE_S
        while self.up.results_at_rest() != len(self.sent):
            assert time.monotonic() < deadline_s, f"{self.up.results_at_rest()} of {len(self.sent)}"
            time.sleep(0.1)
        should, states = proof.expected(tm.specs(), tm.operators(road.LIMIT), {tm.MOV_AVG: self.sent})
        return proof.prove(len(self.sent), self.up.result_lines(), should, proof.values(self.up.states()), states)


def runs_at(site: SiteId) -> Callable[[PlaceId], bool]:
    return lambda place: site_of(place) == site


@pytest.mark.parametrize(
    "hosts",
    [
        ONE_SESSION,
        pytest.param(
            PER_SITE,
            marks=pytest.mark.skipif(
                os.environ.get("PEREGRINE_KILLS") != "all", reason="takes minutes: make test-kills"
            ),
        ),
    ],
)
def test_sites_change_parents_join_with_a_host_and_leave_while_spark_applies_rows(
    spark: Any, tmp_path: Path, hosts: str
) -> None:
    specs, operators = tm.specs(), tm.operators(road.LIMIT)
    settings: dict[str, Any] = {"fsync": Fsync.OFF, "keep_journal": True, "dwell_ms": 200, "hosts": hosts}
    with local(TREE, specs, operators, directory=tmp_path / "run", **settings) as up:
        run = Run(up)
        run.drive(range(3), EDGE)
        run.flow()
        at_edge = KeySet.of_keys(tm.GROUPS, [road.vehicle(car, CARS) for car in (0, 1)])
        run.moved(at_edge, EDGE)
        run.changed(SiteMoved(EDGE, REGION1, REGION2, LINK, 1))
        assert up.topology.parent(EDGE) == REGION2

        run.changed(SiteSet(Station(Site(KIOSK)), 1), LinkSet(KIOSK, EDGE, LINK, 1))
        assert up.topology.parent(KIOSK) == EDGE
        run.drive(range(3, CARS), KIOSK)
        run.flow()
        at_kiosk = KeySet.of_keys(tm.GROUPS, [road.vehicle(car, CARS) for car in (3, 4)])
        run.moved(at_kiosk, KIOSK)
        run.flow()
        run.changed(SiteMoved(KIOSK, EDGE, REGION1, LINK, 2))
        assert up.topology.parent(KIOSK) == REGION1
        run.flow()
        states = {key for place, _, _, blob in up.states_by_place() if place == KIOSK for key in canonical(blob)}
        assert states == {road.vehicle(car, CARS) for car in (3, 4)}

        refused = up.change([SiteRemoved(KIOSK, 3)], PATIENCE_S)
        assert [str(each.error).partition(",")[0] for each in refused.put_off] == ["kiosk was removed"]
        up.dismiss(run.devices[CARS - 1].source)
        del run.devices[CARS - 1]
        for car in range(3, CARS - 1):
            run.devices[car].move(REGION2)
        run.until(lambda: not any(map(runs_at(KIOSK), up.driver.ask(questions.instances, tm.MOV_AVG))))
        changed = up.change([SiteRemoved(KIOSK, 4)], PATIENCE_S)
        assert KIOSK not in up.topology, changed
        run.flow()
        found = run.proves()
        assert found.holds, found
        run.until(lambda: KIOSK not in up.routers)
        assert KIOSK not in {place for place, _, _, blob in up.states_by_place() if canonical(blob)}
        assert audit_deployment(up) == []


def test_the_page_about_topology_changes_shows_what_happens(spark: Any) -> None:
    page = PAGE.read_text("utf-8")
    (block,) = (each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "with run(" in each)
    shown = re.search(r"What the first change prints:\n\n```\n(.*?)\n```", page, re.DOTALL)
    scope: dict[str, Any] = {"__name__": "page"}

    def cut(*ends: str) -> None:
        for near, far in (ends, ends[::-1]):
            scope["running"].deployment.clients[near].tell_neighbours({SiteId(far): Neighbour("")})

    def until(true: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < deadline_s, "it takes too long"
            time.sleep(0.05)

    printed: list[tuple[Any, ...]] = []
    scope |= {"cut": cut, "until": until, "print": lambda *what: printed.append(what)}
    exec(compile(block, str(PAGE), "exec"), scope)
    assert shown is not None and printed[0] == (shown.group(1),)
    assert [(each.source, each.target) for each in scope["joined"].redeployed[0].rehomed] == [(None, "edge2")]
    assert [(each.source, each.target) for each in scope["left"].redeployed[0].rehomed] == [("edge2", None)]
    what, error = printed[1]
    assert what == "site train7 is gone" and "train7 was removed" in str(error)
    assert printed[2] == ([1, 2, 3],)
