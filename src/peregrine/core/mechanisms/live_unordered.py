"""Live migration without the gate (Falcon IV-A, Falcon-OOP): what the order costs is the difference to `live`."""

from dataclasses import replace

from peregrine.core.mechanisms.live import LIVE
from peregrine.core.mechanisms.program import Drop, Mark, On, Own, Switch, Unmute
from peregrine.core.migrate import Role

LIVE_UNORDERED = replace(
    LIVE,
    name="live-unordered",
    survey="parallel-track, state-recreation without order (Falcon-OOP)",
    summary="As live, but D emits as soon as it takes over: outputs of S and D may mix at the switch.",
    ordered=False,
    program={
        **{at: steps for at, steps in LIVE.program.items() if at[0] is not Role.GATE},
        (Role.ANCHOR, On.READY): (Switch(), Mark(On.TERMINATE)),
        (Role.SOURCE, On.TERMINATE): (Drop(ack_to=Role.TARGET),),
        (Role.TARGET, On.TERMINATE): (Own(), Unmute()),
    },
)
