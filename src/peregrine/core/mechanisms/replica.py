"""Checkpoint-assisted moving state (survey IV-F; Rhino, ChronoStream): D has a replica, only what changed travels."""

from dataclasses import replace

from peregrine.core.mechanisms.pause import PAUSE
from peregrine.core.mechanisms.program import Movement, On, Snapshot
from peregrine.core.migrate import Role

REPLICA = replace(
    PAUSE,
    name="replica",
    survey="single-track, checkpoint-assisted moving state (Rhino)",
    movement=Movement.PARTIAL,
    checkpoint_assisted=True,
    summary="As pause, but D keeps replicas of K ahead of time and only what changed since travels.",
    program={**PAUSE.program, (Role.SOURCE, On.RECONFIG): (Snapshot(drop=True, delta=True),)},
)
