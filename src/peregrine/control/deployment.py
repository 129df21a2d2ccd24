"""What runs: the handle that `local` gives, with which a user sends rows, submits plans and reads results."""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa

from peregrine.config import check_runner
from peregrine.control import questions
from peregrine.control.changing import Changed, check_hosts
from peregrine.control.driver import ManagerDriver
from peregrine.control.hosts import HostProcess
from peregrine.control.monitor import Monitor
from peregrine.control.rehousing import Rehousing
from peregrine.control.routers import SupervisedRouter
from peregrine.control.supervisor import Supervisor
from peregrine.core.coordinator import PlanEnded
from peregrine.core.keyspace import KeySet
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.operator import OpSpec
from peregrine.core.reconfigure import Plan
from peregrine.core.state import whole
from peregrine.core.topology import Topology
from peregrine.errors import ConfigurationError, PeregrineError, TransportError, UnknownName, Unreachable
from peregrine.net.chunk_files import ChunkFiles
from peregrine.net.client import RouterClient
from peregrine.net.device import Device
from peregrine.net.launch import RouterProcess
from peregrine.net.protocol import CHUNKS, Status
from peregrine.net.settings import RouterSettings
from peregrine.net.uplink import Uplinks
from peregrine.plan.redeploy.delta import RunningFragment
from peregrine.plan.redeploy.detector import Patience
from peregrine.plan.redeploy.events import TopologyEvent
from peregrine.proof import Lines
from peregrine.types import OpId, PlaceId, Runner, SiteId, SourceId, site_of

if TYPE_CHECKING:
    from peregrine.spark.listener import Progress
    from peregrine.spark.served import Served


class Deployment:
    def __init__(
        self, topology: Topology, specs: Mapping[OpId, OpSpec], directory: Path, token: str, kept: bool
    ) -> None:
        """`kept`: the directory outlives the deployment, so that it can be gone on with."""
        self.began_with = topology
        self.current: Callable[[], Topology] = lambda: topology
        self.specs = specs
        self.directory = directory
        self.kept = kept
        self.supervised_routers: dict[SiteId, SupervisedRouter] = {}
        self.retired: list[RouterSettings] = []  # of routers whose sites have left
        self.clients: dict[SiteId, RouterClient] = {}
        self.addresses: dict[SiteId, str] = {}
        self.devices: dict[SourceId, Device] = {}
        self.supervisor: Supervisor
        self.driver: ManagerDriver
        self.rehousing: Rehousing
        self.spark: Any  # a SparkSession: only spark/ knows its type
        self.host: Any  # the query in it that serves all places
        self.hosts: dict[SiteId, HostProcess] = {}  # with hosts="per-site"; then there is no session here
        self.apart: Container[PlaceId] = frozenset()  # places that somebody else serves
        self.runner: Runner = "microbatch"  # how hosts run, but for the sites that have one of their own
        self.runners: dict[SiteId, Runner] = {}
        self.trigger_ms = 0  # between the beginnings of two batches; 0: as soon as they can
        self.serve: Callable[[Collection[SiteId]], None] | None = None  # sites may come and go; None: not with hosts
        self.uplinks = Uplinks()
        self.before_submit: Callable[[Plan], None] = lambda plan: None
        self.after_submit: Callable[[Plan], None] = lambda plan: None
        self._token = token

    @property
    def topology(self) -> Topology:
        """As it is now: sites change their parents, join and leave."""
        return self.current()

    def served(self, sites: Iterable[SiteId]) -> "dict[PlaceId, Served]":
        """The places of these sites that Spark serves, as their host is to see them."""
        from peregrine.spark.served import Served

        return {
            place: Served(self.addresses[site], str(self.chunks(place)), self.runners.get(site, self.runner))
            for site in sorted(sites)
            for place in self.supervised_routers[site].process.settings.places()
            if place not in self.apart
        }

    @property
    def routers(self) -> dict[SiteId, RouterProcess]:
        """The processes that there are now: one that died is replaced."""
        return {site: router.process for site, router in self.supervised_routers.items()}

    def run_as(self, site: str, runner: Runner) -> None:
        """Change how the host of a site runs, while it runs: from the next batch on."""
        check_runner(runner)
        if SiteId(site) not in self.topology:
            raise UnknownName("site", site, list(self.topology.sites))
        if self.serve is None:
            raise ConfigurationError("hosts of this deployment cannot change their runner", "let one session serve all")
        self.runners[SiteId(site)] = runner
        self.serve(self.supervised_routers)
        if runner == "microbatch":
            for place in self.topology.places(SiteId(site)):
                self.clients[SiteId(site)].release(place)

    def has_host(self, site: SiteId) -> bool:
        return self.serve is not None or site in self.hosts

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    def device(
        self,
        name: str,
        site: str,
        roaming: bool = False,
        feeds: tuple[OpId, KeySet] | None = None,
        durable: bool | None = None,
    ) -> Device:
        """A device at a site. `feeds` says for which operator and keys it produces: plans are checked against it.

        A durable one has its rows on the disk and goes on where it was; as a rule it is, if the deployment is kept:
        one that began to count anew would not be believed.
        """
        if SiteId(site) not in self.topology:
            raise UnknownName("site", site, list(self.topology.sites))
        source = SourceId(name)
        if feeds is not None:
            self.driver.feed(source, (feeds,))
        journal = (
            self.directory / "devices" / quote(name, safe="") if durable or (durable is None and self.kept) else None
        )
        self.devices[source] = Device(
            source,
            self.addresses,
            SiteId(site),
            self._token,
            roaming=roaming,
            directory=journal,
            uplinks=self.uplinks,
            nth=self.driver.ask(questions.next_nth, source),
        )
        return self.devices[source]

    def dismiss(self, name: str, timeout_s: float = 30.0) -> None:
        """A device sends nothing more, so that its site may leave. What it was given is sent first."""
        device = self.devices.get(SourceId(name))
        if device is None:
            raise UnknownName("device", name, list(self.devices))
        nth = device.dismiss(timeout_s)
        del self.devices[device.source]
        if not self.driver.wait_gone(device.source, nth, timeout_s):
            raise Unreachable(f"the manager has not heard that device {name} is gone", "see that its router runs")

    def submit(self, plan: Plan) -> None:
        """Returns when the plan is on the disk: it is carried out also if this process dies and comes back."""
        self.before_submit(plan)
        self.driver.submit(plan)
        if MECHANISMS[plan.mechanism].alone:
            self._stop_hosts(plan)
        self.after_submit(plan)

    def _stop_hosts(self, plan: Plan) -> None:
        """Of a plan that restarts them: who supervises the hosts starts them again."""
        why = f"plan {plan.id!r} restarts it"
        if not self.hosts:
            self.supervisor.expect(self.host.name, why)
            self.host.query.stop()
        for site in {site_of(place) for move in plan.moves() for place in (move.source, move.target)} & set(self.hosts):
            self.supervisor.expect(self.hosts[site].name, why)
            self.hosts[site].kill()

    def knows(self, plan_id: str) -> bool:
        """Was this plan submitted, also before a restart?"""
        return self.driver.ask(questions.knows, plan_id)

    def wait(self, plan_id: str, timeout_s: float = 60.0) -> PlanEnded:
        try:
            return self.driver.wait(plan_id, timeout_s)
        except PeregrineError as error:
            if self.supervisor.given_up:
                raise PeregrineError(error.what, f"see what was given up: {self.supervisor.given_up}") from error
            raise

    def change(self, events: Iterable[TopologyEvent], timeout_s: float = 60.0) -> Changed:
        """Sites and links have changed: waits until the deployment has followed, or has put it off."""
        wanted = tuple(events)
        for event in wanted:
            self._check(event)
        return self.driver.change(wanted, timeout_s)

    def tell(self, event: TopologyEvent) -> None:
        """As `change`, without waiting: it is on the disk, and is carried out also if this process dies."""
        self._check(event)
        self.driver.tell(event)

    def _check(self, event: TopologyEvent) -> None:
        self.rehousing.check(event)
        check_hosts(self.topology, self.driver.complete(event))

    def monitor(self, patience: Patience | None = None) -> Monitor:
        """Watches the links that there are by plan, and tells those that are lost and those that are back."""
        return self.rehousing.monitor(self._token, patience)

    def fragments(self) -> tuple[RunningFragment, ...]:
        """What each application has at each site now; while a topology change is under way, as it will be."""
        return self.driver.ask(questions.fragments)

    def results(self, after: int = 0) -> tuple[pa.Table, int]:
        """Results from a position on, and the position to read on from."""
        return self.clients[self.topology.root].read_results(after)

    def all_results(self) -> Iterator[pa.Table]:
        """All that there are now, a stretch at a time."""
        position = 0
        while True:
            table, after = self.results(position)
            if after == position:
                return
            position = after
            yield table

    def result_lines(self) -> Lines:
        lines: Lines = {}
        for table in self.all_results():
            columns = [table.column(name).to_pylist() for name in ("op", "key", "source", "seq", "payload")]
            for op, key, source, seq, payload in zip(*columns, strict=True):
                lines.setdefault((op, key, source), []).append((seq, payload))
        return lines

    def states(self) -> list[tuple[OpId, bytes]]:
        """The committed state of every group at every place, with what is in chunks."""
        return [(op, blob) for _, op, _, blob in self.states_by_place()]

    def states_by_place(self) -> list[tuple[PlaceId, OpId, int, bytes]]:
        """As `states`, with the place and the number of each group."""
        return [(place, op, group, self.whole(place, blob)) for place, op, group, blob in self.blobs()]

    def whole(self, place: PlaceId, blob: bytes) -> bytes:
        """The state of a group with what its place has in chunks."""
        return whole(blob, ChunkFiles(self.chunks(place)))

    def blobs(self) -> list[tuple[PlaceId, OpId, int, bytes]]:
        """As `states_by_place`, but of what is in chunks only the names."""
        if self.hosts:
            found = sorted(each for host in self.hosts.values() for each in host.states())
        else:
            from peregrine.spark.host import states

            found = sorted((*at, blob) for at, blob in states(self.spark, self.checkpoint).items())
        return [(PlaceId(place), OpId(op), group, blob) for place, op, group, blob in found]

    def chunks(self, place: PlaceId) -> Path:
        """The chunk store of a place's site."""
        return self.directory / site_of(place) / CHUNKS

    def progress(self) -> "list[Progress]":
        """How the queries of the hosts get on."""
        if self.hosts:
            return [host.progress() for host in self.hosts.values()]
        found: Progress = self.host.progress()
        return [found]

    def log_ends(self) -> dict[str, int]:
        """How far the logs of all hosts are."""
        statuses = self._statuses()
        return {place: end for each in statuses for place, end in each.ends.items()}

    def has_applied(self, ends: Mapping[str, int]) -> bool:
        """Have hosts committed what was in their logs up to there?"""
        statuses = self._statuses()
        commits = {place: offset for each in statuses for place, offset in each.commits.items()}
        return all(commits.get(place, 0) >= end for place, end in ends.items())

    def results_at_rest(self) -> int | None:
        """How many results there are, if hosts have committed all that they were given and no migration runs."""
        statuses = self._statuses()
        if any(status.ends != status.commits or status.leftovers for status in statuses):
            return None
        return sum(status.results_end for status in statuses)

    def _statuses(self) -> list[Status]:
        """Of all routers. One that leaves meanwhile is none of them."""
        found = []
        for site, client in list(self.clients.items()):
            try:
                found.append(client.status())
            except TransportError:
                if site in self.clients:
                    raise
        return found

    def close_devices(self) -> None:
        for device in self.devices.values():
            device.close()
        self.uplinks.close()
