"""What devices send to an application, as it comes to lie in the logs of its operators: made beforehand."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from peregrine.app.compile import Compiled
from peregrine.app.logic import END_OF_TIME_MS
from peregrine.core.keyspace import KeySet
from peregrine.core.rows import UNCHAINED, Clock, Row
from peregrine.types import OpId, SourceId

HEARTBEAT_MS = 250  # of event time: devices tell how far they are several times a second

Tables = Mapping[str, pa.Table]
Sent = tuple[OpId, Row | Clock]  # what goes to the log of an operator


def senders_of(tables: Tables) -> list[str]:
    return sorted({sender for table in tables.values() for sender in table["source"].unique().to_pylist()})


def records_of(compiled: Compiled, tables: Tables) -> list[tuple[str, str, dict[str, Any]]]:
    """(source, who sends it, record) in the order of sending."""
    found = []
    for source, table in tables.items():
        records = table.select(list(compiled.sources[source].schema.names)).to_pylist()
        sent = zip(table["sent_us"].to_pylist(), table["source"].to_pylist(), records, strict=True)
        found += [(sent_us, source, sender, record) for sent_us, sender, record in sent]
    found.sort(key=lambda each: each[0])
    return [(source, sender, record) for _, source, sender, record in found]


def feed(compiled: Compiled, tables: Tables) -> list[list[Sent]]:
    """For each record what it puts into logs, after the heartbeats that were due; as the last step the end of time."""
    reached_ms: dict[str, int] = {}  # by whoever has something to tell since the last heartbeat
    seqs: dict[str, int] = {}
    beat_ms = HEARTBEAT_MS
    steps: list[list[Sent]] = []
    for source, sender, record in records_of(compiled, tables):
        seq = seqs[sender] = seqs.get(sender, -1) + 1
        readings = compiled.sources[source].readings(record, sender, 0)
        step: list[Sent] = []
        if readings[0].time_ms >= beat_ms:
            beat_ms = readings[0].time_ms // HEARTBEAT_MS * HEARTBEAT_MS + HEARTBEAT_MS
            step += _clocks(compiled, reached_ms, roaming=False)
            reached_ms.clear()
        step += [
            (each.op, Row(each.key, SourceId(sender), seq, UNCHAINED, each.time_ms, each.created_ms, each.payload))
            for each in readings
        ]
        reached_ms[sender] = max(readings[0].time_ms, reached_ms.get(sender, 0))
        steps.append(step)
    steps.append(list(_clocks(compiled, dict.fromkeys(senders_of(tables), END_OF_TIME_MS), roaming=True)))
    return steps


def _clocks(compiled: Compiled, reached_ms: Mapping[str, int], roaming: bool) -> Iterator[Sent]:
    """Roaming devices have no heartbeats: their rows advance time by themselves."""
    told: dict[OpId, int] = {}
    for ingress in compiled.sources.values():
        if roaming or not ingress.roaming:
            told |= dict(ingress.clocked)
    for op, groups in told.items():
        for sender, time_ms in sorted(reached_ms.items()):
            yield op, Clock(op, KeySet.everything(groups), SourceId(sender), time_ms)
