"""Large state on Spark: it is in chunks beside the checkpoint, and a key with it moves live between two sites."""

import time
from pathlib import Path
from typing import Any

from pyspark_operators import Archive

from peregrine import proof
from peregrine.control.auditing import audit_deployment
from peregrine.control.local import Deployment, local
from peregrine.core.keyspace import KeySet
from peregrine.core.operator import OpSpec
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.rows import UNCHAINED, Row
from peregrine.core.topology import Link, Topology
from peregrine.spark.host import states
from peregrine.types import OpId, PlaceId, SiteId, SourceId

CLOUD, EDGE = SiteId("cloud"), SiteId("edge")
OP, SINK, GROUPS = OpId("large/archive"), OpId("large/results"), 2
KEYS = ["moves", "plain", "stays", "small"]
SPECS = {OP: OpSpec(OP, GROUPS, feeds=(SINK,)), SINK: OpSpec(SINK, 1, sink=True)}


def test_keys_with_large_state_move_live_and_nothing_is_lost(spark: Any, tmp_path: Path) -> None:
    operators = {OP: Archive(SINK, entries=800, plain="plain")}  # about 1 MB for each key
    topology = Topology.tree(CLOUD, {EDGE: (CLOUD, Link(5.0, 200.0))})
    sent: list[Row] = []
    with local(topology, SPECS, operators, directory=tmp_path / "up", chunk_grace_s=5.0, chunk_collect_s=0.2) as up:
        device = up.device("d", EDGE, feeds=(OP, KeySet.everything(GROUPS)))

        def send(count: int) -> None:
            for _ in range(count):
                row = Row(KEYS[len(sent) % 4], SourceId("d"), len(sent), UNCHAINED, 0, 0, b"%d" % len(sent))
                device.send(OP, row.key, row.payload)
                sent.append(row)

        send(40)
        settled(up, len(sent))
        assert chunks(up, CLOUD) > 3_000_000 and chunks(up, EDGE) == 0
        up.submit(Plan("p", ((Move(OP, KeySet.of_keys(GROUPS, ["moves", "plain"]), PlaceId(CLOUD), PlaceId(EDGE)),),)))
        send(20)
        ended = up.wait("p")
        assert ended.state.bytes_moved > 1_500_000 and ended.state.transfer == 2
        send(40)
        settled(up, len(sent))
        assert chunks(up, EDGE) > 1_500_000
        journals = sum(path.stat().st_size for path in (up.directory / EDGE).glob("journal/*"))
        assert journals < 1_000_000  # the chunks went beside it
        should, should_states = proof.expected(SPECS, operators, {OP: sent})
        found = proof.prove(len(sent), up.result_lines(), should, proof.values(up.states()), should_states)
        assert found.holds, found
        assert found.rows_out == len(sent) and found.states == 4
        assert audit_deployment(up) == []


def test_half_of_the_keys_of_large_groups_move_live_and_nothing_is_lost(spark: Any, tmp_path: Path) -> None:
    """Values are small here, and the groups large: their keys are in pages."""
    operators = {OP: Archive(SINK, entries=1, plain="plain")}
    topology = Topology.tree(CLOUD, {EDGE: (CLOUD, Link(5.0, 200.0))})
    names = [f"car{n}" for n in range(1500)]  # about 0.5 MB for each group
    half = KeySet.of_keys(GROUPS, names[::2])
    sent: list[Row] = []
    with local(topology, SPECS, operators, directory=tmp_path / "up", chunk_grace_s=5.0, chunk_collect_s=0.2) as up:
        device = up.device("d", EDGE, feeds=(OP, KeySet.everything(GROUPS)))

        def send(count: int) -> None:
            for _ in range(count):
                key = names[len(sent) % len(names)]
                row = Row(key, SourceId("d"), len(sent), UNCHAINED, 0, 0, b"%d" % len(sent))
                device.send(OP, row.key, row.payload)
                sent.append(row)

        send(2000)
        settled(up, len(sent))
        at_cloud = {group: blob for (place, _, group), blob in states(spark, up.checkpoint).items() if place == CLOUD}
        assert len(at_cloud) == GROUPS and max(map(len, at_cloud.values())) < 100_000
        assert chunks(up, CLOUD) > 800_000
        up.submit(Plan("p", ((Move(OP, half, PlaceId(CLOUD), PlaceId(EDGE)),),)))
        send(1000)
        up.wait("p")
        send(1000)
        settled(up, len(sent))
        should, should_states = proof.expected(SPECS, operators, {OP: sent})
        found = proof.prove(len(sent), up.result_lines(), should, proof.values(up.states()), should_states)
        assert found.holds, found
        assert found.rows_out == len(sent) and found.states == len(names)
        assert audit_deployment(up) == []


def chunks(up: Deployment, site: SiteId) -> int:
    return sum(path.stat().st_size for path in up.chunks(PlaceId(site)).glob("??/*"))


def settled(up: Deployment, rows: int, patience_s: float = 90.0) -> None:
    deadline_s = time.monotonic() + patience_s
    while True:
        if up.results_at_rest() == rows:
            return
        assert time.monotonic() < deadline_s, [client.status() for client in up.clients.values()]
        time.sleep(0.1)
