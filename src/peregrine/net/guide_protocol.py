"""What a guide and its clients say to each other: names of actions, bodies as msgpack.

register   a router is here (Whereabouts); answered with its lease in seconds
withdraw   a router is going (its site)
see        devices were seen (sightings); anybody may say so, who knows where a device is
follow     devices were seen, and use these routers (sightings, uses, how long to wait); answered with notices
nearest    which router is the nearest to a position; answered with its whereabouts, or nothing
routers    all that are registered
"""

import msgspec

from peregrine.plan.guide import Notice, Sighting, Use
from peregrine.plan.nearest import Position, Whereabouts

REGISTER, WITHDRAW, SEE, FOLLOW, NEAREST, ROUTERS = "register", "withdraw", "see", "follow", "nearest", "routers"
ACTIONS = (REGISTER, WITHDRAW, SEE, FOLLOW, NEAREST, ROUTERS)

whereabouts = msgspec.msgpack.Decoder(Whereabouts)
sightings = msgspec.msgpack.Decoder(list[Sighting])
follow = msgspec.msgpack.Decoder(tuple[list[Sighting], list[Use], float])
position = msgspec.msgpack.Decoder(Position)

lease = msgspec.msgpack.Decoder(float)
notices = msgspec.msgpack.Decoder(list[Notice])
perhaps_whereabouts: msgspec.msgpack.Decoder[Whereabouts | None] = msgspec.msgpack.Decoder(Whereabouts | None)
all_whereabouts = msgspec.msgpack.Decoder(list[Whereabouts])
