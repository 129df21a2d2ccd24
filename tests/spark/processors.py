"""Ordinary processors, as one writes them for PySpark: they know nothing of Peregrine."""

import datetime as dt
import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StringType, StructField, StructType

cloudpickle.register_pickle_by_value(sys.modules[__name__])

READINGS = "id string, value bigint"
TIMED = "id string, at timestamp, value bigint"
ALL_TYPES = (
    "id string, at timestamp, day date, price decimal(10,2), tags array<string>, props map<string,bigint>, "
    "pos struct<x:double,y:double>, n int, raw binary, flag boolean"
)


class RunningCount(StatefulProcessor):
    """How many rows, and their sum. Unpacks a row, and asks for its type."""

    OUTPUT = "id string, count bigint, sum bigint"

    def init(self, handle: StatefulProcessorHandle) -> None:
        schema = StructType([StructField("count", LongType()), StructField("sum", LongType())])
        self.state = handle.getValueState("totals", schema)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        count, total = self.state.get() if self.state.exists() else (0, 0)
        for row in rows:
            assert isinstance(row, Row) and row.asDict() == {"id": row["id"], "value": row[1]}
            _, value = row
            count, total = count + 1, total + value
        self.state.update((count, total))
        yield Row(sum=total, count=count, id=key[0])

    def handleInitialState(self, key: Any, initialState: Row, timerValues: Any) -> None:
        count, total = self.state.get() or (0, 0)
        self.state.update((count + initialState.count_, total + initialState["sum"]))


class Sessions(StatefulProcessor):
    """A session ends when a key has been silent for 10 s of event time."""

    OUTPUT = "id string, began_ms bigint, ended_ms bigint, rows bigint"

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.session = handle.getValueState("session", "began_ms bigint, last_ms bigint, rows bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            at_ms = int(row.at.timestamp() * 1000)
            began, last, count = self.session.get() or (at_ms, at_ms, 0)
            self.session.update((min(began, at_ms), max(last, at_ms), count + 1))
        for timer in self.handle.listTimers():
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(max(last, at_ms) + 10_000)
        return iter([])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        began, last, count = self.session.get()
        assert expiredTimerInfo.getExpiryTimeInMs() == last + 10_000 <= timerValues.getCurrentWatermarkInMs()
        self.session.clear()
        yield Row(id=key[0], began_ms=began, ended_ms=last + 10_000, rows=count)


class Alarms(StatefulProcessor):
    """A timer for the value of each row. What a handler registers and deletes shows when timers are looked up."""

    OUTPUT = "id string, fired_ms bigint, listed string"

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self.handle.registerTimer(row.value)
        return iter([])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        fired_ms = expiredTimerInfo.getExpiryTimeInMs()
        if fired_ms == 10_000:
            self.handle.deleteTimer(20_000)
            self.handle.registerTimer(5_000)
        yield Row(id=key[0], fired_ms=fired_ms, listed=str(sorted(self.handle.listTimers())))


class Baskets(StatefulProcessor):
    """A map by value, of how often it came, and a list of the last three values."""

    OUTPUT = "id string, counts string, last string"

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.counts = handle.getMapState("counts", StructType([StructField("value", StringType())]), "n int")
        self.last = handle.getListState("last", "value bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            if row.value < 0:
                self.counts.removeKey((str(-row.value),))
                self.last.clear()
                continue
            item = (str(row.value),)
            (n,) = self.counts.getValue(item) if self.counts.containsKey(item) else (0,)
            self.counts.updateValue(item, (n + 1,))
            self.last.appendValue((row.value,))
            kept = list(self.last.get())
            if len(kept) > 3:
                self.last.put(kept[-3:])
        pairs = sorted((k, n) for (k,), (n,) in self.counts.iterator())
        assert sorted(k for (k,) in self.counts.keys()) == [k for k, _ in pairs]  # noqa: SIM118
        last = [value for (value,) in self.last.get()] if self.last.exists() else None
        yield Row(id=key[0], counts=str(pairs), last=str(last))


class Expiring(StatefulProcessor):
    """Counts in states that live for a millisecond, and for a day."""

    OUTPUT = "id string, short bigint, long bigint, listed bigint, mapped bigint, watermark bigint"

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.short = handle.getValueState("short", "n bigint", ttlDurationMs=1)
        self.long = handle.getValueState("long", "n bigint", ttlDurationMs=86_400_000)
        self.listed = handle.getListState("listed", "n bigint", 1)
        self.mapped = handle.getMapState("mapped", "k bigint", "n bigint", 1)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        assert timerValues.getCurrentProcessingTimeInMs() > 0
        for row in rows:
            for state in (self.short, self.long):
                (n,) = state.get() or (0,)
                state.update((n + 1,))
            self.listed.appendValue((row.value,))
            self.mapped.updateValue((row.value,), (1,))
        listed, mapped = len(list(self.listed.get())), len(list(self.mapped.values()))
        counts = {"short": self.short.get()[0], "long": self.long.get()[0], "listed": listed, "mapped": mapped}
        yield Row(id=key[0], **counts, watermark=timerValues.getCurrentWatermarkInMs())


class Echo(StatefulProcessor):
    """Rows of all types as they are, and what a row and a state look like from inside."""

    OUTPUT = ALL_TYPES + ", told string"

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.seen = handle.getValueState(
            "seen",
            "at timestamp, pos struct<x:double,y:double>, props map<string,bigint>, tags array<string>, day date",
        )

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        times = timerValues.getCurrentProcessingTimeInMs(), timerValues.getCurrentWatermarkInMs()
        for row in rows:
            seen = self.seen.get()
            state = "" if seen is None else f"{seen[0]} {seen[1].x} {seen[1]['y']} {seen[2:]}"
            at, pos = dt.datetime(2026, 1, 2, 3, 4, 5, 6), Row(x=1.5, y=None)
            self.seen.update((at, pos, {"a": 1}, ["t"], row.day))
            yield Row(**row.asDict(), told=f"{key} {times} {row.at} {list(row)[2:]} {state}")


class PandasTotals(StatefulProcessor):
    """The sum of a key's values, and what is told when it has been silent for 10 s of event time."""

    OUTPUT = "id string, total double, types string"

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.total = handle.getValueState("total", "total double")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        (total,) = self.total.get() or (0.0,)
        types = ""
        for frame in rows:
            total += frame["value"].fillna(100).sum()
            types = f"{list(frame.columns)} {[str(each) for each in frame.dtypes]}"
            self.handle.registerTimer(int(frame["at"].max().value // 1_000_000) + 10_000)
        self.total.update((total,))
        yield pd.DataFrame({"types": [types], "total": [total], "id": [key[0]]})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        (total,) = self.total.get()
        yield pd.DataFrame({"id": key, "total": total, "types": str(expiredTimerInfo.getExpiryTimeInMs())})

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self.total.update((float(initialState["start"].iloc[0]),))
