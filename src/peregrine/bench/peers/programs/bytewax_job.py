"""Traffic Monitoring in Bytewax: a given number of readings, at a rate or as fast as it goes.

    numbers -> key by vehicle -> average -> alert -> results

A reading is its number: vehicle, speed and time of creation follow from it (peregrine/workloads/road.py).

Runs in the virtual environment of Bytewax: imports nothing of Peregrine.
"""

# mypy: ignore-errors

import json
import os
import struct
import sys
import time
from datetime import UTC, datetime, timedelta

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

RECORD = struct.Struct("<qqd?")  # peregrine/bench/peers/results.py
LIMIT = 100.0
BATCH_ROWS = 10_000  # at most
EVERY = timedelta(milliseconds=1)


class Numbers(DynamicSource):
    def __init__(self, settings):
        self._settings = settings

    def build(self, step_id, worker_index, worker_count):
        return Due(self._settings)


class Due(StatelessSourcePartition):
    def __init__(self, settings):
        self._settings = settings
        self._next = 0

    def next_batch(self):
        rows, rows_per_s = self._settings["rows"], self._settings["rows_per_s"]
        if self._next >= rows:
            raise StopIteration
        end = min(rows, self._next + BATCH_ROWS)
        if rows_per_s:
            end = min(end, (time.time_ns() - self._settings["began_ns"]) * rows_per_s // 1_000_000_000 + 1)
        batch = range(self._next, max(end, self._next))
        self._next = batch.stop
        return batch

    def next_awake(self):
        return datetime.now(UTC) + EVERY if self._settings["rows_per_s"] else None


class Average(StatefulBatchLogic):
    def __init__(self, state):
        self._count, self._average = state or (0, 0.0)

    def on_batch(self, numbers):
        count, average, told = self._count, self._average, []
        for number in numbers:
            count, average = count + 1, average + ((4000 + number * 7919 % 10007) / 100 - average) / (count + 1)
            told.append((number, round(average, 6)))
        self._count, self._average = count, average
        return told, StatefulBatchLogic.RETAIN

    def snapshot(self):
        return self._count, self._average


class Results(DynamicSink):
    def __init__(self, folder):
        self._folder = folder

    def build(self, step_id, worker_index, worker_count):
        return ResultFile(os.path.join(self._folder, f"{worker_index}.results"))


class ResultFile(StatelessSinkPartition):
    def __init__(self, path):
        self._file = open(path, "ab")  # noqa: SIM115

    def write_batch(self, told):
        now_ns, pack = time.time_ns(), RECORD.pack
        self._file.write(b"".join(pack(number, now_ns, average, alert) for number, average, alert in told))
        self._file.flush()

    def close(self):
        self._file.close()


def dataflow(settings):
    keys = settings["keys"]
    names = [f"car{n}" for n in range(keys)]
    flow = Dataflow("traffic_monitoring")
    numbers = op.input("numbers", flow, Numbers(settings))
    keyed = op.key_on("vehicle", numbers, lambda number: names[number % keys])
    averages = op.stateful_batch("average", keyed, Average)
    alerts = op.map("alert", averages, lambda told: (*told[1], told[1][1] > LIMIT))
    op.output("results", alerts, Results(settings["results"]))
    return flow


if __name__ == "__main__":
    run_main(dataflow(json.loads(sys.argv[1])))
