"""Taking back a migration that has not switched: S never noticed, and D forgets.

The order of K goes back from the anchor to S's router. Rows that S's router had sent to the anchor are then still on
their way round, so newer ones wait until a FLUSH has gone the same way: it returns behind the last of them. The rows
return addressed, as FLUSHED does (`Legs.returns_to_source`): rules may change on the way.
"""

from typing import TYPE_CHECKING

from peregrine.core.leg import Leg
from peregrine.core.mechanisms.program import On
from peregrine.core.migrate import Role
from peregrine.core.routes import Local
from peregrine.core.rows import DropKeys, ForgetSent, Marker

if TYPE_CHECKING:
    from peregrine.core.legs import Legs


def undo(legs: "Legs", leg: Leg, marker: Marker) -> None:
    m, router = leg.migration, legs.router
    match marker.event, leg.role:
        case On.ABORT, Role.SOURCE:
            # D gives up what was shipped ahead: the next migration must send it again.
            router.ask(m.source, m.keys, lambda group, part: ForgetSent(m.op, group, part, m.target))
            if leg.deferring:
                leg.flushing = True
                legs.tell(leg, Role.ANCHOR, On.FLUSH)
            else:
                _undone(legs, leg)
        case On.FLUSH, Role.ANCHOR:
            legs.tell(leg, Role.SOURCE, On.FLUSHED)
        case On.FLUSHED, Role.SOURCE:
            legs.assign(m, Local(m.source))
            for item in leg.held:
                router.append(m.source, item)
            leg.held.clear()
            _undone(legs, leg)
        case On.ABORT, Role.TARGET:
            legs.replicas.discard(m.op, m.source, m.target, m.keys)
            legs.fetching.give_up(m.id)
            legs.use_state()
            router.ask(m.target, m.keys, lambda group, part: DropKeys(m.op, group, part))
            _undone(legs, leg)
        case On.UNDONE, Role.ANCHOR:
            assert marker.told_by is not None
            leg.aborting.discard(marker.told_by)
            if not leg.aborting:
                legs.book.end(m.id, Role.ANCHOR, "aborted")
                router.report(m.id, "aborted")
        case _:
            raise router.protocol_error(f"{marker.event} reached the {leg.role} of {m.id}")


def _undone(legs: "Legs", leg: Leg) -> None:
    legs.book.end(*leg.at, "undone")
    legs.tell(leg, Role.ANCHOR, On.UNDONE)
