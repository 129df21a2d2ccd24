"""The continuous runner against micro-batches: Traffic Monitoring at 1,500 rows/s, steady and while half of it moves.

Latency is from the creation of a row at its device until its result has been read at the root, both in whole
milliseconds: with the runner that is all there is to see, the device's and the reader's share is in it.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from peregrine.bench.spark import moves, steady
from peregrine.bench.spark.experiment import Experiment, Found
from peregrine.bench.spark.figures import Figure, at_most, ratio
from peregrine.bench.spark.moves import median_of
from peregrine.bench.spark.stream import LINK

RUNNERS = ("microbatch", "continuous")


def figures(found: Mapping[str, Found]) -> list[Figure]:
    latency: dict[str, Mapping[str, Any]] = {each: found[f"steady {each}"]["latency"] for each in RUNNERS}
    batch, now = latency["microbatch"], latency["continuous"]
    moved = {each: found[f"moves {each}"]["moves"] for each in RUNNERS}
    half_way_ms = LINK.latency_ms
    return [
        Figure(
            "steady: median with continuous", now["p50_ms"], "ms", at_most(2), f"microbatch {batch['p50_ms']:.0f} ms"
        ),
        Figure("steady: p99 with continuous", now["p99_ms"], "ms", at_most(5), f"microbatch {batch['p99_ms']:.0f} ms"),
        Figure("steady: mean, continuous / microbatch", ratio(now["mean_ms"], batch["mean_ms"]), "x"),
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
        *(Figure(f"duration of live, {each}", median_of(moved[each], "duration_ms"), "ms") for each in RUNNERS),
    ]


EXPERIMENT = Experiment(
    "continuous",
    __doc__.partition("\n")[0],
    {
        **{f"steady {each}": partial(steady.ours, runner=each) for each in RUNNERS},
        **{f"moves {each}": partial(moves.live, runner=each) for each in RUNNERS},
    },
    figures,
)
