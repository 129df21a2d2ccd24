"""A router under a day's worth of rows, replayed as fast as it goes: its memory stays flat and its disk bounded.

1,500 rows/s for a day are 130 million rows. A reader stands in for the host: it hands every row back as a result and
commits what it has read, as a host does. Without `--day`, 5 million of the rows are replayed.
"""

import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from peregrine.bench.spark.experiment import Experiment, Found, Scale
from peregrine.bench.spark.figures import Figure, at_most, ratio
from peregrine.bench.spark.stream import CLOUD
from peregrine.core import wire
from peregrine.core.host import Emission
from peregrine.core.messages import Committed, FromHost, FromSource
from peregrine.core.operator import OpSpec
from peregrine.core.rows import Rows
from peregrine.core.topology import Topology
from peregrine.errors import Busy
from peregrine.net.client import RouterClient
from peregrine.net.launch import RouterProcess
from peregrine.net.settings import RouterSettings, make_token
from peregrine.types import OpId, PlaceId
from peregrine.workloads import road

DAY_ROWS = 1_500 * 24 * 3600
OP, SINK = OpId("day/echo"), OpId("day/results")
FEED_ROWS = 5_000
WINDOWS = 40
KEEP_RESULT_ROWS = 200_000
KEYS = 1_000


def router(scale: Scale) -> Found:
    rows = DAY_ROWS if scale.day else int(scale.pick(5_000_000, 1_000_000))
    with tempfile.TemporaryDirectory() as directory:
        return _replay(Path(directory), rows)


def _replay(directory: Path, rows: int) -> Found:
    token_file = directory / "token"
    make_token(token_file)
    operators = (OpSpec(OP, 1, feeds=(SINK,)), OpSpec(SINK, 1, sink=True))
    settings = RouterSettings.of(
        CLOUD,
        Topology.tree(CLOUD),
        operators,
        directory / "router",
        token_file,
        results_keep_rows=KEEP_RESULT_ROWS,
    )
    process = RouterProcess(settings, directory / "router.json", directory / "router.log")
    feeder, watcher = process.client(), process.client()
    echo = _Echo(process.client(), rows)
    thread = threading.Thread(target=echo.run, name="echo", daemon=True)
    thread.start()
    samples: list[dict[str, float]] = []
    began = time.monotonic()
    try:
        batch = road.batch(0, FEED_ROWS, KEYS, 0)
        for first in range(0, rows, FEED_ROWS):
            _offer(feeder, first, batch)
            if first // FEED_ROWS % max(rows // FEED_ROWS // WINDOWS, 1) == 0:
                samples.append(_sample(watcher, directory / "router", first))
        thread.join()
        seconds = time.monotonic() - began
        status = watcher.status()
        came = {"rows": rows, "echoed": echo.done, "results": status.results_end, "dead": status.dead_end}
        return {"samples": samples, "rows": rows, "rows_per_s": rows / seconds, "proofs": {"replay": _proved(**came)}}
    finally:
        echo.stopping = True
        thread.join()
        for client in (feeder, watcher, echo.client):
            client.close()
        process.stop()


def _offer(client: RouterClient, first: int, batch: Any) -> None:
    """The same readings again and again, each time with new numbers."""
    numbers = np.arange(first, first + batch.num_rows, dtype=np.int64)
    fresh = batch.set_column(3, batch.schema.field(3), pa.array(numbers)) if first else batch
    event = FromSource(road.SOURCE, ((first + batch.num_rows - 1, Rows(OP, fresh)),))
    while True:
        try:
            client.offer(event)
            return
        except Busy:
            time.sleep(0.01)  # back-pressure: the reader is behind


class _Echo:
    """Reads the host's log, hands every row back as a result, and commits, as a host does."""

    def __init__(self, client: RouterClient, rows: int) -> None:
        self.client = client
        self.done = 0
        self.stopping = False
        self._rows = rows

    def run(self) -> None:
        place = PlaceId(CLOUD)
        while self.done < self._rows and not self.stopping:
            table, after = self.client.read_log(place, self.done, 50_000)
            if after == self.done:
                time.sleep(0.002)
                continue
            emissions = []
            for offsets, body in zip(
                table.column("offsets").to_pylist(), table.column("body").to_pylist(), strict=True
            ):
                entry = wire.decode_entry(body)
                assert isinstance(entry, Rows), "only rows were sent"
                emissions.append(Emission(np.frombuffer(offsets, np.int64), Rows(SINK, entry.batch)))
            self.client.offer(FromHost(place, OP, 0, tuple(emissions)))
            self.client.offer(Committed(place, after))
            self.done = after


def _sample(client: RouterClient, directory: Path, rows: int) -> dict[str, float]:
    return {"rows": rows, "rss_mb": client.status().rss / (1 << 20), "disk_mb": _disk_mb(directory)}


def _disk_mb(directory: Path) -> float:
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue  # cut off meanwhile
    return total / (1 << 20)


def _proved(rows: int, echoed: int, results: int, dead: int) -> dict[str, Any]:
    """By number: each row came to the reader once, and each result landed once."""
    return {
        "rows_in": rows,
        "rows_out": results,
        "lost": max(rows - results, 0) + max(rows - echoed, 0),
        "repeated": max(results - rows, 0),
        "out_of_order": 0,
        "states_that_differ": 0,
        "violations": [f"{dead} dead letters"] if dead else [],
    }


def figures(found: Mapping[str, Found]) -> list[Figure]:
    part = found["router"]
    samples: Sequence[Mapping[str, float]] = part["samples"]
    rss, disk = [each["rss_mb"] for each in samples], [each["disk_mb"] for each in samples]
    rows = f"{part['rows'] / 1e6:,.0f} million rows"
    return [
        Figure(
            f"router memory over {rows}, end / middle",
            flatness(rss),
            "x",
            at_most(1.1),
            f"{rss[0]:.0f} MB at first, {max(rss):.0f} MB at most, {slope(samples) * 130:+,.0f} MB for a day",
        ),
        Figure(
            f"router disk over {rows}, end / middle",
            flatness(disk),
            "x",
            at_most(1.1),
            f"{max(disk):.0f} MB at most, with {KEEP_RESULT_ROWS:,} results kept",
        ),
        Figure("replayed", part["rows_per_s"], "rows/s", note=f"{part['rows_per_s'] / 1500:.0f} times 1,500 rows/s"),
    ]


def flatness(samples: Sequence[float]) -> float | None:
    """The most of the last third over the most of the third before: what saws up and down is flat."""
    third = len(samples) // 3
    return ratio(max(samples[-third:]), max(samples[third:-third])) if third else None


def slope(samples: Sequence[Mapping[str, float]]) -> float:
    """MB for each million rows, over the last two thirds."""
    late = samples[len(samples) // 3 :]
    found = np.polyfit([each["rows"] / 1e6 for each in late], [each["rss_mb"] for each in late], 1)
    return float(found[0])


EXPERIMENT = Experiment("memory", __doc__.partition("\n")[0], {"router": router}, figures)
