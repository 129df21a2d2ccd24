"""Live key migration (Falcon III-E): S works on while D receives its state and follows; D takes over at a marker.

The gate makes the last outputs of S come first (phase 6). It stands where the paths of S and D towards their consumers
meet: what D emits has come that far before it waits, and waits for S's last word alone (decision 0009).
"""

from peregrine.core.mechanisms.program import (
    Close,
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
        (Role.ANCHOR, On.READY): (Switch(), Mark(On.TERMINATE, roles=(Role.GATE, Role.SOURCE, Role.TARGET))),
        (Role.GATE, On.TERMINATE): (Close(),),
        (Role.SOURCE, On.TERMINATE): (Drop(),),
        (Role.TARGET, On.TERMINATE): (Own(), Unmute(), Gate()),
        (Role.GATE, On.ACK): (Open(), Tell(Role.TARGET, On.ACK)),
        (Role.TARGET, On.ACK): (Done(),),
    },
)
