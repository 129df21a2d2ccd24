"""The shell around a logic: what the host calls for an operator of an application.

It decodes records, works out the key's watermark, calls the logic, and turns what that emits into rows for whoever is
fed. What a stateful operator emits is numbered for each key, so the same results have the same names, whatever batch or
clock brought them about; what a stateless one emits has the name of the row that it comes from.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from peregrine.app.logic import NEVER, Emit, Key, Logic, Moment
from peregrine.app.schema import Keying, Schema, encode
from peregrine.app.watermark import Watermark
from peregrine.core.operator import Marks, Out
from peregrine.core.rows import Row
from peregrine.types import OpId, SourceId


@dataclass(frozen=True)
class Target:
    """Who is fed by an output, by which key, and what stands around a record to say as which of its inputs."""

    op: OpId
    keying: Keying | None
    label: str = ""

    def payload(self, encoded: bytes) -> bytes:
        return b'{"%s":%s}' % (self.label.encode(), encoded) if self.label else encoded


@dataclass(slots=True)
class _Known:
    """Of a key, so that it is worked out once: only what can be had again at any time."""

    values: Key
    source: SourceId  # by which name its outputs go
    slowest: str | None = None  # the source that held its watermark back when that advanced


_MOST_KNOWN = 10_000


@dataclass(eq=False)
class Shell:
    op: OpId
    logic: Logic
    keying: Keying | None
    inputs: tuple[tuple[str, Schema], ...]  # (label, schema); a single input has no label
    outputs: tuple[tuple[Schema, tuple[Target, ...]], ...]
    stateless: bool
    watermark: Watermark = field(default_factory=Watermark)
    # What the host asks (core/operator.py).
    time_from_rows: bool = True
    clocks_to: tuple[tuple[OpId, int], ...] = ()

    def __post_init__(self) -> None:
        self._decode = self.inputs[0][1].decode if len(self.inputs) == 1 else None
        self._event_time, self._processing_time = self.logic.event_time, self.logic.processing_time
        self._known: dict[str, _Known] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Shell, tuple(getattr(self, each.name) for each in fields(self))

    @property
    def delay_ms(self) -> int:
        return self.watermark.delay_ms

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        number, record = self._labelled(row.payload) if self._decode is None else (0, self._decode(row.payload))
        known = self._known.get(key) or self._know(key)
        if self.stateless:
            _, emits = self.logic.on_record(known.values, None, record, Moment(row.time_ms, NEVER, 0, number))
            return None, self._named(emits, key, row) if emits else []
        if value is None:
            value = _new()
        before, now_ms = value[2], 0
        if self._processing_time:
            now_ms = value[3] = max(value[3], row.created_ms)
        watermark_ms = before
        if self._event_time:
            watermark_ms = value[2] = self._advanced(known, marks, before)
        at = Moment(row.time_ms, watermark_ms, now_ms, number)
        value[1], emits = self.logic.on_record(known.values, value[1], record, at)
        if watermark_ms > before:
            at.time_ms = watermark_ms
            value[1], more = self.logic.on_time(known.values, value[1], at)
            emits = emits + more if more else emits
        return value, self._numbered(emits, key, known.source, value) if emits else []

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        if value is None or self.stateless:
            return value, []
        known = self._known.get(key) or self._know(key)
        before, time_ms, due = value[2], 0, False
        if now_ms is not None and (self._processing_time or self.watermark.lost_after_ms is not None):
            time_ms = value[3] = max(value[3], now_ms)
            due = self._processing_time
        if self._event_time:
            value[2] = self._after_losses(known, value, marks, now_ms)
            if value[2] > before:
                time_ms, due = value[2], True
        if not due:
            return value, []
        value[1], emits = self.logic.on_time(known.values, value[1], Moment(time_ms, value[2], value[3]))
        return value, self._numbered(emits, key, known.source, value) if emits else []

    def open_ends(self, value: Any) -> list[int]:
        return self.logic.open_ends(value[1]) if value is not None else []

    def beside_windows(self, value: Any) -> Any:
        windowed: Any = self.logic  # nobody asks others
        return None if value is None else [value[0], windowed.beside_windows(value[1]), *value[2:]]

    def with_windows(self, beside: Any, value: Any) -> Any:
        if beside is None:
            return None
        windowed: Any = self.logic
        return [beside[0], windowed.with_windows(beside[1], None if value is None else value[1]), *beside[2:]]

    def _know(self, key: str) -> _Known:
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        values = self.keying.values(key) if self.keying is not None else (key,)
        known = self._known[key] = _Known(values, SourceId(f"{self.op}>{key}"))
        return known

    def _advanced(self, known: _Known, marks: Marks, before_ms: int) -> int:
        """The key's watermark. As long as the source that held it back has not come on, nor has the watermark."""
        slowest_ms = None if known.slowest is None else marks.get(known.slowest)
        if slowest_ms is not None and slowest_ms - self.watermark.delay_ms <= before_ms:
            return before_ms
        watermark_ms = self.watermark.of(marks)
        if watermark_ms <= before_ms:
            return before_ms
        known.slowest = self.watermark.held_back_by(marks, watermark_ms)
        return watermark_ms

    def _after_losses(self, known: _Known, value: list[Any], marks: Marks, now_ms: int | None) -> int:
        if now_ms is None or self.watermark.lost_after_ms is None:
            return self._advanced(known, marks, value[2])
        value[4] = value[4] or {}
        before_ms: int = value[2]
        return max(before_ms, self.watermark.without_lost(marks, value[4], now_ms))

    def _labelled(self, payload: bytes) -> tuple[int, Any]:
        label = payload[2 : payload.index(b'"', 2)].decode()
        for number, (name, schema) in enumerate(self.inputs):
            if name == label:
                return number, schema.decode(payload[len(label) + 4 : -1])
        raise ValueError(f"{self.op} has no input {label!r}")

    def _numbered(self, emits: Sequence[Emit], key: str, source: SourceId, value: list[Any]) -> list[Out]:
        first = value[0]
        value[0] += len(emits)
        return self._outs(emits, key, source, first)

    def _named(self, emits: Sequence[Emit], key: str, row: Row) -> list[Out]:
        source = SourceId(f"{row.source}>{key}")
        if len(emits) == 1:
            return self._outs(emits, key, source, row.seq)
        outs: list[Out] = []
        for nth, emit in enumerate(emits):
            # Of several from one row each kind is a line of its own, in which numbers grow.
            outs += self._outs([emit], key, SourceId(f"{row.source}.{nth}>{key}") if nth else source, row.seq)
        return outs

    def _outs(self, emits: Sequence[Emit], key: str, source: SourceId, first: int) -> list[Out]:
        outs: list[Out] = []
        for seq, emit in enumerate(emits, first):
            schema, targets = self.outputs[emit.output]
            record = schema.record_of(emit.record)
            encoded = encode(record)
            for target in targets:
                to = key if target.keying is None else target.keying.text(record)
                payload = target.payload(encoded) if target.label else encoded
                outs.append(Out(target.op, to, source, seq, emit.time_ms, payload))
        return outs


def _new() -> list[Any]:
    """[how many outputs, the logic's state, watermark, processing time, when sources were heard of]"""
    return [0, None, NEVER, 0, None]
