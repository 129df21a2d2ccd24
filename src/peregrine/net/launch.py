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
from peregrine.net.settings import RouterSettings, ServerSettings, read_token

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
            bufsize=0,  # what has been read is what `select` no longer tells of
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


class ServingProcess:
    """A process with a listener (serving.py), ready. It ends with the process that made it, however that ends: its
    standard input is a pipe from here.
    """

    module: str

    def __init__(self, who: str, settings: ServerSettings, settings_file: Path, log_file: Path) -> None:
        self._who = who
        self._serves = settings
        self._settings_file = settings_file
        self._log_file = log_file
        settings.save(settings_file)
        self._start()

    def _start(self) -> None:
        self._process = start_child(self.module, self._settings_file, self._log_file)
        try:
            line = next_line(self._process, START_S)
            if not line:
                raise Unreachable(f"{self._who} did not start", f"see {self._log_file}:\n{last_words(self._log_file)}")
            self.port = int(json.loads(line)["port"])
        except BaseException:
            self.kill()
            raise
        self.address = self._serves.reach(f"{HERE}:{self.port}")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """Orderly; everything is on the disk afterwards."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reap()

    def kill(self) -> None:
        """As a crash would."""
        self._process.kill()
        self._reap()

    def restart(self) -> None:
        """From its directory, with the same settings; at the same port, unless somebody else has it by now."""
        if self.alive:
            self.stop()
        self._start()

    def _reap(self) -> None:
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class RouterProcess(ServingProcess):
    module = "peregrine.net.router_process"

    def __init__(self, settings: RouterSettings, settings_file: Path, log_file: Path) -> None:
        self.settings = settings
        super().__init__(f"the router of {settings.site}", settings, settings_file, log_file)

    def client(self, timeout_s: float = 30.0) -> RouterClient:
        return RouterClient(self.address, read_token(Path(self.settings.token_file)), timeout_s, self.settings.site)


class GuideProcess(ServingProcess):
    module = "peregrine.net.guide_process"

    def __init__(self, settings: GuideSettings, settings_file: Path, log_file: Path) -> None:
        self.settings = settings
        super().__init__("the guide", settings, settings_file, log_file)

    def client(self, timeout_s: float = 10.0) -> GuideClient:
        return GuideClient(self.address, read_token(Path(self.settings.token_file)), timeout_s)
