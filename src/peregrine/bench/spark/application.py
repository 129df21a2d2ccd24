"""Rows a second that an application of the public API takes, with both runners, against the plain query.

Traffic Monitoring with 1,000 keys (`workloads/tm.py`, `app`): a device in this process sends records as fast as it may,
and the clock runs from the first of them that counts until the last result is at the router of the root. So it measures
all of the way, where `throughput` begins with a full log. The plain query makes the same rows itself, in its tasks, in
batches of 50,000 and of 100,000; its batches count.
"""

import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from peregrine import proof
from peregrine.bench.spark.experiment import Experiment, Found, Scale, proved
from peregrine.bench.spark.figures import Figure, ratio
from peregrine.bench.spark.plain_runs import PlainRun
from peregrine.bench.spark.stream import CLOUD, PATIENCE_S, progress
from peregrine.bench.spark.throughput import rows_per_s
from peregrine.errors import PeregrineError
from peregrine.proof import Lines
from peregrine.types import Runner
from peregrine.workloads import road, tm

KEYS = 1_000
DEVICE = "road"
RUNNERS: tuple[Runner, ...] = ("microbatch", "continuous")
BATCHES = (50_000, 100_000)
LOOK_S = 0.05


def ours(scale: Scale, runner: Runner) -> Found:
    from peregrine import run

    rows, warm = int(scale.pick(400_000, 100_000)), int(scale.pick(100_000, 50_000))
    with run(tm.app([DEVICE], limit=road.LIMIT), runner=runner) as running:
        device = running.device(DEVICE, CLOUD)
        client = running.deployment.clients[CLOUD]

        def send(first: int, end: int) -> None:
            for number in range(first, end):
                device.send("readings", record(number))

        def wait_for(results: int) -> None:
            deadline_s = time.monotonic() + PATIENCE_S
            while client.status().results_end < results:
                if time.monotonic() > deadline_s:
                    raise PeregrineError(f"{results:,} results do not come", "see spark.log of the deployment")
                time.sleep(LOOK_S)

        send(0, warm)
        wait_for(warm)
        began_s = time.monotonic()
        send(warm, warm + rows)
        wait_for(warm + rows)
        took_s = time.monotonic() - began_s
        running.finish()
        found = proof.prove(warm + rows, lines(running.records("results")), should(warm + rows), {}, {})
    return {"rows_per_s": rows / took_s, "proofs": {runner: proved(found)}}


def record(number: int) -> dict[str, Any]:
    return {"vehicle": road.vehicle(number, KEYS), "speed": road.speed(number), "at_ms": number}


def lines(records: list[Any]) -> Lines:
    """What came of each vehicle, numbered as it came."""
    found: Lines = {}
    for each in records:
        line = found.setdefault(road.line(each.vehicle), [])
        line.append((len(line), road.told(each.average, each.alert)))
    return found


def should(rows: int) -> Lines:
    """An application's average is the sum by the number."""
    found: Lines = {}
    sums = [0.0] * KEYS
    for number in range(rows):
        line = found.setdefault(road.line(road.vehicle(number, KEYS)), [])
        sums[number % KEYS] += road.speed(number)
        average = round(sums[number % KEYS] / (len(line) + 1), 6)
        line.append((len(line), road.told(average, average > road.LIMIT)))
    return found


def plain(scale: Scale, batch_rows: int) -> Found:
    with tempfile.TemporaryDirectory() as directory:
        run = PlainRun(Path(directory), KEYS, rows=int(scale.pick(6, 4)) * batch_rows, batch_rows=batch_rows)
        run.finish()
        told = progress(run.query)
        run.stop()
        return {"rows_per_s": rows_per_s(told), "proofs": {"plain": proved(run.prove())}}


def figures(found: Mapping[str, Found]) -> list[Figure]:
    others = {batch_rows: found[f"plain {batch_rows}"]["rows_per_s"] for batch_rows in BATCHES}
    return [
        Figure(
            f"rows/s, application ({runner}) / plain in batches of {batch_rows:,}",
            ratio(mine := found[runner]["rows_per_s"], other),
            "x",
            note=f"{mine:,.0f} / {other:,.0f} rows/s",
        )
        for runner in RUNNERS
        for batch_rows, other in others.items()
    ]


EXPERIMENT = Experiment(
    "application",
    __doc__.partition("\n")[0],
    {
        **{runner: partial(ours, runner=runner) for runner in RUNNERS},
        **{f"plain {batch_rows}": partial(plain, batch_rows=batch_rows) for batch_rows in BATCHES},
    },
    figures,
)
