"""DataFrame operators in the Spark applications of their sites: they move from one to another while rows flow."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_transform import CLOUD, EDGE, cameras, check_frames, send, settle, until, up

from peregrine.control.hosted import HostedTransform
from peregrine.control.running import Running
from peregrine.control.supervisor import Incident
from peregrine.core import wire
from peregrine.core.rows import Rows
from peregrine.errors import ConfigurationError
from peregrine.plan.redeploy.events import SiteRemoved
from peregrine.types import PlaceId, site_of

PATIENCE_S = 120.0


def test_an_operator_moves_between_applications_comes_back_with_one_that_died_and_leaves_with_its_site(
    java: None, tmp_path: Path
) -> None:
    def size(frames: Any) -> Any:  # it travels by value: applications do not have this module
        from pyspark.sql import functions as F

        return frames.withColumn("objects", F.size("pixels"))

    news: list[Any] = []

    def incidents() -> list[tuple[str, str]]:
        return [(each.what, each.status) for each in news if isinstance(each, Incident)]

    with up(cameras(size), tmp_path, hosts="per-site", watch=news.append) as running:
        send(running, 30)
        settle(running)
        sent = [30]
        with frames_flow(running, sent):
            assert running.move("objects", to="edge1").outcome == "done"
        settle(running)
        assert practised(running, PlaceId("edge1/objects"))
        until(lambda: set(running.transforms.queries) == {"edge1/objects"})  # what was left has nothing to do

        os.kill(running.deployment.hosts[EDGE].pids[0], signal.SIGKILL)
        sent[0] += send_more(running, sent[0], 30)
        settle(running)
        check_frames(running, list(range(sent[0])))
        parts = ("host edge1", "transform edge1/objects")  # each is seen to by a thread of its own
        until(lambda: {(what, "restarted") for what in parts} <= set(incidents()))
        for what in parts:  # on a busy machine it may take more than one try
            *failed, last = [status for of, status in incidents() if of == what]
            assert {*failed} == {"failed"} and last == "restarted"
        assert incidents()[0][0] == "host edge1"

        there = running.transforms.queries[PlaceId("edge1/objects")]
        assert isinstance(there, HostedTransform)
        wrong = replace(there._config, place=PlaceId("edge1/wrong"), function=lambda frames: frames.drop("pixels"))
        with pytest.raises(ConfigurationError, match="the result has no column objects; it has camera, frame"):
            HostedTransform(running.deployment.hosts[EDGE], wrong)

        running.deployment.dismiss("gate")  # so that its site may leave; the operator goes up
        running.senders["gate"] = running.device("other", CLOUD)
        with frames_flow(running, sent):
            changed = running.change([SiteRemoved(EDGE, 1)], PATIENCE_S)
            assert [each.outcome for each in changed.redeployed] == ["done"] and not changed.put_off, changed
        until(lambda: set(running.deployment.hosts) == {CLOUD})
        settle(running)
        check_frames(running, list(range(sent[0])))
        assert set(running.transforms.queries) == {"cloud/objects"}


@contextmanager
def frames_flow(running: Running, sent: list[int]) -> Iterator[None]:
    """All the while, one after the other."""
    over = threading.Event()

    def flow() -> None:
        while not over.wait(0.05):
            sent[0] += send_more(running, sent[0], 3)

    flowing = threading.Thread(target=flow)
    flowing.start()
    try:
        yield
    finally:
        over.set()
        flowing.join()


def send_more(running: Running, start: int, count: int) -> int:
    send(running, count, start)
    return count


def practised(running: Running, place: PlaceId) -> bool:
    """Did its query have a sample before the first frame came?"""
    log, _ = running.deployment.clients[site_of(place)].read_log(place, 0)
    rows = [entry for entry in map(wire.decode_entry, log.column("body").to_pylist()) if isinstance(entry, Rows)]
    return rows[0].sample and not rows[-1].sample
