"""What went over links in stretches of a run, by the journals of those that got it: state, with replicas, and rows."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from peregrine.control.auditing import copy_journal
from peregrine.control.deployment import Deployment
from peregrine.core import journal, wire
from peregrine.core.messages import ChunksHere, Event, FromLink, Single, Together
from peregrine.core.rows import Rows, StateRows
from peregrine.log.record_log import RecordLog
from peregrine.types import OpId, SiteId

Positions = Mapping[SiteId, int]  # how far the journal of each router is


@dataclass(frozen=True, slots=True)
class RowBytes:
    """Of rows on links. Those for an operator whose keys may live at edges: up to where a key is, and down again."""

    every: int = 0
    up: int = 0
    down: int = 0  # a site above has sent them to where the key is: a detour, or, while the key moves, a copy

    def __add__(self, other: "RowBytes") -> "RowBytes":
        return RowBytes(self.every + other.every, self.up + other.up, self.down + other.down)


Bytes = TypeVar("Bytes", int, RowBytes)


def positions(deployment: Deployment) -> Positions:
    return {site: client.status().events for site, client in deployment.clients.items()}


def state_bytes(deployment: Deployment, stretches: Sequence[tuple[Positions, Positions]]) -> list[int]:
    """Within each of these stretches. Each link that it crossed counts. The deployment must keep its journals."""
    by_site = (_within(deployment, stretches, site, of_event, 0) for site in deployment.routers)
    return [sum(each) for each in zip(*by_site, strict=True)]


def rows_on_links(deployment: Deployment, stretches: Sequence[tuple[Positions, Positions]], op: OpId) -> list[RowBytes]:
    """Within each of these stretches, on all links, and of those for an operator which way they went."""
    parents = {site: deployment.topology.parent(site) for site in deployment.routers}
    by_site = (
        _within(deployment, stretches, site, partial(ways_of_event, op, parent), RowBytes())
        for site, parent in parents.items()
    )
    return [sum(each, RowBytes()) for each in zip(*by_site, strict=True)]


def row_bytes(deployment: Deployment, stretches: Sequence[tuple[Positions, Positions]], to: SiteId) -> list[int]:
    """Within each of these stretches, of rows that came to a site over its links."""
    return _within(deployment, stretches, to, rows_of_event, 0)


def _within(
    deployment: Deployment,
    stretches: Sequence[tuple[Positions, Positions]],
    site: SiteId,
    size: Callable[[Event], Bytes],
    nothing: Bytes,
) -> list[Bytes]:
    found = [nothing] * len(stretches)
    for position, moved in _in_journal(Path(deployment.routers[site].settings.directory), size):
        for nth, (begin, end) in enumerate(stretches):
            if begin[site] <= position < end[site]:
                found[nth] += moved
    return found


def of_event(event: Event) -> int:
    """Bytes of state that it brought."""
    return sum(_bytes(each, StateRows) for each in _singles(event))


def rows_of_event(event: Event) -> int:
    return sum(_bytes(each, Rows) for each in _singles(event) if isinstance(each, FromLink))


def ways_of_event(op: OpId, parent: SiteId | None, event: Event) -> RowBytes:
    """Rows that it brought to a site with this parent."""
    found = RowBytes()
    for each in _singles(event):
        if not isinstance(each, FromLink):
            continue
        for item in each.items:
            if isinstance(item, Rows):
                size = len(wire.encode(item))
                mine = size if item.op == op else 0
                found += RowBytes(size, 0, mine) if each.neighbour == parent else RowBytes(size, mine, 0)
    return found


def _singles(event: Event) -> Sequence[Single]:
    return event.events if isinstance(event, Together) else (event,)


def _bytes(event: Single, kind: type[StateRows | Rows]) -> int:
    match event:
        case FromLink(_, _, items):
            return sum(len(wire.encode(item)) for item in items if isinstance(item, kind))
        case ChunksHere(_, bytes_moved):
            return bytes_moved
    return 0


def _in_journal(home: Path, size: Callable[[Event], Bytes]) -> Iterator[tuple[int, Bytes]]:
    """(position, bytes) of each record that brought any."""
    with tempfile.TemporaryDirectory(prefix="peregrine-traffic-") as directory:
        copy = Path(directory) / "journal"
        copy_journal(home, copy)
        for position, event in _events(copy):
            if moved := size(event):
                yield position, moved


def _events(directory: Path) -> Iterator[tuple[int, Event]]:
    records = RecordLog(directory)
    try:
        position = records.first
        while found := records.read(position):
            for at, raw in found:
                yield at, journal.decode(raw)
                position = at + 1
    finally:
        records.close()
