"""What went over links in stretches of a run, by the journals of those that got it: state, with replicas, and rows."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from peregrine.control.auditing import copy_journal
from peregrine.control.deployment import Deployment
from peregrine.core import journal, wire
from peregrine.core.messages import ChunksHere, Event, FromLink, Single, Together
from peregrine.core.rows import Rows, StateRows
from peregrine.log.record_log import RecordLog
from peregrine.types import SiteId

Positions = Mapping[SiteId, int]  # how far the journal of each router is
Size = Callable[[Event], int]


def positions(deployment: Deployment) -> Positions:
    return {site: client.status().events for site, client in deployment.clients.items()}


def state_bytes(deployment: Deployment, stretches: Sequence[tuple[Positions, Positions]]) -> list[int]:
    """Within each of these stretches. Each link that it crossed counts. The deployment must keep its journals."""
    by_site = (_within(deployment, stretches, site, of_event) for site in deployment.routers)
    return [sum(each) for each in zip(*by_site, strict=True)]


def row_bytes(deployment: Deployment, stretches: Sequence[tuple[Positions, Positions]], to: SiteId) -> list[int]:
    """Within each of these stretches, of rows that came to a site over its links."""
    return _within(deployment, stretches, to, rows_of_event)


def _within(
    deployment: Deployment, stretches: Sequence[tuple[Positions, Positions]], site: SiteId, size: Size
) -> list[int]:
    found = [0] * len(stretches)
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


def _singles(event: Event) -> Sequence[Single]:
    return event.events if isinstance(event, Together) else (event,)


def _bytes(event: Single, kind: type[StateRows | Rows]) -> int:
    match event:
        case FromLink(_, _, items):
            return sum(len(wire.encode(item)) for item in items if isinstance(item, kind))
        case ChunksHere(_, bytes_moved):
            return bytes_moved
    return 0


def _in_journal(home: Path, size: Size) -> Iterator[tuple[int, int]]:
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
