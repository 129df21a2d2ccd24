"""How much state went over links in a run, replicas included: from the journals of the routers that got it."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from peregrine.control.deployment import Deployment
from peregrine.core import journal, wire
from peregrine.core.messages import ChunksHere, Event, FromLink, Single, Together
from peregrine.core.rows import StateRows
from peregrine.log.record_log import RecordLog
from peregrine.net.store import KEPT


def state_bytes(deployment: Deployment) -> int:
    """Each link that it crossed counts. The deployment must keep its journals."""
    return sum(_in_journal(Path(router.settings.directory)) for router in deployment.routers.values())


def of_event(event: Event) -> int:
    return sum(_bytes(each) for each in (event.events if isinstance(event, Together) else (event,)))


def _bytes(event: Single) -> int:
    match event:
        case FromLink(_, _, items):
            return sum(len(wire.encode(item)) for item in items if isinstance(item, StateRows))
        case ChunksHere(_, bytes_moved):
            return bytes_moved
    return 0


def _in_journal(home: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="peregrine-traffic-") as directory:
        # A router goes on writing: what is half there in the copy is cut off when the copy is opened.
        copy = shutil.copytree(home / "journal", Path(directory) / "journal")
        if (home / KEPT).exists():
            shutil.copytree(home / KEPT, copy, dirs_exist_ok=True)
        return sum(of_event(event) for event in _events(copy))


def _events(directory: Path) -> Iterator[Event]:
    records = RecordLog(directory)
    try:
        position = records.first
        while found := records.read(position):
            for at, raw in found:
                yield journal.decode(raw)
                position = at + 1
    finally:
        records.close()
