"""A DataFrame operator in the Spark application of its site (`hosts="per-site"`): one that can be started again.

The query is in the process of the host (spark/hosted.py); here is who wants it to run. A process that died comes back
without it, says so when it is asked, and is told again: it goes on from its checkpoint.
"""

import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from peregrine.control.hosts import HostProcess
from peregrine.errors import PeregrineError, Unreachable

if TYPE_CHECKING:
    from peregrine.spark.transform import TransformConfig

LOOK_EVERY_S = 0.5  # each look costs the application a few calls into Spark


class HostedTransform:
    def __init__(self, host: HostProcess, config: "TransformConfig") -> None:
        """Returns when it runs."""
        self.name = f"transform {config.place}"
        self._host = host
        self._config = config
        self._stopped = False
        self._looked_s = 0.0
        self._start()

    def _start(self) -> None:
        from peregrine.spark.hosted import save

        with tempfile.NamedTemporaryFile(prefix="peregrine-transform-") as file:  # readable by this user only
            save(self._config, Path(file.name))
            self._host.ask({"what": "start", "file": file.name})

    def failure(self) -> str | None:
        now_s = time.monotonic()
        if self._stopped or not self._host.up or now_s - self._looked_s < LOOK_EVERY_S:
            return None
        self._looked_s = now_s
        try:
            return self._host.ask({"what": "failure", "place": self._config.place}).failure or None
        except Unreachable:
            return None  # its host is away: that is started again by itself, and asked then

    def restart(self) -> None:
        self._stopped = False
        self._start()

    def stop(self) -> None:
        self._stopped = True
        if self._host.up:
            with suppress(PeregrineError):  # without its process there is nothing to stop
                self._host.ask({"what": "stop", "place": self._config.place})
