"""`python -m peregrine.spark.measure`: how fast a host on Spark is on this machine, with a router process beside it.

Latency is from the creation of a row at its source until its result can be read at the router: router, log, host and
router again. Rows are made as fast as asked for, in small batches; at saturation the log is full before the host
starts, and the first batches do not count.
"""

import argparse
import json
import os
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peregrine.core.messages import FromSource
from peregrine.core.operator import Marks, Operator, OpSpec, Out
from peregrine.core.rows import UNCHAINED, Row, Rows, batch_of
from peregrine.core.topology import Topology
from peregrine.net.launch import RouterProcess
from peregrine.net.settings import RouterSettings, make_token
from peregrine.spark import host, registry
from peregrine.spark.session import open_session
from peregrine.spark.worker import PlaceAddress
from peregrine.types import OpId, PlaceId, SiteId, SourceId

OP, SINK, SITE, PLACE = OpId("m/average"), OpId("m/results"), SiteId("cloud"), PlaceId("cloud")
WARM_UP_S = 10.0
FEED_EVERY_S = 0.02


@dataclass(frozen=True)
class Average:
    """A running average of each key."""

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        count, total = value or (0, 0.0)
        count, total = count + 1, total + float(row.payload)
        return (count, total), [Out(SINK, key, row.source, row.seq, row.time_ms, b"%.3f" % (total / count))]

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        return value, []

    def open_ends(self, value: Any) -> list[int]:
        return []


class Run:
    def __init__(self, spark: Any, directory: Path, groups: int, max_rows: int) -> None:
        token_file = directory / "token"
        make_token(token_file)
        operators = (OpSpec(OP, groups, feeds=(SINK,)), OpSpec(SINK, 1, sink=True))
        settings = RouterSettings.of(
            SITE, Topology.tree(SITE), operators, directory / "router", token_file, host_lag_rows=1 << 40
        )
        self.router = RouterProcess(settings, directory / "router.json", directory / "router.log")
        self.client = self.router.client()
        published: dict[OpId, Operator] = {OP: Average()}
        registry.publish(directory / "operators", published)
        at = [PlaceAddress(PLACE, self.router.address)]
        self.config = host.HostConfig(
            at, token_file, directory / "operators", directory / "checkpoint", max_rows=max_rows
        )
        self._spark = spark
        self._seq = 0

    def feed(self, count: int, keys: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        numbers = range(self._seq, self._seq + count)
        rows = [Row(f"k{i % keys}", SourceId("s"), i, UNCHAINED, now_ms, now_ms, b"%d" % (i % 97)) for i in numbers]
        self._seq += count
        self.client.offer(FromSource(SourceId("s"), ((self._seq - 1, Rows(OP, batch_of(rows))),)))

    def at_rate(self, rows_per_s: int, keys: int, seconds: float) -> dict[str, Any]:
        query = host.start(self._spark, self.config)
        self.feed(10, keys)
        self._until_committed(query)
        stop = threading.Event()
        latencies: list[np.ndarray[Any, Any]] = []
        threading.Thread(target=self._watch, args=(latencies, stop), daemon=True).start()
        self._feed_for(WARM_UP_S, rows_per_s, keys)
        latencies.clear()
        batches = _progress(query)[-1]["batchId"]
        self._feed_for(seconds, rows_per_s, keys)
        progress = [each for each in _progress(query) if each["batchId"] > batches]
        stop.set()
        query.stop()
        found = np.concatenate(latencies)
        return {
            "keys": keys,
            "rows/s": rows_per_s,
            "batches": len(progress),
            "spent_ms": {
                part: round(float(np.mean([each["durationMs"].get(part, 0) for each in progress])), 1)
                for part in (
                    "triggerExecution",
                    "addBatch",
                    "queryPlanning",
                    "latestOffset",
                    "walCommit",
                    "commitOffsets",
                )
            },
            "latency_ms": {
                "mean": round(float(found.mean()), 1),
                **{f"p{p}": round(float(np.percentile(found, p)), 1) for p in (50, 99)},
            },
            "results": len(found),
        }

    def _feed_for(self, seconds: float, rows_per_s: int, keys: int) -> None:
        begun, first = time.monotonic(), self._seq
        while (elapsed := time.monotonic() - begun) < seconds:
            if (behind := int(elapsed * rows_per_s) - (self._seq - first)) > 0:
                self.feed(behind, keys)
            time.sleep(FEED_EVERY_S)

    def _until_committed(self, query: Any) -> None:
        while self.client.status().commits.get(PLACE, 0) < self._seq:
            if not query.isActive:
                raise RuntimeError(str(query.exception()))
            time.sleep(0.1)

    def _watch(self, latencies: list[np.ndarray[Any, Any]], stop: threading.Event) -> None:
        client, position = self.router.client(), 0
        while not stop.is_set():
            table, after = client.read_results(position)
            if after > position:
                latencies.append(time.time_ns() / 1e6 - table.column("created_ms").to_numpy())
                position = after
            else:
                time.sleep(0.005)

    def saturated(self, rows: int, keys: int) -> dict[str, Any]:
        while self._seq < rows:
            self.feed(5000, keys)
        query = host.start(self._spark, self.config)
        self._until_committed(query)
        counted = _progress(query)[2:]
        query.stop()
        done = _offset(counted[-1]["sources"][0]["endOffset"]) - _offset(counted[0]["sources"][0]["startOffset"])
        spent_ms = sum(each["durationMs"]["triggerExecution"] for each in counted)
        return {"keys": keys, "max rows/s": round(done / spent_ms * 1000), "batches": len(counted)}

    def close(self) -> None:
        self.client.close()
        self.router.stop()


def _progress(query: Any) -> list[dict[str, Any]]:
    """What Spark tells of the batches that had rows."""
    told = [json.loads(each.json) for each in query.recentProgress]
    return [each for each in told if each["numInputRows"]]


def _offset(offsets: Any) -> int:
    found: dict[str, int] = json.loads(offsets) if isinstance(offsets, str) else offsets
    return found[PLACE]


def main() -> None:
    parser = argparse.ArgumentParser(prog="peregrine.spark.measure", description=__doc__)
    parser.add_argument("--rate", type=int, default=1500, help="rows per second")
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--rows", type=int, default=1_000_000, help="at saturation")
    parser.add_argument("--directory", help="where logs and checkpoints go; else where temporary files do")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")
    given = parser.parse_args()
    spark = open_session("measure", more=dict(each.split("=", 1) for each in given.set))

    def run(ask: Any) -> None:
        with tempfile.TemporaryDirectory(prefix="peregrine-", dir=given.directory) as directory:
            each = Run(spark, Path(directory), given.groups, max_rows=100_000)
            try:
                measured = {"groups": given.groups, **ask(each), "load": os.getloadavg()[0]}
                print(json.dumps(measured), flush=True)
            finally:
                each.close()

    if given.seconds:
        run(lambda each: each.at_rate(given.rate, 10, given.seconds))
    for keys in (10, 1000) if given.rows else ():
        run(lambda each, keys=keys: each.saturated(given.rows, keys))


if __name__ == "__main__":
    main()
