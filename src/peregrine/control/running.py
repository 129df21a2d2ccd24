"""Applications that run: what `peregrine.run` gives.

    with run(app, topology=topology) as running:
        gate = running.device("gate1", "edge1")
        gate.send("speeds", vehicle="car1", speed=88.0)
        running.move("average", to="edge1", keys=["car1"])
        running.results("alerts").show()

It is a deployment (control/local.py) of what the applications compile to, with their names, schemas and keys.
"""

import functools
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from peregrine.app.model import App
from peregrine.config import Config, MigrationSettings, load
from peregrine.control import questions
from peregrine.control.beginning import initial_of, options_of, topology_of
from peregrine.control.changing import Changed
from peregrine.control.deployment import Deployment
from peregrine.control.guiding import guiding
from peregrine.control.local import local
from peregrine.control.monitor import Monitor
from peregrine.control.naming import At as At
from peregrine.control.naming import Names, Wanted, listed
from peregrine.control.planning import Planner, Preview
from peregrine.control.sender import Beats, Sender
from peregrine.control.sharing import names_of, note
from peregrine.control.transform_places import PlacesApart, check, place_of, with_places
from peregrine.control.transforms import Transforms
from peregrine.core import state
from peregrine.core.coordinator import PlanEnded
from peregrine.core.keyspace import KeySet, group_of, stable_hash
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.messages import REFRESH_MS
from peregrine.core.placement import Initial
from peregrine.core.reconfigure import Move, Plan, Stage, even_chunks, in_chunks
from peregrine.core.topology import Topology
from peregrine.errors import PlanError, Unreachable
from peregrine.net.follower import Follower
from peregrine.plan.metrics import Unit
from peregrine.plan.nearest import Position
from peregrine.plan.redeploy.delta import RunningFragment
from peregrine.plan.redeploy.detector import Patience
from peregrine.plan.redeploy.events import TopologyEvent
from peregrine.plan.strategy import Strategy
from peregrine.types import OpId, PlaceId, SiteId, SourceId

PATIENCE_S = 120.0


@contextmanager
def run(
    *apps: App,
    topology: Topology | None = None,
    config: str | Path | Config | None = None,
    at: At | None = None,
    warm_up: bool = True,
    share: bool = True,
    **options: Any,
) -> "Iterator[Running]":
    """Routers, Spark and a manager for these applications; all of it ends with the block.

    Without a topology, or a `config` (a file, see peregrine.config) that has one, there is one site, `cloud`. `at` says
    which keys of an operator begin elsewhere than at the root: `{"average": {"edge1": ["car1"], "edge2": None}}`, where
    None is all keys that nobody else has. Before a DataFrame operator moves, its new query practises on the last rows,
    unless `warm_up` is false. Operators of several applications that are equal run once, unless `share` is false.
    Further options are those of `peregrine.control.local.local`: `directory` to keep everything and go on from it,
    `hosts="per-site"`, ...
    """
    at = listed(at)
    names = names_of(apps, at, share, options.get("directory"))
    transforms = names.transforms
    check(transforms, options.get("hosts"))
    settings = load(config, MECHANISMS) if isinstance(config, str | Path) else config
    if settings is not None:
        topology = topology_of(settings, topology)
        options = {**options_of(settings), **options}
    topology = with_places(topology or Topology.tree(SiteId("cloud")), transforms)
    initial = initial_of(names, at, topology)
    note(names.twins, options.get("directory"))
    apart = PlacesApart(transforms)
    with local(topology, names.specs, names.operators, initial=initial, apart=apart, **options) as deployment:
        running = Running(names, deployment, initial, settings.migration if settings is not None else None)
        running.transforms = Transforms(deployment, transforms, warm_up)
        try:
            running.transforms.start()
            yield running
        finally:
            if "planner" in vars(running):
                running.planner.close()
            running.beats.stop()
            running.transforms.stop()


class Running:
    """Handles of running applications: senders, moves, results and state, by the names that the user has given."""

    def __init__(
        self, names: Names, deployment: Deployment, initial: Initial, usual: MigrationSettings | None = None
    ) -> None:
        """`usual`: how keys move if nobody says otherwise."""
        self.deployment = deployment
        self._usual = usual or MigrationSettings()
        self.initial = initial  # where keys were at first
        self.senders: dict[str, Sender] = {}
        self.beats = Beats()
        self.transforms: Transforms
        self._names = names
        self._plans = itertools.count(1)

    def device(self, name: str, site: str, feeds: Mapping[str, Wanted] | None = None) -> Sender:
        """A device at a site. `send` says to which source a record belongs.

        `feeds` says for which keys of which operators it sends: these stay above it when the topology changes, and
        plans are checked against it. Without it, keys stay where they are, and its records find them.
        """
        if feeds is not None:
            fed = [(self._names.operator(operator), keys) for operator, keys in feeds.items()]
            self.deployment.driver.feed(SourceId(name), tuple((op, self._names.keys(op, keys)) for op, keys in fed))
        sources = self._names.sources()
        known = [ingress for found in sources.values() for ingress in found]
        roaming = any(each.roaming for each in known if each.senders is None or name in each.senders)
        made = self.senders[name] = Sender(name, self.deployment.device(name, site, roaming=roaming), sources)
        self.beats.add(made)
        if feeds is not None:
            self.deployment.driver.wait_attached(SourceId(name), SiteId(site), PATIENCE_S)
        return made

    def change(self, events: Iterable[TopologyEvent], timeout_s: float = PATIENCE_S) -> Changed:
        """Sites and links have changed: returns when applications have followed, or with why they cannot yet."""
        return self.deployment.change(events, timeout_s)

    def monitor(self, patience: Patience | None = None) -> Monitor:
        """For a `with` block: links that are lost, and links that are back, are changes that nobody has to tell."""
        return self.deployment.monitor(patience)

    def fragments(self) -> tuple[RunningFragment, ...]:
        """What each application has at each site now, with its version: how often changes have touched it."""
        return self.deployment.fragments()

    def guide(self, positions: Mapping[str, Position], **options: Any) -> AbstractContextManager[Follower]:
        """For a `with` block: devices that follow it go to the nearest of these sites (options: control/guiding.py)."""
        return guiding(self.deployment, positions, **options)

    def move(
        self, operator: str, to: str, keys: Wanted = None, mechanism: str | None = None, timeout_s: float = PATIENCE_S
    ) -> PlanEnded:
        """Keys of an operator to a site (None: all), from wherever they are. Returns when they are there.

        Without a `mechanism` it is what the configuration says, else `live`, and `drain` for DataFrame operators.
        """
        return self.deployment.wait(self.start_move(operator, to, keys, mechanism), timeout_s)

    def start_move(self, operator: str, to: str, keys: Wanted = None, mechanism: str | None = None) -> str:
        """As `move`, without waiting: the plan's name, for `deployment.wait`."""
        moves, usual = self._moves(operator, to, keys)
        stages: tuple[Stage, ...] = (moves,)
        if self._usual.chunks > 1:
            wanted = functools.reduce(KeySet.__or__, (each.keys for each in moves))
            stages = in_chunks(stages, even_chunks(wanted, self._usual.chunks))
        plan = Plan(
            f"move-{next(self._plans)}-{time.time_ns()}",
            stages,
            mechanism or usual,
            caught_up_lag_rows=self._usual.caught_up_lag_rows,
        )
        self.deployment.submit(plan)
        return plan.id

    def plan(
        self,
        operator: str,
        to: str,
        keys: Wanted = None,
        strategy: str | Strategy = "adaptive",
        mechanism: str | None = None,
    ) -> Preview:
        """As `move`, but planned, and only shown: `describe()` says what would happen, `run()` does it."""
        moves, usual = self._moves(operator, to, keys)
        return self.planner.plan(moves, strategy, mechanism or usual)

    def replicate(
        self, operator: str, strategy: str | Strategy = "consistent-hashing", every_ms: int = REFRESH_MS
    ) -> Mapping[Unit, Sequence[PlaceId]]:
        """From now on, replicas of an operator's keys at other places, as the strategy says: what moves there by the
        mechanism `replica` travels only as far as it has changed. A key that moves has used up its replicas.
        """
        op = self._names.operator(operator)
        if op in self._names.transforms or self.deployment.specs[op].stateless:
            raise PlanError(f"{operator} has no state of which there could be replicas", "name an operator with keys")
        return self.planner.replicate(op, strategy, every_ms)

    def stop_replicas(self, operator: str) -> None:
        """What `replicate` began ends: the replicas are given up."""
        self.planner.stop_replicas(self._names.operator(operator))

    @functools.cached_property
    def planner(self) -> Planner:
        return Planner(self.deployment)

    def _moves(self, operator: str, to: str, keys: Wanted) -> tuple[tuple[Move, ...], str]:
        """What has to move, and the mechanism that is used if nobody names one."""
        op = self._names.operator(operator)
        apart = op in self._names.transforms
        target = self.deployment.topology.place(place_of(op, to) if apart else to)
        wanted = self._names.keys(op, keys)
        moves = tuple(
            Move(op, there, place, target)
            for place, there in sorted(self.deployment.driver.ask(questions.where, op, wanted))
            if place != target
        )
        if not moves:
            raise PlanError(f"all of these keys of {operator} are at {to} already", "name another site, or other keys")
        return moves, "drain" if apart else self._usual.mechanism

    def results(self, name: str, stream: bool = False) -> Any:
        """A result as a DataFrame: of what there is now, or, with `stream`, of all that comes."""
        op, schema = self._names.result(name)
        return self._read(op, schema.ddl, stream)

    def records(self, name: str) -> list[Any]:
        """All records of a result so far, without Spark."""
        op, schema = self._names.result(name)
        found: list[Any] = []
        for table in self.deployment.all_results():
            ops, payloads = (table.column(column).to_pylist() for column in ("op", "payload"))
            found += [schema.decode(payload) for each, payload in zip(ops, payloads, strict=True) if each == op]
        return found

    def state(self, operator: str, key: Any) -> Any:
        """What an operator has stored for a key, as its last committed batch left it; None if nothing."""
        op = self._names.operator(operator)
        text = self._names.key(op, key)
        group = group_of(stable_hash(text), self.deployment.specs[op].groups)
        place = self.deployment.driver.ask(questions.owner, op, text)
        for at, of, number, blob in self.deployment.blobs():
            if (at, of, number) == (place, op, group):
                found = state.decode(self.deployment.whole(at, blob)).get(text)
                return None if found is None or found.value is None else found.value[1]
        return None

    def state_frame(self, operator: str) -> Any:
        """The state of all keys of an operator as a DataFrame: place, key (as routers know it), state (JSON)."""
        op = self._names.operator(operator)
        rows = [
            (place, key, msgspec.json.encode(ks.value[1]).decode())
            for place, of, _, blob in self.deployment.states_by_place()
            if of == op
            for key, ks in state.decode(blob).items()
            if ks.value is not None
        ]
        return self.deployment.spark.createDataFrame(rows, "place string, key string, state string")

    def describe(self) -> str:
        """The physical plan: which keys of which operator are where, for people."""
        lines = []
        for op, instances in sorted(self.deployment.driver.ask(questions.all_instances).items()):
            apps = self._names.apps_of(op)
            shared = f"  runs for {', '.join(apps)}" if len(apps) > 1 else ""
            for place, keys in sorted(instances.items()):
                lines.append(f"  {op:<24} {place:<12} {keys.describe()}{shared}")
        return "\n".join([", ".join(self._names.apps), *lines])

    def finish(self, patience_s: float = PATIENCE_S) -> None:
        """No sender has anything more: returns when everything is through, results included."""
        for sender in self.senders.values():
            sender.finish()
        for sender in self.senders.values():
            sender.flush(patience_s)
        self.settle(patience_s)

    def settle(self, patience_s: float = PATIENCE_S) -> None:
        """Returns when all that was sent so far has been applied and nothing moves any more."""
        deadline_s = time.monotonic() + patience_s
        calm = 0
        while calm < 3:  # in a row: a row that is on a link is in nobody's log
            at_rest = self.deployment.driver.idle and self.deployment.results_at_rest() is not None
            calm = calm + 1 if at_rest else 0
            if time.monotonic() > deadline_s:
                statuses = {site: client.status() for site, client in self.deployment.clients.items()}
                raise Unreachable(f"after {patience_s:g} s rows are still on their way: {statuses}", "see spark.log")
            time.sleep(0.1)

    def _read(self, op: OpId, ddl: str, stream: bool) -> Any:
        from peregrine.spark.format import register

        spark = self.deployment.spark
        register(spark)
        reader = spark.readStream if stream else spark.read
        root = self.deployment.addresses[self.deployment.topology.root]
        options = {"address": root, "token_file": str(self.deployment.directory / "token"), "op": op}
        return reader.format("peregrine").schema(ddl).options(**options).load()
