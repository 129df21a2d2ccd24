"""The handle that a processor of PySpark gets in `init`, and its state variables. All names are PySpark's.

A processor is one object for all keys. `Current` holds the state of the key that is being applied: variables read and
write it there, and it belongs to the key (see `processor.py` for how it looks). So nothing stays behind in here.

    value  get() is None if there is none
    list   in the order of appending
    map    in the order of insertion, or of the last update if it has a TTL; more than `MANY` entries without TTL are a
           `BigMap`, from then on in the order of their hashes. Spark promises no order; here it is the same in every
           replay.
    TTL    by processing time, for a value as a whole, for each element of a list, for each entry of a map. Writing
           starts it anew, reading does not. At `now >= written + TTL` it is gone.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

from peregrine.app import timers
from peregrine.app.schema import schema_of
from peregrine.app.user_values import Values
from peregrine.core.big_map import BigMap
from peregrine.errors import ConfigurationError

MANY = 512

Variables = dict[str, Any]  # name -> what is stored; a variable without content is not there


class Current:
    """The key that is being applied, and when."""

    __slots__ = ("now_ms", "timers", "variables")

    def __init__(self) -> None:
        self.variables: Variables = {}
        self.timers: timers.Timers | None = None  # None: no key is being applied
        self.now_ms = 0


class _Variable:
    def __init__(self, current: Current, name: str, values: Values, ttl_ms: int) -> None:
        self._current = current
        self._name = name
        self._values = values
        self._ttl_ms = ttl_ms

    def exists(self) -> bool:
        return self._name in self._current.variables

    def clear(self) -> None:
        self._current.variables.pop(self._name, None)

    # With a TTL, what is stored is (when it expires, that).
    def _stored(self, given: Any) -> Any:
        stored = self._values.store(given)
        return (self._current.now_ms + self._ttl_ms, stored) if self._ttl_ms else stored

    def _loaded(self, stored: Any) -> tuple[Any, ...]:
        return self._values.load(stored[1] if self._ttl_ms else stored)


class ValueState(_Variable):
    def get(self) -> tuple[Any, ...] | None:
        stored = self._current.variables.get(self._name)
        return None if stored is None else self._loaded(stored)

    def update(self, newValue: Any) -> None:
        self._current.variables[self._name] = self._stored(newValue)

    def expire(self) -> None:
        stored = self._current.variables.get(self._name)
        if stored is not None and stored[0] <= self._current.now_ms:
            self.clear()


class ListState(_Variable):
    def get(self) -> Iterator[tuple[Any, ...]]:
        return iter([self._loaded(each) for each in self._current.variables.get(self._name, ())])

    def put(self, newState: list[Any]) -> None:
        self._current.variables[self._name] = self._all(newState)

    def appendValue(self, newState: Any) -> None:
        self._current.variables.setdefault(self._name, []).append(self._stored(newState))

    def appendList(self, newState: list[Any]) -> None:
        added = self._all(newState)
        self._current.variables.setdefault(self._name, []).extend(added)

    def _all(self, given: list[Any]) -> list[Any]:
        stored = [self._stored(each) for each in given]
        if not stored:
            raise ConfigurationError(
                f"an empty list for the list state {self._name!r}", "give at least one value, or use clear()"
            )
        return stored

    def expire(self) -> None:
        stored = self._current.variables.get(self._name, ())
        gone = 0  # time only grows, so what expires first is in front
        while gone < len(stored) and stored[gone][0] <= self._current.now_ms:
            gone += 1
        if gone and gone == len(stored):
            self.clear()
        elif gone:
            del stored[:gone]


class MapState(_Variable):
    def __init__(self, current: Current, name: str, keys: Values, values: Values, ttl_ms: int) -> None:
        super().__init__(current, name, values, ttl_ms)
        self._keys = keys

    def getValue(self, key: Any) -> tuple[Any, ...] | None:
        entries = self._current.variables.get(self._name)
        stored = None if entries is None else entries.get(self._keys.text(key))
        return None if stored is None else self._loaded(stored)

    def containsKey(self, key: Any) -> bool:
        entries = self._current.variables.get(self._name)
        return entries is not None and self._keys.text(key) in entries

    def updateValue(self, key: Any, value: Any) -> None:
        text, stored = self._keys.text(key), self._stored(value)
        entries = self._current.variables.setdefault(self._name, {})
        if self._ttl_ms:
            entries.pop(text, None)  # to the end: what expires first is in front
        entries[text] = stored
        if not self._ttl_ms and type(entries) is dict and len(entries) > MANY:
            self._current.variables[self._name] = BigMap(entries)

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        return ((self._keys.of_text(text), self._loaded(stored)) for text, stored in self._items())

    def keys(self) -> Iterator[tuple[Any, ...]]:
        return (self._keys.of_text(text) for text, _ in self._items())

    def values(self) -> Iterator[tuple[Any, ...]]:
        return (self._loaded(stored) for _, stored in self._items())

    def _items(self) -> Iterator[tuple[str, Any]]:
        """Entries as they are now: the map may be changed while they are read."""
        entries = self._current.variables.get(self._name, {})
        return iter(entries.items() if isinstance(entries, BigMap) else list(entries.items()))

    def removeKey(self, key: Any) -> None:
        entries = self._current.variables.get(self._name)
        if entries is not None and entries.pop(self._keys.text(key), None) is not None and not entries:
            self.clear()

    def expire(self) -> None:
        entries = self._current.variables.get(self._name, {})
        for text, stored in list(entries.items()) if _first_expires(entries, self._current.now_ms) else ():
            if stored[0] > self._current.now_ms:
                return
            del entries[text]
        if not entries:
            self.clear()


S = TypeVar("S", ValueState, ListState, MapState)


def _first_expires(entries: dict[str, Any], now_ms: int) -> bool:
    return bool(entries) and next(iter(entries.values()))[0] <= now_ms


class Handle:
    """PySpark's `StatefulProcessorHandle`."""

    def __init__(self, time_mode: str, current: Current) -> None:
        self.declared: dict[str, str] = {}  # variable -> what it is, for people
        self.expiring: list[ValueState | ListState | MapState] = []  # variables with a TTL
        self.deleted: list[str] = []
        self._time_mode = time_mode
        self._current = current
        self._in_init = True

    def finish_init(self) -> None:
        self._in_init = False
        self.deleted = [name for name in self.deleted if name not in self.declared]

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ValueState:
        values = Values(schema_of(schema))
        ttl_ms = self._declare(stateName, f"value ({values.schema.ddl})", ttlDurationMs)
        return self._expiring(ValueState(self._current, stateName, values, ttl_ms), ttl_ms)

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ListState:
        values = Values(schema_of(schema))
        ttl_ms = self._declare(stateName, f"list of ({values.schema.ddl})", ttlDurationMs)
        return self._expiring(ListState(self._current, stateName, values, ttl_ms), ttl_ms)

    def getMapState(
        self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: int | None = None
    ) -> MapState:
        keys, values = Values(schema_of(userKeySchema)), Values(schema_of(valueSchema))
        ttl_ms = self._declare(stateName, f"map from ({keys.schema.ddl}) to ({values.schema.ddl})", ttlDurationMs)
        return self._expiring(MapState(self._current, stateName, keys, values, ttl_ms), ttl_ms)

    def deleteIfExists(self, stateName: str) -> None:
        """The variable is dropped from each key when that key is next applied."""
        self._must_be_in_init(f"deleteIfExists({stateName!r})")
        self.deleted.append(stateName)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        timers.register(self._timers("registerTimer"), int(expiryTimestampMs))

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        timers.delete(self._timers("deleteTimer"), int(expiryTimestampMs))

    def listTimers(self) -> Iterator[int]:
        return iter(list(self._timers("listTimers")))

    def _timers(self, called: str) -> timers.Timers:
        if self._time_mode == "none":
            raise ConfigurationError(
                f"{called}() in a processor without time", 'give it time_mode="event" or time_mode="processing"'
            )
        if self._current.timers is None:
            raise ConfigurationError(f"{called}() while no key is being applied", "call it from a handle... method")
        return self._current.timers

    def _declare(self, name: str, what: str, ttl_ms: int | None) -> int:
        self._must_be_in_init(f"the state {name!r} is declared")
        if name in self.declared:
            raise ConfigurationError(f"two states of a processor are named {name!r}", "rename one of them")
        if ttl_ms and self._time_mode != "processing":
            raise ConfigurationError(
                f"the state {name!r} has a TTL, but the time mode is {self._time_mode!r}",
                'give the processor time_mode="processing", as Spark asks for too',
            )
        if ttl_ms is not None and ttl_ms < 0:
            raise ConfigurationError(f"the TTL of the state {name!r} is {ttl_ms} ms", "give a positive number")
        self.declared[name] = what + (f", TTL {ttl_ms} ms" if ttl_ms else "")
        return ttl_ms or 0

    def _expiring(self, variable: S, ttl_ms: int) -> S:
        if ttl_ms:
            self.expiring.append(variable)
        return variable

    def _must_be_in_init(self, what: str) -> None:
        if not self._in_init:
            raise ConfigurationError(f"{what} outside of init()", "do it in init()")
