"""How a query of Spark gets on: its last batch, what each part of it took, and why it failed if it did.

Spark offers to call a listener after every trigger. A Python listener was measured: the event is fetched piece by piece
out of Spark's process, which took 12 ms of Python's time for each trigger and made triggers of 40 ms last 60. So the
last progress is asked for instead, when somebody wants to know and at most once a second: 1 to 3 ms.
"""

# pyspark is optional, also where types are checked.
# mypy: disable-error-code="import-not-found"

import time
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

ASK_EVERY_S = 1.0
REASON_CHARACTERS = 500


class Progress(msgspec.Struct, frozen=True):
    """Of one query. `rows` are those of its source: of a host, slices of logs. -1: no batch has ended yet."""

    query: str
    running: bool
    failure: str = ""
    batch: int = -1
    ended_at: str = ""  # as Spark writes it, in UTC
    rows: int = 0
    rows_per_s: float = 0.0
    trigger_ms: int = 0
    parts_ms: dict[str, int] = {}
    groups: int = 0  # that have state
    state_bytes: int = 0


class ProgressListener:
    def __init__(self) -> None:
        self._asked_s = -ASK_EVERY_S
        self._last: Progress | None = None
        self._of: object = None

    def hear(self, query: "StreamingQuery") -> Progress:
        """The query may be another one than last time: one that was started again."""
        now_s = time.monotonic()
        if self._last is None or query is not self._of or now_s - self._asked_s >= ASK_EVERY_S:
            self._last = _progress(query)
            self._asked_s, self._of = now_s, query
        return self._last


def _progress(query: "StreamingQuery") -> Progress:
    failure = query.exception() if not query.isActive else None
    progress = Progress(
        query.name or str(query.id), bool(query.isActive), "" if failure is None else str(failure)[:REASON_CHARACTERS]
    )
    last = query.lastProgress
    return progress if last is None else told(progress, last)


def told(progress: Progress, last: Any) -> Progress:
    """What Spark says of the last batch; a batch without rows may lack some of it."""
    stores = last.get("stateOperators") or []
    return msgspec.structs.replace(
        progress,
        batch=int(last["batchId"]),
        ended_at=str(last["timestamp"]),
        rows=int(last["numInputRows"]),
        rows_per_s=float(last.get("inputRowsPerSecond") or 0.0),
        trigger_ms=int(last["durationMs"].get("triggerExecution", 0)),
        parts_ms={part: int(took) for part, took in last["durationMs"].items() if part != "triggerExecution"},
        groups=sum(int(store["numRowsTotal"]) for store in stores),
        state_bytes=sum(int(store["memoryUsedBytes"]) for store in stores),
    )
