"""Simulated devices: what is not acknowledged is sent again, whatever else happens meanwhile."""

from collections.abc import Callable

from harness import EDGE1, OP
from peregrine.core.messages import FromSource, Single
from peregrine.core.source import Reading, Source
from peregrine.errors import Busy, PeregrineError
from peregrine.sim.devices import SimSource
from peregrine.sim.world import World
from peregrine.types import SourceId


class BusyRouter:
    """Takes one batch, refuses the next, as under back-pressure, and takes all that come then."""

    def __init__(self) -> None:
        self.up = True
        self.machine = self
        self.asked = 0
        self.taken = -1

    def offer(
        self, event: Single, durable: Callable[[], None], refused: Callable[[PeregrineError], None] | None = None
    ) -> None:
        if isinstance(event, FromSource):
            self.asked += 1
            if self.asked == 2:
                assert refused is not None
                refused(Busy("it takes no rows now", "send the same again"))
                return
            self.taken = event.items[-1][0]
        durable()

    def acked_source(self, source: SourceId) -> int:
        return self.taken


def test_a_batch_that_was_refused_is_sent_again_also_if_an_earlier_one_is_acknowledged_meanwhile() -> None:
    world, router = World(0), BusyRouter()
    device = SimSource(world, lambda: Source(SourceId("s"), EDGE1), {EDGE1: router})  # type: ignore[dict-item]
    device.give(Reading(OP, "car1", 0, 0, b""))
    device.crash()  # the first row is on its way
    device.give(Reading(OP, "car1", 0, 0, b""))
    world.after(3.9, device.restart)  # and now both are
    while world.run_next():
        pass
    assert router.asked == 3 and router.taken == 1
    assert device.idle
