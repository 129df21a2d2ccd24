"""Which replicas a deployment keeps: the commands to the routers, and a file that remembers what was asked for.

A router keeps a replica until its key moves or it is told to stop (core/replicating.py). What moved is not looked for
here: a replica counts as long as its key is where it was when the replica was asked for.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from peregrine.control import questions
from peregrine.control.deployment import Deployment
from peregrine.core.keyspace import KeySet
from peregrine.core.messages import REFRESH_MS, KeepReplicas, StopReplicas
from peregrine.errors import PlanError
from peregrine.net.chunk_files import write_aside
from peregrine.plan.metrics import Unit
from peregrine.plan.migration_plan import keys_of
from peregrine.types import OpId, PlaceId, site_of

Share = tuple[PlaceId, PlaceId]  # source, target


class Replicas:
    def __init__(self, deployment: Deployment, file: Path) -> None:
        self._deployment = deployment
        self._file = file
        found = file.read_bytes() if file.exists() else b"{}"
        self._kept = msgspec.json.decode(found, type=dict[OpId, list[tuple[PlaceId, PlaceId, list[Unit]]]])

    def of(self, op: OpId) -> dict[Unit, list[PlaceId]]:
        """Where keys and groups have replicas, those left out that have moved since."""
        instances = self._deployment.driver.ask(questions.instances, op)
        found: dict[Unit, list[PlaceId]] = {}
        for source, target, units in self._kept.get(op, []):
            there = instances.get(source)
            for unit in units:
                if there is not None and self._keys(op, [unit]) <= there:
                    found.setdefault(unit, []).append(target)
        return found

    def keep(self, op: OpId, wanted: Mapping[Share, Sequence[Unit]], every_ms: int = REFRESH_MS) -> None:
        """These, and of this operator no others any more."""
        before = {(source, target): units for source, target, units in self._kept.get(op, [])}
        asked = {share: list(units) for share, units in wanted.items()}
        self._remember(op, {share: [*before.get(share, []), *asked.get(share, [])] for share in {*before, *asked}})
        for (source, target), units in sorted(before.items()):
            unwanted = self._keys(op, units) - self._keys(op, asked.get((source, target), []))
            if unwanted:
                self._offer(StopReplicas(op, unwanted, source, target))
        for (source, target), units in sorted(asked.items()):
            self._offer(KeepReplicas(op, self._keys(op, units), source, target, every_ms))
        self._remember(op, asked)

    def stop(self, op: OpId) -> None:
        """None of an operator any more; returns when the routers have written it down."""
        if op not in self._kept:
            known = ", ".join(sorted(self._kept)) or "of no operator"
            raise PlanError(f"no replicas of {op} are kept", f"replicas are kept: {known}")
        self.keep(op, {})

    def _offer(self, command: KeepReplicas | StopReplicas) -> None:
        self._deployment.clients[site_of(command.source)].offer(command)

    def _keys(self, op: OpId, units: Sequence[Unit]) -> KeySet:
        return keys_of(KeySet.everything(self._deployment.specs[op].groups), units)

    def _remember(self, op: OpId, shares: Mapping[Share, Sequence[Unit]]) -> None:
        """Also what is only about to be kept or stopped: what is forgotten could not be stopped any more."""
        self._kept[op] = [(*share, list(dict.fromkeys(units))) for share, units in sorted(shares.items())]
        if not self._kept[op]:
            del self._kept[op]
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_aside(self._file, msgspec.json.encode(self._kept), durable=False)
