"""Parallel-track without state (survey III-A, IV-C): D fills its own windows from the copied rows.

It is not StreamCloud's, where S works off the windows before a timestamp and D those behind it: here D is mute until it
takes over all windows at once.

When every window that S had open at R is closed, the windows at both are the same and D takes over. The time that
this takes is the time that windows live. No window travels, but what a key has beside its windows does, twice (decision
0008): at R, so that time is the same at both from there on, and at H, so that D counts on where S has come to. Sources
must not roam: their clocks could overtake their rows (decision 0004).
"""

from dataclasses import replace

from peregrine.core.mechanisms.live import LIVE
from peregrine.core.mechanisms.program import (
    Defer,
    Hold,
    Mark,
    Movement,
    On,
    Release,
    Restore,
    Ripen,
    Snapshot,
    Tell,
)
from peregrine.core.migrate import Role

WINDOW_RECREATION = replace(
    LIVE,
    name="window-recreation",
    survey="parallel-track, window-recreation; with a mute target, where StreamCloud hands over at a timestamp",
    movement=Movement.NONE,
    needs=frozenset({"windowed", "static sources"}),
    summary="Copy K muted to D, which starts with empty windows; switch when the windows of before have closed.",
    program={
        **{at: steps for at, steps in LIVE.program.items() if at[1] is not On.CAUGHT_UP},
        (Role.SOURCE, On.RECONFIG): (Defer(), Snapshot(beside_windows=True), Ripen()),
        (Role.SOURCE, On.RIPE): (Tell(Role.ANCHOR, On.HANDOVER),),
        (Role.ANCHOR, On.HANDOVER): (Mark(On.HANDOVER),),
        (Role.SOURCE, On.HANDOVER): (Snapshot(beside_windows=True),),
        (Role.TARGET, On.HANDOVER): (Hold(then=On.EQUAL),),
        (Role.TARGET, On.STATE): (Restore(beside_windows=True), Release()),
        (Role.TARGET, On.EQUAL): (Tell(Role.ANCHOR, On.READY),),
    },
)
