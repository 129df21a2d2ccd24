"""Live key migration (Falcon III-E): S works on while D receives its state and follows; D takes over at a marker.

The gate makes the last outputs of S come first (phase 6). D works behind it meanwhile, so what waits is ready when the
acknowledgement comes: the wait is for T to reach S and for S's word to come back, never for state or for D's own batch.
"""

from peregrine.core.mechanisms.program import (
    Copy,
    Defer,
    Done,
    Drop,
    Gate,
    Hold,
    Mark,
    Mechanism,
    Movement,
    Mute,
    On,
    Open,
    Own,
    Release,
    Restore,
    Snapshot,
    Switch,
    Tell,
    Track,
    Unmute,
)
from peregrine.core.migrate import Role

LIVE = Mechanism(
    name="live",
    survey="parallel-track, state-recreation (Falcon)",
    track=Track.PARALLEL,
    movement=Movement.ALL_AT_ONCE,
    direct=True,
    checkpoint_assisted=False,
    summary="Copy K to D, ship the state while S works on, catch up muted, then switch at a marker behind a gate.",
    program={
        (Role.ANCHOR, On.BEGIN): (Copy(), Mark(On.RECONFIG)),
        (Role.SOURCE, On.RECONFIG): (Defer(), Snapshot()),
        (Role.TARGET, On.RECONFIG): (Hold(), Mute()),
        (Role.TARGET, On.STATE): (Restore(), Release()),
        (Role.TARGET, On.CAUGHT_UP): (Tell(Role.ANCHOR, On.READY),),
        (Role.ANCHOR, On.READY): (Switch(), Mark(On.TERMINATE)),
        (Role.SOURCE, On.TERMINATE): (Drop(),),
        (Role.TARGET, On.TERMINATE): (Own(), Unmute(), Gate()),
        (Role.TARGET, On.ACK): (Open(), Done()),
    },
)
