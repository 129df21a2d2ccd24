"""What planning wants to know of a deployment, measured when somebody plans and not before.

Rates are read from the end of the logs of hosts: which keys the newest rows are for. A counter in the router would cost
every row something; this costs nothing while nobody plans, and then one ranged read of at most `TAIL_ROWS` rows of each
place, beside the thread that routes. Sizes are read from the state that hosts have committed, without what is in chunks
(only how large these are): one small batch of Spark.
"""

import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping
from statistics import median

import msgspec
import numpy as np
import pyarrow as pa

from peregrine.control import questions
from peregrine.control.deployment import Deployment
from peregrine.core import state, wire
from peregrine.core.chunks import split_names
from peregrine.core.large import Spill, names_of
from peregrine.core.rows import Rows
from peregrine.core.state import KeyState
from peregrine.errors import ProtocolError, StorageError
from peregrine.net.chunk_files import ChunkFiles
from peregrine.net.client import RouterClient
from peregrine.plan.metrics import NOTHING_SEEN, Metrics, Seen, measured, seen
from peregrine.plan.predict import Conditions
from peregrine.types import OpId, PlaceId, SiteId, site_of

TAIL_ROWS = 20_000
WINDOW_MS = 10_000.0
STALE_MS = WINDOW_MS  # an operator whose newest row is older is idle
ATTEMPTS, WAIT_S = 3, 0.5
USUAL_TURN_MS = 150.0  # of a host that has not had a batch yet

log = logging.getLogger(__name__)


def metrics_of(deployment: Deployment, op: OpId) -> Metrics:
    topology, spec = deployment.topology, deployment.specs[op]
    now_ms = time.time() * 1000
    rows = rows_of(deployment.clients, op, sorted(deployment.driver.ask(questions.instances, op)), now_ms)
    sizes = {} if spec.stateless else state_bytes(deployment, op)
    owners = deployment.driver.ask(questions.owners, op, {*rows.rows_per_s, *sizes})
    return measured(
        op,
        spec.groups,
        rows,
        sizes,
        owners.__getitem__,
        [place for site in topology.sites for place in topology.places(site) if place not in deployment.apart],
        now_ms,
    )


class Turns:
    """How long a micro-batch of a host takes: one alone says little, so a few of the last ones are remembered."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._seen_ms: deque[int] = deque(maxlen=5)

    def look(self) -> Conditions:
        """To be asked before anything else is asked of Spark, which would slow the batch down that is looked at."""
        turns_ms = [each.trigger_ms for each in self._deployment.progress() if each.trigger_ms > 0]
        self._seen_ms.extend([max(turns_ms)] if turns_ms else [])
        return Conditions(median(self._seen_ms) if self._seen_ms else USUAL_TURN_MS)


def rows_of(clients: Mapping[SiteId, RouterClient], op: OpId, places: Iterable[PlaceId], now_ms: float) -> Seen:
    """Of the newest rows for an operator at these places."""
    tails = [pa.table(each.batch) for place in places for each in tail_of(clients[site_of(place)], op, place)]
    if not tails:
        return NOTHING_SEEN
    rows = pa.concat_tables(tails).select(["key", "created_ms"])
    created_ms = rows.column("created_ms").to_numpy().astype(np.float64)
    if not len(created_ms) or now_ms - created_ms.max() > STALE_MS:
        return NOTHING_SEEN
    return seen(rows.column("key").to_pylist(), created_ms, WINDOW_MS)


def tail_of(client: RouterClient, op: OpId, place: PlaceId, most_rows: int = TAIL_ROWS) -> list[Rows]:
    """Rows at the end of a place's log; of copies that a migration mutes, nothing."""
    end = client.status().ends.get(place, 0)
    reach = min(most_rows, end)
    while reach:
        try:
            slices, _ = client.read_log(place, end - reach, reach)
        except ProtocolError:
            reach //= 2  # what was committed before the last snapshot of the router is cut off
            continue
        ops, bodies = (slices.column(name).to_pylist() for name in ("op", "body"))
        entries = (wire.decode_entry(body) for of, body in zip(ops, bodies, strict=True) if of == op)
        return [entry for entry in entries if isinstance(entry, Rows) and not (entry.muted or entry.sample)]
    return []


def state_bytes(deployment: Deployment, op: OpId) -> dict[str, int]:
    """How many bytes travel if a key moves, for each key that has state."""
    found: dict[str, int] = {}
    for place, of, _, blob in _blobs(deployment):
        if of == op:
            chunks = ChunkFiles(deployment.chunks(place))
            keys = state.decode(blob, Spill(chunks))
            found.update((key, _bytes(ks, chunks)) for key, ks in keys.items())
    return found


def _blobs(deployment: Deployment) -> list[tuple[PlaceId, OpId, int, bytes]]:
    """Hosts go on meanwhile, and may clear away the batch that is being read: then there is a newer one."""
    for attempt in range(1, ATTEMPTS + 1):
        if all(each.batch < 0 for each in deployment.progress()):
            return []  # nothing was committed yet
        try:
            return deployment.blobs()
        except Exception as error:  # of Spark, which only spark/ knows by name
            log.warning("attempt=%d state could not be read: %s", attempt, error)
            reason = str(error).partition("\n")[0]
        time.sleep(WAIT_S)
    raise StorageError(f"the state of hosts could not be read: {reason}", "plan again; the log of Spark tells more")


def _bytes(ks: KeyState, chunks: ChunkFiles) -> int:
    value = memoryview(ks.held)
    inline = 0 if names_of(value) is not None else value.nbytes
    return inline + len(msgspec.msgpack.encode(ks.books)) + sum(map(chunks.size, split_names(ks.refs)))
