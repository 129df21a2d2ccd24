"""Starts again what died: a router on its directory and port, a host from its checkpoint, a guide on its port.

It decides nothing about streams: everything here comes back to where its disk says that it was. What keeps failing is
tried again later and later, and at last given up and said so; the rest runs on.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

LOOK_EVERY_S = 0.1
BACK_OFF_S = (0.1, 10.0)
FAILURES = 8  # one after the other; the last restart is nearly a minute after the first
STEADY_S = 20.0  # what has run for so long did not fail because it was started; what was killed often is no failure
NEXT = {
    "failed": "it is started again",
    "given up": "the rest runs on; see to what failed, and start the deployment again on its directory",
}
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Incident:
    """What happened to a process or a query of the deployment."""

    what: str  # "router edge1", "host"
    status: str  # failed, stopped (on purpose, to be started again), restarted, given up
    detail: str = ""


class Supervised(Protocol):
    name: str

    def failure(self) -> str | None:
        """Why it does not run; None while it does, and when it was stopped on purpose."""

    def restart(self) -> None:
        """Returns when it runs again; raises if it cannot."""


class Supervisor:
    """One thread for each thing: one that takes long to come back must not keep others from it."""

    def __init__(self, say: Callable[[Incident], None] = lambda incident: None) -> None:
        self.given_up: dict[str, str] = {}
        self._say = say
        self._asked: dict[str, str] = {}
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def watch_over(self, thing: Supervised, steady_s: float = STEADY_S) -> None:
        name = f"supervise-{thing.name}"
        thread = threading.Thread(target=self._watch, args=(thing, steady_s), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def expect(self, name: str, why: str) -> None:
        """Somebody stops it now, so that it is started again: its end is no failure."""
        self._asked[name] = why

    def stop(self) -> None:
        """From here on nothing is started any more. May be called again."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> "Supervisor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _watch(self, thing: Supervised, steady_s: float) -> None:
        failures = 0
        started_s = -math.inf
        while not self._stopping.wait(LOOK_EVERY_S):
            failure = _failure(thing)
            if failure is None:
                continue
            asked = self._asked.pop(thing.name, None)
            if asked is not None:
                failures = 0
                self._tell(Incident(thing.name, "stopped", asked))
            else:
                failures = 1 if time.monotonic() - started_s > steady_s else failures + 1
                self._tell(Incident(thing.name, "failed", failure))
            if failures > FAILURES:
                self.given_up[thing.name] = failure
                self._tell(Incident(thing.name, "given up", f"it failed {failures} times, at last with: {failure}"))
                return
            least, most = BACK_OFF_S
            if failures > 1 and self._stopping.wait(min(least * 2**failures, most)):
                return
            try:
                thing.restart()
            except Exception as error:  # whatever Spark or the system raises: it has failed once more
                log.warning("what=%r restart=%r", thing.name, str(error))
            else:
                self._tell(Incident(thing.name, "restarted"))
            started_s = time.monotonic()

    def _tell(self, incident: Incident) -> None:
        level = logging.INFO if incident.status in ("stopped", "restarted") else logging.ERROR
        then = NEXT.get(incident.status, "")
        log.log(level, "what=%r status=%r detail=%r next=%r", incident.what, incident.status, incident.detail, then)
        self._say(incident)


def _failure(thing: Supervised) -> str | None:
    try:
        return thing.failure()
    except Exception as error:  # what cannot even be asked
        return f"{type(error).__name__}: {error}"
