"""What `run` gives to users: results as DataFrames, state, plans for people, and errors that name what is wrong."""

import threading
from pathlib import Path
from typing import Any

import pytest

from peregrine import App, Avg, Count, run
from peregrine.control.auditing import audit_deployment
from peregrine.errors import ConfigurationError, PlanError, UnknownName

READINGS = "sensor bigint, value double"


SITES = """
[topology]
root = "cloud"

[sites.edge]
parent = "cloud"
latency_ms = 5
bandwidth_mbps = 1000
runner = "continuous"

[batches]
trigger_ms = 40
"""


def averages() -> App:
    app = App("lab", groups=4)
    readings = app.source("readings", READINGS, senders=["probe"])
    readings.key_by("sensor").aggregate("average", average=Avg("value"), readings=Count()).to("averages")
    return app


def test_results_and_state_of_a_running_application(spark: Any, tmp_path: Path) -> None:
    config = tmp_path / "sites.toml"
    config.write_text(SITES)
    with run(
        averages(), config=config, at={"average": {"edge": [1]}}, directory=tmp_path / "run", keep_journal=True
    ) as running:
        assert running.deployment.runners == {"edge": "continuous"}
        query: Any = running.deployment.host.query
        assert "(40)" in query._jsq.streamingQuery().trigger().toString(), "how often a batch begins"
        probe = running.device("probe", "edge")
        for value in range(10):
            probe.send("readings", sensor=value % 2, value=value)
        running.finish()

        table = running.results("averages")
        assert table.schema.simpleString() == "struct<sensor:bigint,average:double,readings:bigint>"
        assert table.where("sensor = 1").orderBy("readings").tail(1)[0].asDict() == {
            "sensor": 1,
            "average": 5.0,
            "readings": 5,
        }
        stream = running.results("averages", stream=True).writeStream.format("memory").queryName("averages")
        query = stream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "stream")).start()
        assert query.awaitTermination(60)
        assert spark.table("averages").count() == 10

        assert running.state("average", 1) == [[25.0, 5], 5]
        assert running.state("average", 7) is None
        assert {(row.place, row.key) for row in running.state_frame("average").collect()} == {
            ("cloud", "0"),
            ("edge", "1"),
        }
        assert [line.split() for line in running.describe().splitlines()[1:]] == [
            ["lab/average", "cloud", "*,-1"],
            ["lab/average", "edge", "1"],
        ]
        assert audit_deployment(running.deployment, running.initial) == []
        for wrong, error in (
            (lambda: running.move("averrage", "edge"), UnknownName),
            (lambda: running.move("average", "moon"), UnknownName),
            (lambda: running.move("average", "edge", keys=[1]), PlanError),
            (lambda: running.results("average"), UnknownName),
            (lambda: probe.send("reading", sensor=1), UnknownName),
            (lambda: probe.send("readings", sensor=1), ConfigurationError),  # it is finished
            (lambda: running.device("other", "edge").send("readings", sensor=1), ConfigurationError),
        ):
            with pytest.raises(error):
                wrong()


def test_code_that_cannot_travel_is_refused_before_anything_starts() -> None:
    lock = threading.Lock()
    app = App("lab")
    app.source("readings", READINGS).filter("held", lambda row: lock.locked()).to("none")
    with pytest.raises(ConfigurationError, match=r"held.*lock"), run(app):
        pass
