"""Parallel-track without state (survey IV-C; StreamCloud, UniMiCo): D fills its own windows from the copied rows.

When every window that S had open at R is closed, the windows at both are the same and D takes over. The time that
this takes is the time that windows live. Only watermarks travel: a source that had said its last word before R would
otherwise never be heard at D. A key's duplicate check would start empty at D, so sources must not roam.
"""

from dataclasses import replace

from peregrine.core.mechanisms.live import LIVE
from peregrine.core.mechanisms.program import Defer, Movement, Mute, On, Restore, Ripen, Tell
from peregrine.core.migrate import Role

WINDOW_RECREATION = replace(
    LIVE,
    name="window-recreation",
    survey="parallel-track, window-recreation (StreamCloud)",
    movement=Movement.NONE,
    needs=frozenset({"windowed", "static sources"}),
    summary="Copy K muted to D, which starts with empty windows; switch when the windows of before have closed.",
    program={
        **{at: steps for at, steps in LIVE.program.items() if at[1] is not On.CAUGHT_UP},
        (Role.SOURCE, On.RECONFIG): (Defer(), Ripen()),
        (Role.SOURCE, On.RIPE): (Tell(Role.ANCHOR, On.READY),),
        (Role.TARGET, On.RECONFIG): (Mute(),),
        (Role.TARGET, On.STATE): (Restore(marks_only=True),),
    },
)
