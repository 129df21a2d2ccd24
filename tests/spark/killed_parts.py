"""What a user may have written, with a hand that kills parts of it: it prints how many results there are."""

import os
import signal
import time
from collections.abc import Iterator

from peregrine import App, Avg, run
from peregrine.control.deployment import Deployment
from peregrine.control.running import Running
from peregrine.errors import TransportError
from peregrine.spark.query import running_jvm

ROWS = 10
PATIENCE_S = 180.0


def averages() -> App:
    app = App("lab", groups=4)
    readings = app.source("readings", "sensor bigint, value double", senders=["probe"])
    readings.key_by("sensor").aggregate("average", average=Avg("value")).to("averages")
    return app


def parts(deployment: Deployment) -> Iterator[int]:
    yield deployment.routers[deployment.topology.root].pid
    jvm = running_jvm()
    assert jvm is not None
    yield jvm


def settle(running: Running) -> None:
    """What was killed may not be back yet."""
    while True:
        try:
            return running.settle()
        except TransportError:
            time.sleep(0.1)


def results(running: Running, wanted: int) -> int:
    """`settle` may return while Spark is on its way back."""
    deadline_s = time.monotonic() + PATIENCE_S
    while (found := len(running.records("averages"))) < wanted and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return found


if __name__ == "__main__":
    with run(averages()) as running:
        probe = running.device("probe", "cloud")
        for victim in parts(running.deployment):
            for value in range(ROWS):
                probe.send("readings", sensor=value % 2, value=value)
            settle(running)
            os.kill(victim, signal.SIGKILL)
        for value in range(ROWS):
            probe.send("readings", sensor=value % 2, value=value)
        settle(running)
        print(results(running, 3 * ROWS))
