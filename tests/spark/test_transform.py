"""DataFrame operators: a function from DataFrame to DataFrame as a Spark query of its own, between other operators."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from peregrine.app.aggregates import Count, Sum
from peregrine.app.model import App
from peregrine.control.auditing import audit_deployment
from peregrine.control.running import Running, run
from peregrine.core import wire
from peregrine.core.keyspace import KeySet
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.rows import Rows, rows_of
from peregrine.core.topology import Link, Topology
from peregrine.errors import ConfigurationError, PlanError
from peregrine.log.record_log import Fsync
from peregrine.types import OpId, PlaceId, SiteId

CLOUD, EDGE = SiteId("cloud"), SiteId("edge1")
OP = OpId("cameras/objects")
TOPOLOGY = Topology.tree(CLOUD, {EDGE: (CLOUD, Link(5.0, 200.0))})


def cameras(function: Any, output: str = "camera string, frame bigint, objects bigint") -> App:
    """Frames -> how many objects each shows -> how many each camera has seen so far."""
    app = App("cameras", groups=4)
    frames = app.source("frames", "camera string, frame bigint, pixels array<bigint>", key="camera")
    objects = frames.transform("objects", function, output)
    objects.to("counts")
    objects.key_by("camera").aggregate("seen", frames=Count(), objects=Sum("objects")).to("totals")
    return app


@contextmanager
def up(app: App, directory: Path, **more: Any) -> Iterator[Running]:
    with run(app, topology=TOPOLOGY, directory=directory / "up", fsync=Fsync.OFF, **more) as running:
        yield running


def send(running: Running, count: int, start: int = 0, cameras: int = 3) -> None:
    sender = running.senders.get("gate") or running.device("gate", "edge1")
    for i in range(start, start + count):
        sender.send("frames", camera=f"c{i % cameras}", frame=i, pixels=list(range(i % 5)))


def until(done: Callable[[], bool], patience_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + patience_s
    while not done():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def settle(running: Running) -> None:
    for sender in running.senders.values():
        sender.flush()
    running.settle()


def dead(running: Running) -> list[dict[str, Any]]:
    tables = [client.read_dead(0)[0] for client in running.deployment.clients.values()]
    items = [wire.decode_entry(each) for each in pa.concat_tables(tables).column("item").to_pylist()]
    return [msgspec.json.decode(row.payload) for each in items if isinstance(each, Rows) for row in rows_of(each.batch)]


def check_frames(running: Running, expected: list[int], dead_letters: bool = False) -> None:
    """Each frame once, those of a camera in order, with the objects that it shows; and the totals behind them."""
    found = running.records("counts")
    assert sorted(each.frame for each in found) == sorted(expected)
    for camera in {each.camera for each in found}:
        frames = [each.frame for each in found if each.camera == camera]
        assert frames == sorted(frames)
    assert all(each.objects == each.frame % 5 for each in found)
    totals = {each.camera: (each.frames, each.objects) for each in running.records("totals")}
    assert totals == {
        camera: (
            len([frame for frame in expected if f"c{frame % 3}" == camera]),
            sum(frame % 5 for frame in expected if f"c{frame % 3}" == camera),
        )
        for camera in totals
    }
    assert len(running.records("totals")) == len(expected)
    wrong = audit_deployment(running.deployment, running.initial)
    assert bool(wrong) == dead_letters and all(each.startswith("dead letter") for each in wrong), wrong


def with_sql(frames: Any) -> Any:
    from pyspark.sql import functions as F

    return frames.withColumn("objects", F.size("pixels"))


def doubled(found: Any) -> Any:
    return found.withColumn("objects", 2 * found.objects)


def with_pandas_udf(frames: Any) -> Any:
    import pandas as pd
    from pyspark.sql import functions as F

    @F.pandas_udf("bigint")
    def count(frame: pd.Series, pixels: pd.Series) -> pd.Series:
        if 0 in frame.tolist():
            raise ValueError("not this one")
        return pixels.map(len)

    return frames.withColumn("objects", count("frame", "pixels"))


def test_frames_go_through_the_function_and_move_while_they_flow_and_go_on_there_after_a_restart(
    spark: Any, tmp_path: Path
) -> None:
    with up(cameras(with_sql), tmp_path) as running:
        send(running, 60)
        settle(running)
        check_frames(running, list(range(60)))
        assert set(running.transforms.queries) == {"cloud/objects"}
        moved = threading.Event()
        sent = [60]

        def keep_sending() -> None:
            while not moved.wait(0.05):
                send(running, 3, sent[0])
                sent[0] += 3

        sending = threading.Thread(target=keep_sending)
        sending.start()
        ended = running.move("objects", to="edge1")
        moved.set()
        sending.join()
        assert ended.outcome == "done"
        assert "edge1/objects" in running.describe()
        send(running, 30, sent[0])
        settle(running)
        there, _ = running.deployment.clients[EDGE].read_log(PlaceId("edge1/objects"), 0)
        rows = [entry for entry in map(wire.decode_entry, there.column("body").to_pylist()) if isinstance(entry, Rows)]
        assert rows[0].sample and not rows[-1].sample, "it has practised before it got the first frame"
        check_frames(running, list(range(sent[0] + 30)))
        until(lambda: set(running.transforms.queries) == {"edge1/objects"})  # what was left has nothing to do
        assert dead(running) == []
        with pytest.raises(PlanError, match="cannot run at cloud"):
            there = (Move(OP, KeySet.everything(4), PlaceId("edge1/objects"), PlaceId("cloud")),)
            running.deployment.submit(Plan("wrong", (there,), "drain"))
    with up(cameras(with_sql), tmp_path) as running:  # goes on from its directory
        assert "edge1/objects" in running.describe()
        send(running, 30, sent[0] + 30)
        settle(running)
        check_frames(running, list(range(sent[0] + 60)))


def test_rows_that_cannot_be_read_and_rows_at_which_the_function_raises_are_dead_letters(
    spark: Any, tmp_path: Path
) -> None:
    with up(cameras(with_pandas_udf), tmp_path, at={"objects": {"edge1": None}}) as running:
        device = running.device("gate", "edge1").device
        device.send(OP, "c0", b"no frame", 0)
        send(running, 3)  # test_transform_batch.py has more: a run that fails costs four tasks and their workers
        settle(running)
        check_frames(running, [1, 2], dead_letters=True)
        unread, refused = sorted(dead(running), key=lambda letter: letter["position"])
        assert (unread["position"], unread["key"], unread["place"]) == (0, "c0", "edge1/objects")
        assert unread["reason"].startswith("DecodeError: ")
        assert (refused["position"], refused["key"], refused["place"]) == (1, "c0", "edge1/objects")
        assert refused["reason"] == "ValueError: not this one"


def test_a_batch_that_spark_repeats_counts_once_though_the_function_gives_another_result(
    spark: Any, tmp_path: Path
) -> None:
    calls: list[str] = []

    def count(frames: Any) -> Any:
        from pyspark.sql import functions as F

        calls.append(uuid.uuid4().hex)

        def counted(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                yield batch.assign(objects=batch.pixels.map(len))[["camera", "frame", "objects"]]

        found = frames.mapInPandas(counted, "camera string, frame bigint, objects bigint")
        return found.withColumn("call", F.lit(calls[-1]))

    with up(cameras(count, "camera string, frame bigint, objects bigint, call string"), tmp_path) as running:
        send(running, 30)
        settle(running)
        before = running.records("counts")
        query = running.transforms.queries[PlaceId("cloud/objects")]
        query.stop()
        checkpoint = running.deployment.directory / "transforms" / "cloud%2Fobjects"
        last = max((path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()), key=_number)
        for left in checkpoint.glob(f"commits/*{last.name}*"):
            left.unlink()  # as if Spark had died before it wrote that down
        made = len(calls)
        query.restart()
        send(running, 30, 30)
        settle(running)
        assert len(calls) > made + 1  # the last batch once more, and the new ones
        assert running.records("counts")[: len(before)] == before
        check_frames(running, list(range(60)))


def test_operators_of_a_chain_move_one_after_the_other_and_back(spark: Any, tmp_path: Path) -> None:
    app = App("cameras", groups=4)
    frames = app.source("frames", "camera string, frame bigint, pixels array<bigint>", key="camera")
    objects = frames.transform("objects", with_sql, "camera string, frame bigint, objects bigint")
    objects.transform("twice", lambda found: found.withColumn("objects", 2 * found.objects), objects.schema).to(
        "counts"
    )
    with up(app, tmp_path) as running:
        send(running, 30)
        settle(running)
        for nth, (operator, site) in enumerate([("objects", "edge1"), ("twice", "edge1"), ("twice", "cloud")], 1):
            assert running.move(operator, to=site).outcome == "done"
            send(running, 30, 30 * nth)
        settle(running)
        found = running.records("counts")
        assert sorted(each.frame for each in found) == list(range(120))
        assert all(each.objects == 2 * (each.frame % 5) for each in found)
        for camera in ("c0", "c1", "c2"):
            mine = [each.frame for each in found if each.camera == camera]
            assert mine == sorted(mine)
        until(lambda: set(running.transforms.queries) == {"edge1/objects", "cloud/twice"})
        assert audit_deployment(running.deployment, running.initial) == []


def _number(path: Path) -> int:
    return int(path.name)


def test_a_query_that_ends_is_started_again_and_loses_and_repeats_nothing(spark: Any, tmp_path: Path) -> None:
    with up(cameras(with_sql), tmp_path) as running:
        handle = running.transforms.queries[PlaceId("cloud/objects")]
        for at in range(0, 90, 30):
            send(running, 30, at)
            handle.query.stop()
        settle(running)
        check_frames(running, list(range(90)))


def test_a_function_that_does_not_give_its_columns_is_refused_before_anything_runs(spark: Any, tmp_path: Path) -> None:
    refused = pytest.raises(ConfigurationError, match="the result has no column objects; it has camera, frame")
    with refused, up(cameras(lambda frames: frames.drop("pixels")), tmp_path):
        pass


def test_what_cannot_run_is_refused() -> None:
    lock = threading.Lock()
    refused = pytest.raises(ConfigurationError, match=r"operator objects .*cannot be sent .*lock")
    with refused, run(cameras(lambda frames: lock and frames), topology=TOPOLOGY, hosts="per-site"):
        pass
    app = App("roads")
    cars = app.source("cars", "car string", key="car", roaming=True)
    cars.transform("plain", lambda frame: frame, "car string").to("out")
    with pytest.raises(ConfigurationError, match="devices that roam"), run(app, topology=TOPOLOGY):
        pass
