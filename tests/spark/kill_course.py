"""A deployment and its devices as processes of their own, and how to kill each of their parts."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from peregrine.control.hosts import ONE_SESSION
from peregrine.errors import ConfigurationError

RUNNER = Path(__file__).parent / "kill_runner.py"
PATIENCE_S = 360.0  # more than the runner has
READER = "python_streaming_source_runner"
HOST = "peregrine.spark.continuous"
JVM = "org.apache.spark.deploy.SparkSubmit"


class Peer:
    """A process that speaks JSON."""

    def __init__(
        self,
        role: str,
        directory: Path,
        *arguments: str,
        program: Path = RUNNER,
        own_group: bool = False,
        **environment: str,
    ) -> None:
        self._log = directory / f"{role}.out"
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(program), role, str(directory), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                process_group=0 if own_group else None,
                env={**os.environ, **environment},
            )
        self.said: list[dict[str, Any]] = []
        self._heard = threading.Condition()
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._heard:
                self.said.append(json.loads(line))
                self._heard.notify_all()

    def tell(self, **command: Any) -> int:
        """Returns how much it had said before: what comes behind may be an answer."""
        assert self._process.stdin is not None
        before = len(self.said)
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return before

    def ask(self, answer: str, **command: Any) -> dict[str, Any]:
        return self.hear(lambda said: answer in said, self.tell(**command))

    def hear(self, fits: Callable[[dict[str, Any]], bool], after: int = 0) -> dict[str, Any]:
        deadline_s = time.monotonic() + PATIENCE_S
        with self._heard:
            while True:
                for each in self.said[after:]:
                    if fits(each):
                        return each
                after = len(self.said)
                if self._process.poll() is not None or time.monotonic() > deadline_s:
                    raise AssertionError(f"it did not say so: {self.said[-10:]}\n{self._log.read_text()[-3000:]}")
                self._heard.wait(1.0)

    def signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()
        self._gone()

    def end(self) -> None:
        """In order: it ends when nobody talks to it any more."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # it has ended already
                self._process.stdin.close()
        self._gone()

    def wait(self) -> int:
        return self._process.wait(PATIENCE_S)

    def _gone(self) -> None:
        try:
            self._process.wait(60.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


class Course:
    """Rows flow, keys go up and down between the cloud and edge1, and a car between the edges, whatever is killed."""

    program = RUNNER  # what the processes run

    def __init__(self, directory: Path, hosts: str = ONE_SESSION, runner: str = "microbatch") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._kind = hosts, runner
        self.caller = self._start("caller")
        self.devices = self._start("devices")
        self._migrations = 0
        self._running = ""  # the migration that is under way
        self._below = True  # the moving keys are at edge1
        self._old, self._new = "edge2", "edge1"  # where the car is, and where it drives next

    def _start(self, role: str) -> Peer:
        peer = Peer(role, self.directory, *(self._kind if role == "caller" else ()), program=self.program)
        try:
            peer.hear(lambda said: "ready" in said)
        except BaseException:
            peer.kill()
            raise
        return peer

    def migrate(self, kill: str, when: str) -> None:
        """Moves the keys to where they are not, and kills something when the migration is so far."""
        self._begin()
        self._migrations += 1
        name = f"m{self._migrations}"
        source, target = ("edge1", "cloud") if self._below else ("cloud", "edge1")
        sites = {
            "source": source,
            "target": target,
            "host of source": f"host {source}",
            "host of target": f"host {target}",
        }
        victim = sites.get(kill, kill)
        self.devices.tell(go=True)
        if when == "before":
            self.kill(victim)
        self.caller.ask("submitted", submit=name, source=source, target=target)
        self._running = name
        if when != "before":
            self.caller.hear(lambda said: said.get("migration") == f"{name}.0.0" and said["phase"] == when)
            self.kill(victim)
        self._finish()

    def roam(self, kill: str, leg: str, when: str) -> None:
        """The car drives to the other edge, and something is killed when the key that follows is so far, up or down."""
        self._begin()
        victim = {"old": self._old, "new": self._new}.get(kill, kill)
        self.devices.tell(go=True)
        before = len(self.caller.said)
        self.devices.tell(drive=self._new)

        def so_far(said: dict[str, Any]) -> bool:
            name = said.get("migration", "")
            return name.startswith("roam") and name.endswith(f"-{leg}.0.0") and said["phase"] == when

        self.caller.hear(so_far, before)
        self.kill(victim)
        assert self.caller.ask("followed", follow=self._new)["followed"]
        self._old, self._new = self._new, self._old

    def _begin(self) -> None:
        if not self.caller.alive:  # it failed the test before this one, and need not fail all others
            self.caller = self._start("caller")
        self._finish()

    def _finish(self) -> None:
        if self._running:
            ended = self.caller.ask("ended", wait=self._running)
            assert ended["outcome"] == "done", ended
            self._running, self._below = "", not self._below

    def kill(self, victim: str) -> None:
        match victim:
            case "caller":
                everything = descendants(self.caller.pid) | self.host_processes()
                self.caller.kill()
                self.caller = self._start("caller")
                assert not (left := running(everything)), f"orphans: {left}"
            case "devices":
                self.devices.kill()
                self.devices = self._start("devices")
                self.devices.tell(go=True)
            case "process":
                until(lambda: bool(self.host_processes()))
                for pid in self.host_processes():
                    kill_if_there(pid)
            case "worker" | "reader":
                pids = self.python_of_spark(reader=victim == "reader")
                assert pids, f"there is no {victim}: {descendants(self.caller.pid)}"
                for pid in pids:
                    kill_if_there(pid)
            case "spark":
                jvms = [pid for pid, line in descendants(self.caller.pid).items() if JVM in line]
                assert jvms, "there is no Spark"
                for pid in jvms:  # of every site, if each has its own
                    kill_if_there(pid)
            case _:
                kill_if_there(self.caller.ask("pids", pids=True)["pids"][victim])

    def host_processes(self) -> dict[int, str]:
        """Of continuous hosts: they belong to nobody."""
        every = {int(each.name): command(int(each.name)) for each in Path("/proc").iterdir() if each.name.isdigit()}
        return {pid: line for pid, line in every.items() if HOST in line and str(self.directory) in line}

    def python_of_spark(self, reader: bool) -> list[int]:
        """The processes that run tasks, which a daemon forks; or the one that asks the routers for offsets."""
        python = {pid: line for pid, line in descendants(self.caller.pid).items() if "pyspark" in line}
        if reader:
            return [pid for pid, line in python.items() if READER in line]
        return [pid for pid, line in python.items() if "pyspark.daemon" in line and parent(pid) in python]

    def proof(self) -> dict[str, Any]:
        """Stops the devices, waits until everything has come to rest, and compares."""
        taken = self.devices.ask("taken", go=False)
        assert taken["safe"]
        return self.caller.ask("proof", prove=taken["taken"])

    def close(self) -> None:
        self.devices.end()
        self.caller.end()


def needs_spark() -> None:
    """Skips the test where Spark cannot run."""
    if find_spec("pyspark") is None or find_spec("pandas") is None:
        pytest.skip("pyspark or pandas is not installed: pip install --editable '.[spark]'")
    from peregrine.spark.session import find_java

    try:
        find_java()
    except ConfigurationError as error:
        pytest.skip(str(error))


def until(true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline_s, "it did not come true in time"
        time.sleep(0.1)


# --- processes ---


def descendants(pid: int) -> dict[int, str]:
    """Its children and theirs: process and command line."""
    parents = {int(each.name): parent(int(each.name)) for each in Path("/proc").iterdir() if each.name.isdigit()}
    found = {pid}
    while more := {child for child, above in parents.items() if above in found} - found:
        found |= more
    return {each: command(each) for each in found - {pid}}


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def running(processes: dict[int, str]) -> dict[int, str]:
    """Those that have not ended by now; a number that another process has got is none of them."""
    return {pid: line for pid, line in processes.items() if line and command(pid) == line}


def kill_if_there(pid: int) -> None:
    with suppress(ProcessLookupError):  # it has ended by itself
        os.kill(pid, signal.SIGKILL)
