"""A strategy: the three functions of Spacker III-B, each replaceable, and how users name one.

    "adaptive"                          the default: decides by what it measures (plan/adaptive.py)
    "hot-first, chunks:3, ratio:0.5"    built-in functions by name; what is left out is random, all-at-once and none
    "my_module:MyStrategy"              a class of the user's with the three methods, or an object of it

A strategy says what is wise. Whatever it answers, every key moves exactly once: `order_of` and `chunks_of` see to it.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, Protocol

from peregrine.errors import ConfigurationError, PlanError, UnknownName
from peregrine.plan.chunking import USUAL_PACE, BySize, ByTime, Chunks, NChunks, Pace, all_at_once
from peregrine.plan.metrics import Metrics, Unit
from peregrine.plan.orders import RANDOM, Shuffled, by_arrival, hot_first
from peregrine.plan.replicas import ConsistentHashing, Ratio, Replicas, no_replicas
from peregrine.types import PlaceId

Prioritise = Callable[[Sequence[Unit], Metrics], Sequence[Unit]]
Chunk = Callable[[Sequence[Unit], Metrics], Chunks]
Replicate = Callable[[Sequence[Unit], Metrics], Replicas]


class Strategy(Protocol):
    """Spacker's algorithm 1. Keys are texts, or numbers of groups where there are too many keys."""

    def prioritise(self, keys: Sequence[Unit], metrics: Metrics, /) -> Sequence[Unit]:
        """The same keys in the order in which they are to go."""
        ...

    def chunk(self, order: Sequence[Unit], metrics: Metrics, /) -> Chunks:
        """The same order cut into pieces that go one after the other."""
        ...

    def replicate(self, keyspace: Sequence[Unit], metrics: Metrics, /) -> Replicas:
        """At which places each key is to have replicas; a key that is left out has none."""
        ...


@dataclass(frozen=True)
class Fixed:
    """Three functions that do not depend on each other."""

    prioritise: Prioritise = RANDOM
    chunk: Chunk = all_at_once
    replicate: Replicate = no_replicas


# --- by name ---

_WHOLE, _NUMBER = r"[1-9][0-9]*", r"[0-9]+(?:\.[0-9]+)?"
# name -> which of the three it is, what may stand behind the colon, and what it makes of that
_BUILT_IN: Mapping[str, tuple[str, str, Callable[[str, Pace], Any]]] = {
    "hot-first": ("prioritise", "", lambda _, pace: hot_first),
    "by-arrival": ("prioritise", "", lambda _, pace: by_arrival),
    "random": ("prioritise", "[0-9]*", lambda seed, pace: Shuffled(int(seed or 0))),
    "all-at-once": ("chunk", "", lambda _, pace: all_at_once),
    "chunks": ("chunk", _WHOLE, lambda count, pace: NChunks(int(count))),
    "bytes": ("chunk", _WHOLE, lambda limit, pace: BySize(int(limit))),
    "ms": ("chunk", _NUMBER, lambda limit, pace: ByTime(float(limit), pace)),
    "none": ("replicate", "", lambda _, pace: no_replicas),
    "ratio": ("replicate", _NUMBER, lambda share, pace: Ratio(float(share))),
    "consistent-hashing": ("replicate", f"(?:{_WHOLE})?", lambda count, pace: ConsistentHashing(int(count or 1))),
}
_EXAMPLES = "for example: adaptive, or hot-first, chunks:3, ratio:0.5, or my_module:MyStrategy"
_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def built_in(text: str, pace: Pace = USUAL_PACE) -> Fixed:
    """Functions by name, separated by commas. `pace` is what chunks by time are cut with."""
    chosen: dict[str, Any] = {}
    for item in (part.strip() for part in text.split(",")):
        name, _, argument = item.partition(":")
        if name not in _BUILT_IN:
            raise UnknownName("strategy", item, [*_BUILT_IN, "adaptive", "module:name"])
        knob, form, make = _BUILT_IN[name]
        if knob in chosen:
            raise ConfigurationError(f"strategy {text!r} says twice how to {knob}", f"say it once; {_EXAMPLES}")
        if not re.fullmatch(form, argument):
            wanted = f"write {name}:<number>" if form else f"{name} takes no number"
            raise ConfigurationError(f"strategy {item!r} cannot be read", f"{wanted}; {_EXAMPLES}")
        chosen[knob] = make(argument, pace)
    return Fixed(**chosen)


def loaded(path: str) -> Strategy:
    """What `module:name` names: a strategy, or a class that makes one without arguments."""
    module, _, name = path.partition(":")
    try:
        found = getattr(import_module(module), name)
    except ImportError as error:
        raise ConfigurationError(
            f"strategy {path!r}: module {module!r} cannot be imported: {error}",
            "put the module on the path of this Python, for example with PYTHONPATH",
        ) from error
    except AttributeError as error:
        raise ConfigurationError(
            f"strategy {path!r}: module {module!r} has no {name!r}", "name a class or an object of it"
        ) from error
    try:
        made = found() if isinstance(found, type) else found
    except TypeError as error:
        raise ConfigurationError(
            f"strategy {path!r} cannot be made: {error}", "give its arguments defaults, or name an object of it"
        ) from error
    return checked(made, path)


def checked(made: Any, what: str) -> Strategy:
    lacks = [each.name for each in fields(Fixed) if not callable(getattr(made, each.name, None))]
    if lacks:
        raise ConfigurationError(
            f"strategy {what!r} lacks {', '.join(lacks)}",
            "give it the three methods of peregrine.plan.strategy.Strategy",
        )
    strategy: Strategy = made
    return strategy


def is_path(text: str) -> bool:
    return _PATH.fullmatch(text) is not None and text.partition(":")[0] not in _BUILT_IN


# --- asking one, whoever wrote it ---


def order_of(strategy: Strategy, units: Sequence[Unit], metrics: Metrics) -> list[Unit]:
    order = list(strategy.prioritise(units, metrics))
    _same(strategy, "prioritise", units, order)
    return order


def chunks_of(strategy: Strategy, order: Sequence[Unit], metrics: Metrics) -> list[list[Unit]]:
    chunks = [list(chunk) for chunk in strategy.chunk(order, metrics)]
    _same(strategy, "chunk", order, [unit for chunk in chunks for unit in chunk])
    return [chunk for chunk in chunks if chunk]


def replicas_of(strategy: Strategy, keyspace: Sequence[Unit], metrics: Metrics) -> dict[Unit, tuple[PlaceId, ...]]:
    """Without those at the place where the key lives."""
    found = strategy.replicate(keyspace, metrics)
    unknown = set(found).difference(keyspace)
    if unknown:
        raise PlanError(
            f"{_named(strategy)}.replicate names {_some(unknown)}, which it was not given", "name keys of the keyspace"
        )
    for place in (place for places in found.values() for place in places):
        if place not in metrics.places:
            raise UnknownName("place for a replica", place, list(metrics.places))
    kept = {unit: tuple(p for p in places if p != metrics.load(unit).place) for unit, places in found.items()}
    return {unit: places for unit, places in kept.items() if places}


def _same(strategy: Strategy, function: str, given: Sequence[Unit], answered: Sequence[Unit]) -> None:
    wanted, got = Counter(given), Counter(answered)
    if wanted != got:
        missing, extra = wanted - got, got - wanted
        what = f"left out {_some(missing)}" if missing else f"gave {_some(extra)} too often, or was not given it"
        raise PlanError(f"{_named(strategy)}.{function} {what}", "return every key that it was given exactly once")


def _some(units: Any) -> str:
    names = sorted(map(str, units))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _named(strategy: Strategy) -> str:
    return type(strategy).__name__
