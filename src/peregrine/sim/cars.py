"""The demonstration's run: ten cars, one cloud, two edges, and what there is to see while keys move.

Half of the keys move from the cloud to the edge where their cars are; then one car drives to the other edge, and its
key follows it by way of the cloud. A `Watch` submits the plan and looks on.
"""

import random
from dataclasses import dataclass, field
from enum import StrEnum

from peregrine.core.coordinator import Submit
from peregrine.core.keyspace import KeySet
from peregrine.core.messages import Append, Attached, Deliver, Effect, Emitted, Report
from peregrine.core.migrate import Migration, Role
from peregrine.core.operator import OpSpec
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.rows import DropKeys, RestoreKeys
from peregrine.core.source import Reading
from peregrine.core.topology import Link, Topology
from peregrine.sim.operators import Ledger, emitter
from peregrine.sim.scenario import Scenario, SourceScript
from peregrine.sim.simulation import Simulation
from peregrine.types import MigrationId, OpId, PlaceId, SiteId, SourceId, site_of

TRACK, RESULTS = OpId("cars/track"), OpId("cars/results")
CLOUD, EDGE1, EDGE2 = SiteId("cloud"), SiteId("edge1"), SiteId("edge2")
CARS = tuple(f"car{i}" for i in range(10))
FIRST_HALF = CARS[:5]  # these drive around edge1, the others around edge2
DRIVER = "car2"
GROUPS = 16
ROWS_PER_CAR = 100
DURATION_MS = 4000
MOVE_AT_MS = 800.0
DRIVE_AT_MS = 1900.0
DWELL_MS = 700


class Phase(StrEnum):
    """How far a live migration is."""

    COPY = "copy"
    CATCH_UP = "catch-up"
    SWITCH = "switch"
    GATE = "gate"
    DONE = "done"


MEANING = {
    Phase.COPY: "rows go to both places; the old one works on while its state travels",
    Phase.CATCH_UP: "the state is there; the new place applies the rows that waited, muted",
    Phase.SWITCH: "a marker in the stream: rows go to the new place alone; what it emits waits",
    Phase.GATE: "the old place has seen the marker; its last outputs go first",
    Phase.DONE: "the keys live at the new place",
}


def scenario() -> Scenario:
    rng = random.Random("cars")
    links = {edge: (CLOUD, Link(latency_ms=40.0, bandwidth_mbps=50.0)) for edge in (EDGE1, EDGE2)}
    sources = []
    for car in CARS:
        times = [(i + rng.random()) * DURATION_MS / ROWS_PER_CAR for i in range(ROWS_PER_CAR)]
        sends = tuple((t, Reading(TRACK, car, int(t), int(t), b"%d" % rng.randrange(130))) for t in times)
        moves = ((DRIVE_AT_MS, EDGE2),) if car == DRIVER else ()
        sources.append(SourceScript(SourceId(car), EDGE1 if car in FIRST_HALF else EDGE2, True, sends, moves))
    return Scenario(
        seed=0,
        topology=Topology.tree(CLOUD, links),
        specs={
            TRACK: OpSpec(TRACK, GROUPS, roaming=True, feeds=(RESULTS,)),
            RESULTS: OpSpec(RESULTS, GROUPS, sink=True),
        },
        operators={TRACK: Ledger(RESULTS)},
        initial=(),
        sources=tuple(sources),
        keys_of={TRACK: CARS},
        feeds={SourceId(car): ((TRACK, KeySet.of_keys(GROUPS, [car])),) for car in CARS},
        dwell_ms=DWELL_MS,
    )


def plan() -> Plan:
    move = Move(TRACK, KeySet.of_keys(GROUPS, FIRST_HALF), PlaceId(CLOUD), PlaceId(EDGE1))
    return Plan("to-the-edge", ((move,),), mechanism="live")


@dataclass
class Journey:
    """One migration: when it entered each phase."""

    migration: Migration
    entered_ms: dict[Phase, float] = field(default_factory=dict)

    @property
    def phase(self) -> Phase:
        return max(self.entered_ms, key=list(Phase).index)

    @property
    def took_ms(self) -> float:
        return self.entered_ms[Phase.DONE] - self.entered_ms[Phase.COPY]

    def spent_ms(self, phase: Phase) -> float:
        after = list(Phase)[list(Phase).index(phase) + 1]
        return self.entered_ms[after] - self.entered_ms[phase]

    @property
    def what(self) -> str:
        keys = sorted(self.migration.keys.plus)
        return keys[0] if len(keys) == 1 else f"{keys[0]}-{keys[-1].removeprefix('car')}"

    @property
    def source(self) -> SiteId:
        return self.migration.site(Role.SOURCE)

    @property
    def target(self) -> SiteId:
        return self.migration.site(Role.TARGET)

    def __str__(self) -> str:
        return f"{self.what}: {self.source} → {self.target}"


@dataclass(frozen=True)
class Sample:
    """An output left its place this long after its row was created."""

    at_ms: float
    key: str
    latency_ms: float


class Watch:
    def __init__(self, run: Simulation) -> None:
        self.run = run
        self.journeys: dict[MigrationId, Journey] = {}
        self.samples: list[Sample] = []
        self.news: list[tuple[float, str]] = []
        self.rows_out = 0
        self._created_ms = sorted(at_ms for script in run.scenario.sources for at_ms, _ in script.sends)
        run.watchers.append(self._on_effect)
        run.world.after(MOVE_AT_MS, self._submit)

    @property
    def now_ms(self) -> float:
        return self.run.world.now_ms

    @property
    def rows_in(self) -> int:
        return sum(at_ms <= self.now_ms for at_ms in self._created_ms)

    @property
    def under_way(self) -> Journey | None:
        return next((each for each in self.journeys.values() if each.phase is not Phase.DONE), None)

    def owner(self, key: str) -> SiteId:
        return site_of(self.run.manager.machine.coordinator.placement.owner(TRACK, key))

    def connected(self, site: SiteId) -> list[str]:
        return [car for car in CARS if self.run.sources[SourceId(car)].machine.site == site]

    def latencies_ms(self, keys: tuple[str, ...], from_ms: float, to_ms: float) -> list[float]:
        return [s.latency_ms for s in self.samples if s.key in keys and from_ms <= s.at_ms < to_ms]

    def _submit(self) -> None:
        self.run.manager.offer(Submit(plan()))

    def _on_effect(self, site: SiteId, effect: Effect) -> None:
        match effect:
            case Report(_, id, "begun"):
                self._begun(id)
            case Report(_, id, "switched"):
                self._enter(id, Phase.SWITCH)
            case Report(_, id, "done"):
                self._enter(id, Phase.DONE)
            case Append(place, _, RestoreKeys()):
                for id, journey in self.journeys.items():
                    if journey.migration.target == place and journey.phase is Phase.COPY:
                        self._enter(id, Phase.CATCH_UP)
            case Append(_, _, DropKeys(ack=Migration(id=id))):
                self._enter(id, Phase.GATE)
            case Emitted(_, _, rows):
                keys, created = rows.batch.column("source").to_pylist(), rows.batch.column("created_ms").to_pylist()
                for source, created_ms in zip(keys, created, strict=True):
                    self.samples.append(Sample(self.now_ms, emitter(source), self.now_ms - created_ms))
            case Deliver(_, rows):
                self.rows_out += len(rows)
            case Attached(_, source, _) if source == DRIVER and site == EDGE2:
                drove = f"{DRIVER} has driven from {EDGE1} to {EDGE2}: its rows make a detour"
                if all(news != drove for _, news in self.news):  # routers say again who is connected
                    self.news.append((self.now_ms, drove))
            case _:
                pass

    def _begun(self, id: MigrationId) -> None:
        for running in self.run.manager.machine.coordinator.running.values():
            if id in running.open and id not in self.journeys:
                self.journeys[id] = Journey(running.open[id])
                self._enter(id, Phase.COPY)

    def _enter(self, id: MigrationId, phase: Phase) -> None:
        journey = self.journeys[id]
        if phase not in journey.entered_ms:  # routers report again when they are asked
            journey.entered_ms[phase] = self.now_ms
            self.news.append((self.now_ms, f"{journey}  {phase}: {MEANING[phase]}"))
