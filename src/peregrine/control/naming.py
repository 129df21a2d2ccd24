"""The names that users give (operators, keys, sources, results), and what they stand for in what was compiled.

With several applications a name is enough as long as only one of them has it; otherwise it is `app/name`.
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


class Names:
    def __init__(self, compiled: list[Compiled]) -> None:
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

    def operator(self, name: str) -> OpId:
        """One that has a place."""
        found = [op for op in self.specs if name in (op, op.partition("/")[2])]
        known = [op.partition("/")[2] for op, spec in self.specs.items() if not (spec.sink or spec.inline)]
        if len(found) != 1:
            raise UnknownName("operator" if not found else "operator (of which application?)", name, known)
        spec = self.specs[found[0]]
        if spec.inline or spec.sink:
            raise ConfigurationError(
                f"{name} has no place of its own: it {'runs within what feeds it' if spec.inline else 'is a result'}",
                f"name an operator that has one: {', '.join(known)}",
            )
        return found[0]

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

    def result(self, name: str) -> tuple[OpId, Schema]:
        every = {f"{each.name}/{result}": found for each in self._compiled for result, found in each.results.items()}
        found = [each for full, each in every.items() if name in (full, full.partition("/")[2])]
        if len(found) != 1:
            raise UnknownName("result" if not found else "result (of which application?)", name, list(every))
        return found[0]

    def sources(self) -> dict[str, tuple[Ingress, ...]]:
        """What a device may send to: applications that have a source of the same name all get its records."""
        found: dict[str, tuple[Ingress, ...]] = {}
        for each in self._compiled:
            for source, ingress in each.sources.items():
                found[source] = (*found.get(source, ()), ingress)
                found[f"{each.name}/{source}"] = (ingress,)
        return found


def check_code(app: App) -> None:
    """Can what the user wrote be sent to where it runs?"""
    from peregrine.spark.registry import dumps

    for node in app.nodes:
        for written in node.code:
            check_pickles(f"{node.name} ({node.where})", written, dumps)
