"""Partial state movement in two parts (survey VI, listing 7): the state as it stands goes first, while S works on;
then the pause covers only what has changed meanwhile."""

from dataclasses import replace

from peregrine.core.mechanisms.program import Mark, Movement, On, Snapshot, Switch, Tell
from peregrine.core.mechanisms.replica import REPLICA
from peregrine.core.migrate import Role

STATIC_DYNAMIC = replace(
    REPLICA,
    name="static-dynamic",
    survey="single-track, moving state, partial: immutable then incremental (listing 7)",
    movement=Movement.PARTIAL,
    checkpoint_assisted=False,
    summary="Ship the state while S works on, then pause for what changed since.",
    program={
        **REPLICA.program,
        (Role.ANCHOR, On.BEGIN): (Mark(On.PREPARE, roles=(Role.SOURCE,)),),
        (Role.SOURCE, On.PREPARE): (Snapshot(static=True, delta=True),),
        (Role.TARGET, On.STATIC): (Tell(Role.ANCHOR, On.READY),),
        (Role.ANCHOR, On.READY): (Switch(), Mark(On.RECONFIG)),
    },
)
