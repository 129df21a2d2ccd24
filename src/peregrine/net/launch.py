"""Processes with a listener, started and watched by whoever needs them: the embedded deployment, tests, benchmarks."""

import json
import select
import subprocess
import sys
from pathlib import Path

from peregrine.errors import Unreachable
from peregrine.net.addresses import HERE
from peregrine.net.client import RouterClient
from peregrine.net.guide_client import GuideClient
from peregrine.net.guide_settings import GuideSettings
from peregrine.net.settings import RouterSettings, read_token

START_S = 30.0
STOP_S = 10.0


def start_child(module: str, config: Path, log_file: Path, own_session: bool = False) -> "subprocess.Popen[bytes]":
    """A process that can ask its standard input whether we are still there, and answers by lines.

    It has a process group, or a session, of its own: Ctrl-C is for the one who started it, who then ends it in order.
    """
    with open(log_file, "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", module, "--config", str(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            process_group=None if own_session else 0,
            start_new_session=own_session,
        )


def next_line(child: "subprocess.Popen[bytes]", patience_s: float) -> bytes:
    """Empty if it says nothing for so long, or never will."""
    out = child.stdout
    assert out is not None
    readable, _, _ = select.select([out], [], [], patience_s)
    return out.readline() if readable else b""


def last_words(log_file: Path) -> str:
    return log_file.read_text(errors="replace")[-2000:]


class Child:
    """A process with a listener (serving.py), ready. It ends with the process that made it, however that ends: its
    standard input is a pipe from here.
    """

    def __init__(self, who: str, module: str, config: Path, log_file: Path) -> None:
        self._process = start_child(module, config, log_file)
        try:
            line = next_line(self._process, START_S)
            if not line:
                raise Unreachable(f"{who} did not start", f"see {log_file}:\n{last_words(log_file)}")
            self.port = int(json.loads(line)["port"])
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reap()

    def kill(self) -> None:
        self._process.kill()
        self._reap()

    def _reap(self) -> None:
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class RouterProcess:
    def __init__(self, settings: RouterSettings, settings_file: Path, log_file: Path) -> None:
        self.settings = settings
        self._settings_file = settings_file
        self._log_file = log_file
        settings.save(settings_file)
        self._start()

    def _start(self) -> None:
        who = f"the router of {self.settings.site}"
        self._child = Child(who, "peregrine.net.router_process", self._settings_file, self._log_file)
        self.port = self._child.port
        self.address = self.settings.reach(f"{HERE}:{self.port}")

    def client(self, timeout_s: float = 30.0) -> RouterClient:
        return RouterClient(self.address, read_token(Path(self.settings.token_file)), timeout_s, self.settings.site)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child.alive

    def stop(self) -> None:
        """Orderly; everything is on the disk afterwards."""
        self._child.stop()

    def kill(self) -> None:
        """As a crash would."""
        self._child.kill()

    def restart(self) -> None:
        """From its directory, with the same settings; at the same port, unless somebody else has it by now."""
        if self.alive:
            self.stop()
        self._start()


class GuideProcess:
    def __init__(self, settings: GuideSettings, settings_file: Path, log_file: Path) -> None:
        settings.save(settings_file)
        self.settings = settings
        self._child = Child("the guide", "peregrine.net.guide_process", settings_file, log_file)
        self.port = self._child.port
        self.address = settings.reach(f"{HERE}:{self.port}")

    def client(self, timeout_s: float = 10.0) -> GuideClient:
        return GuideClient(self.address, read_token(Path(self.settings.token_file)), timeout_s)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child.alive

    def stop(self) -> None:
        self._child.stop()

    def kill(self) -> None:
        """As a crash would."""
        self._child.kill()
