"""Moving state with the help of copies (survey IV-F): D's router keeps images of keys, and only what changed travels.

Rhino and ChronoStream copy the checkpoints that their engines make anyway, and ChronoStream lets the old place work on.
Here S's host is asked for what has changed every so often (`KeepReplicas`), no checkpoint takes part, and K pauses.
"""

from dataclasses import replace

from peregrine.core.mechanisms.pause import PAUSE
from peregrine.core.mechanisms.program import Movement, On, Snapshot
from peregrine.core.migrate import Role

REPLICA = replace(
    PAUSE,
    name="replica",
    survey="single-track, checkpoint-assisted moving state; with images of keys, where Rhino has checkpoints",
    movement=Movement.PARTIAL,
    checkpoint_assisted=True,
    summary="As pause, but D keeps replicas of K ahead of time and only what changed since travels.",
    program={**PAUSE.program, (Role.SOURCE, On.RECONFIG): (Snapshot(drop=True, delta=True),)},
)
