"""What is seen of a running deployment: results as they are read, what was sent, what routers and manager say.

All on one clock, in milliseconds. Reader, sender and the threads that hear the routers only ever add, so whoever draws
or measures reads along and waits for nobody.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from peregrine import measure
from peregrine.control.driver import News
from peregrine.control.supervisor import Incident
from peregrine.core.coordinator import PlanEnded, plan_of
from peregrine.core.messages import Attached, Reached, Report
from peregrine.core.migrate import Migration
from peregrine.measure import Milliseconds, Outputs
from peregrine.types import MigrationId, SiteId, site_of


@dataclass(frozen=True, slots=True)
class Arrived:
    """Results that were read together."""

    at_ms: float
    keys: pa.ChunkedArray
    latency_ms: Milliseconds


@dataclass
class Journey:
    """One migration: which keys go where, and when it reached each step."""

    migration: Migration
    steps: dict[str, float] = field(default_factory=dict)

    @property
    def plan(self) -> str:
        return plan_of(self.migration.id)

    @property
    def keys(self) -> list[str]:
        return sorted(self.migration.keys.plus)

    @property
    def what(self) -> str:
        return self.keys[0] if len(self.keys) == 1 else f"{self.keys[0]}–{self.keys[-1]}"

    @property
    def way(self) -> str:
        return f"{self.source} → {self.target}"

    @property
    def source(self) -> SiteId:
        return site_of(self.migration.source)

    @property
    def target(self) -> SiteId:
        return site_of(self.migration.target)

    @property
    def ended(self) -> bool:
        return any(step in self.steps for step in measure.ENDS)

    @property
    def phase(self) -> str:
        """What began last."""
        return [measure.PHASES[step] for step in list(self.steps) if step in measure.PHASES][-1]

    def __str__(self) -> str:
        return f"{self.what}: {self.way}"


class Watch:
    def __init__(
        self,
        owners: Mapping[str, SiteId],
        now_ms: Callable[[], float] = lambda: time.time() * 1000,
    ) -> None:
        """`owners` says where each key lives in the beginning."""
        self.owners = dict(owners)
        self.connected: dict[str, SiteId] = {}
        self.sent: list[tuple[float, int]] = []
        self.arrived: list[Arrived] = []
        self.timeline: list[tuple[float, News | PlanEnded]] = []
        self.journeys: dict[MigrationId, Journey] = {}
        self.events: list[tuple[float, str]] = []
        self.find: Callable[[MigrationId], Migration | None] = lambda migration: None  # what the manager knows of it
        self.rows_in = self.rows_out = 0
        self.now_ms = now_ms
        self.began_ms = now_ms()
        self._hearing = threading.Lock()  # several routers are heard at the same time

    # --- adding ---

    def say(self, text: str) -> None:
        self.events.append((self.now_ms(), text))

    def on_sent(self, rows: int) -> None:
        self.rows_in += rows
        self.sent.append((self.now_ms(), rows))

    def on_results(self, table: pa.Table) -> None:
        now_ms = self.now_ms()
        created_ms = table.column("created_ms").to_numpy().astype(np.float64)
        self.arrived.append(Arrived(now_ms, table.column("key"), now_ms - created_ms))
        self.rows_out += len(created_ms)

    def on_news(self, news: News | PlanEnded) -> None:
        now_ms = self.now_ms()
        with self._hearing:
            self.timeline.append((now_ms, news))
            match news:
                case Report(_, migration, step) | Reached(_, migration, step):
                    self._reached(now_ms, migration, step)
                case Attached(site, source):
                    self.connected[source] = site
                case Incident(what, status, detail):
                    self.say(f"{what} {status}{f': {detail}' if detail else ''}")

    def _reached(self, now_ms: float, id: MigrationId, step: str) -> None:
        journey = self.journeys.get(id)
        if journey is None:
            migration = self.find(id)
            if migration is None:
                return  # news of one that has ended, told again
            journey = Journey(migration)
        elif step in journey.steps:
            return
        journey.steps[step] = now_ms
        self.journeys[id] = journey  # only now: a journey that is seen has a step
        if step == "done":
            self.owners.update(dict.fromkeys(journey.keys, journey.target))
        if step == "begun" or step in measure.ENDS:
            self.say(f"{journey}  {step}")

    # --- reading ---

    @property
    def under_way(self) -> Journey | None:
        return next((each for each in list(self.journeys.values()) if not each.ended), None)

    def rows_in_since(self, from_ms: float) -> int:
        return sum(rows for _, rows in takewhile(lambda each: each[0] > from_ms, reversed(self.sent)))

    def rows_out_since(self, from_ms: float) -> int:
        return len(self.latencies_since(from_ms))

    def latencies_since(self, from_ms: float) -> Milliseconds:
        recent = [each.latency_ms for each in takewhile(lambda each: each.at_ms > from_ms, reversed(self.arrived))]
        return np.concatenate(recent) if recent else np.empty(0)

    def outputs(self, keys: Collection[str] | None = None, but: Collection[str] = ()) -> Outputs:
        """Of these keys (None: of all), but not of those."""
        arrived = list(self.arrived)
        if not arrived:
            return Outputs(np.empty(0), np.empty(0))
        emitted = np.concatenate([np.full(len(each.latency_ms), each.at_ms) for each in arrived])
        found = Outputs(emitted, np.concatenate([each.latency_ms for each in arrived]))
        if keys is None and not but:
            return found
        mine = np.ones(len(found), dtype=bool) if keys is None else self._of(arrived, keys)
        return found.where(mine & ~self._of(arrived, but))

    def _of(self, arrived: Sequence[Arrived], keys: Collection[str]) -> npt.NDArray[np.bool_]:
        """By hashing: NumPy would compare all texts with each key."""
        names = pa.chunked_array([chunk for each in arrived for chunk in each.keys.chunks], pa.string())
        return np.asarray(pc.is_in(names, value_set=pa.array(list(keys), pa.string())))
