"""Directories as a version wrote them (tests/kept_format.py): this one opens them, and finds what was promised."""

import shutil
from pathlib import Path

import pytest

import kept_format as kept
from kept_format import CLOUD, COUNT, DATA, EDGE1, EDGE2, GATE, READINGS
from peregrine.control.durable_manager import DurableManager
from peregrine.core.coordinator import Status, Submit
from peregrine.core.format_version import FORMAT
from peregrine.core.messages import Tick
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.redeploying import TopologyChanged
from peregrine.core.rows import UNCHAINED, Row
from peregrine.errors import PlanError, StorageError
from peregrine.net import snapshots
from peregrine.net.device import Device
from peregrine.net.directory_format import FILE, MIGRATIONS, check_format
from peregrine.net.protocol import results_of
from peregrine.net.stepper import Stepper
from peregrine.net.store import Store
from peregrine.plan.redeploy.events import SiteMoved

KEPT = {int(path.name.removeprefix("format-")): path for path in sorted(DATA.glob("format-*"))}
OPENED = [path for of, path in KEPT.items() if all(step in MIGRATIONS for step in range(of, FORMAT))]


@pytest.fixture(params=OPENED, ids=lambda path: path.name)
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(request.param, tmp_path / "deployment"))


def test_there_are_directories_of_this_version() -> None:
    assert FORMAT in KEPT, "run tests/kept_format.py"


def test_versions_that_are_not_opened_are_refused() -> None:
    for path in set(KEPT.values()) - set(OPENED):
        for owner in ("cloud", "manager", "device"):
            with pytest.raises(StorageError, match="this version reads format"):
                check_format(path / owner, (path / owner / FILE).read_text().split()[0])


def test_routers_go_on_from_what_is_kept(directory: Path) -> None:
    routers = {}
    for site in kept.TOPOLOGY.sites:
        settings = kept.settings_of(site, directory)
        routers[site] = router = Stepper(settings, Store(settings), lambda error: None)
        router.machine.check()
        assert router.machine.leftovers() == []
        snapshots.check_shape(directory / site, router.machine, type(router.machine)(settings.router_config()))
        router.snapshot()
    cloud, edge1, edge2 = (routers[site] for site in (CLOUD, EDGE1, EDGE2))
    assert (cloud.machine.parent, edge1.machine.parent, edge2.machine.parent) == (None, EDGE2, CLOUD)
    assert edge1.machine.acked_source(GATE) == 35
    assert edge1.machine.commits == edge1.machine.ends == {"edge1": 33}
    assert edge1.machine.acked_link(EDGE2, 1) == edge2.store.outs[EDGE1, 1].end - 1
    results: dict[str, list[bytes]] = {}
    for row in results_of(cloud.store.results.read(0)).to_pylist():
        results.setdefault(row["key"], []).append(row["payload"])
    assert results == expected()
    for router in routers.values():
        router.stop()
        router.store.close()


def test_a_manager_goes_on_from_what_is_kept(directory: Path) -> None:
    manager = DurableManager(directory / "manager", kept.make_manager)
    placement = manager.machine.coordinator.placement
    assert (placement.owner(COUNT, "lamp"), placement.owner(COUNT, "door")) == ("cloud", "edge1")
    assert placement.topology.parent(EDGE1) == EDGE2
    outcomes = {plan: each.outcome for plan, each in manager._books.ended.items()}
    assert outcomes == {"down": Status.DONE, "up": Status.DONE, "back": Status.ABORTED}
    assert manager.machine.mobility.dwell_ms == 700
    assert manager.machine.attachments.at(GATE) == EDGE1
    with pytest.raises(PlanError, match="already a plan 'up'"):
        manager.step(Submit(Plan("up", ((Move(COUNT, kept.LAMP, kept.AT_CLOUD, kept.AT_EDGE1),),))))
    manager.step(TopologyChanged(SiteMoved(EDGE1, EDGE2, CLOUD, kept.LINK, 2)))
    assert manager.step(Tick(10**9)), "it commands nothing"
    manager.snapshot()
    manager.close()


def test_a_device_goes_on_from_what_is_kept(directory: Path) -> None:
    with Device(GATE, {}, EDGE1, "token", roaming=True, directory=directory / "device") as device:
        assert device.taken == READINGS + 1  # and a heartbeat
        assert device.backlog_rows == READINGS // 2 + 1
        assert device.site == EDGE1


def expected() -> dict[str, list[bytes]]:
    """What the ledger tells of the rows that were sent, for each key in their order."""
    found: dict[str, list[bytes]] = {}
    for key, first in (("lamp", 0), ("door", 1)):
        value = None
        for begin in kept.FIRST_ROWS:
            for seq in range(begin + first, begin + kept.ROWS, 2):
                row = Row(key, GATE, seq, UNCHAINED, 0, 0, b"%d" % seq)
                value, outs = kept.LEDGER.on_row(key, value, row, {})
                for out in outs:
                    found.setdefault(out.key, []).append(out.payload)
    return found
