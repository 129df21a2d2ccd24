"""The proof of a run: its results and states against the same rows in memory, where nothing moves.

What a stateful operator emits is numbered for each key, so results are compared one by one and in order. States that do
not fit into memory twice are not compared; what they are made of is named by its content.
"""

from itertools import groupby

from peregrine import InMemory, proof
from peregrine.app.compile import Compiled
from peregrine.bench.engine.flow import Sent
from peregrine.control.deployment import Deployment
from peregrine.control.running import Running
from peregrine.proof import Lines, Proof
from peregrine.types import OpId

MOST_STATE_BYTES = 512 << 20


def prove(compiled: Compiled, sent: list[Sent], running: Running) -> Proof:
    """After `running.finish()`."""
    reference = Reference(compiled)
    for (device, source), records in groupby(sent, key=lambda each: each[:2]):
        reference.send(source, [record for _, _, record in records], sender=device)
    reference.finish()
    deployment = running.deployment
    states, should = {}, {}
    if _chunk_bytes(deployment) <= MOST_STATE_BYTES:
        states, should = proof.values(deployment.states()), proof.values(reference.blobs())
    return proof.prove(len(sent), deployment.result_lines(), reference.lines(), states, should)


def _chunk_bytes(deployment: Deployment) -> int:
    stores = {
        deployment.chunks(place) for site in deployment.topology.sites for place in deployment.topology.places(site)
    }
    return sum(path.stat().st_size for store in stores for path in store.glob("??/*"))


class Reference(InMemory):
    def lines(self) -> Lines:
        found: Lines = {}
        for op, rows in self._results.items():
            for row in rows:
                found.setdefault((op, row.key, row.source), []).append((row.seq, row.payload))
        return found

    def blobs(self) -> list[tuple[OpId, bytes]]:
        return [(op, blob) for (op, _), blob in self._states.items()]
