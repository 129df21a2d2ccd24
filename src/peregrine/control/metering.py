"""What planning wants to know of a deployment, measured when somebody plans and not before.

Rates are read from the end of the logs of hosts: which keys the newest rows are for. A counter in the router would cost
every row something; this costs nothing while nobody plans, and then one ranged read of at most `TAIL_ROWS` rows of each
place, beside the thread that routes. Sizes are read from the state that hosts have committed, without what is in chunks
(only how large these are): one small batch of Spark.
"""

import time
from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
import pyarrow as pa

from peregrine.control.deployment import Deployment
from peregrine.core import state, wire
from peregrine.core.chunks import split_names
from peregrine.core.large import Spill, names_of
from peregrine.core.rows import Rows
from peregrine.core.state import KeyState
from peregrine.errors import ProtocolError
from peregrine.net.chunk_files import ChunkFiles
from peregrine.net.client import RouterClient
from peregrine.plan.metrics import NOTHING_SEEN, Metrics, Seen, measured, seen
from peregrine.plan.predict import Conditions
from peregrine.types import OpId, PlaceId, SiteId, site_of

TAIL_ROWS = 20_000
WINDOW_MS = 10_000.0
STALE_MS = 60_000.0  # an operator whose newest row is older is idle
USUAL_TURN_MS = 150.0  # of a host that has not had a batch yet


def metrics_of(deployment: Deployment, op: OpId) -> Metrics:
    placement = deployment.driver.manager.coordinator.placement
    instances = sorted(placement.instances(op))
    now_ms = time.time() * 1000
    return measured(
        op,
        deployment.specs[op].groups,
        rows_of(deployment.clients, op, instances, now_ms),
        {} if deployment.specs[op].stateless else state_bytes(deployment, op),
        lambda key: placement.owner(op, key),
        [deployment.topology.main_place(site) for site in deployment.topology.sites],
        now_ms,
    )


def conditions(deployment: Deployment) -> Conditions:
    turns_ms = [each.trigger_ms for each in deployment.progress() if each.trigger_ms > 0]
    return Conditions(float(max(turns_ms, default=USUAL_TURN_MS)))


def rows_of(clients: Mapping[SiteId, RouterClient], op: OpId, places: Iterable[PlaceId], now_ms: float) -> Seen:
    """Of the newest rows for an operator at these places."""
    tails = [tail for place in places for tail in _tail(clients[site_of(place)], op, place)]
    if not tails:
        return NOTHING_SEEN
    rows = pa.concat_tables(tails)
    created_ms = rows.column("created_ms").to_numpy().astype(np.float64)
    if not len(created_ms) or now_ms - created_ms.max() > STALE_MS:
        return NOTHING_SEEN
    return seen(rows.column("key").to_pylist(), created_ms, WINDOW_MS)


def _tail(client: RouterClient, op: OpId, place: PlaceId) -> list[pa.Table]:
    """The keys and times of rows at the end of a place's log; of copies that a migration mutes, nothing."""
    end = client.status().ends.get(place, 0)
    reach = min(TAIL_ROWS, end)
    while reach:
        try:
            slices, _ = client.read_log(place, end - reach, reach)
        except ProtocolError:
            reach //= 2  # what was committed before the last snapshot of the router is cut off
            continue
        ops, bodies = (slices.column(name).to_pylist() for name in ("op", "body"))
        entries = (wire.decode_entry(body) for of, body in zip(ops, bodies, strict=True) if of == op)
        return [
            pa.table(entry.batch).select(["key", "created_ms"])
            for entry in entries
            if isinstance(entry, Rows) and not (entry.muted or entry.sample)
        ]
    return []


def state_bytes(deployment: Deployment, op: OpId) -> dict[str, int]:
    """How many bytes travel if a key moves, for each key that has state."""
    found: dict[str, int] = {}
    for place, of, _, blob in deployment.blobs():
        if of == op:
            chunks = ChunkFiles(deployment.chunks(place))
            keys = state.decode(blob, Spill(chunks))
            found.update((key, _bytes(ks, chunks)) for key, ks in keys.items())
    return found


def _bytes(ks: KeyState, chunks: ChunkFiles) -> int:
    value = memoryview(ks.held)
    inline = 0 if names_of(value) is not None else value.nbytes
    return inline + len(msgspec.msgpack.encode(ks.books)) + sum(map(chunks.size, split_names(ks.refs)))
