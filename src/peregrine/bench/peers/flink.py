"""PyFlink, process and thread mode: a keyed operator goes from one task to two.

`savepoint`: the job is stopped with a savepoint and submitted again by a client that is warm (a new one takes several
seconds more). `rescale`: the adaptive scheduler is told by REST; it goes back to the last checkpoint.
"""

import json
import time
from pathlib import Path

from peregrine.bench.engine.definition import Setting
from peregrine.bench.peers import catalogue, flink_cluster, results
from peregrine.bench.peers.catalogue import SATURATED, STEADY
from peregrine.bench.peers.child import PROGRAMS, Child
from peregrine.bench.peers.flink_cluster import Cluster
from peregrine.bench.peers.seen import Facts, Seen
from peregrine.bench.spark.stream import now_ms

KEYS = 10
MANY = 1 << 40  # rows: more than anybody waits for
# With what Flink has by default results wait up to a second for a bundle in process mode, and 100 ms for a buffer.
TUNED = {
    "process": {"python.fn-execution.bundle.time": 1, "execution.buffer-timeout.interval": "1 ms"},
    "thread": {"execution.buffer-timeout.interval": "5 ms"},
}


def run(mode: str, way: str, setting: Setting, directory: Path) -> Seen:
    system = f"flink-{mode}"
    folder = directory / "results"
    folder.mkdir()
    with flink_cluster.running(catalogue.package_of(system), directory / "flink", way == "rescale") as cluster:
        told = {
            "mode": mode,
            "keys": KEYS,
            "rows": MANY,
            "rows_per_s": 0 if way == SATURATED else setting.rows_per_s,
            "results": str(folder),
            "rest_port": cluster.port,
            "flink": {} if way == SATURATED else TUNED[mode],
        }
        client = Child(
            [catalogue.python_of(system), PROGRAMS / "flink_job.py", json.dumps(told)],
            directory / "client",
            cluster.environment,
        )
        try:
            client.hear()
            cluster.wait_for_slots()
            if way == SATURATED:
                return _saturated(cluster, client, setting, folder)
            return _at_a_rate(way, cluster, client, setting, folder)
        finally:
            client.end()


def _at_a_rate(way: str, cluster: Cluster, client: Child, setting: Setting, folder: Path) -> Seen:
    began_ns = time.time_ns()
    job = client.ask(parallelism=1, savepoint=None, settings={"began_ns": began_ns})["job"]
    cluster.until(lambda: cluster.is_running(job, 1), "the job does not run")
    time.sleep(setting.warm_s)
    calm_ms = now_ms()
    time.sleep(setting.calm_s)
    requested_ms = now_ms()
    if way == STEADY:
        cluster.stop(job)
        found = results.read(folder)
        facts = Facts(found.prove(KEYS), calm_ms, requested_ms, again=found.again)
        return Seen(facts, found.outputs(began_ns, setting.rows_per_s))
    if way == "savepoint":
        where, moved = cluster.stop(job)
        job = client.ask(parallelism=2, savepoint=where)["job"]
    else:
        cluster.rescale(job, 2)
        moved = 0
    cluster.until(lambda: cluster.is_running(job, 2), "the job does not run with two")
    ended_ms = now_ms()
    time.sleep(setting.settle_s)
    until_ms = now_ms()
    if way == "rescale":
        moved = cluster.restored_bytes(job)
    cluster.stop(job)
    found = results.read(folder)
    facts = Facts(found.prove(KEYS), calm_ms, until_ms, requested_ms, ended_ms, moved, again=found.again)
    return Seen(facts, found.outputs(began_ns, setting.rows_per_s))


def _saturated(cluster: Cluster, client: Child, setting: Setting, folder: Path) -> Seen:
    """One task for each core of two."""
    job = client.ask(parallelism=2, savepoint=None)["job"]
    cluster.until(lambda: cluster.is_running(job, 2), "the job does not run")
    time.sleep(setting.warm_s)
    calm_ms = now_ms()
    time.sleep(setting.calm_s)
    until_ms = now_ms()
    cluster.stop(job)
    found = results.read(folder)
    return Seen(Facts(found.prove(KEYS), calm_ms, until_ms, max_rows_per_s=found.rows_per_s(calm_ms, until_ms)))
