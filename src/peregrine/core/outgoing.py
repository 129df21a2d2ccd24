"""What a runner hands to its router for the groups that it has worked off together.

Most groups emit rows for one operator and nothing else. Those of all such groups become one batch: with a handful of
rows for each group, making, writing and reading batches is most of what outputs cost.
"""

from collections.abc import Iterable

from peregrine.core.host import Output, Outs, batched, emissions_of
from peregrine.core.messages import FromAnyHost, FromGroups, FromHost
from peregrine.core.rows import Rows
from peregrine.types import MigrationId, OpId, PlaceId


def outgoing(place: PlaceId, op: OpId, of_groups: Iterable[tuple[int, list[Output]]]) -> list[FromAnyHost]:
    """All of a group is in one event: what has one offset must not come in two."""
    events: list[FromAnyHost] = []
    plain: dict[tuple[OpId, MigrationId | None], list[tuple[int, Outs]]] = {}
    for group, outputs in of_groups:
        match outputs:
            case []:
                pass
            case [Outs() as only]:
                plain.setdefault((only.op, only.gate), []).append((group, only))
            case _:
                events.append(FromHost(place, op, group, tuple(emissions_of(outputs))))
    for (to, gate), outs in plain.items():
        together = batched(Outs(to, gate, [row for _, each in outs for row in each.rows]))
        assert isinstance(together.item, Rows)
        groups = tuple((group, len(each.rows)) for group, each in outs)
        events.append(FromGroups(place, op, groups, together.offsets, together.item))
    return events
