"""The door of a router: each row, item and output enters once, however often it is handed over.

Who hands over keeps everything until it is acknowledged, and repeats it after a crash or a broken connection. The
router keeps one number for each of them, its high-water mark: what is at or below it has been seen.

Two routers may be neighbours, part, and be neighbours again: each time is a session of its own, in which numbers begin
anew. Sessions are numbered by the rehomings that begin them; of two the higher one holds, and what comes in a session
that has ended is not taken.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from peregrine.core.host import Emission
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.mechanisms.program import Mechanism
from peregrine.core.messages import Event, FromGroups, FromHost, FromLink, FromSource
from peregrine.core.operator import OpSpec
from peregrine.core.rehoming import Fenced, Returned
from peregrine.core.rows import Clock, Item, Marker, Rows, StateRows
from peregrine.core.topology import Topology
from peregrine.core.ways import Ways
from peregrine.errors import CorruptMarker
from peregrine.types import OpId, PlaceId, SiteId, SourceId


@dataclass(frozen=True, slots=True)
class RouterConfig:
    site: SiteId
    topology: Topology
    operators: Mapping[OpId, OpSpec]
    mechanisms: Mapping[str, Mechanism] = field(default_factory=lambda: MECHANISMS)
    host_lag_rows: int = 100_000  # back-pressure: devices wait while a host of this site is further behind


class Intake:
    def __init__(self, config: RouterConfig, ways: Ways) -> None:
        self._config = config
        self._ways = ways
        self._sources: dict[SourceId, int] = {}
        self._links: dict[SiteId, int] = {}
        self._sessions: dict[SiteId, int] = {}  # with each neighbour, if it is not the first
        self._ended: dict[SiteId, int] = {}  # the last session in which nothing more is taken
        self._hosts: dict[tuple[PlaceId, OpId, int], int] = {}

    def acked_source(self, source: SourceId) -> int:
        """The last row of a source that is safe here."""
        return self._sources.get(source, -1)

    def acked_link(self, neighbour: SiteId, session: int | None = None) -> int:
        """The last item of a neighbour that is safe here, in its session with this router."""
        if session is not None and session != self.session(neighbour):
            return -1
        return self._links.get(neighbour, -1)

    def session(self, neighbour: SiteId) -> int:
        return self._sessions.get(neighbour, 0)

    def begin_session(self, neighbour: SiteId, number: int) -> None:
        self._sessions[neighbour] = number
        self._links[neighbour] = -1

    def end_session(self, neighbour: SiteId) -> int:
        """Takes nothing more in it; returns the last that was taken, which is final."""
        self._ended[neighbour] = self.session(neighbour)
        return self.acked_link(neighbour)

    def is_over(self, neighbour: SiteId, session: int) -> bool:
        """Is nothing more taken in it?"""
        return session <= self._ended.get(neighbour, -1) or session < self.session(neighbour)

    def from_source(self, event: FromSource) -> Iterator[Rows | Clock]:
        seen = self._sources.get(event.source, -1)
        for seq, item in event.items:
            if seq <= seen:
                continue
            if isinstance(item, Rows) and "seq" in item.batch.schema.names:
                fresh = item.batch.column("seq").to_numpy() > seen
                if not fresh.all():
                    item = replace(item, batch=item.batch.filter(fresh))
            self._sources[event.source] = seen = seq
            yield item

    def from_link(self, event: FromLink) -> Iterator[Item]:
        if self.is_over(event.neighbour, event.session):
            return
        if event.session > self.session(event.neighbour):
            self.begin_session(event.neighbour, event.session)
        expected = self.acked_link(event.neighbour) + 1
        if event.first_seq > expected:
            return  # something before it was lost on the way: the sender repeats it from there
        for item in event.items[expected - event.first_seq :]:
            self._links[event.neighbour] = expected
            expected += 1
            yield item

    def from_host(self, event: FromHost) -> Iterator[Rows | Clock | Marker | StateRows]:
        at = (event.place, event.op, event.group)
        seen = self._hosts.get(at, -1)
        for emission in event.emissions:
            item = self.unseen(emission, seen)
            if item is not None:
                # Emissions of one call overlap: each has rows for another operator.
                self._hosts[at] = max(int(emission.offsets[-1]), self._hosts.get(at, -1))
                yield item

    def from_groups(self, event: FromGroups) -> Rows | None:
        """What of it is new, each group for itself."""
        fresh: npt.NDArray[np.bool_] | None = None  # all of them
        begin = 0
        for group, count in event.groups:
            at, end = (event.place, event.op, group), begin + count
            offsets, seen = event.offsets[begin:end], self._hosts.get(at, -1)
            if offsets[0] <= seen:
                fresh = np.ones(len(event.offsets), np.bool_) if fresh is None else fresh
                fresh[begin:end] = offsets > seen
            self._hosts[at] = max(int(offsets[-1]), seen)
            begin = end
        if fresh is None:
            return event.rows
        return replace(event.rows, batch=event.rows.batch.filter(pa.array(fresh))) if fresh.any() else None

    @staticmethod
    def unseen(emission: Emission, seen: int) -> Rows | Clock | Marker | StateRows | None:
        """What of an emission is new. A host that replays may cut its batches differently."""
        if emission.offsets[-1] <= seen:
            return None
        if emission.offsets[0] > seen or not isinstance(emission.item, Rows):
            return emission.item
        return replace(emission.item, batch=emission.item.batch.filter(emission.offsets > seen))

    def vet(self, event: Event) -> None:
        """Refuse a message about things that do not exist here, before anything has changed."""
        if not isinstance(event, FromLink):
            return
        for item in event.items:
            while isinstance(item, Returned | Fenced):
                item = item.item
            migration = item.migration if isinstance(item, Marker | StateRows) else None
            if migration is None:
                continue
            for kind, name, known in (
                ("mechanism", migration.mechanism, self._config.mechanisms),
                ("operator", migration.op, self._config.operators),
                ("site", item.dest, {item.dest} if item.dest and self._ways.reaches(item.dest) else ()),
            ):
                if name not in known:
                    raise CorruptMarker(
                        f"router {self._config.site}: a message about {migration.id} from {event.neighbour} names the"
                        f" unknown {kind} {name!r}",
                        f"deploy the same version and configuration at {event.neighbour} and {self._config.site}",
                    )
