"""Spark alone: the hand-written query (spark/plain.py), stopped and started again in the session that it had.

`restart` changes nothing. `repartition` gives it another number of partitions by Spark's own offline repartitioning:
from two to one, which favours it, as a batch of more partitions takes longer.
"""

import time
from pathlib import Path

from peregrine.bench.engine.definition import Setting
from peregrine.bench.peers.catalogue import SATURATED
from peregrine.bench.peers.seen import Facts, Seen
from peregrine.bench.spark import throughput
from peregrine.bench.spark.plain_runs import PlainRun
from peregrine.bench.spark.stream import now_ms, progress

KEYS = 10
ROWS = 400_000  # at saturation


def run(way: str, setting: Setting, directory: Path) -> Seen:
    if way == SATURATED:
        return _saturated(directory)
    plain = PlainRun(directory, KEYS, rows_per_s=setting.rows_per_s)
    plain.warm_up(setting.warm_s)
    calm_ms = now_ms()
    time.sleep(setting.calm_s)
    requested_ms = now_ms()
    moved = 0
    if way == "repartition":
        moved = plain.repartition(1)
    else:
        plain.restart()
    plain.wait_for_batch()
    ended_ms = now_ms()
    time.sleep(setting.settle_s)
    until_ms = now_ms()
    plain.stop()
    return Seen(Facts(plain.prove(), calm_ms, until_ms, requested_ms, ended_ms, moved), plain.outputs())


def _saturated(directory: Path) -> Seen:
    began_ms = now_ms()
    plain = PlainRun(directory, KEYS, rows=ROWS)
    plain.finish()
    told = progress(plain.query)
    plain.stop()
    return Seen(Facts(plain.prove(), began_ms, now_ms(), max_rows_per_s=throughput.rows_per_s(told)))
