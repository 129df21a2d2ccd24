"""What is told of a query: Spark's own words, in ours."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install --editable '.[spark]'")
from peregrine.spark.listener import Progress, ProgressListener, told


def test_the_last_batch_is_told_with_what_each_part_of_it_took(spark: Any) -> None:
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    query = numbers.writeStream.format("noop").queryName("numbers").start()
    try:
        while query.lastProgress is None:
            assert query.isActive, query.exception()
            time.sleep(0.05)
        found = ProgressListener().hear(query)
        assert found.query == "numbers" and found.running and not found.failure
        assert found.batch >= 0 and found.rows > 0
        assert found.parts_ms["addBatch"] <= found.trigger_ms
    finally:
        query.stop()
    assert not ProgressListener().hear(query).running


def test_a_query_is_asked_now_and_then_and_one_that_took_its_place_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peregrine.spark.listener.ASK_EVERY_S", 3600.0)
    listener = ProgressListener()
    first, second = (
        SimpleNamespace(name=name, isActive=True, exception=lambda: None, lastProgress=None) for name in "ab"
    )
    assert listener.hear(first).batch == -1
    first.lastProgress = PROGRESS
    assert listener.hear(first).batch == -1
    assert listener.hear(second).query == "b"


PROGRESS = {"batchId": 3, "timestamp": "2026-01-01T00:00:00.000Z", "numInputRows": 0, "durationMs": {}}


def test_a_batch_without_rows_lacks_rates_and_stores() -> None:
    found = told(Progress("q", True), PROGRESS)
    assert (found.batch, found.rows_per_s, found.trigger_ms, found.groups) == (3, 0.0, 0, 0)
