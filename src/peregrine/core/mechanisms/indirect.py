"""Indirect state movement (survey IV-D; Gedik): donate to a shared store, and collect when all has been donated."""

from dataclasses import replace

from peregrine.core.mechanisms.pause import PAUSE
from peregrine.core.mechanisms.program import Collect, On, Snapshot
from peregrine.core.migrate import Role

INDIRECT = replace(
    PAUSE,
    name="indirect",
    survey="single-track, moving state, indirect: donate and collect (Gedik)",
    direct=False,
    summary="As pause, but the state goes by way of the shared store, whole, before any of it is collected.",
    program={
        **PAUSE.program,
        (Role.SOURCE, On.RECONFIG): (Snapshot(drop=True, to=Role.STORE),),
        (Role.STORE, On.COMPLETE): (Collect(),),
    },
)
