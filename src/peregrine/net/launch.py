"""Router processes, started and watched by whoever needs them: the embedded deployment, tests, benchmarks."""

import json
import select
import subprocess
import sys
from pathlib import Path
from typing import IO

from peregrine.errors import Unreachable
from peregrine.net.addresses import HERE
from peregrine.net.client import RouterClient
from peregrine.net.settings import RouterSettings, read_token

START_S = 30.0
STOP_S = 10.0


class RouterProcess:
    """It ends with the process that made it, however that ends: its standard input is a pipe from here."""

    def __init__(self, settings: RouterSettings, settings_file: Path, log_file: Path) -> None:
        self.settings = settings
        self._settings_file = settings_file
        self._log_file = log_file
        settings.save(settings_file)
        self._start()

    def _start(self) -> None:
        with open(self._log_file, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "peregrine.net.router_process", "--config", str(self._settings_file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=0,  # Ctrl-C is for the one who started it, who then ends this one in order
            )
        try:
            self.port = self._wait_ready()
        except BaseException:
            self.kill()
            raise
        self.address = self.settings.reach(f"{HERE}:{self.port}")

    def _wait_ready(self) -> int:
        out: IO[bytes] | None = self._process.stdout
        assert out is not None
        readable, _, _ = select.select([out], [], [], START_S)
        line = out.readline() if readable else b""
        if not line:
            raise Unreachable(
                f"the router of {self.settings.site} did not start", f"see {self._log_file}:\n{self._last_words()}"
            )
        return int(json.loads(line)["port"])

    def _last_words(self) -> str:
        return self._log_file.read_text(errors="replace")[-2000:]

    def client(self, timeout_s: float = 30.0) -> RouterClient:
        return RouterClient(self.address, read_token(Path(self.settings.token_file)), timeout_s, self.settings.site)

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
