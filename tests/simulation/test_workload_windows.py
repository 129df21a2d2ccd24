"""The windows of the papers' applications are recreated elsewhere while rows flow: nobody can tell from the results.

As in `test_written_windows.py`, but with the applications, rows and windows of the papers.
"""

from collections.abc import Iterable

import pytest

from oracles.everything import Everything, everything
from peregrine.app.compile import Ingress, compile_app
from peregrine.core.chain import chained, deployed, in_order
from peregrine.core.keyspace import KeySet
from peregrine.core.source import Reading
from peregrine.core.topology import Link, Topology
from peregrine.sim.checkers import check
from peregrine.sim.scenario import END_OF_TIME_MS, Beat, Scenario, SourceScript
from peregrine.sim.simulation import Simulation
from peregrine.types import OpId, PlaceId, SiteId, SourceId

CLOUD, REGION, EDGE = SiteId("cloud"), SiteId("region"), SiteId("edge")
HOSTS = ("h1", "h2")
ROWS = 500
EVERY_MS = 3.0


def windowed(each: Everything) -> bool:
    return any(spec.windowed for spec in compile_app(each.in_memory).specs.values())


APPS = {each.name: each for each in everything() if windowed(each)}


def test_the_windowed_applications_are_all_there() -> None:
    assert {"q5", "q7", "q8", "toll", "trains"} <= set(APPS)


@pytest.mark.parametrize("name", APPS)
def test_recreated_windows_give_the_same_results(name: str) -> None:
    scenario = scenario_of(APPS[name])
    run = Simulation(scenario).run()
    assert [str(each) for each in check(run, Simulation(scenario.reference()).run())] == []
    assert run.observed.ended["window-recreation"]


def scenario_of(each: Everything) -> Scenario:
    """Devices are at the edge, and all operators begin at one of two hosts of the region."""
    compiled = compile_app(each.in_memory)
    specs = deployed(compiled.specs)
    link = Link(latency_ms=5)
    sends: dict[str, list[tuple[float, Reading | Beat]]] = {}
    reached_ms: dict[str, int] = {}
    feeds: dict[str, dict[OpId, set[str]]] = {}
    for nth, (device, source, record) in enumerate(each.sent[:ROWS]):
        at_ms, mine = nth * EVERY_MS, sends.setdefault(device, [])
        for reading in compiled.sources[source].readings(record, device, int(at_ms)):
            mine.append((at_ms, reading))
            reached_ms[device] = max(reading.time_ms, reached_ms.get(device, reading.time_ms))
            feeds.setdefault(device, {}).setdefault(reading.op, set()).add(reading.key)
        if nth % 7 == 0:
            mine += [(at_ms, beat) for beat in beats(compiled.sources.values(), reached_ms[device])]
    for mine in sends.values():
        mine += [(ROWS * EVERY_MS, beat) for beat in beats(compiled.sources.values(), END_OF_TIME_MS)]
    return Scenario(
        seed=1,
        topology=Topology.tree(CLOUD, {REGION: (CLOUD, link), EDGE: (REGION, link)}, {REGION: HOSTS}),
        specs=specs,
        operators=chained(compiled.specs, compiled.operators),
        initial=tuple(
            (op, KeySet.everything(specs[op].groups), PlaceId(f"{REGION}/{HOSTS[0]}"))
            for op in in_order(specs)
            if not specs[op].sink
        ),
        sources=tuple(SourceScript(SourceId(name), EDGE, False, tuple(mine)) for name, mine in sends.items()),
        keys_of={},
        feeds={
            SourceId(device): tuple((op, KeySet.of_keys(specs[op].groups, sorted(keys))) for op, keys in fed.items())
            for device, fed in feeds.items()
        },
        reconfigure_at_ms=tuple(ROWS * EVERY_MS * part for part in (0.1, 0.2, 0.3, 0.45, 0.6)),
        mechanisms=("window-recreation",),
    )


def beats(sources: Iterable[Ingress], time_ms: int) -> list[Beat]:
    clocked = {op: groups for ingress in sources for op, groups in ingress.clocked}
    return [Beat(op, KeySet.everything(groups), time_ms) for op, groups in clocked.items()]
