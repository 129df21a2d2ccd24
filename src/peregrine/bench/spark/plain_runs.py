"""Runs of the plain query, seen and proved like ours."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from peregrine import measure, proof
from peregrine.bench.spark.stream import PATIENCE_S, now_ms, progress
from peregrine.errors import PeregrineError
from peregrine.proof import Lines
from peregrine.workloads import road

WARM_BATCHES = 10
BATCH_ROWS = 100_000  # at most


class PlainRun:
    def __init__(
        self,
        directory: Path,
        keys: int,
        rows_per_s: float = 0.0,
        rows: int = 1 << 62,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        from peregrine.spark import plain

        self._plain = plain
        self._spark = plain.open_plain_session()
        self.config = plain.PlainConfig(
            keys, directory / "checkpoint", directory / "results", rows, rows_per_s, batch_rows, began_ms=int(now_ms())
        )
        self.query: Any = plain.start(self._spark, self.config)

    def warm_up(self, seconds: float) -> None:
        self._until(lambda: len(progress(self.query)) >= WARM_BATCHES)
        time.sleep(seconds)

    def finish(self) -> None:
        """Until all rows are through."""
        last = self.config.rows
        self._until(lambda: any(_end(each) >= last for each in progress(self.query)[-1:]))

    def restart(self) -> None:
        """What one does with Spark to change a running query: stop it, and start it from its checkpoint."""
        self.query.stop()
        self.query = self._plain.start(self._spark, self.config)

    def repartition(self, partitions: int) -> int:
        """The same with another number of partitions, by Spark's own offline repartitioning. It wants the batch to be
        finished that was broken off. Returns the bytes of state that it wrote.
        """
        self.query.stop()
        self._plain.start(self._spark, self.config, once=True).awaitTermination()
        before = _bytes(self.config.checkpoint / "state")
        self._plain.repartition(self._spark, self.config, partitions)
        moved = _bytes(self.config.checkpoint / "state") - before
        self.query = self._plain.start(self._spark, self.config)
        return moved

    def wait_for_batch(self) -> None:
        self._until(lambda: progress(self.query))

    def stop(self) -> None:
        self.query.stop()

    def _until(self, done: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            if not self.query.isActive or time.monotonic() > deadline:
                raise PeregrineError(f"the plain query does not work: {self.query.exception()}", "look at Spark's log")
            time.sleep(0.1)

    def outputs(self) -> measure.Outputs:
        table = self._plain.committed(self.config.results)
        emitted = table.column("emitted_ms").to_numpy().astype(np.float64)
        return measure.Outputs(emitted, emitted - table.column("created_ms").to_numpy())

    def lines(self) -> Lines:
        table = self._plain.committed(self.config.results)
        got: Lines = {}
        columns = [table.column(name).to_pylist() for name in ("vehicle", "seq", "average", "alert")]
        for car, seq, average, alert in zip(*columns, strict=True):
            got.setdefault(road.line(car), []).append((seq, road.told(average, alert)))
        return got

    def prove(self) -> proof.Proof:
        """Of the batches that were committed: together they have all rows from the first one on."""
        got = self.lines()
        rows = max(max(seq for seq, _ in line) for line in got.values()) + 1
        return proof.prove(rows, got, road.results(rows, self.config.keys), {}, {})


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _end(told: dict[str, Any]) -> int:
    offset: Any = told["sources"][0]["endOffset"]
    return int(offset["row"])
