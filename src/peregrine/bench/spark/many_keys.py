"""A live migration of half of 10, 1,000, 10,000 and 100,000 keys: the cost grows with the keys, the jitter does not.

Every key has state before rows flow at 1,500 rows/s over all of them. The keys that move are named one by one.
"""

import time
from collections.abc import Mapping
from itertools import pairwise

from peregrine.bench.spark import stream
from peregrine.bench.spark.experiment import Experiment, Found, Scale, proved
from peregrine.bench.spark.figures import Figure, at_most, ratio
from peregrine.bench.spark.moves import cost_as_dict
from peregrine.bench.spark.stream import CLOUD, EDGE
from peregrine.core.keyspace import KeySet
from peregrine.workloads import road, tm

KEYS = (10, 1_000, 10_000, 100_000)


def run(scale: Scale) -> Found:
    counts = {}
    proofs = {}
    for keys in KEYS if not scale.quick else (10, 10_000):
        half = KeySet.of_keys(tm.GROUPS, [road.vehicle(n, keys) for n in range(keys // 2)])
        with stream.running(stream.traffic(keys), [EDGE], at=EDGE) as flow:
            flow.warm_up(keys, scale.pick(8, 6))
            calm_ms = stream.now_ms()
            time.sleep(scale.pick(8, 5))
            flow.move("half", half, CLOUD, EDGE)
            flow.wait("half")
            time.sleep(3)
            until_ms = stream.now_ms()
            trigger_ms = stream.trigger_ms(flow.query, calm_ms)
            flow.drain()
            cost = flow.cost("half", calm_ms, until_ms)
            counts[str(keys)] = {
                **cost_as_dict(cost),
                "trigger_ms": trigger_ms,
                "steady_mean_ms": cost.calm.mean_ms,
                "steady_p99_ms": cost.calm.p99_ms,
            }
            proofs[f"{keys} keys"] = proved(flow.prove())
    return {"keys": counts, "proofs": proofs}


def figures(found: Mapping[str, Found]) -> list[Figure]:
    counts: Mapping[int, Mapping[str, float]] = {int(keys): each for keys, each in found["live"]["keys"].items()}
    most, jitters = max(counts), [each["jitter_ms"] for each in counts.values()]
    return [
        Figure(
            f"jitter with 10 to {most:,} keys, most / least",
            ratio(max(jitters), min(jitters)),
            "x",
            at_most(2),
            " / ".join(f"{each:,.0f}" for each in jitters) + " ms",
        ),
        Figure(
            f"cost of a further key, up to {most:,} / before",
            growth({keys: each["duration_ms"] for keys, each in counts.items()}),
            "x",
            at_most(1.5),
            " / ".join(f"{each['duration_ms']:,.0f}" for each in counts.values()) + " ms",
        ),
        *(
            Figure(
                f"live with {keys:,} keys",
                each["duration_ms"],
                "ms",
                note=f"steady mean / p99 {each['steady_mean_ms']:,.0f} / {each['steady_p99_ms']:,.0f} ms,"
                f" disruption {each['disruption_ms']:,.0f} ms, {each['bytes_moved']:,} bytes",
            )
            for keys, each in counts.items()
        ),
    ]


def growth(duration_ms: Mapping[int, float]) -> float | None:
    """What a key more costs in the last step, over what it cost in the step before; 1 is linear.

    Where the step before cost nothing that shows, there is nothing to grow from: a millisecond is taken for it.
    """
    slopes = [
        max(duration_ms[more] - duration_ms[few], 1.0) / (more - few) for few, more in pairwise(sorted(duration_ms))
    ]
    return ratio(slopes[-1], slopes[-2]) if len(slopes) > 1 else None


EXPERIMENT = Experiment("keys", __doc__.partition("\n")[0], {"live": run}, figures)
