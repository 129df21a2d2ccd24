"""What simulator and processes share decides rightly: each deliberate fault in it is found within 200 seeds.

The sending end of links (core/link.py), what a router lets in (core/admission.py), back-pressure (core/pressure.py),
and what the planner hears of sources (plan/redeploy/planning.py).
"""

from collections.abc import Callable

import pytest

from peregrine.core import admission, router_logs
from peregrine.core.intake import Intake
from peregrine.core.link import Frame, LinkSender
from peregrine.core.messages import Committed, Event, FromSource
from peregrine.core.pressure import Hearing, Telling
from peregrine.core.router import Router
from peregrine.core.rows import Item
from peregrine.errors import Busy, PeregrineError, ProtocolError
from peregrine.plan.redeploy.planning import PlannedChanges
from peregrine.sim import store
from peregrine.sim.checkers import check
from peregrine.sim.devices import SimSource
from peregrine.sim.machines import SimRouter
from peregrine.sim.scenario import Options, draw
from peregrine.sim.simulation import Simulation
from peregrine.types import SiteId, SourceId

SEEDS = 200
PLAIN, CHANGES = Options(), Options(topology_changes=True)
Fault = Callable[[pytest.MonkeyPatch], None]


def begins_too_late(patch: pytest.MonkeyPatch) -> None:
    begin = LinkSender.begin

    def late(self: LinkSender[Item], has_seq: int, window_bytes: int) -> None:
        begin(self, has_seq, window_bytes)
        self.read_seq += has_seq >= 0

    patch.setattr(LinkSender, "begin", late)


def goes_on_where_it_was(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LinkSender, "broke", lambda self: None)


def takes_a_part_for_all(patch: pytest.MonkeyPatch) -> None:
    def all_of_it(self: LinkSender[Item], frame: Frame[Item], taken_seq: int) -> None:
        self.acked(frame.last_seq)

    patch.setattr(LinkSender, "answered", all_of_it)


def cuts_too_much(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(router_logs, "needed_from", lambda acked_seq: acked_seq + 2)


def hands_back_too_little(patch: pytest.MonkeyPatch) -> None:
    left_over = store.left_over

    def too_little(*given: object) -> tuple[int, list[Item]]:
        first_seq, items = left_over(*given)  # type: ignore[arg-type]
        return first_seq + 1, items[1:]

    patch.setattr(store, "left_over", too_little)


def believes_in_sessions_that_are_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Intake, "is_over", lambda self, neighbour, session: False)


def takes_busy_for_taken(patch: pytest.MonkeyPatch) -> None:
    offer = SimRouter.offer

    def taken(
        self: SimRouter,
        event: Event,
        durable: Callable[[], None] | None = None,
        refused: Callable[[PeregrineError], None] | None = None,
    ) -> bool:
        if not isinstance(event, FromSource) or self.machine.accepts_rows():
            return offer(self, event, durable, refused)  # type: ignore[arg-type]
        before = self.machine.intake._sources.get(event.source, -1)
        self.machine.intake._sources[event.source] = event.items[-1][0]
        assert durable is not None
        durable()
        self.machine.intake._sources[event.source] = before
        return True

    patch.setattr(SimRouter, "offer", taken)


def refuses_the_last_commit(patch: pytest.MonkeyPatch) -> None:
    admit = admission.admit

    def strict(router: Router, event: Event) -> None:
        admit(router, event)
        if isinstance(event, Committed) and event.offset == router.ends.get(event.place, 0) > 0:
            raise ProtocolError("it cannot be there yet", "wait")

    patch.setattr(admission, "admit", strict)


def does_not_say_that_it_is_busy(patch: pytest.MonkeyPatch) -> None:
    """A router that refuses rows, and a device that waits for an answer."""

    def silent(self: SimSource, error: PeregrineError, tries: int) -> None:
        assert isinstance(error, Busy)

    patch.setattr(SimSource, "_refused", silent)
    patch.setattr(SimSource, "_timeout", lambda self, tries: None)


def is_pressed_for_ever(patch: pytest.MonkeyPatch) -> None:
    hear = Router.hear_pressure
    patch.setattr(Router, "hear_pressure", lambda self, pressed: hear(self, pressed) if pressed else None)


def tells_pressure_alone(patch: pytest.MonkeyPatch) -> None:
    """That there is none is not told, and what was heard holds until it is."""
    tell = Telling.tell
    patch.setattr(Telling, "tell", lambda self, pressed, now_s: tell(self, pressed, now_s) or None)
    patch.setattr(Hearing, "review", lambda self, now_s: None)


def does_not_ask_what_sources_feed(patch: pytest.MonkeyPatch) -> None:
    attached = PlannedChanges.attached

    def feeds_nothing(self: PlannedChanges, source: SourceId, site: SiteId) -> bool:
        self._feeds = {}
        return attached(self, source, site)

    patch.setattr(PlannedChanges, "attached", feeds_nothing)


# Each with where it is looked for, and a seed that is looked at first.
FAULTS: dict[Fault, tuple[Options, int]] = {
    begins_too_late: (PLAIN, 0),
    goes_on_where_it_was: (PLAIN, 0),
    takes_a_part_for_all: (PLAIN, 1),
    cuts_too_much: (PLAIN, 1),
    hands_back_too_little: (CHANGES, 2),
    believes_in_sessions_that_are_over: (CHANGES, 58),
    takes_busy_for_taken: (PLAIN, 0),
    refuses_the_last_commit: (PLAIN, 0),
    does_not_say_that_it_is_busy: (PLAIN, 0),
    is_pressed_for_ever: (PLAIN, 0),
    tells_pressure_alone: (PLAIN, 0),
    does_not_ask_what_sources_feed: (CHANGES, 24),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_simulator_finds_one_that(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    options, likely = FAULTS[fault]
    fault(monkeypatch)
    assert any(goes_wrong(seed, options) for seed in (likely, *range(SEEDS)))


def goes_wrong(seed: int, options: Options) -> bool:
    """A run that is wrong, or its reference run: that can be pressed as well."""
    try:
        scenario = draw(seed, options)
        reference = Simulation(scenario.reference()).run()
        return not reference.observed.finished or bool(check(Simulation(scenario).run(), reference))
    except (AssertionError, KeyError, PeregrineError):
        return True


def test_routers_are_pressed_and_sources_wait() -> None:
    """Else the above would prove nothing."""
    runs = [Simulation(draw(seed, PLAIN)).run() for seed in range(20)]
    put_off = [sum(source.put_off for source in run.sources.values()) for run in runs]
    assert sum(count > 0 for count in put_off) >= 4
    assert all(run.observed.finished for run in runs)
