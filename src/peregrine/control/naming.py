"""The names that users give (operators, keys, sources, results), and what they stand for in what was compiled.

With several applications a name is enough as long as it stands for one thing; otherwise it is `app/name`. An operator
that runs for several applications has the names that all of them give it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from peregrine.app.checks import check_pickles
from peregrine.app.compile import Compiled, Ingress
from peregrine.app.model import App
from peregrine.app.plan import TransformNode
from peregrine.app.schema import Keying, Schema
from peregrine.app.shell import Target
from peregrine.core.keyspace import KeySet
from peregrine.core.operator import Operator, OpSpec
from peregrine.errors import ConfigurationError, UnknownName
from peregrine.types import OpId

Wanted = Iterable[Any] | KeySet | None  # keys as users name them, or None: all
At = Mapping[str, Mapping[str, Wanted]]  # operator -> site -> keys


class Names:
    def __init__(self, compiled: list[Compiled], twins: Mapping[OpId, OpId] | None = None) -> None:
        """`twins`: operators that do not run, each with the equal one of another application that runs for it."""
        names = [each.name for each in compiled]
        if not names or len(set(names)) < len(names):
            raise ConfigurationError(f"applications {names}", "give at least one, and each a name of its own")
        self.apps = names
        self.specs: dict[OpId, OpSpec] = {}
        self.operators: dict[OpId, Operator] = {}
        self.transforms: dict[OpId, tuple[TransformNode, tuple[Target, ...]]] = {}
        self._keyings: dict[OpId, Keying | None] = {}
        for each in compiled:
            self.specs |= each.specs
            self.operators |= each.operators
            self.transforms |= each.transforms
            self._keyings |= each.keyings
        self._compiled = compiled
        self.twins = dict(twins or {})
        self._runs = {op: op for op in self.specs} | self.twins

    def operator(self, name: str) -> OpId:
        """One that has a place: the one that runs, by whichever of its names."""
        found = {runs for op, runs in self._runs.items() if _is_called(op, name)}
        placed = (op for op, runs in self._runs.items() if not (self.specs[runs].sink or self.specs[runs].inline))
        known = list(dict.fromkeys(op.partition("/")[2] for op in placed))
        if len(found) > 1:
            raise UnknownName("operator (of which application?)", name, list(found))
        if not found:
            raise UnknownName("operator", name, known)
        (op,) = found
        spec = self.specs[op]
        if spec.inline or spec.sink:
            raise ConfigurationError(
                f"{name} has no place of its own: it {'runs within what feeds it' if spec.inline else 'is a result'}",
                f"name an operator that has one: {', '.join(known)}",
            )
        return op

    def apps_of(self, op: OpId) -> list[str]:
        """The applications for which an operator runs."""
        return sorted({each.partition("/")[0] for each, runs in self._runs.items() if runs == op})

    def key(self, op: OpId, key: Any) -> str:
        keying = self._keyings[op]
        return keying.text_of(key) if keying is not None else str(key)

    def keys(self, op: OpId, wanted: Wanted) -> KeySet:
        groups = self.specs[op].groups
        if wanted is None:
            return KeySet.everything(groups)
        if isinstance(wanted, KeySet):
            return wanted
        return KeySet.of_keys(groups, [self.key(op, key) for key in wanted])

    def shares(self, op: OpId, sites: Mapping[str, Wanted]) -> Iterator[tuple[str, KeySet]]:
        """Named keys first: all others are all that are left."""
        left = KeySet.everything(self.specs[op].groups)
        for site, wanted in sorted(sites.items(), key=lambda each: each[1] is None):
            keys = left if wanted is None else self.keys(op, wanted)
            left -= keys
            yield site, keys

    def begins(self, op: OpId, at: At) -> set[tuple[str, KeySet]]:
        """Where keys of an operator begin, by whichever of its names `at` says it."""
        return {each for name, sites in at.items() if _is_called(op, name) for each in self.shares(op, sites)}

    def beginnings(self, at: At) -> list[tuple[OpId, KeySet, str]]:
        """All that `at` says. Of an operator that is shared it may say the same by several names."""
        found = (
            (op, keys, site)
            for name, sites in at.items()
            for op in [self.operator(name)]
            for site, keys in self.shares(op, sites)
        )
        return list(dict.fromkeys(found))

    def result(self, name: str) -> tuple[OpId, Schema]:
        every = {f"{each.name}/{result}": found for each in self._compiled for result, found in each.results.items()}
        found = [each for full, each in every.items() if name in (full, full.partition("/")[2])]
        if len(found) != 1:
            raise UnknownName("result" if not found else "result (of which application?)", name, list(every))
        return found[0]

    def sources(self) -> dict[str, tuple[Ingress, ...]]:
        """What a device may send to: applications that have a source of the same name all get its records. Those that
        share what it feeds get them once, and none of them gets any alone.
        """
        joint = self._joint()
        found: dict[str, tuple[Ingress, ...]] = {}
        for each in self._compiled:
            for source, ingress in each.sources.items():
                if ingress.targets:  # else all that it fed is shared
                    found[source] = (*found.get(source, ()), ingress)
                if (each.name, source) not in joint:
                    found[f"{each.name}/{source}"] = (ingress,)
        return found

    def _joint(self) -> set[tuple[str, str]]:
        """(application, source) where others share what the source feeds; they have it by the same name."""
        found: set[tuple[str, str]] = set()
        for each in self._compiled:
            for source, ingress in each.sources.items():
                for target in ingress.targets:
                    apps = self.apps_of(target.op)
                    found |= {(app, source) for app in apps if len(apps) > 1}
        return found


def _is_called(op: OpId, name: str) -> bool:
    return name in (op, op.partition("/")[2])


def listed(at: At | None) -> At:
    """Keys that come from an iterator are there once only."""
    return {
        name: {
            site: wanted if wanted is None or isinstance(wanted, KeySet) else list(wanted)
            for site, wanted in sites.items()
        }
        for name, sites in (at or {}).items()
    }


def check_code(app: App) -> None:
    """Can what the user wrote be sent to where it runs?"""
    from peregrine.spark.registry import dumps

    for node in app.nodes:
        for written in node.code:
            check_pickles(f"{node.name} ({node.where})", written, dumps)
