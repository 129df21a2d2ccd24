"""Full restart (Falcon II-C; Flink, Spark today): both hosts stop, the state moves, both start. The baseline."""

from dataclasses import replace

from peregrine.core.mechanisms.pause import PAUSE
from peregrine.core.mechanisms.program import Done, Halt, Hold, On, Own, Resume, Snapshot, Tell
from peregrine.core.migrate import Role

RESTART = replace(
    PAUSE,
    name="restart",
    survey="full restart (Flink, Spark)",
    alone=True,
    summary="Stop the hosts of S and D for all of their keys, move the state, start them again.",
    program={
        **PAUSE.program,
        (Role.SOURCE, On.RECONFIG): (Snapshot(drop=True), Halt()),
        (Role.TARGET, On.RECONFIG): (Own(), Hold(), Halt()),
        (Role.TARGET, On.COMPLETE): (Resume(), Tell(Role.SOURCE, On.FINISH)),
        (Role.SOURCE, On.FINISH): (Resume(), Tell(Role.TARGET, On.ACK)),
        (Role.TARGET, On.ACK): (Done(),),
    },
)
