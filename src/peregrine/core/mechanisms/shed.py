"""State shedding (survey IV-E): keys below a utility lose their value instead of travelling; reported exactly."""

from dataclasses import replace

from peregrine.core.mechanisms.pause import PAUSE
from peregrine.core.mechanisms.program import Movement, On, Snapshot
from peregrine.core.migrate import Role

SHED = replace(
    PAUSE,
    name="shed",
    survey="single-track, moving state, partial with state shedding",
    movement=Movement.PARTIAL,
    lossless=False,
    summary="As pause, but keys below the declared utility start again from nothing at D; each is reported.",
    program={**PAUSE.program, (Role.SOURCE, On.RECONFIG): (Snapshot(drop=True, shed=True),)},
)
