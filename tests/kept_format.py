"""A deployment on disk as this version writes it: routers, a manager and a device, in one process, by what ships.

`python tests/kept_format.py` writes tests/data/format-<n>: the directories, and the shapes of all that is stored and
sent (tests/stored_shapes.py). What is told in it: keys go live, and come back aborted; a source roams and its key
follows; a site gets another parent; replicas are kept; half of it happens behind the last snapshot.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import stored_shapes
from peregrine.control.durable_manager import DurableManager, Initial
from peregrine.core.attachments import Attachments
from peregrine.core.coordinator import Cancel, Submit, ToRouter
from peregrine.core.format_version import FORMAT
from peregrine.core.host import apply, by_group
from peregrine.core.keyspace import KeySet
from peregrine.core.manager import Manager, ManagerEvent
from peregrine.core.messages import (
    Ahead,
    Attach,
    Attached,
    Committed,
    FromHost,
    FromLink,
    FromSource,
    KeepReplicas,
    Rehomed,
    Report,
    SetOwner,
    Single,
    Stray,
    Tick,
    WarmUp,
)
from peregrine.core.operator import OpSpec
from peregrine.core.placement import Placement
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.redeploying import TopologyChanged
from peregrine.core.rows import UNCHAINED, Clock, Row, Rows, batch_of, length
from peregrine.core.topology import Link, Topology
from peregrine.core.validity import AttachedProducers, Feeds
from peregrine.core.wire import decode_item
from peregrine.net import device, stepper
from peregrine.net.device import Device
from peregrine.net.settings import RouterSettings
from peregrine.net.stepper import Stepper
from peregrine.net.store import Session, Store
from peregrine.plan.redeploy.events import LinkSet, SiteMoved
from peregrine.plan.redeploy.planning import planning_of
from peregrine.sim.operators import Ledger
from peregrine.types import OpId, PlaceId, SiteId, SourceId

DATA = Path(__file__).parent / "data"
CLOUD, EDGE1, EDGE2 = SiteId("cloud"), SiteId("edge1"), SiteId("edge2")
AT_CLOUD, AT_EDGE1 = PlaceId("cloud"), PlaceId("edge1")
COUNT, RESULTS = OpId("app/count"), OpId("app/results")
GROUPS = 4
OPERATORS = (OpSpec(COUNT, GROUPS, feeds=(RESULTS,)), OpSpec(RESULTS, GROUPS, sink=True))
SPECS = {spec.op: spec for spec in OPERATORS}
LAMP, DOOR = KeySet.of_keys(GROUPS, ["lamp"]), KeySet.of_keys(GROUPS, ["door"])
GATE = SourceId("gate")
LINK = Link(10.0, 100.0)
TOPOLOGY = Topology.tree(CLOUD, {EDGE1: (CLOUD, LINK), EDGE2: (CLOUD, LINK)})
INITIAL: Initial = ((COUNT, DOOR, AT_EDGE1),)
LEDGER = Ledger(RESULTS)
ROWS, FIRST_ROWS = 8, (0, 9, 18, 27)  # each followed by a watermark
READINGS = 6  # that the device took


def settings_of(site: SiteId, directory: Path) -> RouterSettings:
    return RouterSettings.of(site, TOPOLOGY, OPERATORS, directory / site, directory / "token", tick_ms=3_600_000)


def make_manager(initial: Initial, feeds: Feeds) -> Manager:
    attachments = Attachments()
    placement = Placement(TOPOLOGY, SPECS, initial)
    planning = planning_of(TOPOLOGY, SPECS, initial, feeds)
    return Manager(placement, SPECS, attachments, AttachedProducers(feeds, attachments), planning=planning)


class Deployment:
    def __init__(self, directory: Path) -> None:
        self.now_ms = 1000
        self.routers: dict[SiteId, Stepper] = {}
        for site in TOPOLOGY.sites:
            settings = settings_of(site, directory)
            self.routers[site] = Stepper(settings, Store(settings), _failed)  # no thread: nothing happens by itself
            self.routers[site].acked = lambda site=site: self._acked[site]  # type: ignore[misc]
        self.manager = DurableManager(directory / "manager", make_manager)
        self._acked: dict[SiteId, dict[Session, int]] = {site: {} for site in self.routers}
        self._hosts: dict[PlaceId, dict[tuple[OpId, int], bytes]] = {}
        self._applied: dict[PlaceId, int] = {}
        self._heard = dict.fromkeys(self.routers, 0)

    def begin(self) -> None:
        for each in self.routers.values():
            for op, keys, place in INITIAL:
                each.offer(SetOwner(op, keys, place))
        self.manager.place(INITIAL)
        self.manager.feed(GATE, ((COUNT, DOOR), (COUNT, LAMP)))

    def rows(self, site: SiteId, first: int) -> None:
        made = [
            Row(key, GATE, seq, UNCHAINED, self.now_ms, self.now_ms, b"%d" % seq)
            for seq, key in zip(range(first, first + ROWS), ("lamp", "door") * (ROWS // 2), strict=True)
        ]
        clock = Clock(COUNT, KeySet.everything(GROUPS), GATE, self.now_ms)
        last = first + ROWS
        self.routers[site].offer(FromSource(GATE, ((last - 1, Rows(COUNT, batch_of(made))), (last, clock))))

    def tell(self, event: ManagerEvent) -> None:
        for effect in self.manager.step(event):
            if isinstance(effect, ToRouter):
                self.routers[effect.site].offer(effect.command)

    def settle(self) -> None:
        """Until nothing moves: hosts apply, links deliver, the manager hears, time goes on."""
        quiet = 0
        while quiet < 3:
            self.now_ms += 100
            moved = [self._apply(site) | self._send(site) | self._hear(site) for site in self.routers]
            quiet = 0 if any(moved) else quiet + 1
            for each in self.routers.values():
                each.offer(Tick(self.now_ms))
            self.tell(Tick(self.now_ms))

    def close(self) -> None:
        for each in self.routers.values():
            each.stop()
            each.store.close()
        self.manager.close()

    def _apply(self, site: SiteId) -> bool:
        moved = False
        for place, log in self.routers[site].store.hosts.items():
            entries = log.read(self._applied.get(place, 0), 1000)
            if not entries:
                continue
            states = self._hosts.setdefault(place, {})
            for (op, group), part in by_group(entries, {COUNT: GROUPS}).items():
                emissions, states[op, group] = apply(LEDGER, states.get((op, group), b""), part)
                if emissions:
                    self.routers[site].offer(FromHost(place, op, group, tuple(emissions)))
            last, entry = entries[-1]
            self._applied[place] = last + length(entry)
            self.routers[site].offer(Ahead(place, self._applied[place]))
            self.routers[site].offer(Committed(place, self._applied[place]))
            moved = True
        return moved

    def _send(self, site: SiteId) -> bool:
        moved = False
        router = self.routers[site]
        router._hand_back()
        for session, out in list(router.store.outs.items()):
            neighbour, number = session
            if session in router.store.ended or (site, number) in self.routers[neighbour].store.ended:
                continue
            known = self._acked[site].get(session, -1)
            for seq, message in out.read(known + 1):
                event = FromLink(site, seq, (decode_item(message),), number)
                self._acked[site][session] = self.routers[neighbour].offer(event)
                moved = True
        return moved

    def _hear(self, site: SiteId) -> bool:
        self._heard[site], news = self.routers[site].news(self._heard[site], 0.0)
        for each in news:
            if isinstance(each, Report | Rehomed | Stray | Attached):
                self.tell(each)
        return any(not isinstance(each, Attached) for each in news)


def write(directory: Path) -> None:
    """It goes on from snapshots: what is told first is in them, the rest in journals."""
    with _own_time():
        run = Deployment(directory)
        run.begin()
        run.routers[EDGE1].offer(Attach(GATE))
        run.settle()
        run.rows(EDGE1, FIRST_ROWS[0])
        run.settle()
        run.tell(Submit(Plan("down", ((Move(COUNT, LAMP, AT_CLOUD, AT_EDGE1),),))))
        run.rows(EDGE1, FIRST_ROWS[1])
        run.settle()
        run.routers[CLOUD].offer(KeepReplicas(COUNT, KeySet.of_keys(GROUPS, ["car"]), AT_CLOUD, AT_EDGE1))
        run.tell(TopologyChanged(SiteMoved(EDGE1, CLOUD, EDGE2, LINK, 1)))
        run.settle()
        for each in run.routers.values():
            each.snapshot()
        run.manager.snapshot()
        run.rows(EDGE1, FIRST_ROWS[2])
        run.tell(TopologyChanged(LinkSet(EDGE2, CLOUD, Link(20.0, 50.0), 1)))
        run.tell(Submit(Plan("up", ((Move(COUNT, LAMP, AT_EDGE1, AT_CLOUD),),), "pause")))
        run.rows(EDGE1, FIRST_ROWS[3])
        run.settle()
        run.tell(Submit(Plan("back", ((Move(COUNT, DOOR, AT_EDGE1, AT_CLOUD),),))))
        run.tell(Cancel("back"))
        run.settle()
        sample = batch_of([Row("lamp", GATE, 1, UNCHAINED, 1, 1, b"sample")])
        run.routers[CLOUD].offer(WarmUp(AT_CLOUD, Rows(COUNT, sample, sample=True)))
        run.manager.dwell(700)
        run.close()
        write_device(directory / "device")


def write_device(directory: Path) -> None:
    """Half of what it took is acknowledged and in a snapshot; then its router is away."""
    taking = SimpleNamespace(offer=_acknowledge)
    with (
        mock.patch.object(device, "SNAPSHOT_BYTES", 1),
        mock.patch.object(Device, "_connected", lambda *_: taking),
        Device(GATE, {}, EDGE1, "token", roaming=True, directory=directory) as one,
    ):
        for seq in range(READINGS // 2):
            one.send(COUNT, "lamp", b"%d" % seq, time_ms=seq)
        assert one.flush(), one.trouble
    with Device(GATE, {}, EDGE1, "token", roaming=True, directory=directory) as one:
        for seq in range(READINGS // 2, READINGS):
            one.send(COUNT, "door", b"%d" % seq, time_ms=seq)
        one.heartbeat(COUNT, GROUPS, READINGS)


def _acknowledge(event: Single) -> int | None:
    return event.items[-1][0] if isinstance(event, FromSource) else None


def _failed(error: BaseException) -> None:
    raise error


@contextmanager
def _own_time() -> Iterator[None]:
    """The same bytes each time, as far as threads allow."""
    real: Any = stepper.time
    count: Callable[[], int] = iter(range(10**15, 2 * 10**15, 10**6)).__next__
    clock = SimpleNamespace(time_ns=count, monotonic=real.monotonic, sleep=real.sleep)
    with mock.patch.object(stepper, "time", clock):
        yield


def main() -> None:
    kept = DATA / f"format-{FORMAT}"
    with tempfile.TemporaryDirectory() as made:
        write(Path(made))
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(made, kept, ignore=shutil.ignore_patterns("lock"))
    (kept / "shapes.txt").write_text(stored_shapes.text())


if __name__ == "__main__":
    main()
