"""`format("peregrine")` on a real router: results read in every way are the same, and what is fed enters once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness import CLOUD, OP, SINK, rows, sink, spec
from peregrine.control.auditing import audit_routers
from peregrine.core.messages import FromSource
from peregrine.core.rows import UNCHAINED, Row
from peregrine.core.topology import Topology
from peregrine.net.launch import RouterProcess
from peregrine.net.settings import RouterSettings, make_token
from peregrine.types import SourceId


class Site:
    """A router process. Its sink is fed directly: what enters can be read as a result, with no host in between."""

    def __init__(self, spark: Any, directory: Path) -> None:
        from peregrine.spark.format import register

        register(spark)
        self.spark, self.directory = spark, directory
        self.token_file = directory / "token"
        make_token(self.token_file)
        settings = RouterSettings.of(
            CLOUD, Topology.tree(CLOUD), (spec(), sink()), directory / "router", self.token_file
        )
        self.router = RouterProcess(settings, directory / "router.json", directory / "router.log")
        self.client = self.router.client()

    def options(self, **more: Any) -> dict[str, str]:
        given = {"address": self.router.address, "token_file": self.token_file, **more}
        return {name: str(value) for name, value in given.items()}

    def results(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        position = 0
        while True:
            table, after = self.client.read_results(position)
            if after == position:
                return found
            found += table.to_pylist()
            position = after

    def fed(self) -> list[tuple[str, str]]:
        return sorted((each["key"], each["payload"].decode()) for each in self.results())


@pytest.fixture
def site(spark: Any, tmp_path: Path) -> Iterator[Site]:
    made = Site(spark, tmp_path)
    yield made
    made.client.close()
    made.router.stop()
    assert audit_routers([made.router.settings]) == []


def result(i: int) -> Row:
    return Row(f"k{i % 5}", SourceId("s"), i, UNCHAINED, i, i + 1, b'{"n": %d, "half": %g}' % (i, i / 2))


COLUMNS = ("op", "key", "source", "seq", "time_ms", "created_ms", "position", "payload")


def test_results_as_a_table_as_a_stream_and_from_the_router_are_the_same(site: Site) -> None:
    seq = 0
    for size in (1, 40, 3, 25, 7, 1, 90, 2):  # records of a log are of all sizes, and cuts must not split or skip them
        given = [result(i) for i in range(seq, seq + size)]
        seq += size
        site.client.offer(FromSource(SourceId("s"), ((seq - 1, rows(*given, op=SINK)),)))
    expected = [(*(each[name] for name in COLUMNS[:-1]), each["payload"].decode()) for each in site.results()]
    assert len(expected) == seq

    small = site.options(partition_rows=20, max_rows=30)
    table = site.spark.read.format("peregrine").options(**small).load()
    assert table.columns == list(COLUMNS)
    assert table.rdd.getNumPartitions() > 3
    assert [tuple(each) for each in table.collect()] == expected

    stream = site.spark.readStream.format("peregrine").options(**small).load()
    query = stream.writeStream.format("memory").queryName("results").trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(60)
    finally:
        query.stop()
    found = sorted((tuple(each) for each in site.spark.table("results").collect()), key=lambda each: each[6])
    assert found == expected
    assert len(query.recentProgress) > 3

    parsed = (
        site.spark.read.format("peregrine").options(**small, op=SINK).schema("seq bigint, n int, half double").load()
    )
    assert [tuple(each) for each in parsed.collect()] == [(i, i, i / 2) for i in range(seq)]
    none = site.spark.read.format("peregrine").options(**site.options(op=OP)).load()
    assert none.collect() == []


def test_a_stream_that_feeds_a_site_goes_on_from_its_checkpoint_without_loss_or_repeat(site: Site) -> None:
    files, checkpoint = site.directory / "files", site.directory / "checkpoint"
    files.mkdir()
    expected: list[tuple[str, str]] = []

    def drop(name: str) -> None:
        given = [(f"k{i % 3}", f"{name}-{i}") for i in range(50)]
        expected.extend(given)
        columns = [pa.array(column) for column in zip(*given, strict=True)]
        pq.write_table(pa.table(columns, names=["key", "payload"]), files / f"{name}.parquet")

    def run(tasks: int) -> list[int]:
        source = site.spark.readStream.schema("key string, payload string").option("maxFilesPerTrigger", 1)
        query = (
            source.parquet(str(files))
            .repartition(tasks)
            .writeStream.format("peregrine")
            .options(**site.options(op=SINK, source="cars"))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        return [progress["batchId"] for progress in query.recentProgress]

    drop("a"), drop("b")
    assert run(tasks=1) == [0, 1]
    assert site.fed() == sorted(expected)
    # As if the driver had died between the router's answer and Spark's own commit: the batch runs again.
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    drop("c")
    assert run(tasks=3) == [1, 2]
    assert site.fed() == sorted(expected)
    found = site.results()
    assert len({(each["source"], each["seq"]) for each in found}) == len(found) == 150
    (source,) = {each["source"] for each in found}
    assert source.startswith("cars@")


def test_a_numbered_batch_may_be_written_again_and_one_without_a_number_is_new_every_time(site: Site) -> None:
    frame = site.spark.range(20).selectExpr("concat('k', id % 3) key", "cast(id as string) payload", "id time_ms")

    def write(**more: Any) -> None:
        frame.write.format("peregrine").mode("append").options(**site.options(op=SINK, **more)).save()

    write(source="load", batch=1)
    write(source="load", batch=1)
    assert len(site.fed()) == 20
    write(source="load", batch=2)
    assert len(site.fed()) == 40
    write(), write()
    found = site.results()
    assert len(found) == 80
    assert all(each["time_ms"] == int(each["payload"]) for each in found)
    assert len({(each["source"], each["seq"]) for each in found}) == 80


def test_what_cannot_be_fed_is_refused_before_a_row_is_sent(site: Site) -> None:
    frame = site.spark.range(3).selectExpr("cast(id as string) key", "cast(id as string) payload")

    def write(given: Any, mode: str = "append", **options: Any) -> None:
        given.write.format("peregrine").mode(mode).options(**site.options(**options)).save()

    for wrong, told in (
        (lambda: write(frame.drop("payload"), op=SINK), "payload is missing"),
        (lambda: write(frame, op="app/nobody"), f"unknown operator 'app/nobody'.*{OP}"),
        (lambda: write(frame), "without the option op"),
        (lambda: write(frame, op=SINK, batch="x"), "option batch is 'x'"),
        (lambda: write(frame, mode="overwrite", op=SINK), "cannot be overwritten"),
    ):
        with pytest.raises(Exception, match=f"(?s){told}"):
            wrong()
    assert site.results() == []
    assert site.client.status().dead_end == 0
