"""Drives a processor as the shell does, one record at a time; each state is written as bytes and read again."""

from collections.abc import Mapping, Sequence
from typing import Any

from peregrine.app.logic import NEVER, Emit, Key, Moment
from peregrine.app.processor import ProcessorLogic
from peregrine.app.schema import Keying, schema_of
from peregrine.core.large import Sealer, unseal


class Drive:
    def __init__(self, processor: Any, input: str, output: str, key: Sequence[str] = ("id",), **options: Any) -> None:
        self.schema = schema_of(input)
        self.keying = Keying(self.schema, key)
        self.logic = ProcessorLogic(processor, input, output, self.keying, **options)
        self.states: dict[Key, bytes] = {}
        self.emitted: list[Emit] = []

    def row(
        self, fields: Mapping[str, Any], time_ms: int = 0, watermark_ms: int = NEVER, now_ms: int = 0
    ) -> list[tuple[Any, ...]]:
        """What one record gives, and what the time that it brings gives after it."""
        record = self.schema.record_of(fields)
        key = self.keying.values(self.keying.text(record))
        state, emits = self.logic.on_record(key, self.state(key), record, Moment(time_ms, watermark_ms, now_ms))
        self._keep(key, state)
        return self._told(emits)

    def time(self, key: Key, watermark_ms: int = NEVER, now_ms: int = 0) -> list[tuple[Any, ...]]:
        at = Moment(max(watermark_ms, now_ms), watermark_ms, now_ms)
        state, emits = self.logic.on_time(key, self.state(key), at)
        self._keep(key, state)
        return self._told(emits)

    def state(self, key: Key) -> Any:
        return unseal(self.states[key], None) if key in self.states else None

    def _keep(self, key: Key, state: Any) -> None:
        self.states.pop(key, None)
        if state is not None:
            self.states[key] = Sealer(None).seal(state)[0]

    def _told(self, emits: list[Emit]) -> list[tuple[Any, ...]]:
        self.emitted += emits
        return [tuple(emit.record) for emit in emits]
