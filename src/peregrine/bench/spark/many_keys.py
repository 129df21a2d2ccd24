"""A live migration of half of 10, 1,000, 10,000 and 100,000 keys: the cost grows with the keys, the jitter does not.

Every key has state before rows flow at 1,500 rows/s over all of them. The keys that move are named one by one, and move
in chunks, each when the one before has switched: the snapshot of a chunk is what a batch has to do beside its rows
(Spacker III-C1). Each chunk is of keys that lie together at their host, as `deployment.plan` has them where none is
more urgent. They move to and fro, each time against the calm seconds just before, as machines drift, and the median of
the moves counts: the slowest result of a second alone says little.
"""

import time
from collections.abc import Mapping
from typing import Any

from peregrine.bench.spark import stream
from peregrine.bench.spark.experiment import Experiment, Found, Scale, proved
from peregrine.bench.spark.figures import Figure, at_most, ratio
from peregrine.bench.spark.moves import cost_as_dict, flat_jitter, median_of, steady_as_dict
from peregrine.bench.spark.stream import CLOUD, EDGE
from peregrine.core.keyspace import KeySet, as_stored
from peregrine.workloads import road, tm

KEYS = (10, 1_000, 10_000, 100_000)
CHUNK_KEYS = 500
FEW = 10_000
COST = ("disruption_ms", "jitter_ms", "jitter_p99_ms", "freeze_ms", "duration_ms", "bytes_moved")
STEADY = ("mean_ms", "sigma_ms", "p99_ms")


def run(scale: Scale) -> Found:
    counts = {}
    proofs = {}
    stream.heat(scale.pick(10, 5))
    for keys in KEYS if not scale.quick else (10, 10_000):
        half = as_stored((road.vehicle(n, keys) for n in range(keys // 2)), tm.GROUPS)
        chunks = [KeySet.of_keys(tm.GROUPS, half[i : i + CHUNK_KEYS]) for i in range(0, len(half), CHUNK_KEYS)]
        with stream.running(stream.traffic(keys), [EDGE], at=EDGE) as flow:
            flow.warm_up(keys, scale.pick(8, 6))
            warm_ms = stream.now_ms()
            windows = {}
            for nth in range(int(scale.pick(5 if keys <= FEW else 3, 1))):
                source, target = (CLOUD, EDGE) if nth % 2 == 0 else (EDGE, CLOUD)
                calm_ms = stream.now_ms()
                time.sleep(scale.pick(8, 5))
                flow.move_in_chunks(f"half{nth}", chunks, source, target)
                flow.wait(f"half{nth}")
                time.sleep(2)
                windows[f"half{nth}"] = calm_ms, stream.now_ms()
            trigger_ms = stream.trigger_ms(flow.query, warm_ms)
            flow.drain()
            costs = [flow.cost(plan, *window) for plan, window in windows.items()]
            counts[str(keys)] = {
                **_median(list(map(cost_as_dict, costs)), *COST),
                "trigger_ms": trigger_ms,
                "steady": _median([steady_as_dict(cost.calm) for cost in costs], *STEADY),
            }
            proofs[f"{keys} keys"] = proved(flow.prove())
    return {"keys": counts, "proofs": proofs}


def _median(all: list[dict[str, Any]], *names: str) -> dict[str, float]:
    return {name: median_of(all, name) for name in names}


def figures(found: Mapping[str, Found]) -> list[Figure]:
    counts: Mapping[int, Mapping[str, Any]] = {int(keys): each for keys, each in found["live"]["keys"].items()}
    most = max(counts)
    return [
        flat_jitter(f"10 to {most:,} keys", counts.values(), "jitter_p99_ms"),
        Figure(
            f"cost of a key with {most:,} keys / with fewer",
            growth({keys: each["duration_ms"] for keys, each in counts.items()}, noise_ms=counts[most]["trigger_ms"]),
            "x",
            at_most(1.5),
            " / ".join(f"{each['duration_ms']:,.0f}" for each in counts.values()) + " ms",
        ),
        *(
            Figure(
                f"live with {keys:,} keys",
                each["duration_ms"],
                "ms",
                note=f"steady mean / p99 {each['steady']['mean_ms']:,.0f} / {each['steady']['p99_ms']:,.0f} ms,"
                f" jitter p99 / peak {each['jitter_p99_ms']:,.0f} / {each['jitter_ms']:,.0f} ms,"
                f" disruption {each['disruption_ms']:,.0f} ms, {each['bytes_moved']:,} bytes",
            )
            for keys, each in counts.items()
        ),
    ]


def growth(duration_ms: Mapping[int, float], noise_ms: float) -> float | None:
    """What a key costs beyond what a few keys cost, with the most keys over with the second most; 1 is linear.

    A migration waits for batches, so two alike may differ by the time of one: less cannot be told from nothing.
    """
    if len(duration_ms) < 3:
        return None
    few, *_, before, most = sorted(duration_ms)
    cost_before, cost_most = (max(duration_ms[keys] - duration_ms[few], noise_ms) for keys in (before, most))
    return ratio(cost_most / (most - few), cost_before / (before - few))


EXPERIMENT = Experiment("keys", __doc__.partition("\n")[0], {"live": run}, figures)
