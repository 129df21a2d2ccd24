"""Pause-drain-resume (survey III-A, Shepherd IV): without state there is nothing to move, only a path to switch.

The gate keeps the order while S works off what it already has.
"""

from peregrine.core.mechanisms.program import (
    Close,
    Done,
    Drop,
    Gate,
    Mark,
    Mechanism,
    Movement,
    On,
    Open,
    Own,
    Switch,
    Tell,
    Track,
)
from peregrine.core.migrate import Role

DRAIN = Mechanism(
    name="drain",
    survey="single-track without state: pause-drain-resume (Shepherd)",
    track=Track.SINGLE,
    movement=Movement.NONE,
    direct=True,
    checkpoint_assisted=False,
    needs=frozenset({"stateless", "static sources"}),
    summary="Switch K to D; S finishes what it has, D's outputs follow S's last.",
    program={
        (Role.ANCHOR, On.BEGIN): (Switch(), Mark(On.TERMINATE, roles=(Role.GATE, Role.SOURCE, Role.TARGET))),
        (Role.GATE, On.TERMINATE): (Close(),),
        (Role.SOURCE, On.TERMINATE): (Drop(),),
        (Role.TARGET, On.TERMINATE): (Own(), Gate()),
        (Role.GATE, On.ACK): (Open(), Tell(Role.TARGET, On.ACK)),
        (Role.TARGET, On.ACK): (Done(),),
    },
)
