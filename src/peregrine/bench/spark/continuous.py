"""The continuous runner against micro-batches: Traffic Monitoring at 1,500 rows/s, steady and while half of it moves.

Steady latency is from when the device hears that a router has the row until its result has been read at the root: from
router to router, and one call. With the device's share, and where keys move, it is from the creation of the row on. And
what a site costs to which nothing comes, and how many rows a host takes from a log that is full.

Flink's thread mode runs beside it where it is installed (`make peers`): the quickest system in Python that we know of.
"""

import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from peregrine.bench.spark import moves, processes, steady, stream, throughput
from peregrine.bench.spark.experiment import Experiment, Found, Scale, proved
from peregrine.bench.spark.figures import Figure, at_least, at_most, ratio
from peregrine.bench.spark.moves import median_of
from peregrine.bench.spark.stream import LINK, ROWS_PER_S
from peregrine.config import RUNNERS

KEYS = 10


def idle(scale: Scale) -> Found:
    """Shares of a core, after some rows."""
    with stream.running(stream.traffic(KEYS), (stream.EDGE,), stream.EDGE, runner="continuous") as flow:
        flow.warm_up(KEYS, scale.pick(5, 2))
        flow.pause()
        time.sleep(scale.pick(15, 3))  # an epoch, and what comes behind it
        parts = {
            "routers": [router.pid for router in flow.up.routers.values()],
            "host": processes.hosts(flow.up),
            "spark": processes.spark(),
        }
        before = {name: processes.cpu_s(pids) for name, pids in parts.items()}
        seconds = scale.pick(30, 5)
        time.sleep(seconds)
        used = {name: (processes.cpu_s(pids) - before[name]) / seconds for name, pids in parts.items()}
        flow.drain()
        return {"used": used, "sites": len(flow.up.routers), "proofs": {"idle": proved(flow.prove())}}


def flink(scale: Scale) -> Found:
    """The same average at the same rate, from its source, which is in it, until a result is written down."""
    from peregrine.bench.engine.definition import Setting
    from peregrine.bench.peers import catalogue
    from peregrine.bench.peers.flink import run

    if why := catalogue.not_built("flink-thread"):
        return {"skipped": why}
    setting = Setting(
        mechanism="flink-thread/steady", rows_per_s=ROWS_PER_S, warm_s=scale.pick(12, 6), calm_s=scale.pick(20, 6)
    )
    with tempfile.TemporaryDirectory() as directory:
        seen = run("thread", catalogue.STEADY, setting, Path(directory))
    assert seen.outputs is not None
    within = seen.outputs.between(seen.facts.calm_ms, seen.facts.until_ms)
    return {"latency": stream.latency(within), "proofs": {"Flink": proved(seen.facts.proof)}}


def figures(found: Mapping[str, Found]) -> list[Figure]:
    whole: dict[str, Mapping[str, Any]] = {each: found[f"steady {each}"]["latency"] for each in RUNNERS}
    latency: dict[str, Mapping[str, Any]] = {each: found[f"steady {each}"]["of_routers"] for each in RUNNERS}
    batch, now = latency["microbatch"], latency["continuous"]
    moved = {each: found[f"moves {each}"]["moves"] for each in RUNNERS}
    half_way_ms = LINK.latency_ms
    return [
        Figure(
            "steady: median with continuous", now["p50_ms"], "ms", at_most(2), f"microbatch {batch['p50_ms']:.0f} ms"
        ),
        Figure("steady: p99 with continuous", now["p99_ms"], "ms", at_most(5), f"microbatch {batch['p99_ms']:.0f} ms"),
        Figure("steady: mean, continuous / microbatch", ratio(now["mean_ms"], batch["mean_ms"]), "x"),
        Figure(
            "steady: median with the device's share",
            whole["continuous"]["p50_ms"],
            "ms",
            note=f"p99 {whole['continuous']['p99_ms']:.0f} ms; microbatch {whole['microbatch']['p50_ms']:.0f} ms",
        ),
        *(
            Figure(
                f"disruption of live, {each}",
                median_of(moved[each], "disruption_ms"),
                "ms",
                at_most(15) if each == "continuous" else None,
            )
            for each in RUNNERS
        ),
        *(
            Figure(
                f"peak jitter of live, {each}",
                median_of(moved[each], "jitter_ms"),
                "ms",
                at_most(half_way_ms + 10) if each == "continuous" else None,
                "half a round trip and 10 ms" if each == "continuous" else "",
            )
            for each in RUNNERS
        ),
        *_beside_flink(now, found["Flink thread"]),
        *_throughput({each: found[f"throughput {each}"]["rows_per_s"] for each in RUNNERS}),
        *_idle(found["idle"]),
        *(Figure(f"duration of live, {each}", median_of(moved[each], "duration_ms"), "ms") for each in RUNNERS),
    ]


def _beside_flink(now: Mapping[str, Any], found: Found) -> list[Figure]:
    """Ours has a router's log before and behind it, Flink's has not."""
    if why := found.get("skipped"):
        return [Figure("steady: median, continuous / Flink's thread mode", None, "x", at_most(1), why)]
    return [
        Figure(
            f"steady: {name}, continuous / Flink's thread mode",
            ratio(now[p], found["latency"][p]),
            "x",
            at_most(1),
            f"{now[p]:.1f} / {found['latency'][p]:.1f} ms",
        )
        for name, p in (("median", "p50_ms"), ("p99", "p99_ms"))
    ]


def _throughput(rows_per_s: Mapping[str, float]) -> list[Figure]:
    batch, now = (rows_per_s[each] for each in RUNNERS)
    said = f"{now:,.0f} / {batch:,.0f} rows/s"
    return [Figure("rows/s at saturation, continuous / microbatch", ratio(now, batch), "x", at_least(1), said)]


def _idle(found: Found) -> list[Figure]:
    used, sites = found["used"], found["sites"]
    share = (used["routers"] + used["host"]) / sites
    note = f"routers {used['routers']:.1%} and the host's process {used['host']:.1%}, for {sites} sites"
    return [
        Figure("idle: of a core, for a quiet site", share * 100, "%", at_most(2), note),
        Figure("idle: of a core, for Spark", used["spark"] * 100, "%"),
    ]


EXPERIMENT = Experiment(
    "continuous",
    __doc__.partition("\n")[0],
    {
        **{f"steady {each}": partial(steady.ours, runner=each) for each in RUNNERS},
        **{f"moves {each}": partial(moves.live, runner=each) for each in RUNNERS},
        **{f"throughput {each}": partial(throughput.by_results, runner=each) for each in RUNNERS},
        "idle": idle,
        "Flink thread": flink,
    },
    figures,
)
