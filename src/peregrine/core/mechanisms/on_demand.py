"""Fetch on access (survey IV-E; Meces): a key's state comes when its first row does; the rest is swept behind it."""

from dataclasses import replace

from peregrine.core.mechanisms.pause import PAUSE
from peregrine.core.mechanisms.program import Done, Hold, Movement, On, Own, Snapshot, Sweep, Tell
from peregrine.core.migrate import Role

ON_DEMAND = replace(
    PAUSE,
    name="on-demand",
    survey="single-track, moving state, partial, fetched on access (Meces)",
    movement=Movement.PARTIAL,
    summary="Switch K to D at once; the first row of a key fetches its state, a sweep fetches the rest.",
    program={
        **PAUSE.program,
        (Role.SOURCE, On.RECONFIG): (),
        (Role.TARGET, On.RECONFIG): (Own(), Hold(fetch=True), Sweep()),
        (Role.SOURCE, On.FETCH): (Snapshot(drop=True),),
        (Role.TARGET, On.COMPLETE): (Tell(Role.SOURCE, On.FINISH), Done()),
        (Role.SOURCE, On.FINISH): (),
    },
)
