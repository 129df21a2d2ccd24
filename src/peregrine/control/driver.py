"""Runs the manager: hears the routers, steps the machine, sends its commands.

Commands may be lost with a router that is down: the machine sends them again until they are answered. The manager's
journal is not on a disk yet: it lives as long as this process.
"""

import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType

from peregrine.core.coordinator import Cancel, CoordinatorEffect, PlanEnded, Submit, ToRouter
from peregrine.core.manager import Manager, ManagerEvent
from peregrine.core.messages import Attached, Report, Stray, Tick
from peregrine.core.reconfigure import Plan
from peregrine.errors import PeregrineError
from peregrine.net.client import RouterClient
from peregrine.types import SiteId

TICK_S = 0.2

News = Report | Stray | Attached


class ManagerDriver:
    def __init__(
        self,
        manager: Manager,
        clients: Mapping[SiteId, RouterClient],
        watch: Callable[[News | PlanEnded], None] = lambda news: None,
    ) -> None:
        self.manager = manager
        self._clients = clients
        self._watch = watch
        self._ended: dict[str, PlanEnded] = {}
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._listen, args=(site,), name=f"news-{site}", daemon=True) for site in clients
        ]
        self._threads.append(threading.Thread(target=self._tick, name="manager-tick", daemon=True))

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
        """Raises a PlanError, and changes nothing, if the plan cannot be carried out."""
        self._step(Submit(plan))

    def cancel(self, plan_id: str) -> None:
        self._step(Cancel(plan_id))

    def wait(self, plan_id: str, timeout_s: float = 60.0) -> PlanEnded:
        with self._changed:
            if not self._changed.wait_for(lambda: plan_id in self._ended, timeout_s):
                raise PeregrineError(
                    f"plan {plan_id!r} has not ended after {timeout_s:g} s",
                    "look at `status` of the routers it touches",
                )
            return self._ended[plan_id]

    def _step(self, event: ManagerEvent) -> None:
        with self._changed:
            effects = self.manager.step(event)
            for effect in effects:
                if isinstance(effect, PlanEnded):
                    self._ended[effect.plan.id] = effect
                    self._changed.notify_all()
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: CoordinatorEffect) -> None:
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
                self._step(each)

    def _tick(self) -> None:
        while not self._stop.wait(TICK_S):
            self._step(Tick(int(time.time() * 1000)))
