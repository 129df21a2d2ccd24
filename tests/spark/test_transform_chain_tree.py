"""A chain of DataFrame operators when the site of its producer changes its parent; and one with keys at two sites.

The tree is that of test_transform_tree.py: a train with a camera goes from edge1 to edge2.
"""

from pathlib import Path
from typing import Any

from test_transform import settle, until
from test_transform_tree import EDGE1, EDGE2, LINK, TRAIN, Filming, check_scores, places, score, up

from peregrine.app.model import App, Stream
from peregrine.control import questions
from peregrine.control.auditing import audit_deployment
from peregrine.plan.redeploy.events import SiteMoved
from peregrine.types import OpId

SCORES = "camera string, frame bigint, score bigint"
FRAMES = "camera string, frame bigint"


def halved_frames(app: App) -> Stream:
    """On the train."""
    return app.source("frames", FRAMES, key="camera").map(
        "halved", lambda each: {"camera": each.camera, "frame": each.frame // 2}, FRAMES
    )


def in_a_chain() -> App:
    """Two functions, each a query of its own."""
    app = App("cameras", groups=4)
    halved = halved_frames(app)
    halved.transform("lit", lambda seen: seen.withColumn("light", 5 * seen.frame), f"{FRAMES}, light bigint").transform(
        "score", lambda lit: lit.withColumn("score", 2 * lit.light).select("camera", "frame", "score"), SCORES
    ).to("scores")
    return app


def alone() -> App:
    app = App("cameras", groups=4)
    halved_frames(app).transform("score", score, SCORES).to("scores")
    return app


def test_operators_of_a_chain_follow_a_train_one_behind_the_other(spark: Any, tmp_path: Path) -> None:
    at = {"halved": {"train": None}, "lit": {"edge1": None}, "score": {"edge1": None}}
    with up(in_a_chain(), tmp_path, at) as running:
        filming = Filming(running)
        filming.film(30)
        settle(running)
        filming.changed(SiteMoved(TRAIN, EDGE1, EDGE2, LINK, 1))
        assert running.deployment.topology.parent(TRAIN) == EDGE2
        for op in ("lit", "score"):
            assert places(running, op) == {f"edge2/{op}"}
        filming.film(30)
        settle(running)
        check_scores(running, filming.sent)
        until(lambda: set(running.transforms.queries) == {"edge2/lit", "edge2/score"})
        assert audit_deployment(running.deployment, running.initial) == []


def test_of_keys_at_two_sites_those_follow_a_train_that_would_not_be_above_it(spark: Any, tmp_path: Path) -> None:
    at = {"halved": {"train": None}, "score": {"edge1": ["c0", "c1"], "cloud": None}}
    with up(alone(), tmp_path, at) as running:
        filming = Filming(running)
        filming.film(30)
        settle(running)
        assert set(running.transforms.queries) == {"cloud/score", "edge1/score"}
        filming.changed(SiteMoved(TRAIN, EDGE1, EDGE2, LINK, 1))
        owners = running.deployment.driver.ask(questions.owners, OpId("cameras/score"), ("c0", "c1", "c2"))
        assert owners == {"c0": "edge2/score", "c1": "edge2/score", "c2": "cloud/score"}
        filming.film(30)
        settle(running)
        check_scores(running, filming.sent)
        until(lambda: set(running.transforms.queries) == {"cloud/score", "edge2/score"})
        assert audit_deployment(running.deployment, running.initial) == []
