"""A live migration of half of the keys, against a restart: cloud and edge, 80 ms there and back, 1,500 rows/s.

`live` is moved to and fro, and the median of the moves counts. `restart` stops the hosts for all keys, as systems do
today: the query ends and starts from its checkpoint, in the session that it had, and the state moves. The plain query
is stopped and started too, and moves nothing.
"""

import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from peregrine import measure
from peregrine.bench.spark import stream
from peregrine.bench.spark.experiment import Experiment, Found, Scale, proved
from peregrine.bench.spark.figures import Figure, at_least, at_most, ratio
from peregrine.bench.spark.plain_runs import PlainRun
from peregrine.bench.spark.stream import CLOUD, EDGE, ROWS_PER_S, Stream
from peregrine.core.keyspace import KeySet
from peregrine.workloads import road, tm

KEYS = 10
HALF = KeySet.of_keys(tm.GROUPS, [road.vehicle(n, KEYS) for n in range(KEYS // 2)])


def live(scale: Scale, **settings: Any) -> Found:
    """`settings` of the deployment, if it is to have others."""
    pause_s = scale.pick(5, 4)
    with stream.running(stream.traffic(KEYS), [EDGE], at=EDGE, **settings) as flow:
        calm_ms = _calm(flow, scale)
        windows = []
        for nth in range(int(scale.pick(5, 2))):
            source, target = (CLOUD, EDGE) if nth % 2 == 0 else (EDGE, CLOUD)
            flow.move(f"move{nth}", HALF, source, target)
            time.sleep(pause_s)
            flow.wait(f"move{nth}")
            windows.append((f"move{nth}", stream.now_ms()))
        trigger_ms = flow.trigger_ms(calm_ms)
        flow.drain()
        return _found(flow, windows, calm_ms, trigger_ms)


def restart(scale: Scale) -> Found:
    with stream.running(stream.traffic(KEYS), [EDGE], at=EDGE) as flow:
        calm_ms = _calm(flow, scale)
        trigger_ms = stream.trigger_ms(flow.query, calm_ms)
        flow.move("restart", HALF, CLOUD, EDGE, mechanism="restart")
        flow.wait("restart")
        time.sleep(scale.pick(8, 5))
        windows = [("restart", stream.now_ms())]
        flow.drain()
        return _found(flow, windows, calm_ms, trigger_ms)


def _calm(flow: Stream, scale: Scale) -> float:
    """Rows flow, and nothing moves; returns from when on it was warm."""
    flow.warm_up(KEYS, scale.pick(12, 6))
    calm_ms = stream.now_ms()
    time.sleep(scale.pick(10, 5))
    return calm_ms


def _found(flow: Stream, windows: Sequence[tuple[str, float]], calm_ms: float, trigger_ms: float | None) -> Found:
    moved = flow.is_of(HALF)
    costs = []
    for plan, until_ms in windows:
        whole = flow.cost(plan, calm_ms, until_ms)
        costs.append(
            {
                **cost_as_dict(whole),
                "jitter_moved_ms": flow.cost(plan, calm_ms, until_ms, moved).peak_jitter_ms,
                "jitter_unmoved_ms": flow.cost(plan, calm_ms, until_ms, ~moved).peak_jitter_ms,
            }
        )
    return {
        "trigger_ms": trigger_ms,
        "steady": steady_as_dict(whole.calm),
        "moves": costs,
        "proofs": {"moves": proved(flow.prove())},
    }


def cost_as_dict(cost: measure.Cost) -> dict[str, Any]:
    return {
        "disruption_ms": cost.disruption_ms,
        "jitter_ms": cost.peak_jitter_ms,
        "jitter_p99_ms": cost.p99_jitter_ms,
        "freeze_ms": cost.freeze_ms,
        "duration_ms": cost.duration_ms,
        "state_movement_ms": cost.state_movement_ms,
        "available_ms": cost.available_ms,
        "bytes_moved": cost.bytes_moved,
        "phases_ms": dict(cost.phases_ms),
    }


def steady_as_dict(calm: measure.Steady) -> dict[str, float]:
    return {"mean_ms": calm.mean_ms, "sigma_ms": calm.sigma_ms, "p99_ms": calm.p99_ms}


def jitter_ms(found: Mapping[str, Any], kind: str = "jitter_ms") -> float:
    """The peak jitter of a move. One that is within what the steady state has anyway counts as that."""
    return float(max(found[kind], found["steady"]["p99_ms"] - found["steady"]["mean_ms"]))


def flat_jitter(over: str, runs: Collection[Mapping[str, Any]], kind: str = "jitter_ms") -> Figure:
    """The same move under growing load: does it show? By `jitter_p99_ms` where it takes longer and longer."""
    jitters = [jitter_ms(each, kind) for each in runs]
    told = " / ".join(f"{each:,.0f}" for each in jitters) + " ms"
    named = "99th percentile of jitter" if kind == "jitter_p99_ms" else "jitter"
    return Figure(f"{named} with {over}, most / least", ratio(max(jitters), min(jitters)), "x", at_most(2), told)


def plain_restart(scale: Scale) -> Found:
    with tempfile.TemporaryDirectory() as directory:
        run = PlainRun(Path(directory), KEYS, rows_per_s=ROWS_PER_S)
        run.warm_up(scale.pick(12, 6))
        calm_ms = stream.now_ms()
        time.sleep(scale.pick(10, 5))
        trigger_ms = stream.trigger_ms(run.query, calm_ms)
        from_ms = stream.now_ms()
        run.restart()
        time.sleep(scale.pick(12, 8))
        run.stop()
        seen = run.outputs()
        steady = seen.steady(calm_ms, from_ms)
        return {
            "trigger_ms": trigger_ms,
            "disruption_ms": measure.disruption_ms(seen.emitted_ms, seen.latency_ms, steady, from_ms),
            "freeze_ms": measure.freeze_ms(seen.emitted_ms, from_ms, float("inf")),
            "proofs": {"restart": proved(run.prove())},
        }


def figures(found: Mapping[str, Found]) -> list[Figure]:
    live, restart, plain = found["live"], found["restart"], found["plain restart"]
    moves = live["moves"]
    trigger_ms, p99_ms = live["trigger_ms"], live["steady"]["p99_ms"]
    disruption_ms, again_ms = median_of(moves, "disruption_ms"), median_of(restart["moves"], "disruption_ms")
    worst_ms = max(move["disruption_ms"] for move in moves)
    return [
        Figure(
            "disruption of live / trigger interval",
            ratio(disruption_ms, trigger_ms),
            "x",
            at_most(1),
            f"{disruption_ms:.0f} / {trigger_ms:.0f} ms, worst of {len(moves)} moves {worst_ms:.0f} ms",
        ),
        Figure(
            "disruption of restart / live",
            # Of one that was not disrupted at all, a millisecond, which is what the clocks can tell.
            ratio(again_ms, max(disruption_ms, 1.0)),
            "x",
            at_least(50),
            f"{again_ms:,.0f} / {disruption_ms:.0f} ms; plain query, stop and start: {plain['disruption_ms']:,.0f} ms",
        ),
        *(
            Figure(
                f"peak jitter of {which} keys / steady p99",
                ratio(median_of(moves, f"jitter_{which}_ms"), p99_ms),
                "x",
                at_most(1.5),
                f"{median_of(moves, f'jitter_{which}_ms'):.0f} / {p99_ms:.0f} ms",
            )
            for which in ("moved", "unmoved")
        ),
        Figure("duration of live", median_of(moves, "duration_ms"), "ms", note=_phases(moves)),
        Figure("freeze of live", median_of(moves, "freeze_ms"), "ms"),
        Figure("freeze of restart", median_of(restart["moves"], "freeze_ms"), "ms"),
        Figure("freeze of the plain query", plain["freeze_ms"], "ms"),
    ]


def median_of(moves: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(median(move[name] for move in moves))


def _phases(moves: Sequence[Mapping[str, Any]]) -> str:
    names = moves[0]["phases_ms"]
    return ", ".join(f"{name} {median(move['phases_ms'].get(name, 0.0) for move in moves):.0f}" for name in names)


EXPERIMENT = Experiment(
    "moves",
    __doc__.partition("\n")[0],
    {"live": live, "restart": restart, "plain restart": plain_restart},
    figures,
)
