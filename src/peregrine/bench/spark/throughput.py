"""Throughput at saturation with 10, 1,000 and 10,000 keys, against the plain query.

Ours has a full log before its host starts; the plain query makes as many rows as a batch may have. Both have the same
rows and the same batches; the first batches do not count, they warm up. Results are written by both.
"""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from peregrine import proof
from peregrine.bench.spark.experiment import Experiment, Found, Scale, proved
from peregrine.bench.spark.figures import Figure, at_least, ratio
from peregrine.bench.spark.plain_runs import BATCH_ROWS, PlainRun
from peregrine.bench.spark.stream import CLOUD, PATIENCE_S, progress
from peregrine.core.chain import chained, deployed
from peregrine.core.messages import FromSource
from peregrine.core.rows import Rows
from peregrine.core.topology import Topology
from peregrine.errors import PeregrineError
from peregrine.net.client import RouterClient
from peregrine.net.launch import RouterProcess
from peregrine.net.settings import RouterSettings, make_token
from peregrine.proof import Lines
from peregrine.types import PlaceId, Runner
from peregrine.workloads import road, tm

KEYS = (10, 1_000, 10_000)
WARM_BATCHES = 2
FEED_ROWS = 5_000
LOOK_S = 0.05


def _keys(scale: Scale) -> tuple[int, ...]:
    return (10, 10_000) if scale.quick else KEYS


def ours(scale: Scale) -> Found:
    rows = int(scale.pick(800_000, 400_000))
    runs = {}
    proofs = {}
    for keys in _keys(scale):
        with tempfile.TemporaryDirectory() as directory:
            run = saturated(Path(directory), rows, keys)
        runs[str(keys)] = rows_per_s(run.told)
        proofs[f"{keys} keys"] = proved(proof.prove(rows, run.results, road.results(rows, keys), {}, {}))
    return {"rows_per_s": runs, "proofs": proofs}


def by_results(scale: Scale, runner: Runner) -> Found:
    """As `ours` with ten keys, but as results come: a continuous host has no batches that could tell."""
    rows, keys = int(scale.pick(800_000, 400_000)), 10
    with tempfile.TemporaryDirectory() as directory:
        run = saturated(Path(directory), rows, keys, runner)
    proofs = {f"{keys} keys": proved(proof.prove(rows, run.results, road.results(rows, keys), {}, {}))}
    return {"rows_per_s": run.results_per_s, "proofs": proofs}


class Saturated(NamedTuple):
    told: list[dict[str, Any]]  # by Spark, of its batches
    results_per_s: float  # from the first ones that count to the last
    results: Lines


def saturated(directory: Path, rows: int, keys: int, runner: Runner = "microbatch") -> Saturated:
    from peregrine.spark import host, registry, served
    from peregrine.spark.session import open_session

    token_file = directory / "token"
    make_token(token_file)
    specs, operators = tm.specs(roaming=False), tm.operators(road.LIMIT)
    settings = RouterSettings.of(
        CLOUD, Topology.tree(CLOUD), deployed(specs).values(), directory / "router", token_file, host_lag_rows=2 * rows
    )
    router = RouterProcess(settings, directory / "router.json", directory / "router.log")
    client = router.client()
    try:
        _fill(client, rows, keys)
        code = directory / "operators"
        registry.publish(code, chained(specs, operators))
        places = directory / "served.json"
        served.publish(places, {PlaceId(CLOUD): served.Served(router.address, runner=runner)})
        config = host.HostConfig(places, token_file, code, directory / "checkpoint", max_rows=BATCH_ROWS)
        query = host.start(open_session("bench"), config)
        try:
            results_per_s = _until_committed(client, query, rows)
            told = progress(query)
        finally:
            query.stop()
            config.attaching().end()
        return Saturated(told, results_per_s, _results(client))
    finally:
        client.close()
        router.stop()


def _fill(client: RouterClient, rows: int, keys: int) -> None:
    for first in range(0, rows, FEED_ROWS):
        end = min(first + FEED_ROWS, rows)
        batch = road.batch(first, end, keys, int(time.time() * 1000))
        client.offer(FromSource(road.SOURCE, ((end - 1, Rows(tm.MOV_AVG, batch)),)))


def _until_committed(client: RouterClient, query: Any, rows: int) -> float:
    """Returns how many results a second came behind the warm-up."""
    deadline = time.monotonic() + PATIENCE_S
    came: list[tuple[float, int]] = []
    while (status := client.status()).commits.get(CLOUD, 0) < rows:
        if not query.isActive or time.monotonic() > deadline:
            raise PeregrineError(f"the host does not work: {query.exception()}", "look at Spark's log")
        if status.results_end >= WARM_BATCHES * BATCH_ROWS and (not came or came[-1][1] < rows):
            came.append((time.monotonic(), status.results_end))
        time.sleep(LOOK_S)
    (began_s, first), (ended_s, last) = came[0], came[-1]
    return (last - first) / max(ended_s - began_s, LOOK_S)


def _results(client: RouterClient) -> Lines:
    found: Lines = {}
    position = 0
    while (read := client.read_results(position))[1] > position:
        table: pa.Table = read[0]
        position = read[1]
        columns = [table.column(name).to_pylist() for name in ("op", "key", "source", "seq", "payload")]
        for op, key, source, seq, payload in zip(*columns, strict=True):
            found.setdefault((op, key, source), []).append((seq, payload))
    return found


def plain(scale: Scale) -> Found:
    rows = int(scale.pick(600_000, 400_000))
    runs = {}
    proofs = {}
    for keys in _keys(scale):
        with tempfile.TemporaryDirectory() as directory:
            run = PlainRun(Path(directory), keys, rows=rows)
            run.finish()
            told = progress(run.query)
            run.stop()
            proofs[f"{keys} keys"] = proved(run.prove())
        runs[str(keys)] = rows_per_s(told)
    return {"rows_per_s": runs, "proofs": proofs}


def rows_per_s(told: list[dict[str, Any]]) -> float:
    """Of the batches behind the warm-up. Spark counts rows of ours in slices: what counts is how far they came."""
    counted = told[WARM_BATCHES:]
    first, last = counted[0]["sources"][0]["startOffset"], counted[-1]["sources"][0]["endOffset"]
    done = int(sum(last.values()) - sum(first.values()))
    return 1000 * done / sum(float(each["durationMs"]["triggerExecution"]) for each in counted)


def figures(found: Mapping[str, Found]) -> list[Figure]:
    mine, other = found["ours"]["rows_per_s"], found["plain"]["rows_per_s"]
    return [
        Figure(
            f"rows/s with {int(keys):,} keys, ours / plain",
            ratio(mine[keys], other[keys]),
            "x",
            at_least(2),
            f"{mine[keys]:,.0f} / {other[keys]:,.0f} rows/s",
        )
        for keys in mine
    ]


EXPERIMENT = Experiment("throughput", __doc__.partition("\n")[0], {"ours": ours, "plain": plain}, figures)
