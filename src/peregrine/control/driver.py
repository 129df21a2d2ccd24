"""Runs the manager: hears the routers, steps the machine, sends its commands.

Commands may be lost with a router that is down: the machine sends them again until they are answered. News may be lost
with this process: the machine asks again. What it was told and has decided is on its disk (durable_manager.py).

No row passes here. But the manager lives in the process that has called `run` or `local`, and routers and Spark end
with that process: a manager that is down while rows flow exists in the simulator, and not yet here.

The machine is in one hand at a time, the one that has the lock: while it checks a plan it imagines it carried out. So
nobody else has it; who wants to know something of it asks (`ask`).
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from types import TracebackType
from typing import Concatenate, ParamSpec, TypeVar

from peregrine.control import questions
from peregrine.control.changing import Changed
from peregrine.control.durable_manager import DurableManager
from peregrine.control.supervisor import Incident
from peregrine.core.coordinator import Cancel, PlanEnded, Submit, ToRouter
from peregrine.core.manager import Manager, ManagerEvent
from peregrine.core.messages import Attached, Begin, Reached, Rehome, Rehomed, Report, Stray, Tick
from peregrine.core.migrate import Migration
from peregrine.core.reconfigure import Plan
from peregrine.core.redeploying import Introduction, PutOff, Redeployed, TopologyChanged
from peregrine.core.rehoming import Rehoming
from peregrine.core.validity import FedKeys
from peregrine.errors import PeregrineError, StorageError, Unreachable
from peregrine.net.client import RouterClient
from peregrine.plan.redeploy.events import TopologyEvent
from peregrine.types import SiteId, SourceId

TICK_S = 0.2
SENDERS = 8  # routers that are told something at the same time

News = Report | Rehomed | Reached | Stray | Attached | Incident | PutOff | Redeployed
Told = News | PlanEnded
T = TypeVar("T")
P = ParamSpec("P")
log = logging.getLogger(__name__)


def carefully(watch: Callable[[T], None]) -> Callable[[T], None]:
    """An observer that raises must not make the manager deaf."""

    def watched(news: T) -> None:
        try:
            watch(news)
        except Exception:
            log.exception("watch raised on %r", news)

    return watched


class ManagerDriver:
    def __init__(
        self,
        durable: DurableManager,
        clients: Mapping[SiteId, RouterClient],
        watch: Callable[[Told], None] = lambda news: None,
        introduce: Callable[[Rehoming], None] = lambda rehoming: None,
    ) -> None:
        """`introduce` sees to it, before a site is told to change its parent, that its router runs, and that it and
        the parent to be know where the other listens. It is called again with every repetition of the command.
        """
        self._introduce = introduce
        # Who has something to do for topology changes that the manager knows nothing of says so here:
        self.complete: Callable[[TopologyEvent], TopologyEvent] = lambda event: event  # before an event is taken
        self.may_begin: Callable[[Migration], bool] = lambda migration: True  # asked again with every repetition
        self._heard: dict[int, list[PutOff | Redeployed]] = {}  # by each who waits for changes, under its id
        self._durable = durable
        self._clients = clients
        self._watch = carefully(watch)
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._senders = ThreadPoolExecutor(SENDERS, thread_name_prefix="manager-send")
        self._told_by_tick: dict[SiteId, Future[None]] = {}
        self._ticking = threading.Thread(target=self._tick, name="manager-tick", daemon=True)
        self._listening: dict[SiteId, threading.Thread] = {}

    def __enter__(self) -> "ManagerDriver":
        self._listen_to_all()
        self._ticking.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Those who wait for news are not waited for: what they hear then is not taken."""
        with self._changed:
            self._stop.set()
        self._ticking.join(timeout=5)
        self._senders.shutdown(wait=False, cancel_futures=True)

    def ask(self, question: Callable[Concatenate[Manager, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What a question finds between two events (control/questions.py says which are asked, and what may be)."""
        with self._changed:
            return question(self._durable.machine, *args, **kwargs)

    def submit(self, plan: Plan) -> None:
        """Returns when the plan is durable: it is carried out whatever dies. Raises a PlanError, and changes nothing,
        if it cannot be."""
        self._step(Submit(plan))

    def cancel(self, plan_id: str) -> None:
        self._step(Cancel(plan_id))

    def feed(self, source: SourceId, feeds: FedKeys) -> None:
        """A source produces for these keys: plans that come are checked against it."""
        with self._changed:
            self._durable.feed(source, feeds)

    def wait_gone(self, source: SourceId, nth: int, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.ask(questions.next_nth, source) > nth, timeout_s)

    def wait_attached(self, source: SourceId, site: SiteId, timeout_s: float) -> None:
        """Until a change of the topology would take a source along: before, nobody knows that it is there."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.ask(questions.attached, source) == site, timeout_s):
                raise Unreachable(
                    f"the manager has not heard of device {source}", f"see that the router of {site} runs"
                )

    def wait(self, plan_id: str, timeout_s: float = 60.0) -> PlanEnded:
        with self._changed:
            self._changed.wait_for(lambda: self._durable.ended(plan_id) is not None, timeout_s)
            ended = self._durable.ended(plan_id)
        if ended is None:
            raise PeregrineError(
                f"plan {plan_id!r} has not ended after {timeout_s:g} s",
                "look at `status` of the routers it touches",
            )
        return ended

    def tell(self, event: TopologyEvent) -> None:
        """Something about the topology. Returns when it is durable: what follows from it follows whatever dies."""
        self._step(TopologyChanged(self.complete(event)))

    def change(self, events: Iterable[TopologyEvent], timeout_s: float = 60.0) -> Changed:
        """As `tell`, and waits until everything that was told has been carried out or put off."""
        heard: list[PutOff | Redeployed] = []
        with self._changed:
            self._heard[id(heard)] = heard
        try:
            for event in events:
                self.tell(event)
            self.wait_changed(timeout_s)
        finally:
            with self._changed:
                del self._heard[id(heard)]
        redeployed = tuple(each for each in heard if isinstance(each, Redeployed))
        return Changed(redeployed, tuple(each for each in heard if isinstance(each, PutOff)))

    def introductions(self, rehoming: Rehoming) -> list[Introduction]:
        """For a site that changes its parent; `Unreachable` if it has, and the link may be gone."""
        return self.ask(questions.introductions, rehoming)

    @property
    def idle(self) -> bool:
        """Nothing runs and no key is on a trip."""
        return self.ask(questions.idle)

    @property
    def changing(self) -> bool:
        """Is a topology change under way?"""
        return self.ask(questions.changing)

    def wait_changed(self, timeout_s: float = 60.0) -> None:
        """Until no topology change is under way."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self.changing, timeout_s):
                raise PeregrineError(
                    f"a topology change is still under way after {timeout_s:g} s",
                    "see that all routers run that it touches: rows of a site that moves wait for its old parent",
                )

    def _step(self, event: ManagerEvent, unless_ended: bool = False) -> None:
        with self._changed:
            if unless_ended and self._stop.is_set():
                return
            effects = self._durable.step(event)
            for effect in effects:
                if isinstance(effect, PutOff | Redeployed):
                    for heard in self._heard.values():
                        heard.append(effect)
            self._changed.notify_all()
        commands: dict[SiteId, list[ToRouter]] = {}
        for effect in effects:
            if isinstance(effect, ToRouter):
                commands.setdefault(effect.site, []).append(effect)
            else:
                self._watch(effect)
        if isinstance(event, Tick):
            self._send_meanwhile(commands)
        elif len(commands) == 1:
            self._send(*commands.values())
        else:
            self._send_all(commands)

    def _send_all(self, commands: dict[SiteId, list[ToRouter]]) -> None:
        sending = []
        with suppress(RuntimeError):  # it has ended: nobody is told any more
            sending = [self._senders.submit(self._send, mine) for mine in commands.values()]
        for sent in wait(sending).done:
            if not sent.cancelled():
                sent.result()

    def _send_meanwhile(self, commands: dict[SiteId, list[ToRouter]]) -> None:
        """Time goes on while a router hangs. What it is not told now the machine sends again."""
        for site, mine in commands.items():
            last = self._told_by_tick.get(site)
            if last is not None and not last.done():
                continue
            if last is not None and not last.cancelled() and (error := last.exception()) is not None:
                log.error("site=%s could not be told: %r", site, error)
            with suppress(RuntimeError):  # as above
                self._told_by_tick[site] = self._senders.submit(self._send, mine)

    def _send(self, commands: Iterable[ToRouter]) -> None:
        """To one router, in order; routers do not wait for each other."""
        for each in commands:
            self._offer(each)

    def _offer(self, effect: ToRouter) -> None:
        try:
            if isinstance(effect.command, Rehome):
                self._introduce(effect.command.rehoming)
                self._listen_to_all()
            if isinstance(effect.command, Begin) and not self.may_begin(effect.command.migration):
                return  # the machine sends it again
            if (client := self._clients.get(effect.site)) is not None:
                client.offer(effect.command)
        except PeregrineError as error:  # a router is away: the machine asks again
            if isinstance(effect.command, Rehome):
                log.info("%s: %s", effect.command.rehoming, error.what)

    def _listen_to_all(self) -> None:
        """Sites come and go."""
        with self._changed:
            new = [site for site in list(self._clients) if site not in self._listening]
            for site in new:
                name = f"news-{site}"
                self._listening[site] = threading.Thread(target=self._listen, args=(site,), name=name, daemon=True)
                self._listening[site].start()

    def _listen(self, site: SiteId) -> None:
        after = 0
        while not self._stop.is_set() and (client := self._clients.get(site)) is not None:
            try:
                after, news = client.news(after)
            except PeregrineError:
                self._stop.wait(0.2)
                continue
            for each in () if self._stop.is_set() else news:
                self._watch(each)
                if not isinstance(each, Reached):  # for observers alone
                    self._step_if_there_is_room(each)

        with self._changed:
            self._listening.pop(site, None)

    def _tick(self) -> None:
        while not self._stop.wait(TICK_S):
            self._step_if_there_is_room(Tick(int(time.time() * 1000)))

    def _step_if_there_is_room(self, event: ManagerEvent) -> None:
        """What cannot be journaled has not been heard: the machine asks again, and sources are named again."""
        try:
            self._step(event, unless_ended=True)
        except StorageError as error:
            log.error("manager: %s", error)
            self._stop.wait(1.0)
