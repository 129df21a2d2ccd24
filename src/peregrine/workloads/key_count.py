"""Key count (Spacker V-A): a counter for each key, beside a state of any size of which a row changes one slot.

Rows are those of `generate.key_count`, which says how many keys are touched and how unevenly. Rows of a key must come
from one sender, in order.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from peregrine import App
from peregrine.app.logic import Emit, Key, Moment, Timeless
from peregrine.core.big_map import BigMap
from peregrine.workloads.generate.key_count import TOUCHES

RESULTS = "results"


def key_count(
    senders: Iterable[str] | None = None, *, state_bytes: int = 1 << 20, slots: int = 16, groups: int = 16
) -> App:
    """For each row how many rows its key and its slot have seen. A key with all of its slots holds `state_bytes`."""
    app = App("key_count", groups)
    touches = app.source("touches", TOUCHES, key="key", event_time="at_ms", senders=senders)
    told = "key bigint, count bigint, slot bigint, version bigint"
    touches.key_by("key").connect("count", Counter(state_bytes // slots), schema=told).to(RESULTS)
    return app


APPS: Mapping[str, Callable[..., App]] = {"key_count": key_count}


@dataclass(frozen=True)
class Counter(Timeless):
    """State: [rows of the key, slot -> (its version, so many bytes)]. Of this map only what changed is written."""

    slot_bytes: int

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        count, slots = state or (0, BigMap())
        slot = str(record.slot)
        version = slots[slot][0] + 1 if slot in slots else 1
        # Another content for each version, so that a slot that was changed has to be written again.
        pattern = b"%d/%d/%d;" % (key[0], record.slot, version)
        slots[slot] = [version, (pattern * (self.slot_bytes // len(pattern) + 1))[: self.slot_bytes]]
        told = {"key": key[0], "count": count + 1, "slot": record.slot, "version": version}
        return [count + 1, slots], [Emit(told, at.time_ms)]
