"""Heartbeats of sources that roam: whatever path is faster, windows close as if every source had stayed (0004)."""

import random
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from harness import GROUPS, OP, SINK, sink, spec, tree
from peregrine.core.host import apply, by_group
from peregrine.core.intake import Intake, RouterConfig
from peregrine.core.keyspace import KeySet
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.rows import Clock, Entry, Rows, length, rows_of
from peregrine.core.source import Reading, Source
from peregrine.core.state import canonical, decode
from peregrine.core.watermarks import NEVER, Watermarks
from peregrine.core.ways import Ways
from peregrine.sim.operators import Ledger, Tumbling
from peregrine.types import OpId, SiteId, SourceId

NEXT = OpId("app/next")
NAMES = ("car1", "car2", "van1", "x7", "x8")
SOURCES = ("a", "b")
WINDOWS = Tumbling(SINK, OP, 50, lambda key: SOURCES, clocks_to=((NEXT, 2),))
END_MS = 100_000
CONFIG = RouterConfig(SiteId("cloud"), tree(), {each.op: each for each in (spec(), sink())}, MECHANISMS)
WAYS = Ways(CONFIG.topology, CONFIG.site)
Results = dict[str, list[tuple[int, bytes]]]


class Roamer:
    """A device that drives between two sites, and what the router of each of them makes of its batches."""

    def __init__(self, rng: random.Random, name: str) -> None:
        self._rng = rng
        self._time_ms = 0
        self._device = Source(SourceId(name), SiteId("0"), roaming=True, max_rows=rng.choice([1, 3, 100]))
        self._calm = Source(SourceId(name), SiteId("0"), roaming=True)  # the same device, if it had stayed
        self._doors = (Intake(CONFIG, WAYS), Intake(CONFIG, WAYS))
        self.paths: tuple[list[Entry], list[Entry]] = ([], [])

    def live(self, steps: int) -> None:
        for _ in range(steps):
            self._time_ms += self._rng.randrange(30)
            match self._rng.choice(["row", "row", "beat", "send", "send", "move"]):
                case "row":
                    key = self._rng.choice(NAMES[:3] if self._rng.random() < 0.8 else NAMES)
                    reading = Reading(OP, key, self._time_ms, 0, b"%d" % self._rng.randrange(99))
                    self._device.produce(reading)
                    self._calm.produce(reading)
                case "beat":
                    self._beat(self._time_ms)
                case "send":
                    self._send()
                case _:
                    self._device.move(SiteId(self._rng.choice("01")))
        self._beat(END_MS)
        while self._device.backlog_rows:
            self._send()

    def _beat(self, time_ms: int) -> None:
        for each in (self._device, self._calm):
            each.heartbeat(Clock(OP, KeySet.everything(GROUPS), each.id, time_ms))

    @property
    def in_order(self) -> list[Entry]:
        batch = self._calm.batch()
        assert batch is not None
        return list(Intake(CONFIG, WAYS).from_source(batch))

    def _send(self) -> None:
        batch = self._device.batch()
        if batch is None:
            return
        site = int(self._device.site)
        self.paths[site].extend(self._doors[site].from_source(batch))
        if self._rng.random() < 0.7:
            self._device.acked(batch.items[-1][0])
        else:
            self._device.lost()  # the acknowledgement got lost: it comes again, perhaps by the other way


class Run:
    def __init__(self) -> None:
        self.states: dict[int, bytes] = {}
        self.results: Results = {}
        self._offset = 0
        self._promises = Watermarks()

    def take(self, entries: Iterable[Entry], operator: Tumbling | Ledger) -> None:
        for entry in entries:
            parts = by_group([(self._offset, entry)], {OP: GROUPS})
            self._offset += length(entry)
            for (_, group), mine in sorted(parts.items()):
                emissions, self.states[group] = apply(operator, self.states.get(group, b""), mine)
                for emission in emissions:
                    self._note(emission.item)

    def _note(self, item: object) -> None:
        if isinstance(item, Rows):
            for row in rows_of(item.batch):
                assert row.time_ms >= self.promised_ms, "older than what was promised to the next operator"
                self.results.setdefault(row.source, []).append((row.seq, row.payload))
        elif isinstance(item, Clock):
            self._promises.hear(item)

    @property
    def promised_ms(self) -> int:
        """What the next operator knows: the slowest source, over all keys of this one."""
        marks = self._promises.of("any")
        return min((marks.get(f"{OP}/{source}", NEVER) for source in SOURCES), default=NEVER)

    def books(self) -> list[object]:
        clocks = [
            {(stretch.keys.describe(), tuple(sorted(stretch.marks.items()))) for stretch in watermarks.stretches}
            for watermarks in (Watermarks.decode(decode(state).clocks) for _, state in sorted(self.states.items()))
        ]
        return [*(canonical(state) for _, state in sorted(self.states.items())), clocks]


def merged(rng: random.Random, paths: Iterable[list[Entry]]) -> list[Entry]:
    """Each path in its order, one against the other in any."""
    rest = [list(reversed(path)) for path in paths if path]
    found: list[Entry] = []
    while rest:
        # Long stretches of one path, so that rows of the other are far behind.
        path = rng.choice(rest)
        for _ in range(rng.randint(1, 8)):
            if path:
                found.append(path.pop())
        rest = [path for path in rest if path]
    return found


@settings(max_examples=150)
@given(st.integers(0, 2**48))
def test_windows_close_as_if_every_source_had_stayed(seed: int) -> None:
    rng = random.Random(seed)
    roamers = [Roamer(rng, name) for name in SOURCES]
    for roamer in roamers:
        roamer.live(rng.randint(5, 60))
    calm, moved = Run(), Run()
    for roamer in roamers:
        calm.take(roamer.in_order, WINDOWS)
    moved.take(merged(rng, [path for roamer in roamers for path in roamer.paths]), WINDOWS)
    assert moved.results == calm.results
    assert moved.books() == calm.books()
    assert moved.promised_ms == calm.promised_ms == END_MS


@settings(max_examples=60)
@given(st.integers(0, 2**48))
def test_rows_behind_heartbeats_are_applied_once_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    roamer = Roamer(rng, "a")
    roamer.live(rng.randint(5, 60))
    calm, moved = Run(), Run()
    calm.take(roamer.in_order, Ledger(SINK))
    moved.take(merged(rng, roamer.paths), Ledger(SINK))
    assert moved.results == calm.results
    assert moved.books() == calm.books()


def test_a_heartbeat_that_overtakes_rows_on_another_path_waits_for_them() -> None:
    """The case that decision 0004 forbade: a car is silent after a move, and its last row is still on its way."""
    device = Source(SourceId("a"), SiteId("0"), roaming=True)
    device.produce(Reading(OP, "car1", 10, 0, b"1"))
    first = device.batch()
    assert first is not None
    device.acked(0)
    device.move(SiteId("1"))
    device.heartbeat(Clock(OP, KeySet.everything(GROUPS), SourceId("a"), 60))
    second = device.batch()
    assert second is not None
    late, beat = first.items[0][1], second.items[0][1]
    assert isinstance(beat, Clock) and (beat.seq, beat.behind) == (1, (("car1", 0),))
    alone = Tumbling(SINK, OP, 50, lambda key: ("a",), clocks_to=((NEXT, 2),))
    run = Run()
    run.take([beat], alone)
    waiting = dict(run.states)
    run.take([beat], alone)
    assert run.results == {} and run.states == waiting, "what comes again while it waits does not make the state grow"
    run.take([late], alone)
    assert [seq for seq, _ in run.results[f"{OP}>car1"]] == [50]
    run.take([beat], alone)  # it comes again, by its first path
    assert [seq for seq, _ in run.results[f"{OP}>car1"]] == [50]
