"""Hosts as processes: one Spark application for each site (`local(..., hosts="per-site")`).

All of them are on this machine. Their `master` may be a local one or a `local-cluster`; executors elsewhere would not
reach the routers, which listen on loopback, nor open the paths that the driver names (checkpoints, the file of places,
the chunk store).

Everything that an application starts (Spark's driver, executors, Python workers) is in the session of its process, and
that is how the end of all of it is seen: the next one must not go on from a checkpoint into which the last one writes.
"""

import logging
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from peregrine.control.claim import note
from peregrine.errors import ConfigurationError, PeregrineError, UnknownName, Unreachable
from peregrine.net.launch import last_words, next_line, start_child
from peregrine.types import SiteId

if TYPE_CHECKING:
    from peregrine.control.deployment import Deployment
    from peregrine.spark.host_process import Answer, HostSettings
    from peregrine.spark.listener import Progress

PER_SITE, ONE_SESSION = "per-site", "one-session"
MASTER = "local[1,4]"  # a host is one task at a time; a task is tried again when its worker dies
MASTER_OF_SEVERAL = "local[2,4]"  # with DataFrame operators: a slow one must not keep the host from its batches
START_S = 180.0
STOP_S = 30.0
ANSWER_S = 120.0
log = logging.getLogger(__name__)


def start_per_site(
    deployment: "Deployment", registry: Path, token_file: Path, master: str | None, stack: ExitStack
) -> None:
    """Returns when the queries of all sites run. Sites that join later get theirs while everything else goes on."""
    from peregrine.spark.host import HostConfig
    from peregrine.spark.host_process import HostSettings
    from peregrine.spark.served import publish
    from peregrine.spark.session import clear_up

    directory = deployment.directory

    def start(site: SiteId) -> HostProcess:
        served, checkpoint = _served(directory, site), directory / "checkpoints" / site
        config = HostConfig(served, token_file, registry, checkpoint, trigger_ms=deployment.trigger_ms)
        places = deployment.supervised_routers[site].process.settings.places()
        alone = not any(place in deployment.apart for place in places)
        usual = MASTER if alone else MASTER_OF_SEVERAL
        settings = HostSettings(config, master or usual, str(directory / f"host-{site}"))
        process = HostProcess(site, settings, directory / f"host-{site}.json", directory / f"host-{site}.log")
        process.on_start = lambda: _note_all(deployment)
        deployment.hosts[site] = process
        return process

    def serve(sites: Collection[SiteId]) -> None:
        for site in sites:
            publish(_served(directory, site), deployment.served([site]))
            if site not in deployment.hosts:
                late = start(site)
                threading.Thread(target=_wait_for, args=(deployment, late), name=late.name, daemon=True).start()

    stack.callback(clear_up)  # behind those that were killed
    stack.callback(_stop_all, deployment)
    for site in deployment.supervised_routers:
        publish(_served(directory, site), deployment.served([site]))
        start(site)
    for process in deployment.hosts.values():
        process.wait_ready()
        deployment.supervisor.watch_over(process)
    deployment.serve = serve


def _served(directory: Path, site: SiteId) -> Path:
    return directory / f"host-{site}-served.json"


def _wait_for(deployment: "Deployment", late: "HostProcess") -> None:
    """One that does not come up is started again, as any other that fails."""
    try:
        late.wait_ready()
    except PeregrineError as error:
        log.warning("what=%r start=%r", late.name, error.what)
    deployment.supervisor.watch_over(late)


def check_kind(directory: Path, hosts: str) -> None:
    """Where states are depends on how hosts run: with the other kind a directory would seem to have none."""
    if hosts not in (ONE_SESSION, PER_SITE):
        raise UnknownName("kind of hosts", hosts, [ONE_SESSION, PER_SITE])
    other, of = ("checkpoint", ONE_SESSION) if hosts == PER_SITE else ("checkpoints", PER_SITE)
    if (directory / other).exists():
        raise ConfigurationError(f'the hosts of {directory} have run with hosts="{of}"', "go on with that")


def _stop_all(deployment: "Deployment") -> None:
    for process in deployment.hosts.values():
        process.release()  # all, before the first is waited for
    for process in deployment.hosts.values():
        process.stop()


def _note_all(deployment: "Deployment") -> None:
    note(deployment.directory, [pid for host in deployment.hosts.values() for pid in host.pids])


class HostProcess:
    """It ends with the process that made it, however that ends: its standard input is a pipe from here."""

    def __init__(self, name: str, settings: "HostSettings", settings_file: Path, log_file: Path) -> None:
        """Returns at once; `wait_ready` when its query runs. Several may start at the same time."""
        self.name = f"host {name}"
        self.settings = settings
        self._settings_file = settings_file
        self._log_file = log_file
        self._talk = threading.Lock()
        self._asked = 0
        self._ready = threading.Event()
        self._stopped = False
        self.on_start: Callable[[], None] = lambda: None  # its query runs
        settings.save(settings_file)
        self._start()

    def _start(self) -> None:
        self._ready.clear()
        self._gone = False
        self._process = start_child(
            "peregrine.spark.host_process", self._settings_file, self._log_file, own_session=True
        )

    def wait_ready(self) -> None:
        try:
            self._line(self._process, START_S)
        except BaseException:
            self.kill()
            raise
        self._ready.set()
        self.on_start()

    @property
    def up(self) -> bool:
        """Its query runs, or did a moment ago: whoever asks now need not wait until it is started again."""
        return self._ready.is_set() and not self._stopped

    @property
    def pids(self) -> list[int]:
        """Of all that belongs to it, as of now."""
        return [] if self._gone else list(_session(self._process.pid))

    # --- what it is asked ---

    def states(self) -> list[tuple[str, str, int, bytes]]:
        """(place, operator, group, state) as the last committed batch left them."""
        with tempfile.NamedTemporaryFile(prefix="states-", dir=self._settings_file.parent) as file:
            self.ask({"what": "states", "file": file.name})
            return msgspec.msgpack.decode(Path(file.name).read_bytes(), type=list[tuple[str, str, int, bytes]])

    def progress(self) -> "Progress":
        found = self.ask({"what": "progress"}).progress
        assert found is not None, "it was asked for"
        return found

    def ask(self, question: dict[str, Any]) -> "Answer":
        """Returns with its answer, of what spark/host_process.py can be asked; waits for one that is just starting."""
        with self._talk:
            if not self._ready.wait(START_S):
                raise self._silent(f"it has not come up in {START_S:g} s")
            if self._stopped:
                raise self._silent("it was stopped")
            answer = self._answer(self._process, question)
        if answer.remedy:
            raise ConfigurationError(answer.error, answer.remedy)
        if answer.error:
            raise PeregrineError(f"{self.name}: {answer.error}", f"see {self._log_file}")
        return answer

    def _answer(self, process: "subprocess.Popen[bytes]", question: dict[str, Any]) -> "Answer":
        """Of this process: meanwhile there may be another one, whose first line is not for us."""
        from peregrine.spark.host_process import Answer

        self._asked += 1
        assert process.stdin is not None
        try:
            process.stdin.write(msgspec.json.encode({**question, "number": self._asked}) + b"\n")
            process.stdin.flush()
            while True:
                answer = msgspec.json.decode(self._line(process, ANSWER_S), type=Answer)
                if answer.number == self._asked:  # else it is to a question for which nobody waits any more
                    return answer
        except (OSError, ValueError) as error:  # its pipes are broken, or closed already
            raise self._silent(str(error)) from error

    def _line(self, process: "subprocess.Popen[bytes]", patience_s: float) -> bytes:
        line = next_line(process, patience_s)
        if not line:
            raise self._silent(f"nothing in {patience_s:g} s" if process.poll() is None else "it has ended")
        return line

    def _silent(self, reason: str) -> Unreachable:
        return Unreachable(
            f"{self.name} does not answer: {reason}", f"see {self._log_file}:\n{last_words(self._log_file)}"
        )

    # --- its end ---

    def failure(self) -> str | None:
        if self._stopped or self._process.poll() is None:
            return None
        return f"the process has ended with code {self._process.returncode}; see {self._log_file}"

    def restart(self) -> None:
        """From its checkpoint, when all of the last one is gone."""
        self._end(STOP_S)
        self._start()
        self.wait_ready()

    def release(self) -> None:
        """It may end now, orderly: a batch that runs is given up, and done again by the next one."""
        self._stopped = True
        self._ready.set()  # nobody waits for it any more
        self._close_input()

    def stop(self) -> None:
        """Returns when it has ended."""
        self.release()
        self._end(STOP_S)

    def kill(self) -> None:
        """As a crash would; Spark notices and ends by itself."""
        self._process.kill()
        self._end(STOP_S)

    def _end(self, patience_s: float) -> None:
        if self._gone:
            return  # by now its number may be that of another session
        process = self._process  # whoever starts the next one does not wait for us
        session = process.pid
        if not self._stopped:
            self._ready.clear()  # who asks now waits for the next one
        self._close_input()
        deadline_s = time.monotonic() + patience_s
        while process.poll() is None or any(_session(session)):
            if time.monotonic() > deadline_s:
                for pid in _session(session):
                    _kill(pid)
            time.sleep(0.05)
        self._gone = True
        if process.stdout is not None:
            process.stdout.close()

    def _close_input(self) -> None:
        """Its sign to end."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()


def _session(number: int) -> Iterator[int]:
    """The processes of a session, but for those that have ended and are not yet buried."""
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                stat = Path(entry.path, "stat").read_text()
            except OSError:
                continue  # it has just ended
            state, _, _, session = stat.rpartition(")")[2].split()[:4]
            if int(session) == number and state != "Z":
                yield int(entry.name)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
