"""The side of Spark's tasks: they attach to the process of their host on this machine, and start it if it is not there.

PySpark gives the tasks of a query to any of its workers, and ends those when it likes: a process that is to live longer
than a task belongs to none of them. It is found by its name.
"""

import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from peregrine.core.shard import Shard
from peregrine.errors import PeregrineError, Unreachable
from peregrine.spark.talk import SLOTS, Answer, Attach, End, Failed, Load, Need, Ping, Settings, Taken, Talk, name_of

START_S = 30.0
LOOK_S = 0.02
SEE = "see the log of Spark's executor"
REMEDY = "let executors start processes, on Linux, or run its site in micro-batches"
_talks: dict[str, Talk] = {}  # of this worker, by the host


class NotHere(PeregrineError):
    """The process of a continuous host cannot be on this executor."""


@dataclass(frozen=True)
class Attaching:
    host: str  # what tells this host from all others
    settings: Settings

    def take(self, attach: Attach, held: Shard) -> Shard:
        """What has changed since the shard that Spark has. `NotHere`: ask nobody, and apply the log."""
        deadline_s = time.monotonic() + self.settings.patience_s
        while True:
            try:
                return self._take(self._talk(), attach, held)
            except OSError as error:  # it has died, or is silent
                self._drop()
                if time.monotonic() > deadline_s:
                    raise Unreachable(f"the process of {attach.place} does not answer: {error}", SEE) from error
                time.sleep(LOOK_S)

    def end(self) -> None:
        """The processes of the host on this machine, if there are any."""
        for slot in range(SLOTS):
            with suppress(OSError):
                talk = Talk.to(name_of(self.host, slot))
                try:
                    talk.ask(End())
                finally:
                    talk.close()

    def _take(self, talk: Talk, attach: Attach, held: Shard) -> Shard:
        answer = talk.ask(attach)
        if isinstance(answer, Need):
            answer = talk.ask(Load(attach, held))
        if isinstance(answer, Taken):
            return answer.shard
        if isinstance(answer, Need):
            raise ConnectionError("somebody else has begun to serve this place")
        self._drop()
        raise _error(answer)

    def _drop(self) -> None:
        if self.host in _talks:
            _talks.pop(self.host).close()

    def _talk(self) -> Talk:
        if self.host not in _talks:
            _talks[self.host] = self._find() or self._start()
        return _talks[self.host]

    def _find(self) -> Talk | None:
        """One that answers. A silent one keeps its name: it may come back, and can only repeat what others do."""
        for slot in range(SLOTS):
            with suppress(OSError):
                return _answering(name_of(self.host, slot))
        return None

    def _start(self) -> Talk:
        if not hasattr(os, "pidfd_open"):
            raise NotHere(f"the process of host {self.host} needs Linux", REMEDY)
        deadline_s = time.monotonic() + START_S
        process: subprocess.Popen[bytes] | None = None
        while time.monotonic() < deadline_s:
            for slot in range(SLOTS):
                try:
                    return _answering(name_of(self.host, slot))
                except ConnectionRefusedError:
                    if process is None or process.poll() is not None:
                        process = self._launch(slot)
                    break  # its name is free: it will be there in a moment
                except OSError:
                    continue
            time.sleep(LOOK_S)
        raise NotHere(f"the process of host {self.host} does not start within {START_S:g} s", f"{REMEDY}; {SEE}")

    def _launch(self, slot: int) -> "subprocess.Popen[bytes]":
        watched = os.getppid()  # Spark's Python, from which workers are forked; it ends with its executor
        given = (name_of(self.host, slot), str(watched), msgspec.json.encode(self.settings).decode())
        command = [self.settings.python or sys.executable, "-m", "peregrine.spark.continuous", *given]
        # What operators are made of is found there as it is here.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        try:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, env=environment)
        except OSError as error:
            raise NotHere(f"the process of host {self.host} cannot be started: {error}", REMEDY) from error


def _answering(name: str) -> Talk:
    talk = Talk.to(name)
    try:
        talk.ask(Ping())
    except BaseException:
        talk.close()
        raise
    return talk


def _error(answer: Answer) -> PeregrineError:
    assert isinstance(answer, Failed)
    return PeregrineError(answer.what, answer.remedy)
