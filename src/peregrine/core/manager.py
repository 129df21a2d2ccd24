"""The manager as one machine: the coordinator, and mobility and redeploying that propose plans to it.

Deterministic over its journal, like everything that must survive a crash.
"""

from collections.abc import Mapping

from peregrine.core.attachments import Attachments
from peregrine.core.coordinator import (
    Cancel,
    Coordinator,
    CoordinatorEffect,
    CoordinatorEvent,
    PlanEnded,
    Submit,
    ToRouter,
    plan_of,
)
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.mechanisms.program import Mechanism
from peregrine.core.messages import Attached, Rehome, Rehomed, Report, Stray, Tick
from peregrine.core.mobility import GiveUp, Mobility, MobilityEvent, Propose
from peregrine.core.operator import OpSpec
from peregrine.core.placement import Placement
from peregrine.core.planning import Planning
from peregrine.core.redeploying import (
    PATIENCE_MS,
    PutOff,
    Redeployed,
    Redeploying,
    RedeployingEvent,
    TopologyChanged,
)
from peregrine.core.trail import Trail, explained
from peregrine.core.validity import Producers
from peregrine.types import OpId

ManagerEvent = Submit | Cancel | Report | Tick | Attached | Stray | Rehomed | TopologyChanged
ManagerEffect = CoordinatorEffect | PutOff | Redeployed


class Manager:
    def __init__(
        self,
        placement: Placement,
        operators: Mapping[OpId, OpSpec],
        attachments: Attachments,
        producers: Producers,
        mechanisms: Mapping[str, Mechanism] = MECHANISMS,
        dwell_ms: int = 5000,
        planning: Planning | None = None,
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        """Without `planning` the topology stays as it is. `patience_ms`: how long a topology change in which nothing
        happens holds up the next.
        """
        self.trail = Trail("the manager")
        self.coordinator = Coordinator(placement, operators, producers, mechanisms)
        self.attachments = attachments
        self.mobility = Mobility(self.coordinator, attachments, dwell_ms)
        self.redeploying = None if planning is None else Redeploying(self.coordinator, planning, patience_ms)

    @property
    def idle(self) -> bool:
        """Nothing runs and no key is on a trip: time alone changes nothing."""
        still = self.redeploying is None or self.redeploying.idle
        return still and not self.coordinator.running and not self.mobility.trips

    @explained
    def step(self, event: ManagerEvent) -> list[ManagerEffect]:
        """A plan of the user that cannot be carried out raises an error and changes nothing."""
        effects: list[ManagerEffect] = []
        if isinstance(event, Attached) and self.mobility.is_old(event):
            return effects
        if isinstance(event, Submit | Cancel | Report | Tick):
            effects += self._coordinate(event)
        if isinstance(event, Attached | Stray | Tick):
            effects += self._roam(event)
        if isinstance(event, TopologyChanged | Rehomed | Attached | Tick):
            effects += self._redeploy(event)
        return effects

    def _coordinate(self, event: CoordinatorEvent) -> list[ManagerEffect]:
        match event:
            case Submit(plan):
                self.trail.note(plan.id, "submitted,", "by", plan.mechanism)
            case Cancel(plan_id):
                self.trail.note(plan_id, "cancelled")
            case Report(site, migration, status):
                self.trail.note(plan_of(migration), site, "reports", status, "of", migration)
        return self._follow(self.coordinator.step(event))

    def _follow(self, effects: list[CoordinatorEffect]) -> list[ManagerEffect]:
        """Plans that have ended are news for those who propose plans."""
        all_effects: list[ManagerEffect] = [*effects]
        for effect in effects:
            if isinstance(effect, PlanEnded):
                self.trail.note(effect.plan.id, "ended:", effect.outcome.value)
                all_effects += self._roam(effect)
                all_effects += self._redeploy(effect)
        return all_effects

    def _roam(self, event: MobilityEvent) -> list[ManagerEffect]:
        effects: list[ManagerEffect] = []
        for wish in self.mobility.step(event):
            match wish:
                case Propose(plan):
                    effects += self._coordinate(Submit(plan))
                case GiveUp(plan_id):
                    effects += self._coordinate(Cancel(plan_id))
        return effects

    def _redeploy(self, event: RedeployingEvent) -> list[ManagerEffect]:
        effects: list[ManagerEffect] = []
        if isinstance(event, Rehomed):
            self.trail.note(event.site, "rehomed", event.number)
        for effect in self.redeploying.step(event) if self.redeploying is not None else ():
            match effect:
                case Propose(plan):
                    effects += self._coordinate(Submit(plan))
                case PlanEnded():
                    effects += self._follow([effect])
                case ToRouter(_, Rehome(rehoming)):
                    self.trail.note(rehoming.site, "is to go from", str(rehoming.source), "to", str(rehoming.target))
                    effects.append(effect)
                case _:
                    effects.append(effect)
        return effects
