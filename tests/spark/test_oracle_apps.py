"""All applications at once on Spark: what comes out is what a batch computation says, also while everything moves.

Windows are open during every move. Operators that devices feed go down, sideways and up, half of the groups at a time,
and the busiest key by itself; those behind them go up and down.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from oracles.everything import Everything, everything
from peregrine import Link, Topology, run
from peregrine.app.compile import Compiled, compile_app
from peregrine.control.auditing import audit_deployment
from peregrine.control.running import Running
from peregrine.core.chain import deployed
from peregrine.core.keyspace import KeySet
from peregrine.types import OpId, SiteId

CLOUD, REGION, EDGE1, EDGE2 = (SiteId(name) for name in ("cloud", "region", "edge1", "edge2"))
LINK = Link(latency_ms=5)
TOPOLOGY = Topology.tree(CLOUD, {REGION: (CLOUD, LINK), EDGE1: (REGION, LINK), EDGE2: (REGION, LINK)})
STRETCHES = 5


@dataclass
class Moves:
    """What moves before each stretch of rows; gives the names of the plans."""

    running: Running
    first: list[OpId]  # what devices feed
    behind: list[OpId]
    busiest: dict[OpId, Any]  # the busiest key of those whose key a device sends

    def go(self, nth: int) -> list[str]:
        match nth:
            case 1:
                return self._all(self.first, EDGE1, half=True) + self._all(self.behind, CLOUD)
            case 2:
                alone = [self.running.start_move(op, EDGE2, [key]) for op, key in self.busiest.items()]
                return alone + self._all(self.behind, REGION, half=True)
            case 3:
                return self._all(self.first, EDGE2, half=True) + self._all(self.behind, REGION)
            case 4:
                return self._all(self.first, REGION) + self._all(self.behind, CLOUD, half=True)
        return []

    def _all(self, ops: list[OpId], to: SiteId, half: bool = False) -> list[str]:
        found = []
        for op in ops:
            groups = self.running.deployment.specs[op].groups
            keys = KeySet.of_groups(groups, range(0, groups, 2)) if half else None
            found.append(self.running.start_move(op, to, keys))
        return found


@pytest.mark.parametrize("moving", [False, True], ids=["in place", "while everything moves"])
def test_every_application_equals_its_oracle(spark: Any, tmp_path: Path, moving: bool) -> None:
    apps = everything()
    first, middle, behind, busiest = _operators(apps)
    at = {op: {REGION: None} for op in first + middle + behind}
    with run(*(each.app for each in apps), topology=TOPOLOGY, at=at, directory=tmp_path, keep_journal=True) as running:
        moves = Moves(running, first, behind, busiest)
        names = sorted({device for each in apps for device, _, _ in each.sent})
        sites = (REGION, EDGE1, EDGE2)
        devices = {name: running.device(name, sites[i % 3]) for i, name in enumerate(names)}
        for nth in range(STRETCHES):
            plans = moves.go(nth) if moving else []
            for each in apps:
                begin, end = (len(each.sent) * n // STRETCHES for n in (nth, nth + 1))
                for device, source, record in each.sent[begin:end]:
                    devices[device].send(f"{each.name}/{source}", record)
            for plan in plans:
                assert running.deployment.wait(plan, 120).outcome == "done"
        running.finish()
        wrong = []
        for each in apps:
            for result, should in each.expected.items():
                found = each.found(result, running.records(f"{each.name}/{result}"))
                if found != should:
                    wrong.append(f"{each.name}.{result}: {_difference(found, should)}")
        assert wrong == []
        assert audit_deployment(running.deployment, running.initial) == []


def _operators(apps: list[Everything]) -> tuple[list[OpId], list[OpId], list[OpId], dict[OpId, Any]]:
    """Without those behind a DataFrame operator, which is at the root.

    What is in the middle of a chain stays, so that both of its ends can move.
    """
    first: list[OpId] = []
    middle: list[OpId] = []
    behind: list[OpId] = []
    busiest: dict[OpId, Any] = {}
    for each in apps:
        compiled = compile_app(each.app)
        rooted = {target.op for _, targets in compiled.transforms.values() for target in targets}
        for op, spec in compiled.specs.items():
            if spec.inline or spec.sink or op in compiled.transforms or op in rooted:
                continue
            feeders = [name for name, ingress in compiled.sources.items() if op in {to.op for to in ingress.targets}]
            (first if feeders else middle if _feeds_others(compiled, op) else behind).append(op)
            keying = compiled.keyings[op]
            if feeders and keying is not None:
                mine = (record for _, source, record in each.sent if source == feeders[0])
                counts = Counter(tuple(record[column] for column in keying.columns) for record in mine)
                busiest[op] = counts.most_common(1)[0][0]
    return first, middle, behind, busiest


def _feeds_others(compiled: Compiled, op: OpId) -> bool:
    return any(not compiled.specs[fed].sink for fed in deployed(compiled.specs)[op].feeds)


def _difference(found: list[tuple], should: list[tuple]) -> str:
    missing, extra = Counter(should) - Counter(found), Counter(found) - Counter(should)
    lost, more = (f"{each.total()} {list(each)[:3]}" for each in (missing, extra))
    return f"{len(should)} expected, missing {lost}, extra {more}"
