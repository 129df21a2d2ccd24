"""How much state went over links in stretches of a run, replicas included: from the journals of those that got it."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from peregrine.control.auditing import copy_journal
from peregrine.control.deployment import Deployment
from peregrine.core import journal, wire
from peregrine.core.messages import ChunksHere, Event, FromLink, Single, Together
from peregrine.core.rows import StateRows
from peregrine.log.record_log import RecordLog
from peregrine.types import SiteId

Positions = Mapping[SiteId, int]  # how far the journal of each router is


def positions(deployment: Deployment) -> Positions:
    return {site: client.status().events for site, client in deployment.clients.items()}


def state_bytes(deployment: Deployment, stretches: Sequence[tuple[Positions, Positions]]) -> list[int]:
    """Within each of these stretches. Each link that it crossed counts. The deployment must keep its journals."""
    found = [0] * len(stretches)
    for site, router in deployment.routers.items():
        for position, moved in _in_journal(Path(router.settings.directory)):
            for nth, (begin, end) in enumerate(stretches):
                if begin[site] <= position < end[site]:
                    found[nth] += moved
    return found


def of_event(event: Event) -> int:
    return sum(_bytes(each) for each in (event.events if isinstance(event, Together) else (event,)))


def _bytes(event: Single) -> int:
    match event:
        case FromLink(_, _, items):
            return sum(len(wire.encode(item)) for item in items if isinstance(item, StateRows))
        case ChunksHere(_, bytes_moved):
            return bytes_moved
    return 0


def _in_journal(home: Path) -> Iterator[tuple[int, int]]:
    """(position, bytes of state) of each record that brought any."""
    with tempfile.TemporaryDirectory(prefix="peregrine-traffic-") as directory:
        copy = Path(directory) / "journal"
        copy_journal(home, copy)
        for position, event in _events(copy):
            if moved := of_event(event):
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
