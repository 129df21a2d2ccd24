"""The same processors in plain Spark and as logics, fed with the same rows one by one: they tell the same.

In Spark a row is a batch; each key's results are compared in order. What differs by nature is kept out: the order of
keys, and that a watermark is known to Spark one batch later. So where time matters rows of a key of their own (`tick`)
bring it forward, and wait until it is known.
"""

import datetime as dt
import json
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from peregrine.app.logic import NEVER
from peregrine.app.schema import Record
from processor_drive import Drive

pytestmark = pytest.mark.skipif(
    find_spec("google") is None or find_spec("pyspark") is None or find_spec("pandas") is None,
    reason="pyspark, pandas or protobuf is not installed: pip install --editable '.[spark]'",
)

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
}

TICKS = "ticks"  # the key of rows that bring the time forward

Told = dict[str, list[tuple[Any, ...]]]  # key -> its results, in order
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def plain(spark: Any) -> Iterator[Any]:
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def in_spark(
    spark: Any, directory: Path, processor: Any, schema: str, rows: Rows, mode: str, initial: Rows | None, pandas: bool
) -> Told:
    (directory / "rows").mkdir()
    for number, row in enumerate(rows):  # a file for each: a batch for each
        path = directory / "rows" / f"{number}.json"
        path.write_text(json.dumps(row))
        os.utime(path, (1_000_000 + number, 1_000_000 + number))
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(directory / "rows"))
    if mode == "EventTime":
        stream = stream.withWatermark("at", "0 seconds")
    grouped = stream.groupBy("id")
    transform = grouped.transformWithStateInPandas if pandas else grouped.transformWithState
    start = None if initial is None else spark.createDataFrame(initial).groupBy("id")
    told = transform(processor, processor.OUTPUT, "append", mode, start)
    name = f"told_{type(processor).__name__}_{len(rows)}_{initial is not None}"
    writer = told.writeStream.format("memory").queryName(name).outputMode("append")
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120), "it takes too long"
    finally:
        query.stop()
    found: Told = {}
    for result in spark.table(name).collect():
        found.setdefault(result.id, []).append(_plain(result))
    return found


def as_logic(processor: Any, schema: str, rows: Rows, mode: str, initial: Rows | None, pandas: bool) -> Told:
    from pyspark import cloudpickle

    drive = Drive(
        processor,
        schema,
        processor.OUTPUT,
        time_mode=mode,
        flavour="pandas" if pandas else "row",
        initial_state=initial,
    )
    drive.logic = cloudpickle.loads(cloudpickle.dumps(drive.logic))
    watermark_ms = NEVER
    for number, row in enumerate(rows):
        time_ms = _ms(row["at"]) if "at" in row else 0
        advanced = mode == "EventTime" and time_ms > watermark_ms
        watermark_ms = time_ms if advanced else watermark_ms
        drive.row(row, time_ms, watermark_ms, now_ms=1000 * (number + 1))
        for key in list(drive.states) if advanced else ():
            drive.time(key, watermark_ms)
    found: Told = {}
    for emit in drive.emitted:
        found.setdefault(emit.record.id, []).append(_plain(emit.record))
    return found


def both(
    spark: Any,
    directory: Path,
    processor: Any,
    schema: str,
    rows: Rows,
    mode: str = "None",
    initial: Rows | None = None,
    pandas: bool = False,
) -> Told:
    told = as_logic(processor, schema, rows, mode, initial, pandas)
    in_plain = in_spark(spark, directory, processor, schema, rows, mode, initial, pandas)
    for each in (told, in_plain):
        each.pop(TICKS, None)
    assert in_plain == told
    return told


def _ms(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp() * 1000)


def _plain(value: Any) -> Any:
    if isinstance(value, Record | tuple):
        return tuple(_plain(each) for each in value)
    if isinstance(value, bytearray):
        return bytes(value)
    return value


def at(second: int) -> str:
    return (dt.datetime(1970, 1, 1) + dt.timedelta(seconds=second)).isoformat()


def values(*pairs: tuple[str, int]) -> Rows:
    return [{"id": key, "value": value} for key, value in pairs]


def timed(*triples: tuple[str, int, int | None]) -> Rows:
    return [{"id": key, "at": at(second), "value": value} for key, second, value in triples]


def tick(second: int) -> Rows:
    return timed((TICKS, second, 999_000), (TICKS, second, 999_000))


def test_a_running_count_with_initial_state(plain: Any, tmp_path: Path) -> None:
    from processors import READINGS, RunningCount

    told = both(
        plain,
        tmp_path,
        RunningCount(),
        READINGS,
        values(("a", 1), ("b", 5), ("a", 2)),
        initial=[{"id": "a", "count_": 10, "sum": 100}, {"id": "a", "count_": 1, "sum": 1}],
    )
    assert told == {"a": [("a", 12, 102), ("a", 13, 104)], "b": [("b", 1, 5)]}


def test_sessions_by_event_time_timers(plain: Any, tmp_path: Path) -> None:
    from processors import TIMED, Sessions

    rows = timed(("a", 1, 0), ("b", 2, 0), ("a", 7, 0), ("b", 12, 0)) + tick(50)
    rows += timed(("a", 20, 0), ("b", 60, 0)) + tick(99)
    told = both(plain, tmp_path, Sessions(), TIMED, rows, "EventTime")
    assert told["a"] == [("a", 1000, 17000, 2)], "the row that came too late is not in a session"
    assert [row[2:] for row in told["b"]] == [(22000, 2), (70000, 1)]


def test_how_timers_are_looked_up_and_deleted(plain: Any, tmp_path: Path) -> None:
    from processors import TIMED, Alarms

    rows = timed(("a", 1, 10_000), ("a", 2, 20_000), ("a", 3, 30_000)) + tick(20) + tick(30)
    told = both(plain, tmp_path, Alarms(), TIMED, rows, "EventTime")
    assert [row[1] for row in told["a"]] == [10_000, 20_000, 5_000, 30_000]


def test_map_and_list_state(plain: Any, tmp_path: Path) -> None:
    from processors import READINGS, Baskets

    rows = values(("a", 7), ("a", 8), ("b", 7), ("a", 7), ("a", 9), ("a", -7), ("a", 1))
    told = both(plain, tmp_path, Baskets(), READINGS, rows)
    assert told["a"][-1] == ("a", "[('1', 1), ('8', 1), ('9', 1)]", "[1]")


def test_ttl(plain: Any, tmp_path: Path) -> None:
    from processors import READINGS, Expiring

    told = both(plain, tmp_path, Expiring(), READINGS, values(("a", 1), ("a", 2), ("a", 3)), "ProcessingTime")
    assert [row[1:5] for row in told["a"]] == [(1, 1, 1, 1), (1, 2, 1, 1), (1, 3, 1, 1)]


def test_rows_and_states_of_all_types(plain: Any, tmp_path: Path) -> None:
    from processors import ALL_TYPES, Echo

    full = {
        "id": "a",
        "at": "2026-01-02T03:04:05.678",
        "day": "2026-01-02",
        "price": 1.5,
        "tags": ["x", "y"],
        "props": {"p": 1, "q": 2},
        "pos": {"x": 0.5, "y": -1.0},
        "n": 3,
        "raw": "/w==",
        "flag": True,
    }
    told = both(plain, tmp_path, Echo(), ALL_TYPES, [full, {"id": "a"}, full])
    assert [row[7] for row in told["a"]] == [3, None, 3]


def test_the_pandas_flavour(plain: Any, tmp_path: Path) -> None:
    from processors import TIMED, PandasTotals

    rows = timed(("a", 1, 1), ("b", 2, None), ("a", 3, 4)) + tick(30) + timed(("b", 35, 5), ("a", 36, 6)) + tick(60)
    initial = [{"id": "b", "start": 1000}]
    told = both(plain, tmp_path, PandasTotals(), TIMED, rows, "EventTime", initial, pandas=True)
    assert [row[1] for row in told["b"]] == [1100.0, 1100.0, 1105.0, 1105.0]


def test_all_of_them_in_an_application_that_moves(spark: Any, tmp_path: Path) -> None:
    """On routers and Spark, with every key moved to another site in the middle: what they tell as logics."""
    from processors import READINGS, TIMED, Alarms, Baskets, PandasTotals, RunningCount, Sessions

    from peregrine import App, Link, Topology, run
    from peregrine.control.auditing import audit_deployment

    readings = values(("a", 7), ("a", 8), ("b", 7), ("a", 7), ("a", 9), ("a", -7), ("a", 1), ("b", 2), ("a", 3))
    times = timed(("a", 1, 10_000), ("b", 2, 30_000), ("a", 7, 40_000), ("b", 12, 20_000)) + tick(30)
    times += timed(("a", 35, 60_000), ("b", 60, 70_000)) + tick(99)
    started = [{"id": "b", "start": 1000}]
    counted = [{"id": "a", "count_": 10, "sum": 100}]
    processors: dict[str, tuple[Any, str, str, Rows | None, bool]] = {
        "counts": (RunningCount(), READINGS, "None", counted, False),
        "baskets": (Baskets(), READINGS, "None", None, False),
        "sessions": (Sessions(), TIMED, "EventTime", None, False),
        "alarms": (Alarms(), TIMED, "EventTime", None, False),
        "totals": (PandasTotals(), TIMED, "EventTime", started, True),
    }
    app = App("processors", groups=2)
    sources = {
        READINGS: app.source("readings", READINGS, senders=["gate"]),
        TIMED: app.source("times", TIMED, event_time="at", senders=["clock"]),
    }
    for name, (processor, schema, mode, initial, pandas) in processors.items():
        keyed = sources[schema].key_by("id")
        time_mode = {"None": "none", "EventTime": "event"}[mode]
        flavour = "pandas" if pandas else "row"
        keyed.process(
            name, processor, processor.OUTPUT, flavour=flavour, time_mode=time_mode, initial_state=initial
        ).to(name)
    topology = Topology.tree("cloud", {"edge": ("cloud", Link(latency_ms=5))})
    with run(app, topology=topology, directory=tmp_path, keep_journal=True) as running:
        gate, clock = running.device("gate", "edge"), running.device("clock", "cloud")
        for half in range(2):
            for row in readings[half * 5 : half * 5 + 5]:
                gate.send("readings", row)
            for row in times[half * 5 : half * 5 + 5]:
                clock.send("times", {**row, "at": dt.datetime.fromisoformat(row["at"])})
                clock.heartbeat(_ms(row["at"]))
            if not half:
                running.settle()
                for name in processors:
                    running.move(name, "edge")
        running.settle()
        assert audit_deployment(running.deployment, running.initial) == []
        for name, (processor, schema, mode, initial, pandas) in processors.items():
            should = as_logic(processor, schema, readings if schema == READINGS else times, mode, initial, pandas)
            found: Told = {}
            for record in running.records(name):
                found.setdefault(record.id, []).append(_plain(record))
            for told in (found, should):
                told.pop(TICKS, None)
            assert found == should, name
            assert should["a"]
