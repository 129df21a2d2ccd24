"""DataFrame operators when the tree changes: they follow their producers, each to the host of its name.

cloud
  edge1    has the operator first; leaves in the end
    train  with a camera
  edge2    then the train is here
  edge3    joins, and then the train is there
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from test_transform import settle, until

from harness import OP, SINK, row
from peregrine.app.aggregates import Count
from peregrine.app.model import App
from peregrine.control import questions
from peregrine.control.auditing import audit_deployment
from peregrine.control.running import Running, run
from peregrine.core import wire
from peregrine.core.host import GroupEntry, Part, emissions_of
from peregrine.core.keyspace import KeySet
from peregrine.core.large import Sizes
from peregrine.core.rows import Rows, rows_of
from peregrine.core.topology import Link, Site, Topology
from peregrine.log.record_log import Fsync
from peregrine.plan.redeploy.events import LinkSet, SiteMoved, SiteRemoved, SiteSet, Station, TopologyEvent
from peregrine.sim.operators import Ledger
from peregrine.types import OpId, PlaceId, SiteId, SourceId

CLOUD, EDGE1, EDGE2, EDGE3, TRAIN = (SiteId(name) for name in ("cloud", "edge1", "edge2", "edge3", "train"))
LINK = Link(1.0, 200.0)
TREE = Topology.tree(CLOUD, {EDGE1: (CLOUD, LINK), EDGE2: (CLOUD, LINK), TRAIN: (EDGE1, LINK)})
PATIENCE_S = 180.0


def score(seen: Any) -> Any:
    return seen.withColumn("score", 10 * seen.frame).select("camera", "frame", "score")


def behind_a_map() -> App:
    """The map is on the train: it is what feeds the operator, and the train takes it along."""
    app = App("cameras", groups=4)
    frames = app.source("frames", "camera string, frame bigint", key="camera")
    halved = frames.map(
        "halved", lambda each: {"camera": each.camera, "frame": each.frame // 2}, "camera string, frame bigint"
    )
    halved.transform("score", score, "camera string, frame bigint, score bigint").to("scores")
    return app


def behind_a_count() -> App:
    """The count is at the edge, beside the operator, and has state: both follow the train."""
    app = App("cameras", groups=4)
    frames = app.source("frames", "camera string, frame bigint", key="camera")
    frames.key_by("camera").aggregate("seen", frame=Count()).transform(
        "score", score, "camera string, frame bigint, score bigint"
    ).to("scores")
    return app


class Filming:
    """Frames flow from the train as long as the block lasts."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.sender = running.senders.get("camera") or running.device("camera", TRAIN)
        self.sent = 0

    def film(self, count: int) -> None:
        for _ in range(count):
            self.sender.send("frames", camera=f"c{self.sent % 3}", frame=2 * self.sent)
            self.sent += 1

    @contextmanager
    def all_the_while(self) -> Iterator[None]:
        over = threading.Event()

        def film() -> None:
            while not over.wait(0.02):
                self.film(3)

        filming = threading.Thread(target=film)
        filming.start()
        try:
            yield
        finally:
            over.set()
            filming.join()

    def changed(self, *events: TopologyEvent) -> None:
        """While frames flow."""
        with self.all_the_while():
            found = self.running.deployment.change(events, PATIENCE_S)
        assert not found.put_off, found
        assert all(each.outcome == "done" and not each.left_out for each in found.redeployed), found


@contextmanager
def up(app: App, directory: Path, at: Any) -> Iterator[Running]:
    with run(app, topology=TREE, directory=directory / "up", fsync=Fsync.OFF, at=at) as running:
        yield running


def places(running: Running, op: str) -> set[str]:
    return set(running.deployment.driver.ask(questions.places, [OpId(f"cameras/{op}")]))


def practised(running: Running, place: str) -> bool:
    """Did its query have a sample before the first frame came?"""
    log, _ = running.deployment.clients[SiteId(place.partition("/")[0])].read_log(PlaceId(place), 0)
    rows = [entry for entry in map(wire.decode_entry, log.column("body").to_pylist()) if isinstance(entry, Rows)]
    return rows[0].sample and not rows[-1].sample


def test_a_dataframe_operator_follows_a_train_from_edge_to_edge_and_to_one_that_joins(
    spark: Any, tmp_path: Path
) -> None:
    with up(behind_a_map(), tmp_path, {"halved": {"train": None}, "score": {"edge1": None}}) as running:
        filming = Filming(running)
        filming.film(30)
        settle(running)
        assert set(running.transforms.queries) == {"edge1/score"}

        filming.changed(SiteMoved(TRAIN, EDGE1, EDGE2, LINK, 1))
        assert running.deployment.topology.parent(TRAIN) == EDGE2
        assert (places(running, "halved"), places(running, "score")) == ({"train"}, {"edge2/score"})
        filming.film(30)
        settle(running)
        assert practised(running, "edge2/score")
        until(lambda: set(running.transforms.queries) == {"edge2/score"})  # the one that was left has nothing to do

        filming.changed(SiteSet(Station(Site(EDGE3)), 2), LinkSet(EDGE3, CLOUD, LINK, 2))
        filming.changed(SiteMoved(TRAIN, EDGE2, EDGE3, LINK, 3))
        assert places(running, "score") == {"edge3/score"}
        filming.changed(SiteRemoved(EDGE1, 4))
        settle(running)
        check_scores(running, filming.sent)
        until(lambda: set(running.transforms.queries) == {"edge3/score"})
        until(lambda: EDGE1 not in running.deployment.routers)
        assert audit_deployment(running.deployment, running.initial) == []
    with up(behind_a_map(), tmp_path, None) as running:  # goes on from its directory, where the edge has joined
        assert set(running.transforms.queries) >= {"edge3/score"}
        sent = filming.sent
        filming = Filming(running)
        filming.sent = sent
        filming.film(30)
        settle(running)
        check_scores(running, filming.sent)


def check_scores(running: Running, sent: int) -> None:
    """Each frame once, those of a camera in order."""
    found = running.records("scores")
    assert sorted(each.frame for each in found) == list(range(sent))
    for camera in ("c0", "c1", "c2"):
        frames = [each.frame for each in found if each.camera == camera]
        assert frames == sorted(frames)
    assert all(each.score == 10 * each.frame for each in found)


def test_it_goes_by_way_of_the_cloud_with_what_feeds_it_from_the_same_edge(spark: Any, tmp_path: Path) -> None:
    with up(behind_a_count(), tmp_path, {"seen": {"edge1": None}, "score": {"edge1": None}}) as running:
        running.deployment.driver.feed(SourceId("camera"), ((OpId("cameras/seen"), KeySet.everything(4)),))
        filming = Filming(running)
        filming.film(30)
        settle(running)
        filming.changed(SiteMoved(TRAIN, EDGE1, EDGE2, LINK, 1))
        assert (places(running, "seen"), places(running, "score")) == ({"edge2"}, {"edge2/score"})
        filming.film(30)
        settle(running)
        found = running.records("scores")
        for nth, camera in enumerate(("c0", "c1", "c2")):
            counts = [each.frame for each in found if each.camera == camera]
            assert counts == list(range(1, len(range(nth, filming.sent, 3)) + 1))
        until(lambda: set(running.transforms.queries) == {"edge2/score"})
        assert audit_deployment(running.deployment, running.initial) == []


def test_rows_of_an_operator_that_a_host_does_not_have_are_dead_letters_that_say_so(spark: Any, tmp_path: Path) -> None:
    from peregrine.spark import registry, served
    from peregrine.spark.applying import Applier

    place = PlaceId("edge2")
    registry.publish(tmp_path / "operators", {OP: Ledger(SINK)})
    served.publish(tmp_path / "served", {place: served.Served("x:1")})
    applier = Applier(str(tmp_path / "served"), str(tmp_path / "operators"), 1 << 16, Sizes(), durable=False)
    entries: list[tuple[int, GroupEntry]] = [(7, Part([7, 8], [row("k", 0), row("k", 1)]))]
    applied = applier.apply(place, OpId("cameras/score"), 0, b"", entries)
    items = [each.item for each in emissions_of(applied.outputs)]
    assert {item.op for item in items if isinstance(item, Rows)} == {"cameras/score!failed"}
    letters = [
        msgspec.json.decode(letter.payload)
        for item in items
        if isinstance(item, Rows)
        for letter in rows_of(item.batch)
    ]
    assert [letter["position"] for letter in letters] == [7, 8]
    assert "the host of edge2 does not have operator cameras/score" in letters[0]["reason"]
    assert "remedy: move its keys to where it runs" in letters[0]["reason"]
    assert [each.item for each in emissions_of(applier.apply(place, OP, 0, b"", entries).outputs)]
