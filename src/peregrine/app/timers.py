"""Timers of a key, and the objects by which a processor reads the time. All names are PySpark's.

    expired  expiry <= watermark (event time) or <= now (processing time)
    order    by expiry
    deleted  after `handleExpiredTimer` has finished: while it runs, `listTimers` still lists its timer

The timers that fire together are settled before the first of them does. One that a handler registers for the past
fires with the next record or clock of the key, and one that it deletes has already been chosen. Spark does the same
with the timers of a batch, so a processor that relies on it, or works around it, behaves alike here.
"""

from bisect import bisect_left, bisect_right

Timers = list[int]  # expiries, ascending, each once


class TimerValues:
    __slots__ = ("_now_ms", "_watermark_ms")

    def __init__(self, now_ms: int = -1, watermark_ms: int = -1) -> None:
        self._now_ms = now_ms
        self._watermark_ms = watermark_ms

    def getCurrentProcessingTimeInMs(self) -> int:
        return self._now_ms

    def getCurrentWatermarkInMs(self) -> int:
        return self._watermark_ms


class ExpiredTimerInfo:
    __slots__ = ("_expiry_ms",)

    def __init__(self, expiry_ms: int = -1) -> None:
        self._expiry_ms = expiry_ms

    def getExpiryTimeInMs(self) -> int:
        return self._expiry_ms


def register(timers: Timers, expiry_ms: int) -> None:
    at = bisect_left(timers, expiry_ms)
    if at == len(timers) or timers[at] != expiry_ms:
        timers.insert(at, expiry_ms)


def delete(timers: Timers, expiry_ms: int) -> None:
    at = bisect_left(timers, expiry_ms)
    if at < len(timers) and timers[at] == expiry_ms:
        del timers[at]


def expired(timers: Timers, by_ms: int) -> Timers:
    return timers[: bisect_right(timers, by_ms)]
