"""The manager as one machine: the coordinator, and mobility that proposes plans to it.

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
)
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.mechanisms.program import Mechanism
from peregrine.core.messages import Attached, Report, Stray, Tick
from peregrine.core.mobility import GiveUp, Mobility, MobilityEvent, Propose
from peregrine.core.operator import OpSpec
from peregrine.core.placement import Placement
from peregrine.core.validity import Producers
from peregrine.types import OpId

ManagerEvent = Submit | Cancel | Report | Tick | Attached | Stray


class Manager:
    def __init__(
        self,
        placement: Placement,
        operators: Mapping[OpId, OpSpec],
        attachments: Attachments,
        producers: Producers,
        mechanisms: Mapping[str, Mechanism] = MECHANISMS,
        dwell_ms: int = 5000,
    ) -> None:
        self.coordinator = Coordinator(placement, operators, producers, mechanisms)
        self.attachments = attachments
        self.mobility = Mobility(self.coordinator, attachments, dwell_ms)

    @property
    def idle(self) -> bool:
        """Nothing runs and no key is on a trip: time alone changes nothing."""
        return not self.coordinator.running and not self.mobility.trips

    def step(self, event: ManagerEvent) -> list[CoordinatorEffect]:
        """A plan of the user that cannot be carried out raises an error and changes nothing."""
        effects: list[CoordinatorEffect] = []
        if isinstance(event, Submit | Cancel | Report | Tick):
            effects += self._coordinate(event)
        if isinstance(event, Attached | Stray | Tick):
            effects += self._roam(event)
        return effects

    def _coordinate(self, event: CoordinatorEvent) -> list[CoordinatorEffect]:
        effects = self.coordinator.step(event)
        for effect in list(effects):
            if isinstance(effect, PlanEnded):
                effects += self._roam(effect)
        return effects

    def _roam(self, event: MobilityEvent) -> list[CoordinatorEffect]:
        effects: list[CoordinatorEffect] = []
        for wish in self.mobility.step(event):
            match wish:
                case Propose(plan):
                    effects += self._coordinate(Submit(plan))
                case GiveUp(plan_id):
                    effects += self._coordinate(Cancel(plan_id))
        return effects
