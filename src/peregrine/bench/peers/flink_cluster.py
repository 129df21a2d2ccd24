"""Flink on this machine: a job manager, a task manager with as many slots as are needed, and its REST interface."""

import json
import os
import shutil
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from peregrine.bench.peers.child import Child
from peregrine.errors import PeregrineError
from peregrine.spark.java import find_java

SLOTS = 4
PATIENCE_S = 180.0  # on a busy machine three Java processes take more than a minute to start
ASK_EVERY_S = 0.02
CHECKPOINT_EVERY = "1s"
_ADAPTIVE = "jobmanager.adaptive-scheduler"


class Cluster:
    def __init__(self, package: Path, home: Path, adaptive: bool, stack: ExitStack) -> None:
        self.port = _free_port()
        self.home = home
        self.environment = {
            "FLINK_CONF_DIR": str(home / "conf"),
            "FLINK_LOG_DIR": str(home),
            "FLINK_PID_DIR": str(home),
            "JAVA_HOME": str(find_java()),
            "PATH": f"{package.parents[3] / 'bin'}:{os.environ['PATH']}",
        }
        self._configure(package, adaptive)
        self._parts = []
        for part in ("jobmanager", "taskmanager"):
            words: list[str | Path] = ["bash", package / "bin" / f"{part}.sh", "start-foreground"]
            self._parts.append(Child(words, home / f"{part}.said", self.environment, answers=False))
            stack.callback(self._parts[-1].end)

    def _configure(self, package: Path, adaptive: bool) -> None:
        """Where there was a choice, it favours Flink: a rescale waits for nothing."""
        wanted = {
            "jobmanager.rpc.address": "localhost",
            "jobmanager.rpc.port": _free_port(),
            "jobmanager.bind-host": "localhost",
            "jobmanager.memory.process.size": "1g",
            "jobmanager.scheduler": "adaptive" if adaptive else "default",
            f"{_ADAPTIVE}.executing.cooldown-after-rescaling": "0s",
            f"{_ADAPTIVE}.executing.resource-stabilization-timeout": "0s",
            f"{_ADAPTIVE}.submission.resource-stabilization-timeout": "0s",
            "taskmanager.host": "localhost",
            "taskmanager.bind-host": "localhost",
            "taskmanager.memory.process.size": "2g",
            "taskmanager.numberOfTaskSlots": SLOTS,
            "rest.address": "localhost",
            "rest.bind-address": "localhost",
            "rest.port": self.port,
            "execution.checkpointing.interval": CHECKPOINT_EVERY,
            "execution.checkpointing.dir": (self.home / "checkpoints").as_uri(),
            "io.tmp.dirs": str(self.home / "tmp"),
            "env.java.opts.all": _java_options(package / "conf" / "config.yaml"),
        }
        for folder in ("conf", "tmp"):
            (self.home / folder).mkdir(parents=True)
        shutil.copy(package / "conf" / "log4j-console.properties", self.home / "conf")
        lines = (f"{name}: {json.dumps(value)}\n" for name, value in wanted.items())
        (self.home / "conf" / "config.yaml").write_text("".join(lines))

    def wait_for_slots(self) -> None:
        self.until(lambda: self.ask("GET", "/overview")["slots-total"] == SLOTS, "no task manager")

    def until(self, done: Any, trouble: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            for part in self._parts:
                part.check()
            try:
                if done():
                    return
            except (OSError, KeyError):  # not there yet
                pass
            if time.monotonic() > deadline_s:
                raise PeregrineError(f"Flink: {trouble} after {PATIENCE_S:g} s", "see its logs")
            time.sleep(ASK_EVERY_S)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"http://localhost:{self.port}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            if error.code == 404 or error.code == 503:
                raise OSError(f"{path}: not there yet") from error
            raise PeregrineError(f"Flink: {method} {path}: {error.read()[:500]!r}", "see its logs") from error

    # --- jobs ---

    def is_running(self, job: str, parallelism: int) -> bool:
        """With all tasks, and the given number of those that average."""
        told = self.ask("GET", f"/jobs/{job}")
        mine = [each["parallelism"] for each in told["vertices"] if "average" in each["name"]]
        running = all(each["status"] == "RUNNING" for each in told["vertices"])
        return running and told["state"] == "RUNNING" and mine == [parallelism]

    def stop(self, job: str) -> tuple[str, int]:
        """With a savepoint: everything that came in has gone out. Returns where it is, and its bytes."""
        asked = {"drain": False, "targetDirectory": (self.home / "savepoints").as_uri()}
        request = self.ask("POST", f"/jobs/{job}/stop", asked)["request-id"]
        path = f"/jobs/{job}/savepoints/{request}"
        self.until(lambda: self.ask("GET", path)["status"]["id"] == "COMPLETED", "no savepoint")
        told = self.ask("GET", path)["operation"]
        if "location" not in told:
            raise PeregrineError(f"Flink: no savepoint: {told.get('failure-cause')}", "see its logs")
        folder = Path(told["location"].removeprefix("file:"))
        return told["location"], sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())

    def rescale(self, job: str, parallelism: int) -> None:
        wanted = self.ask("GET", f"/jobs/{job}/resource-requirements")
        for each in self.ask("GET", f"/jobs/{job}")["vertices"]:
            if "average" in each["name"]:
                wanted[each["id"]]["parallelism"] = {"lowerBound": parallelism, "upperBound": parallelism}
        self.ask("PUT", f"/jobs/{job}/resource-requirements", wanted)

    def restored_bytes(self, job: str) -> int:
        """Of the checkpoint that the job went on from."""
        checkpoints = self.ask("GET", f"/jobs/{job}/checkpoints")
        restored = (checkpoints.get("latest") or {}).get("restored") or {}
        path = Path(str(restored.get("external_path", "")).removeprefix("file:"))
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.is_absolute() else 0


@contextmanager
def running(package: Path, home: Path, adaptive: bool) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(package, home, adaptive, stack)


def _java_options(config: Path) -> str:
    """What Flink needs of Java 17, as its own configuration has it."""
    (found,) = [line for line in config.read_text().splitlines() if line.strip().startswith("all:")]
    return found.strip().removeprefix("all:").strip()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])
