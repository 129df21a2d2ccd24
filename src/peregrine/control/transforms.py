"""The DataFrame operators of a deployment: the queries that serve them at their places (transform_places.py).

A query is started where the operator is, and where it is going to be before it moves there: it then practises on the
last rows that the operator had (Shepherd IV-C), so that it is as fast as the old one when rows come. What has moved
away and has nothing left to do is stopped. All of them are in one session, or each in the application of its site.

A user's plan is submitted when all of that is done. Plans that the manager makes when the tree changes are there before
anybody hears of them: their migrations are not begun until it is. Sites that join get these places, too.
"""

import logging
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from peregrine.control import questions
from peregrine.control.deployment import Deployment
from peregrine.control.hosted import HostedTransform
from peregrine.control.metering import tail_of
from peregrine.control.transform_places import Definitions, PlacesApart, place_of
from peregrine.core.coordinator import plan_of
from peregrine.core.messages import WarmUp
from peregrine.core.migrate import Migration
from peregrine.core.reconfigure import Plan
from peregrine.core.rows import Rows, concat
from peregrine.errors import PeregrineError, PlanError, Unreachable
from peregrine.plan.redeploy.events import SiteSet, TopologyEvent
from peregrine.plan.redeploy.layout import own_host
from peregrine.types import OpId, PlaceId, SiteId, site_of

if TYPE_CHECKING:
    from peregrine.spark.transform import TransformConfig, TransformQuery

Query: TypeAlias = "TransformQuery | HostedTransform"

SESSION_S = 120.0  # the host's query comes back first, with a session
SAMPLE_ROWS = 500  # of a warm-up, in each of its rounds
ROUNDS = 4  # what Java compiles after a few batches is compiled
WARM_S = 30.0  # then it goes on as warm as it is
LEAVE_S = 600.0  # until a plan has ended; a query that is not stopped only waits
log = logging.getLogger(__name__)


class Transforms:
    def __init__(self, deployment: Deployment, transforms: Definitions, warm_up: bool = True) -> None:
        self.queries: dict[PlaceId, Query] = {}
        self._resting: dict[PlaceId, Query] = {}
        self._expecting: set[PlaceId] = set()  # of plans that are about to be submitted
        self._prepared: dict[str, bool] = {}  # plans: has all been done for them, or is it just being done?
        self._warm_up = warm_up
        self._deployment = deployment
        self._transforms = transforms
        self._apart = PlacesApart(transforms)
        self._lock = threading.Lock()  # of the queries: held while one starts
        self._plans_lock = threading.Lock()  # of what is prepared: nobody waits for it
        deployment.before_submit = self.prepare
        deployment.after_submit = self._leave_later
        deployment.driver.complete = self._with_places
        deployment.driver.may_begin = self._may_begin
        deployment.rehousing.before_farewell = self._forget

    def start(self) -> None:
        """Queries for where operators are, and for where they have been or were about to be when this ended before."""
        wanted = self._deployment.driver.ask(questions.places, self._transforms.keys())
        for op in self._transforms:
            for site in self._deployment.topology.sites:
                place = place_of(op, site)
                if place in wanted or self._checkpoint(place).exists():
                    self.deploy(op, place)

    def prepare(self, plan: Plan) -> None:
        """Called before a plan is submitted: raises an error if it moves anything to where it is not served."""
        moves = [move for stage in plan.stages for move in stage]
        for move in moves:
            site = site_of(move.target)
            own = place_of(move.op, site)
            if move.op in self._transforms and move.target != own:
                raise PlanError(f"{move.op} cannot run at {move.target}", f"move it to {own}")
            if move.op not in self._transforms and move.target in self._apart:
                raise PlanError(f"{move.op} cannot run at {move.target}", f"move it to {site}")
        ways = dict.fromkeys((move.op, move.source, move.target) for move in moves if move.op in self._transforms)
        for op, source, target in ways:  # once, however many chunks go that way
            self._expecting.add(target)
            self.deploy(op, target)
            if self._warm_up:
                self.practise(op, source, target)
        if ways:
            with self._plans_lock:
                self._prepared[plan.id] = True

    def _may_begin(self, migration: Migration) -> bool:
        """Of a plan that the manager has made itself nobody was told before: what it needs is started now."""
        if migration.op not in self._transforms:
            return True
        plan = plan_of(migration.id)
        with self._plans_lock:
            if plan in self._prepared:
                return self._prepared[plan]
            self._prepared[plan] = False
        threading.Thread(target=self._prepare_late, args=(plan,), name=f"prepare-{plan}", daemon=True).start()
        return False

    def _prepare_late(self, plan_id: str) -> None:
        """If it fails it is tried again when the migration is to begin once more."""
        driver, prepared = self._deployment.driver, False
        plan = driver.ask(questions.plan, plan_id)
        try:
            if plan is not None:
                self.prepare(plan)
                prepared = True
                self._leave_later(plan)
        except PlanError as error:
            log.error("plan=%r is given up: %s", plan_id, error)
            driver.cancel(plan_id)
        except Exception as error:  # whatever Spark raises, or a router that is away
            log.warning("plan=%r waits: %s", plan_id, error)
        finally:
            if not prepared:
                self._not_expecting(plan)
                with self._plans_lock:
                    self._prepared.pop(plan_id, None)

    def deploy(self, op: OpId, place: PlaceId) -> None:
        """Returns when the query of this place runs."""
        from peregrine.spark.transform import TransformConfig

        with self._lock:
            if place in self.queries:
                return
            if place in self._resting:
                self._resting[place].restart()
                self.queries[place] = self._resting.pop(place)
                return
            node, targets = self._transforms[op]
            config = TransformConfig(
                op,
                node.transform,
                node.inputs[0].schema,
                node.outputs[0].schema,
                targets,
                place,
                self._deployment.clients[site_of(place)],
                self._deployment.directory / "token",
                self._checkpoint(place),
            )
            query = self.queries[place] = self._started(config)
            self._deployment.supervisor.watch_over(query)

    def _started(self, config: "TransformConfig") -> Query:
        """In the session of this process, or in the Spark application of its site."""
        from peregrine.spark.transform import TransformQuery

        hosts, site = self._deployment.hosts, site_of(config.place)
        if not hosts:
            return TransformQuery(self._session, config)
        if site not in hosts:
            raise Unreachable(f"site {site!r} has no Spark application", "wait until it has joined, or name another")
        return HostedTransform(hosts[site], config)

    def practise(self, op: OpId, source: PlaceId, target: PlaceId) -> None:
        """Returns when the query of the target has run on what the source had last, and has kept nothing of it."""
        rows = tail_of(self._deployment.clients[site_of(source)], op, source, SAMPLE_ROWS)
        if not rows:
            return
        sample = Rows(op, concat(each.batch for each in rows))
        router = self._deployment.clients[site_of(target)]
        deadline_s = time.monotonic() + WARM_S
        for _ in range(ROUNDS):
            router.offer(WarmUp(target, sample))
            if not self._has_applied_all(target, deadline_s):
                log.warning("place=%r is not warm after %g s: it goes on as it is", target, WARM_S)
                return

    def _has_applied_all(self, place: PlaceId, deadline_s: float) -> bool:
        while time.monotonic() < deadline_s:
            if (router := self._deployment.clients.get(site_of(place))) is None:
                return False  # its site has left
            status = router.status()
            if status.commits.get(place, 0) >= status.ends.get(place, 0):
                return True
            time.sleep(0.05)
        return False

    def _leave_later(self, plan: Plan) -> None:
        self._not_expecting(plan)
        mine = [move for move in plan.moves() if move.op in self._transforms]
        left = {place for move in mine for place in (move.source, move.target)}  # it may not be carried out to its end
        if left:
            threading.Thread(target=self._leave, args=(plan.id, left), name=f"leave-{plan.id}", daemon=True).start()

    def _leave(self, plan: str, places: set[PlaceId]) -> None:
        """A query that has nothing left and will not get anything is stopped; its checkpoint stays, should it go on."""
        with suppress(PeregrineError):  # whatever is in doubt goes on
            self._deployment.wait(plan, LEAVE_S)
            with self._plans_lock:
                self._prepared.pop(plan, None)
        for place in places - self._deployment.driver.ask(questions.places, self._transforms.keys()):
            with suppress(PeregrineError):
                if self._has_applied_all(place, time.monotonic() + WARM_S):
                    self._rest(place)

    def _not_expecting(self, plan: Plan | None) -> None:
        self._expecting -= {move.target for move in plan.moves()} if plan is not None else set()

    def _rest(self, place: PlaceId) -> None:
        with self._lock:
            wanted = self._deployment.driver.ask(questions.places, self._transforms.keys())
            if place in self.queries and place not in wanted | self._expecting:
                self._resting[place] = self.queries.pop(place)
                self._resting[place].stop()

    # --- sites that come and go ---

    def _with_places(self, event: TopologyEvent) -> TopologyEvent:
        """Who tells that a site joins, or has changed, does not know of these hosts."""
        if not isinstance(event, SiteSet):
            return event
        site = event.station.site
        hosts = site.hosts or ("",)
        more = [host for host in map(own_host, self._transforms) if host not in hosts]
        if not more:
            return event
        return replace(event, station=replace(event.station, site=replace(site, hosts=(*hosts, *more))))

    def _forget(self, site: SiteId) -> None:
        """If it comes back its router has another address."""
        with self._lock:
            for known in (self.queries, self._resting):
                for place in [each for each in known if site_of(each) == site]:
                    known.pop(place).stop()

    def stop(self) -> None:
        for query in [*self.queries.values(), *self._resting.values()]:
            query.stop()

    def _checkpoint(self, place: PlaceId) -> Any:
        return self._deployment.directory / "transforms" / quote(place, safe="")

    def _session(self) -> Any:
        """The session belongs to the host's query: when Spark has died, that one brings it back."""
        deadline_s = time.monotonic() + SESSION_S
        while not _runs(self._deployment.host):
            if time.monotonic() > deadline_s:
                raise Unreachable("there is no Spark session", "see spark.log")
            time.sleep(0.1)
        return self._deployment.spark


def _runs(host: Any) -> bool:
    try:
        return host.failure() is None
    except Exception:  # whatever a call into a process raises that has died
        return False
