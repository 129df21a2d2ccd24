"""A whole deployment over TLS, in which routers ask every client for a certificate, also Spark's workers."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark_operators import Archive

from peregrine import proof
from peregrine.control.auditing import audit_deployment
from peregrine.control.local import Deployment, local
from peregrine.core.keyspace import KeySet
from peregrine.core.operator import OpSpec
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.rows import UNCHAINED, Row
from peregrine.core.topology import Link, Topology
from peregrine.errors import TransportError, Unreachable
from peregrine.net.client import RouterClient
from peregrine.net.settings import read_token
from peregrine.net.tls import TlsFiles, files_of, where, with_tls
from peregrine.types import OpId, PlaceId, SiteId, SourceId

CLOUD, EDGE = SiteId("cloud"), SiteId("edge")
OP, SINK, GROUPS = OpId("archive/files"), OpId("archive/results"), 2
KEYS = ["moves", "stays"]
SPECS = {OP: OpSpec(OP, GROUPS, feeds=(SINK,)), SINK: OpSpec(SINK, 1, sink=True)}


def test_a_key_with_large_state_moves_live_over_tls_and_a_router_dies(spark: Any, tmp_path: Path) -> None:
    operators = {OP: Archive(SINK, entries=200, plain="")}  # large enough for chunks, which travel by themselves
    topology = Topology.tree(CLOUD, {EDGE: (CLOUD, Link(5.0, 200.0))})
    sent: list[Row] = []
    with local(topology, SPECS, operators, directory=tmp_path, tls=True, tls_verify_clients=True) as up:
        device = up.device("d", EDGE, feeds=(OP, KeySet.everything(GROUPS)))

        def send(count: int) -> None:
            for _ in range(count):
                row = Row(KEYS[len(sent) % 2], SourceId("d"), len(sent), UNCHAINED, 0, 0, b"%d" % len(sent))
                device.send(OP, row.key, row.payload)
                sent.append(row)

        send(20)
        settled(up, len(sent))
        up.submit(Plan("p", ((Move(OP, KeySet.of_keys(GROUPS, ["moves"]), PlaceId(CLOUD), PlaceId(EDGE)),),)))
        send(20)
        os.kill(up.routers[EDGE].pid, signal.SIGKILL)
        assert up.wait("p").state.bytes_moved > 100_000
        send(20)
        settled(up, len(sent))
        should, should_states = proof.expected(SPECS, operators, {OP: sent})
        found = proof.prove(len(sent), up.result_lines(), should, proof.values(up.states()), should_states)
        assert found.holds and found.rows_out == len(sent), found
        assert audit_deployment(up) == []

        from peregrine.spark.format import register

        register(spark)
        root = {"address": up.addresses[CLOUD], "token_file": str(tmp_path / "token")}
        assert spark.read.format("peregrine").options(**root).load().count() == len(sent)
        for address in up.addresses.values():
            refuses_strangers(address, read_token(tmp_path / "token"))


def refuses_strangers(address: str, token: str) -> None:
    """Those who know the token and speak no TLS, or show no certificate."""
    files = files_of(address)
    assert files is not None and files.cert
    for other in (where(address), with_tls(address, TlsFiles(files.ca))):
        with RouterClient(other, token, timeout_s=5.0) as stranger, pytest.raises(TransportError):
            stranger.status()


def settled(up: Deployment, rows: int, patience_s: float = 90.0) -> None:
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            if up.results_at_rest() == rows:
                return
        except Unreachable:
            pass  # the router that was killed is not back yet
        assert time.monotonic() < deadline_s, [client.status() for client in up.clients.values()]
        time.sleep(0.1)
