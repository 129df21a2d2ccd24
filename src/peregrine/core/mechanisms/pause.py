"""Single-track moving state (survey IV-B; Flux, Trisk; Spacker III-C2): rows of K wait while its state travels.

No gate is needed: the state of a key leaves S behind that key's last output, on the same path.
"""

from peregrine.core.mechanisms.program import (
    Done,
    Hold,
    Mark,
    Mechanism,
    Movement,
    On,
    Own,
    Release,
    Restore,
    Snapshot,
    Switch,
    Track,
)
from peregrine.core.migrate import Role

PAUSE = Mechanism(
    name="pause",
    survey="single-track, moving state, all at once (Flux, Trisk)",
    track=Track.SINGLE,
    movement=Movement.ALL_AT_ONCE,
    direct=True,
    checkpoint_assisted=False,
    summary="Switch K to D at once and hold it there until its state has come.",
    program={
        (Role.ANCHOR, On.BEGIN): (Switch(), Mark(On.RECONFIG)),
        (Role.SOURCE, On.RECONFIG): (Snapshot(drop=True),),
        (Role.TARGET, On.RECONFIG): (Own(), Hold()),
        (Role.TARGET, On.STATE): (Restore(), Release()),
        (Role.TARGET, On.COMPLETE): (Done(),),
    },
)
