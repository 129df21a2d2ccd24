"""The host's one function: rows of one group in log order and its state in, outputs and its state out.

It knows nothing of migrations: it obeys flags and control rows. It is pure, so a batch that is applied again after a
crash, cut differently or not, gives the same outputs under the same offsets, and whoever receives them can drop
repeats. Runners (the simulator, Spark) decide when it is called and must commit state and offset together, after the
outputs have been accepted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from msgspec import Raw

from peregrine.core.keyspace import KeySet, stable_hash
from peregrine.core.large import Spill
from peregrine.core.mechanisms.program import On
from peregrine.core.migrate import Role
from peregrine.core.operator import Operator, Out, Timing, beside_windows, timing_of, with_windows
from peregrine.core.rows import (
    FIRST,
    UNCHAINED,
    AskRipe,
    Clock,
    DropKeys,
    Entry,
    ForgetSent,
    KeyImage,
    Marker,
    RestoreKeys,
    Row,
    Rows,
    StateRows,
    TakeSnapshot,
    batch_from,
    rows_of,
)
from peregrine.core.state import (
    CHUNK_BYTES,
    Books,
    Keys,
    KeyState,
    beat_of,
    decode,
    encode,
    restored,
    waiting_beat,
    waiting_row,
)
from peregrine.core.watermarks import NEVER, Watermarks
from peregrine.types import MigrationId, OpId, SourceId


@dataclass(frozen=True, slots=True)
class Emission:
    """Outputs on their way to the router, with the input offset of each: repeats are recognised by it."""

    offsets: npt.NDArray[np.int64]
    item: Rows | Clock | Marker | StateRows


@dataclass(frozen=True, slots=True)
class Outs:
    """Rows that a group emits for one operator, each with its input offset and when its cause was created: before they
    are columns, so that those of many groups can become one batch (core/outgoing.py).
    """

    op: OpId
    gate: MigrationId | None
    rows: list[tuple[int, Out, int]]


Output = Outs | Emission  # of one group; an emission of what is no row


def batched(outs: Outs) -> Emission:
    batch = batch_from(
        [
            (out.key, stable_hash(out.key), out.source, out.seq, UNCHAINED, out.time_ms, created_ms, out.payload)
            for _, out, created_ms in outs.rows
        ]
    )
    offsets = np.array([offset for offset, _, _ in outs.rows], np.int64)
    return Emission(offsets, Rows(outs.op, batch, gate=outs.gate))


def emissions_of(outputs: Iterable[Output]) -> list[Emission]:
    return [batched(each) if isinstance(each, Outs) else each for each in outputs]


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a group, each with its offset, that came with the same flags."""

    offsets: list[int]
    rows: list[Row]
    muted: bool = False
    sample: bool = False
    gate: MigrationId | None = None


GroupEntry = Part | Clock | TakeSnapshot | RestoreKeys | DropKeys | AskRipe | ForgetSent


def by_group(
    entries: Iterable[tuple[int, Entry]], groups: Mapping[OpId, int]
) -> dict[tuple[OpId, int], list[tuple[int, GroupEntry]]]:
    """A stretch of a host's log, split into what each group has to apply, each in log order."""
    parts: dict[tuple[OpId, int], list[tuple[int, GroupEntry]]] = {}
    for offset, entry in entries:
        if isinstance(entry, Rows):
            mine: dict[int, Part] = {}
            numbers = (entry.hashes % np.uint64(groups[entry.op])).tolist()
            for i, (group, row) in enumerate(zip(numbers, rows_of(entry.batch), strict=True)):
                part = mine.get(group)
                if part is None:
                    part = mine[group] = Part([], [], entry.muted, entry.sample, entry.gate)
                    parts.setdefault((entry.op, group), []).append((offset + i, part))
                part.offsets.append(offset + i)
                part.rows.append(row)
        elif isinstance(entry, Clock):
            for group in entry.keys.touched_groups():
                parts.setdefault((entry.op, group), []).append((offset, entry.only(entry.keys.in_group(group))))
        else:
            parts.setdefault((entry.op, entry.group), []).append((offset, entry))
    return parts


def apply(
    operator: Operator,
    state: bytes,
    entries: Iterable[tuple[int, GroupEntry]],
    chunk_bytes: int = CHUNK_BYTES,
    spill: Spill | None = None,
) -> tuple[list[Emission], bytes]:
    """Apply a group's entries in log order."""
    outputs, after = work_off(operator, state, entries, chunk_bytes, spill)
    return emissions_of(outputs), after


def work_off(
    operator: Operator,
    state: bytes,
    entries: Iterable[tuple[int, GroupEntry]],
    chunk_bytes: int = CHUNK_BYTES,
    spill: Spill | None = None,
) -> tuple[list[Output], bytes]:
    """As `apply`, for a runner that hands over the outputs of several groups at once."""
    work = _Work(operator, timing_of(operator), decode(state, spill), chunk_bytes, spill)
    for offset, entry in entries:
        match entry:
            case Part():
                work.rows(entry)
            case Clock():
                work.clock(offset, entry)
            case TakeSnapshot():
                work.snapshot(offset, entry)
            case RestoreKeys():
                work.restore(entry)
            case DropKeys():
                work.drop(offset, entry)
            case AskRipe():
                work.ripe(offset, entry)
            case ForgetSent():
                for key in work.keys.within(entry.keys):
                    work.keys[key].sent.pop(entry.place, None)
    return work.outputs, work.finish()


@dataclass(slots=True)
class _Work:
    operator: Operator
    timing: Timing
    keys: Keys
    chunk_bytes: int
    spill: Spill | None = None
    opened: Watermarks | None = None  # decoded when they are first needed
    outputs: list[Output] = field(default_factory=list)
    # For whom -> (gate, [(offset, output, created_ms)]). Rows for different operators may pass each other.
    pending: dict[OpId, tuple[MigrationId | None, list[tuple[int, Out, int]]]] = field(default_factory=dict)

    @property
    def watermarks(self) -> Watermarks:
        if self.opened is None:
            self.opened = Watermarks.decode(self.keys.clocks)
        return self.opened

    def finish(self) -> bytes:
        self.flush(*self.pending)
        if self.opened is not None:
            self.keys.clocks = self.opened.encode()
        return encode(self.keys, self.spill)

    def rows(self, part: Part) -> None:
        if part.sample:
            for row in part.rows:
                self.operator.on_row(row.key, None, row, {row.source: row.time_ms})
            return
        keys = self.keys
        for offset, row in zip(part.offsets, part.rows, strict=True):
            ks = keys.get(row.key)
            if ks is None:
                ks = keys[row.key] = KeyState(None, Books(marks=self.watermarks.of(row.key)))
            if row.prev == UNCHAINED:
                self._apply_row(ks, row, offset, part)
            else:
                self._apply_chained(ks, row, offset, part)

    def _apply_chained(self, ks: KeyState, row: Row, offset: int, part: Part) -> None:
        """A roaming source's rows may come by two paths: each waits for the one before it, repeats are dropped
        (Falcon III-F). The flags of the row that fills the gap count, because only now are they applied.
        """
        books = ks.books
        seen = books.seen.get(row.source, -1)
        if row.seq <= seen:
            return
        if row.prev != seen:
            waiting = books.waiting.setdefault(row.source, [])
            if all(other[2] != row.seq for other in waiting):
                waiting.append(waiting_row(row))
                waiting.sort(key=lambda other: other[2])
            return
        self._apply_row(ks, row, offset, part)
        if row.source in books.waiting:
            self._fill(ks, row.source, offset, part)

    def _fill(self, ks: KeyState, source: SourceId, offset: int, part: Part) -> None:
        """What has waited for what is applied now."""
        books = ks.books
        waiting = books.waiting[source]
        while waiting and waiting[0][3] <= books.seen[source]:
            waited = waiting.pop(0)
            if waited[2] <= books.seen[source]:
                continue
            beat = beat_of(waited)
            if beat is None:
                self._apply_row(ks, Row(*waited), offset, part)
            else:
                books.seen[source] = waited[2]
                self._hear(offset, replace(beat, muted=part.muted, gate=part.gate))
        if not waiting:
            books.waiting.pop(source, None)

    def _apply_row(self, ks: KeyState, row: Row, offset: int, part: Part) -> None:
        source, marks = row.source, ks.books.marks
        if row.prev != UNCHAINED:
            ks.books.seen[source] = row.seq
        if self.timing.time_from_rows and row.time_ms > marks.get(source, NEVER):
            marks[source] = row.time_ms
        # As `ks.value`, without its cost for a key that has been used in this batch.
        value = ks.value if type(ks.held) is Raw else ks.held
        ks.held, outs = self.operator.on_row(row.key, value, row, marks)
        ks.version += 1
        if outs and not part.muted:
            self._emit(offset, outs, part.gate, row.created_ms)

    def clock(self, offset: int, clock: Clock) -> None:
        if clock.source is None:
            self._tell(offset, clock, clock.keys, clock.time_ms)
        elif clock.behind:
            self._chained_clock(offset, clock, clock.source)
        else:
            self._hear(offset, clock)

    def _chained_clock(self, offset: int, clock: Clock, source: SourceId) -> None:
        """A roaming source's heartbeat waits, key by key, for the rows that were sent before it."""
        assert clock.seq is not None
        ready: list[KeyState] = []
        elsewhere: list[str] = []  # has heard it before, or hears it later
        for key, prev in clock.behind:
            ks = self.keys.get(key)
            if ks is None:
                ks = self.keys[key] = KeyState(None, Books(marks=self.watermarks.of(key)))
            seen = ks.books.seen.get(source, FIRST)
            if prev == seen:
                ks.books.seen[source] = clock.seq
                ready.append(ks)
                continue
            elsewhere.append(key)
            waiting = ks.books.waiting.get(source, [])
            if clock.seq > seen and all(other[2] != clock.seq for other in waiting):
                ks.books.waiting[source] = sorted(
                    [*waiting, waiting_beat(key, clock, prev)], key=lambda other: int(other[2])
                )
        rest = clock.keys - KeySet.of_keys(clock.keys.groups, elsewhere)
        if rest:
            self._hear(offset, replace(clock, keys=rest))
        as_it_came = Part([], [], clock.muted, gate=clock.gate)
        for ks in ready:
            if source in ks.books.waiting:
                self._fill(ks, source, offset, as_it_came)

    def _hear(self, offset: int, clock: Clock) -> None:
        for keys, time_ms in self.watermarks.hear(clock):
            self._tell(offset, clock, keys, time_ms)
            if not clock.muted:
                self._pass_on(offset, clock, keys, time_ms)

    def _tell(self, offset: int, clock: Clock, keys: KeySet, time_ms: int) -> None:
        for key in self.keys.within(keys):
            ks = self.keys[key]
            if clock.source is not None:
                ks.books.marks[clock.source] = max(time_ms, ks.books.marks.get(clock.source, time_ms))
            now_ms = time_ms if clock.source is None else None
            ks.value, outs = self.operator.on_clock(key, ks.value, ks.books.marks, now_ms)
            if not clock.muted:
                self._emit(offset, outs, clock.gate, time_ms)

    def _pass_on(self, offset: int, clock: Clock, keys: KeySet, time_ms: int) -> None:
        """The promise: of these keys, those that may come included, nothing older follows. It lies behind their outputs
        and waits at the same gates.
        """
        for op, groups in self.timing.clocks_to:
            source = SourceId(f"{clock.op}/{clock.source}")
            promised_ms = time_ms - self.timing.delay_ms
            everything = KeySet.everything(groups)
            self._send(offset, Clock(op, everything, source, promised_ms, gate=clock.gate, part=keys))

    def snapshot(self, offset: int, ask: TakeSnapshot) -> None:
        images: list[KeyImage] = []
        shed: list[tuple[str, int]] = []
        for key in self.keys.within(ask.keys):
            ks = self.keys[key]
            if ks.version < ask.shed_below:
                shed.append((key, ks.version))
                ks = KeyState(None, ks.books)  # the books stay: they are what keeps later rows once and in order
            elif ask.beside_windows:
                ks = KeyState(beside_windows(self.operator, ks.value), ks.books, ks.version)
            image = ks.image(key, ask.target if ask.delta else None, self.chunk_bytes, self.spill)
            refreshed = ask.static and ask.migration is None
            if not refreshed or image.shipped != ks.sent.get(ask.target):
                images.append(image)
            if ask.static:
                ks.sent[ask.target] = image.shipped
            if ask.drop:
                del self.keys[key]
        if ask.static and ask.migration is None and not images:
            return  # the replicas there are as fresh as what is here
        sent = StateRows(ask.op, ask.target, ask.dest, ask.keys, tuple(images), ask.migration, ask.static, tuple(shed))
        if not ask.static:
            sent = replace(sent, clocks=self.watermarks.only(ask.keys).encode())
        if ask.drop:
            self.watermarks.drop(ask.keys)
        self._send(offset, sent)

    def restore(self, given: RestoreKeys) -> None:
        self.watermarks.add(Watermarks.decode(given.clocks).stretches)
        for image in given.images:
            there = restored(image, self.spill)
            if given.beside_windows:
                here = self.keys.get(image.key)
                there.value = with_windows(self.operator, there.value, here.value if here is not None else None)
            self.keys[image.key] = there

    def drop(self, offset: int, ask: DropKeys) -> None:
        for key in self.keys.within(ask.keys):
            del self.keys[key]
        self.watermarks.drop(ask.keys)
        if ask.ack is not None:
            self._send(offset, Marker(On.ACK, ask.ack_to, ask.ack, ask.keys))

    def ripe(self, offset: int, ask: AskRipe) -> None:
        ends = [end for key, ks in self.keys.items() if key in ask.keys for end in self.operator.open_ends(ks.value)]
        until_ms = max(ends, default=None) if ask.until_ms is None else ask.until_ms
        ripe = until_ms is None or all(end > until_ms for end in ends)
        self._send(offset, Marker(On.RIPE, Role.SOURCE, ask.migration, ask.keys, until_ms=None if ripe else until_ms))

    def _emit(self, offset: int, outs: list[Out], gate: MigrationId | None, created_ms: int) -> None:
        for out in outs:
            waiting = self.pending.get(out.op)
            if waiting is None or waiting[0] != gate:
                self.flush(out.op)
                waiting = self.pending[out.op] = gate, []
            waiting[1].append((offset, out, created_ms))

    def _send(self, offset: int, item: Clock | Marker | StateRows) -> None:
        self.flush(*self.pending)
        self.outputs.append(Emission(np.array([offset], np.int64), item))

    def flush(self, *ops: OpId) -> None:
        for op in ops:
            if op in self.pending:
                self.outputs.append(Outs(op, *self.pending.pop(op)))
