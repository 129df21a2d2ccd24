"""Steady state: Traffic Monitoring at 1,500 rows/s with 10 keys, on one site, against the plain query.

Ours holds the way from the device to a router, through its log to the host, back to the router and to a reader. The
plain query makes its rows itself, and a result counts when a task has it.
"""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peregrine.bench.spark import stream
from peregrine.bench.spark.experiment import Experiment, Found, Scale, proved
from peregrine.bench.spark.figures import Figure, at_most, ratio
from peregrine.bench.spark.plain_runs import PlainRun
from peregrine.bench.spark.stream import ROWS_PER_S

KEYS = 10


def ours(scale: Scale, **settings: Any) -> Found:
    """`settings` of the deployment, if it is to have others."""
    with stream.running(stream.traffic(KEYS), **settings) as flow:
        flow.warm_up(KEYS, scale.pick(12, 6))
        from_ms = stream.now_ms()
        time.sleep(scale.pick(20, 6))
        to_ms = stream.now_ms()
        trigger_ms = flow.trigger_ms(from_ms)
        flow.drain()
        return {
            "trigger_ms": trigger_ms,
            "latency": stream.latency(flow.outputs().between(from_ms, to_ms)),
            "of_routers": stream.latency(flow.outputs_of_routers().between(from_ms, to_ms)),
            "proofs": {"steady": proved(flow.prove())},
        }


def plain(scale: Scale) -> Found:
    with tempfile.TemporaryDirectory() as directory:
        run = PlainRun(Path(directory), KEYS, rows_per_s=ROWS_PER_S)
        run.warm_up(scale.pick(12, 6))
        from_ms = stream.now_ms()
        time.sleep(scale.pick(20, 6))
        to_ms = stream.now_ms()
        trigger_ms = stream.trigger_ms(run.query, from_ms)
        run.stop()
        return {
            "trigger_ms": trigger_ms,
            "latency": stream.latency(run.outputs().between(from_ms, to_ms)),
            "proofs": {"steady": proved(run.prove())},
        }


def figures(found: Mapping[str, Found]) -> list[Figure]:
    mine, other = found["ours"], found["plain"]
    means = [each["latency"]["mean_ms"] for each in (mine, other)]
    p99s = [each["latency"]["p99_ms"] for each in (mine, other)]
    triggers = [each["trigger_ms"] for each in (mine, other)]
    return [
        Figure("mean latency, ours / plain", ratio(*means), "x", at_most(0.35), "{:.0f} / {:.0f} ms".format(*means)),
        Figure("p99 latency, ours / plain", ratio(*p99s), "x", note="{:.0f} / {:.0f} ms".format(*p99s)),
        Figure("trigger, ours / plain", ratio(*triggers), "x", note="{:.0f} / {:.0f} ms".format(*triggers)),
    ]


EXPERIMENT = Experiment("steady", __doc__.partition("\n")[0], {"ours": ours, "plain": plain}, figures)
