"""Runs the manager: hears the routers, steps the machine, sends its commands.

Commands may be lost with a router that is down: the machine sends them again until they are answered. News may be lost
with this process: the machine asks again. What it was told and has decided is on its disk (durable_manager.py).
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TypeVar

from peregrine.control.durable_manager import DurableManager
from peregrine.control.supervisor import Incident
from peregrine.core.coordinator import Cancel, PlanEnded, Submit, ToRouter
from peregrine.core.manager import Manager, ManagerEffect, ManagerEvent
from peregrine.core.messages import Attached, Reached, Rehomed, Report, Stray, Tick
from peregrine.core.reconfigure import Plan
from peregrine.core.validity import FedKeys
from peregrine.errors import PeregrineError, StorageError
from peregrine.net.client import RouterClient
from peregrine.types import SiteId, SourceId

TICK_S = 0.2

News = Report | Rehomed | Reached | Stray | Attached | Incident
T = TypeVar("T")
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
        watch: Callable[[News | PlanEnded], None] = lambda news: None,
    ) -> None:
        self._durable = durable
        self._clients = clients
        self._watch = carefully(watch)
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._listen, args=(site,), name=f"news-{site}", daemon=True) for site in clients
        ]
        self._threads.append(threading.Thread(target=self._tick, name="manager-tick", daemon=True))

    @property
    def manager(self) -> Manager:
        return self._durable.machine

    def __enter__(self) -> "ManagerDriver":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=5)

    def submit(self, plan: Plan) -> None:
        """Returns when the plan is durable: it is carried out whatever dies. Raises a PlanError, and changes nothing,
        if it cannot be."""
        self._step(Submit(plan))

    def cancel(self, plan_id: str) -> None:
        self._step(Cancel(plan_id))

    def knows(self, plan_id: str) -> bool:
        """Was it submitted, now or before a restart?"""
        with self._changed:
            return self.manager.coordinator.knows(plan_id)

    def feed(self, source: SourceId, feeds: FedKeys) -> None:
        """A source produces for these keys: plans that come are checked against it."""
        with self._changed:
            self._durable.feed(source, feeds)

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

    def _step(self, event: ManagerEvent) -> None:
        with self._changed:
            effects = self._durable.step(event)
            if any(isinstance(effect, PlanEnded) for effect in effects):
                self._changed.notify_all()
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: ManagerEffect) -> None:
        if isinstance(effect, PlanEnded):
            self._watch(effect)
        elif isinstance(effect, ToRouter):
            try:
                self._clients[effect.site].offer(effect.command)
            except PeregrineError:
                return  # the router is away: the machine asks again

    def _listen(self, site: SiteId) -> None:
        after = 0
        while not self._stop.is_set():
            try:
                after, news = self._clients[site].news(after)
            except PeregrineError:
                self._stop.wait(0.2)
                continue
            for each in news:
                self._watch(each)
                if not isinstance(each, Reached):  # for observers alone
                    self._step_if_there_is_room(each)

    def _tick(self) -> None:
        while not self._stop.wait(TICK_S):
            self._step_if_there_is_room(Tick(int(time.time() * 1000)))

    def _step_if_there_is_room(self, event: ManagerEvent) -> None:
        """What cannot be journaled has not been heard: the machine asks again, and sources are named again."""
        try:
            self._step(event)
        except StorageError as error:
            log.error("manager: %s", error)
            self._stop.wait(1.0)
